"""The tables of a spec: every key with its type, default, meaning and an example; docs/ref-spec.md is made of these."""

from typing import Annotated, Any, Literal

import pydantic

from apiece.client.schedule import SCHEDULES
from apiece.errors import suggest
from apiece.models import MODELS

FIRST_STAGE = 100  # rounds after which a run until rest is asked for the first time; then after twice as many, ...
AUTO_ROUNDS = 1000  # the most of rounds = "auto"
ClientNumber = Annotated[int, pydantic.Field(ge=0)]
Key = pydantic.Field  # a key of a table: default, bounds, examples


class SpecTable(pydantic.BaseModel):
    """A table of the spec: unknown keys are errors, values are checked and never guessed."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class DataSpec(SpecTable):
    """Which federation."""

    source: str = Key("digits", examples=["digits"])
    """A source by name (`apiece data list`), a saved federation, or one's own file or folder."""
    options: dict[str, Any] = Key({}, examples=[{"clients": 20}])
    """Options of the source, or of reading one's own data (`apiece data check`)."""
    new_clients: float = Key(0.1, ge=0, lt=1, examples=[0.2])
    """The share of clients that are held out as new ones, where there are ten or more and none are new already."""
    seed: int = Key(0, ge=0, examples=[1])
    """Which clients these are."""
    standardize: bool | None = Key(None, examples=[False])
    """Whether features become mean 0 and spread 1, and targets of a regression are trained on like this (results are
    in their own units): true, false, or by default where they are far from unit scale."""


class AdapterSpec(SpecTable):
    """Low-rank adapters beside the model's weights, as a part of it called "adapter"."""

    rank: int = Key(4, ge=1, examples=[2])
    """The rank of what is added to a weight."""
    where: str = Key("", examples=["hidden0"])
    """Which weights, in the words of `apiece.split`; by default all that are wider than the rank."""


class ModelSpec(SpecTable):
    """Which model."""

    name: Any = Key("auto", examples=["mlp"])
    """A name (`apiece models`); "auto": softmax, linear regression or an LSTM, by the task; or one's own,
    "package.module:function" or "file.py:function", a function of (shape, outputs), or of (tokens, outputs), that makes
    one: an `apiece.models.Model`, a Flax or a torch module, anything with init and apply."""
    hidden: list[Annotated[int, pydantic.Field(ge=1)]] | None = Key(None, examples=[[64, 32]])
    """The widths of its dense layers, where it has such."""
    options: dict[str, Any] = Key({}, examples=[{}])
    """Its other options, by name."""
    objective: Any = Key(None, examples=["apiece.models:brier"])
    """What it is trained and judged by, if not by the task: "package.module:function", a function of the model that
    gives an `apiece.models.Objective`."""
    adapter: AdapterSpec | None = Key(None)
    """Low-rank adapters."""

    @pydantic.field_validator("name")
    @classmethod
    def _known(cls, name: Any) -> Any:
        own = not isinstance(name, str) or ":" in name  # an object, or "package.module:function", found when built
        if not own and name != "auto" and name not in MODELS:
            raise ValueError(f"there is no such model; {suggest(name, ['auto', *MODELS])}")
        return name


class PaceSpec(SpecTable):
    """How long clients take."""

    law: Literal["equal", "lognormal", "zipf", "given"] = Key("equal", examples=["lognormal"])
    """How clients differ."""
    spread: float = Key(1.0, ge=0, examples=[0.5])
    """How much they differ."""
    times: list[float] = Key([], examples=[[1.0, 2.0, 0.5, 1.5, 3.0, 1.0]])
    """With the law "given": each client's typical time."""
    jitter: Literal["none", "exponential"] = Key("none", examples=["exponential"])
    """How a client's times differ from visit to visit."""


class ArrivalsSpec(SpecTable):
    """Nobody waits: so many clients at work, replies merged as they come. A round is then a merge."""

    active: int = Key(10, ge=1, examples=[4])
    """Clients at work at any time."""
    buffer: int = Key(1, ge=1, examples=[2])
    """Replies that make a merge."""
    policy: Literal["new", "same"] = Key("new", examples=["same"])
    """Who works next: somebody drawn anew, or the one whose reply arrived."""
    pace: PaceSpec = Key(default_factory=lambda: PaceSpec.model_validate({"jitter": "exponential"}))
    """How long they take."""
    delays: list[ClientNumber] = Key([], examples=[[0, 3]])
    """Instead of speeds: how many versions late each reply is, in turn."""
    clients: list[ClientNumber] = Key([], examples=[[4, 5]])
    """With `delays`: whose replies, in turn; none: drawn."""
    recorded: str | None = Key(None, examples=["jobs.csv"])
    """Instead of speeds: a .csv or .parquet file of jobs as they were, with columns client, began and ended."""


