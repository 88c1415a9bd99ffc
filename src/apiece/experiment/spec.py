"""The spec of an experiment: what, on what, how long, how often. TOML in, TOML out; a wrong key names its neighbour."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pydantic

from apiece.client.schedule import SCHEDULES
from apiece.errors import UserError, suggest
from apiece.experiment.variant import Variant, fill_in, name_rows, variant_of
from apiece.files import read_toml
from apiece.models import MODELS

BASELINES = ("local", "fed_avg", "ftfa")  # stand beside every method: alone, shared, shared and fine-tuned


class SpecTable(pydantic.BaseModel):
    """A table of the spec: unknown keys are errors, values are checked and never guessed."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSpec(SpecTable):
    """Which federation: a source by name, a saved federation, or the user's own file or folder."""

    source: str = "digits"
    options: dict[str, Any] = {}
    new_clients: float = pydantic.Field(0.1, ge=0, lt=1)
    seed: int = pydantic.Field(0, ge=0)


class AdapterSpec(SpecTable):
    """Low-rank adapters beside the model's weights, as a part of it called "adapter"; see `apiece.models.adapted`."""

    rank: int = pydantic.Field(4, ge=1)
    where: str = ""


class ModelSpec(SpecTable):
    """Which model of `apiece.models`, and its options; "auto" is softmax, linear regression or an LSTM, by the task.

    "package.module:function" is a model of one's own: a function of (shape, outputs), or of (tokens, outputs).

    `hidden` are the widths of its dense layers, where it has such. `objective`: "package.module:function", a function
    of the model that gives what it is trained and judged by, an `apiece.models.Objective`.
    """

    name: Any = "auto"
    hidden: list[Annotated[int, pydantic.Field(ge=1)]] | None = None
    objective: Any = None
    adapter: AdapterSpec | None = None
    options: dict[str, Any] = {}

    @pydantic.field_validator("name")
    @classmethod
    def _known(cls, name: Any) -> Any:
        own = not isinstance(name, str) or ":" in name  # an object, or "package.module:function", found when built
        if not own and name != "auto" and name not in MODELS:
            raise ValueError(f"there is no such model; {suggest(name, ['auto', *MODELS])}")
        return name


class PaceSpec(SpecTable):
    """How long clients take; see `apiece.engines.world.pace.Pace`."""

    law: Literal["equal", "lognormal", "zipf", "given"] = "equal"
    spread: float = pydantic.Field(1.0, ge=0)
    times: list[float] = []
    jitter: Literal["none", "exponential"] = "none"


class ArrivalsSpec(SpecTable):
    """Nobody waits: so many clients at work, replies merged as they come. A round is then a merge.

    `delays`: instead, how many versions late each reply is, in turn, and `clients`, whose they are (none: drawn).
    `recorded`: instead, a .csv or .parquet file of jobs as they were, with columns client, began and ended.
    """

    active: int = pydantic.Field(10, ge=1)
    buffer: int = pydantic.Field(1, ge=1)
    policy: Literal["new", "same"] = "new"
    delays: list[Annotated[int, pydantic.Field(ge=0)]] = []
    clients: list[Annotated[int, pydantic.Field(ge=0)]] = []
    recorded: str | None = None
    pace: PaceSpec = pydantic.Field(default_factory=lambda: PaceSpec.model_validate({"jitter": "exponential"}))


class FaultsSpec(SpecTable):
    """What goes wrong in rounds: drop-outs; stragglers past a deadline, or after a quorum; replies that are broken."""

    dropout: float = pydantic.Field(0.0, ge=0, lt=1)
    deadline: float | None = pydantic.Field(None, gt=0)
    quorum: int | None = pydantic.Field(None, ge=1)
    corrupt: float = pydantic.Field(0.0, ge=0, lt=1)
    corruption: Literal["not_a_number", "infinite", "too_long"] = "not_a_number"
    pace: PaceSpec = pydantic.Field(default_factory=lambda: PaceSpec.model_validate({}))


