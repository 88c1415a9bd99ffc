"""The spec of an experiment: what, on what, how long, how often. TOML in, TOML out; a wrong key names its neighbour."""

from pathlib import Path
from typing import Annotated, Any, get_args

import pydantic

from apiece.client.schedule import ENDLESS, SCHEDULES
from apiece.errors import UserError, suggest
from apiece.experiment.spec_tables import DataSpec, Key, ModelSpec, SpecTable, TrainSpec
from apiece.experiment.variant import Variant, fill_in, name_rows, variant_of
from apiece.files import read_toml

BASELINES = ("local", "fed_avg", "ftfa")  # stand beside every method: alone, shared, shared and fine-tuned


class Spec(SpecTable):
    """A whole experiment.

    >>> Spec(methods={"ditto": {"lam": 1.0}}).methods
    {'local': {}, 'fed_avg': {}, 'ftfa': {}, 'ditto': {'lam': 1.0}}
    """

    data: DataSpec = Key(default_factory=lambda: DataSpec.model_validate({}))
    """Which federation."""
    model: ModelSpec = Key(default_factory=lambda: ModelSpec.model_validate({}))
    """Which model."""
    train: TrainSpec = Key(default_factory=lambda: TrainSpec.model_validate({}))
    """How a run goes."""
    methods: dict[str, dict[str, Any]] = Key({}, examples=[{"ditto": {}, "weak": {"method": "ditto", "lam": 0.01}}])
    """A table for each row of the comparison, by its name: `method` where that is not the name (of the catalog, or
    one's own, "package.module:factory" or "file.py:factory"), and options; those that are not given are tuned."""
    every: dict[str, Any] = Key({}, examples=[{"lr": 0.05}])
    """Options of every method that has them and does not say otherwise."""
    metrics: dict[str, Any] = Key({}, examples=[{"f1": "apiece.evaluate:macro_f1"}])
    """Metrics of one's own by name: "package.module:function" or "file.py:function", a function of a client's outputs
    and labels; or {function = ..., higher_is_better = false}."""
    rank: str | None = Key(None, examples=["auc"])
    """What methods are ranked by, and gains told in: accuracy, error, log_loss, rmse, auc, f1, balanced_accuracy, or a
    metric of one's own. By default accuracy, or the error of numbers; where 80 % of the training labels are of one
    class, auc."""
    choose: str | None = Key(None, examples=["error"])
    """What tuning chooses by, on validation: any of these, or loss. By default `rank` or, without it, loss."""
    # Randomness has 32 bits of seed: a larger one would silently be the same as a smaller one.
    seeds: list[Annotated[int, pydantic.Field(ge=0, lt=2**32)]] = Key([0, 1, 2], min_length=1, examples=[[0, 1]])
    """A run of every method from each."""
    tune: int = Key(8, ge=1, examples=[4])
    """Settings that tuning tries for every method; a grid that is written down is tried as it is."""
    baselines: bool = Key(True, examples=[False])
    """Whether local, fed_avg and ftfa stand beside the methods."""
    _rows: dict[str, Variant] = pydantic.PrivateAttr(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _complete(self) -> "Spec":
        if self.train.cohort is not None and self.train.probability is not None:
            raise UserError("train.cohort and train.probability exclude each other; give one")
        beside = [name for name in ("probability", "availability") if getattr(self.train, name)]
        if self.train.participation is not None and beside:
            raise UserError(f"train.participation says who takes part, and so does train.{beside[0]}; give one")
        rounds = [
            name for name in ("cohort", "probability", "participation", "availability") if getattr(self.train, name)
        ]
        faults = self.train.faults
        if faults is not None and (faults.dropout or faults.deadline or faults.quorum):
            rounds.append("faults")  # replies may be broken without rounds, too
        if self.train.engine != "vectorized":
            rounds.append("engine")
        if self.train.arrivals is not None and rounds:
            raise UserError(f"train.arrivals has no rounds of a cohort: leave out train.{rounds[0]}, or train.arrivals")
        if self.train.until_rest and self.train.stop is not None:
            raise UserError("train.until_rest and train.stop both say when a run ends; give one")
        if self.train.until_rest and self.train.schedule not in ENDLESS:
            raise UserError(f"train.schedule = '{self.train.schedule}' is planned for a number of rounds, and with "
                            "train.until_rest (rounds = 'auto') nobody knows it; leave one of them out")  # fmt: skip
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