class FaultsSpec(SpecTable):
    """What goes wrong in rounds."""

    dropout: float = Key(0.0, ge=0, lt=1, examples=[0.1])
    """The chance that a client of the cohort does not answer."""
    deadline: float | None = Key(None, gt=0, examples=[2.0])
    """Replies that take longer do not count."""
    quorum: int | None = Key(None, ge=1, examples=[5])
    """A round ends when so many have answered."""
    corrupt: float = Key(0.0, ge=0, lt=1, examples=[0.05])
    """The share of replies that are broken on their way."""
    corruption: Literal["not_a_number", "infinite", "too_long"] = Key("not_a_number", examples=["infinite"])
    """How they are broken."""
    pace: PaceSpec = Key(default_factory=lambda: PaceSpec.model_validate({}))
    """How long clients take."""


class AvailabilitySpec(SpecTable):
    """When clients are there to be sampled."""

    pattern: Literal["always", "daily", "random", "given"] = Key("always", examples=["daily"])
    """Always, at their own time of the day, each with a probability of its own, or as `given` says."""
    share: float = Key(0.5, gt=0, le=1, examples=[0.6])
    """The share of the time that a client is there, or the least probability."""
    period: int = Key(24, ge=1, examples=[12])
    """The rounds of a day."""
    given: list[list[ClientNumber]] = Key([], examples=[[[0, 1, 2], [3, 4]]])
    """With pattern "given": the clients that are there, round by round, and from the beginning again."""


class AttackSpec(SpecTable):
    """Some clients are Byzantine, in simulation."""

    name: str = Key(..., examples=["sign_flip"])
    """The attack, a name of `apiece.wrap.ATTACKS`."""
    share: float = Key(0.0, ge=0, lt=1, examples=[0.2])
    """The share of clients that attack; who they are is drawn from the seed of each run."""
    clients: list[ClientNumber] = Key([], examples=[[0, 3]])
    """Or their numbers."""
    options: dict[str, Any] = Key({}, examples=[{"scale": 2.0}])
    """Options of the attack."""


class DefenceSpec(SpecTable):
    """What the server does about it."""

    rule: str | None = Key(None, examples=["median"])
    """A robust rule in place of the mean, a name of `apiece.aggregate`."""
    options: dict[str, Any] = Key({}, examples=[{}])
    """Options of the rule."""
    most: float | None = Key(None, gt=0, examples=[10.0])
    """Replies that are so many times longer than usual are refused."""


class PrivateSpec(SpecTable):
    """Differential privacy of what clients send, each client as a whole (docs/explanation-privacy.md). Everybody's
    reply counts alike, whatever `weights` says. Give `epsilon`, for which noise is found, or `noise`."""

    epsilon: float | None = Key(None, gt=0, examples=[8.0])
    """What a run may spend, over all its rounds: the accountant finds the noise for it."""
    noise: float | None = Key(None, gt=0, examples=[1.0])
    """Instead: the deviation of the noise of a round's sum, in clips; the accountant tells the epsilon."""
    delta: float = Key(1e-5, gt=0, lt=1, examples=[0.001])
    """The chance that the promise does not hold; below one over the number of clients."""
    clip: float = Key(1.0, gt=0, examples=[0.5])
    """How long a reply may be, all its arrays together; with a `quantile`, where that begins."""
    quantile: float | None = Key(None, gt=0, lt=1, examples=[0.5])
    """The clip follows this quantile of the replies' lengths, which is noised and accounted for as well."""
    at: Literal["server", "clients"] = Key("server", examples=["clients"])
    """Who adds the noise: the server, which sees single replies; or each client its part of it."""
    secret: bool = Key(False, examples=[True])
    """Noise from the operating system's randomness, so that the run cannot be repeated; false: from the run's seed, for
    simulations, since whoever knows the seed can take the noise away."""

    @pydantic.model_validator(mode="after")
    def _one_of_two(self) -> "PrivateSpec":
        if (self.epsilon is None) == (self.noise is None):
            raise ValueError("give either epsilon, for which noise is found, or noise, for which epsilon is told")
        return self