class AvailabilitySpec(SpecTable):
    """When clients are there to be sampled; with pattern "given", `given` lists who is, round by round and again."""

    pattern: Literal["always", "daily", "random", "given"] = "always"
    share: float = pydantic.Field(0.5, gt=0, le=1)
    period: int = pydantic.Field(24, ge=1)
    given: list[list[Annotated[int, pydantic.Field(ge=0)]]] = []


class AttackSpec(SpecTable):
    """Some clients are Byzantine, in simulation: which attack, and who; see `apiece.wrap.attacks`."""

    name: str
    share: float = pydantic.Field(0.0, ge=0, lt=1)
    clients: list[Annotated[int, pydantic.Field(ge=0)]] = []
    options: dict[str, Any] = {}


class DefenceSpec(SpecTable):
    """What the server does about it: a robust rule in place of the mean, and replies refused; see `apiece.wrap`."""

    rule: str | None = None
    options: dict[str, Any] = {}
    most: float | None = pydantic.Field(None, gt=0)


class ServerSpec(SpecTable):
    """The server takes the step that the method would take as a gradient for an optax optimizer: FedAdam of any method
    that sends an update. `model`: which part of the server's state is the model, where that is more than one."""

    optimizer: str = "sgd"
    lr: float = pydantic.Field(1.0, gt=0)
    options: dict[str, Any] = {}
    model: str = ""


class OptimizerSpec(SpecTable):
    """What the clients' gradients go through before a step of the method's own size `lr`: an optimizer of optax (adam,
    adamw, sgd with momentum, lion, ...) or "package.module:function", which makes one with learning rate 1.

    `options`: its own, such as weight_decay. `clip`: longer gradients are made so long. `keep`: clients keep its
    memories (moments) from visit to visit; otherwise every visit begins anew.
    """

    name: Any = "sgd"
    options: dict[str, Any] = {}
    clip: float | None = pydantic.Field(None, gt=0)
    keep: bool = False


class TrainSpec(SpecTable):
    """How a run goes: rounds, who takes part, the schedule, when to look.

    `engine`: "vectorized" runs everybody in compiled blocks; "remote" sends every message and reply as bytes, client by
    client, as a network does: slower, and the same numbers. `arrivals` has an engine of its own.
    `schedule`: a factor on step sizes, round by round: constant, linear, exponential, cosine, or a function of the
    round; on those that `scheduled` names, by default `lr`, or all of a method that has no such.
    `newcomer_examples`: from how many examples each, and from all, new clients are judged; none: from all only.
    """

    rounds: int = pydantic.Field(100, ge=1)
    engine: Literal["vectorized", "remote"] = "vectorized"
    cohort: int | None = pydantic.Field(None, ge=1)
    probability: float | None = pydantic.Field(None, gt=0, le=1)
    weights: Literal["examples", "uniform"] = "examples"
    stateless: bool = False
    schedule: Any = "constant"
    schedule_options: dict[str, Any] = {}
    scheduled: list[str] = []
    optimizer: OptimizerSpec | None = None
    server: ServerSpec | None = None
    evaluate_every: int = pydantic.Field(10, ge=1)
    evaluate_clients: int = pydantic.Field(1000, ge=1)
    newcomer_examples: list[Annotated[int, pydantic.Field(ge=1)]] = [1, 3, 10, 30, 100, 300]
    checkpoint_seconds: float = pydantic.Field(20.0, ge=0)
    models_gb: float = pydantic.Field(0.5, ge=0)  # of personal models that a run folder keeps, a trial
    arrivals: ArrivalsSpec | None = None
    faults: FaultsSpec | None = None
    availability: AvailabilitySpec | None = None
    attack: AttackSpec | None = None
    defence: DefenceSpec | None = None

    @pydantic.field_validator("schedule")
    @classmethod
    def _known(cls, name: Any) -> Any:
        if isinstance(name, str) and ":" not in name and name not in SCHEDULES:
            raise ValueError(f"there is no such schedule; {suggest(name, SCHEDULES)}")
        return name