class SecureSpec(SpecTable):
    """Secure aggregation, experimental: replies go under masks that cancel in their sum, so that the server sees no
    single one (docs/explanation-security.md). For methods that average replies, on the engine "remote" and on sites."""

    least: float = Key(0.67, gt=0.5, le=1, examples=[0.8])
    """The share of a round's clients that must stay until its end: with fewer it is abandoned. So many must also stand
    together to unmask anybody."""


class CompressSpec(SpecTable):
    """Shorter replies, for methods that send an update; the bytes that a run reports are those on the way."""

    kind: Literal["bfloat16", "top_k"] = Key("bfloat16", examples=["top_k"])
    """In 16 bits a number, or of each reply only its largest numbers; the client adds what is left to its next one."""
    share: float = Key(0.05, gt=0, le=1, examples=[0.1])
    """With "top_k": the share of the numbers that is sent, each with its place."""


class ServerSpec(SpecTable):
    """The server takes the step that the method would take as a gradient for an optimizer: FedAdam of any method that
    sends an update."""

    optimizer: str = Key("sgd", examples=["adam"])
    """An optimizer of optax; "sgd" with lr = 1 is the method itself."""
    lr: float = Key(1.0, gt=0, examples=[0.1])
    """Its learning rate."""
    options: dict[str, Any] = Key({}, examples=[{"b1": 0.8}])
    """Its options."""
    model: str = Key("", examples=["w"])
    """Which part of the server's state is the model, where that is more than one (Scaffold: "0")."""


class OptimizerSpec(SpecTable):
    """What the clients' gradients go through before a step of the method's own size."""

    name: Any = Key("sgd", examples=["adamw"])
    """An optimizer of optax (adam, adamw, sgd, lion, ...), or "package.module:function", which makes an optax chain
    with learning rate 1: step sizes stay the method's."""
    options: dict[str, Any] = Key({}, examples=[{"weight_decay": 0.001}])
    """Its options: weight_decay, momentum, b1, ..."""
    clip: float | None = Key(None, gt=0, examples=[1.0])
    """Gradients longer than this are made so long, before anything else."""
    keep: bool = Key(False, examples=[True])
    """Whether clients keep its memories (moments) from visit to visit; otherwise every visit begins anew."""


class StopSpec(SpecTable):
    """A run stops when validation has not improved for a while; its best round by validation is then what counts, for
    predictions, test and the run folder. What tuning chooses by (`choose`) says what is better."""

    patience: int = Key(5, ge=1, examples=[3])
    """Looks at validation (every `evaluate_every` rounds) without an improvement, after which it stops."""
    least: float = Key(0.0, ge=0, examples=[0.001])
    """How much better is an improvement."""