class Spec(SpecTable):
    """A whole experiment. `methods`: a table for each row, see `apiece.experiment.variant`; `every`: options of all.

    >>> Spec(methods={"ditto": {"lam": 1.0}}).methods
    {'local': {}, 'fed_avg': {}, 'ftfa': {}, 'ditto': {'lam': 1.0}}
    """

    data: DataSpec = pydantic.Field(default_factory=lambda: DataSpec.model_validate({}))
    model: ModelSpec = pydantic.Field(default_factory=lambda: ModelSpec.model_validate({}))
    train: TrainSpec = pydantic.Field(default_factory=lambda: TrainSpec.model_validate({}))
    methods: dict[str, dict[str, Any]] = {}
    every: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    choose: str = "loss"
    # Randomness has 32 bits of seed: a larger one would silently be the same as a smaller one.
    seeds: list[Annotated[int, pydantic.Field(ge=0, lt=2**32)]] = pydantic.Field([0, 1, 2], min_length=1)
    tune: int = pydantic.Field(8, ge=1)
    baselines: bool = True
    _rows: dict[str, Variant] = pydantic.PrivateAttr(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _complete(self) -> "Spec":
        if self.train.cohort is not None and self.train.probability is not None:
            raise UserError("train.cohort and train.probability exclude each other; give one")
        rounds = [name for name in ("cohort", "probability", "availability") if getattr(self.train, name)]
        faults = self.train.faults
        if faults is not None and (faults.dropout or faults.deadline or faults.quorum):
            rounds.append("faults")  # replies may be broken without rounds, too
        if self.train.engine != "vectorized":
            rounds.append("engine")
        if self.train.arrivals is not None and rounds:
            raise UserError(f"train.arrivals has no rounds of a cohort: leave out train.{rounds[0]}, or train.arrivals")
        if len(set(self.seeds)) != len(self.seeds):
            raise UserError(f"the seeds {self.seeds} repeat themselves; the same seed twice is no second opinion")
        SCHEDULES.check(self.train.schedule, self.train.schedule_options)
        always: dict[str, dict[str, Any]] = {name: {} for name in BASELINES if self.baselines}
        object.__setattr__(self, "methods", fill_in(always | name_rows(self.methods), self.every))
        object.__setattr__(self, "_rows", {name: variant_of(name, table) for name, table in self.methods.items()})
        return self

    @property
    def rows(self) -> dict[str, Variant]:
        """The rows of the comparison: methods with their settings."""
        return self._rows


def make_spec(values: dict[str, Any], where: str = "the spec") -> Spec:
    """A spec from plain values; a `UserError` names the key and what is wrong with it.

    >>> try: make_spec({"train": {"round": 5}})
    ... except UserError as error: print(error)
    the spec: unknown key 'train.round': did you mean 'rounds'?
    """
    try:
        return Spec.model_validate(values)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            known = _fields(problem["loc"][:-1])
            raise UserError(f"{where}: unknown key '{key}': {suggest(str(problem['loc'][-1]), known)}") from None
        raise UserError(f"{where}: '{key}' = {problem['input']!r} is wrong: {problem['msg'].lower()}") from None


def read_values(path: str | Path) -> dict[str, Any]:
    """The plain values of a spec file.

    >>> try: read_values("no-such.toml")
    ... except UserError as error: print(error)
    there is no spec file 'no-such.toml'
    """
    return read_toml(path, "spec file")


def _fields(where: tuple) -> list[str]:
    part: Any = Spec
    for name in where:
        part = part.model_fields[name].annotation
        part = next((kind for kind in get_args(part) if kind is not type(None)), part)  # of a table that may be absent
    return list(part.model_fields)