class TrainSpec(SpecTable):
    """How a run goes: rounds, who takes part, the schedule, when to look."""

    rounds: int = Key(100, ge=1, examples=[50])
    """Rounds of training; with arrivals, merges. "auto" is 1000 with `until_rest`, "auto:500" is 500 with it."""
    until_rest: bool = Key(False, examples=[False])
    """Whether a run ends when its validation loss has come to rest, so that `rounds` is the most it may have: asked
    after 100, 200, 400, ... rounds, by one rule for all methods (how-to-read-a-verdict.md). Tuning tries every setting
    for the first 100; the chosen one is then trained to its end."""
    engine: Literal["vectorized", "remote"] = Key("vectorized", examples=["remote"])
    """"vectorized" runs everybody in compiled blocks; "remote" sends every message and reply as bytes, client by
    client, as a network does: slower, and the same numbers. `arrivals` has an engine of its own."""
    cohort: int | None = Key(None, ge=1, examples=[5])
    """Clients that take part in a round; default: all."""
    probability: float | None = Key(None, gt=0, le=1, examples=[0.3])
    """Instead: the chance of each client to take part."""
    participation: Any = Key(None, examples=["apiece.engines:take_turns"])
    """Instead: who takes part by a function of one's own, "package.module:function" or "file.py:function", of (seed,
    round, number of clients), which gives the numbers of clients; `cohort` is then the most that it names."""
    weights: Any = Key("examples", examples=["uniform"])
    """How much a reply counts: "examples", by the client's number of training examples; "uniform", all alike; or a list
    of numbers, one for each client that trains."""
    stop: StopSpec | None = Key(None)
    """Early stopping, and the best round."""
    stateless: bool = Key(False, examples=[True])
    """Clients forget everything between rounds."""
    states: Literal["auto", "memory", "disk"] = Key("auto", examples=["disk"])
    """Where clients' states lie between their visits: in memory, on disk (beside the checkpoint, before there is one in
    the folder that TMPDIR names), or "auto": on disk if everybody's would take more than a quarter of the memory."""
    schedule: Any = Key("constant", examples=["cosine"])
    """A factor on step sizes, round by round: constant, linear, exponential, cosine, or "package.module:function", a
    function of the round, or of the number of rounds that makes one."""
    schedule_options: dict[str, Any] = Key({}, examples=[{"end": 0.1}])
    """Its options."""
    scheduled: list[str] = Key([], examples=[["lr"]])
    """Which step sizes it scales; by default `lr`, or all of a method that has no such."""
    optimizer: OptimizerSpec | None = Key(None)
    """A client optimizer."""
    server: ServerSpec | None = Key(None)
    """A server optimizer."""
    evaluate_every: int | None = Key(None, ge=1, examples=[5])
    """Rounds between looks at validation; by default a twentieth of the rounds, at most 10: enough looks to tell
    whether a run has come to rest. With `stop`, or of fewer than 20 rounds: 10."""
    evaluate_clients: int = Key(1000, ge=1, examples=[200])
    """Clients that are looked at: all, or a sample of so many."""
    newcomer_examples: list[Annotated[int, pydantic.Field(ge=1)]] = Key([1, 3, 10, 30, 100, 300], examples=[[5, 50]])
    """From how many examples each, and from all, new clients are judged; none: from all only."""
    checkpoint_seconds: float = Key(20.0, ge=0, examples=[60.0])
    """Seconds between checkpoints."""
    models_gb: float = Key(0.5, ge=0, examples=[1.0])
    """How much of personal models the run folder keeps, a trial."""
    arrivals: ArrivalsSpec | None = Key(None)
    """Nobody waits."""
    faults: FaultsSpec | None = Key(None)
    """What goes wrong."""
    availability: AvailabilitySpec | None = Key(None)
    """When clients are there."""
    attack: AttackSpec | None = Key(None)
    """Some clients attack."""
    defence: DefenceSpec | None = Key(None)
    """The server defends itself."""
    private: PrivateSpec | None = Key(None)
    """Differential privacy."""
    secure: SecureSpec | None = Key(None)
    """Secure aggregation."""
    compress: CompressSpec | None = Key(None)
    """Shorter replies."""

    @property
    def look_every(self) -> int:
        """Rounds between looks at validation: `evaluate_every`, or what stands there if nothing is said.

        >>> [TrainSpec(rounds=rounds).look_every for rounds in (10, 20, 100, 1000)]
        [10, 1, 5, 10]
        """
        first = self.tuning_rounds  # also of a run until rest: at the end of that stage it is asked for the first time
        usual = 10 if first < 20 or self.stop is not None else min(10, first // 20)
        return self.evaluate_every or usual

    @property
    def tuning_rounds(self) -> int:
        """For how many rounds tuning tries a setting: all, or the first stage of a run until rest.

        >>> TrainSpec(rounds="auto").tuning_rounds, TrainSpec(rounds=500).tuning_rounds
        (100, 500)
        """
        return min(FIRST_STAGE, self.rounds) if self.until_rest else self.rounds

    @pydantic.model_validator(mode="before")
    @classmethod
    def _automatic(cls, values: Any) -> Any:
        """Rounds in words: "auto", or "auto:" and the most."""
        asked = values.get("rounds") if isinstance(values, dict) else None
        if not isinstance(asked, str):
            return values
        word, colon, most = asked.partition(":")
        if word != "auto" or (colon and not most.isdigit()):
            return values  # the check of the number says what is wrong
        return {**values, "rounds": int(most) if colon else AUTO_ROUNDS, "until_rest": True}

    @pydantic.field_validator("weights")
    @classmethod
    def _weights(cls, weights: Any) -> Any:
        numbers = isinstance(weights, list) and all(isinstance(each, int | float) and each > 0 for each in weights)
        if not numbers and weights not in ("examples", "uniform"):
            raise ValueError('it is "examples", "uniform" or a list of numbers that are greater than 0')
        return weights

    @pydantic.field_validator("schedule")
    @classmethod
    def _known(cls, name: Any) -> Any:
        if isinstance(name, str) and ":" not in name and name not in SCHEDULES:
            raise ValueError(f"there is no such schedule; {suggest(name, SCHEDULES)}")
        return name
