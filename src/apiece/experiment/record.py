"""The record of a comparison: everything that was found, typed and versioned. record.json is this, terminal and page
show it, and nobody computes anything from it that it does not hold."""

import math
from typing import Annotated, Any, Literal

import pydantic
from pydantic_core import CoreSchema, core_schema

from apiece.evaluate import Interval
from apiece.files import as_plain

# Of record.json: raised when a key goes or changes its meaning. Format 1 had no version and no ranking; 2 compared with
# `local` alone, and called the gain so.
FORMAT = 3


def _number(value: Any) -> Any:
    return math.nan if value is None else value  # one and the same NaN, so that equal records are equal


_NUMBER = {"type": ["number", "null"], "description": "null: there is no finite number"}
# A measured number: NaN in Python, null in JSON where there is none (a method diverged; one seed has no interval).
Number = Annotated[float, pydantic.BeforeValidator(_number), pydantic.WithJsonSchema(_NUMBER)]
# The same, for what may be a count: a whole number stays whole.
Amount = Annotated[int | float, pydantic.BeforeValidator(_number), pydantic.WithJsonSchema(_NUMBER)]


class Entry(pydantic.BaseModel):
    """A part of the record. Keys that this version does not know are kept: a later one may have added them."""

    model_config = pydantic.ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)


class Ends(Entry):
    """A mean over seeds with its 95 % confidence interval, mean -+ half_width."""

    mean: Number
    low: Number
    high: Number
    half_width: Number


def _interval_schema(source: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
    read = core_schema.no_info_after_validator_function(
        lambda ends: Interval(ends.mean, ends.low, ends.high, ends.half_width), handler.generate_schema(Ends)
    )
    return core_schema.no_info_before_validator_function(
        lambda value: value._asdict() if isinstance(value, Interval) else value,
        read,
        serialization=core_schema.plain_serializer_function_ser_schema(lambda found: found._asdict()),
    )


# The one `Interval` of the house; an object of four numbers in JSON, where a plain tuple would be a list.
Doubted = Annotated[Interval, pydantic.GetPydanticSchema(_interval_schema)]

# part ("validation", "test", "new_clients") -> metric -> statistic over clients -> number; a pooled metric is a number.
Metrics = dict[str, dict[str, dict[str, Amount] | Amount]]
Summary = dict[str, dict[str, dict[str, Doubted] | Doubted]]


class Environment(Entry):
    """Where it ran."""

    python: str
    platform: str
    packages: dict[str, str]
    devices: list[str]


class Federated(Entry):
    """The federation, as `Federation.summary` tells it: more keys than these, by task."""

    name: str
    task: str
    clients: int
    new_clients: int
    examples: dict[str, int]


class Candidate(Entry):
    """A setting that tuning tried."""

    options: dict[str, Any]
    validation_loss: Number


class SeedRecord(Entry):
    """One seed's run: every number over clients, and what it cost."""

    seed: int
    metrics: Metrics
    """Part (validation, test, new_clients), metric, statistic over clients; a pooled metric is a single number."""
    costs: dict[str, Amount]


class Newcomers(Entry):
    """New clients by how many examples they bring: for each number an interval of the score over seeds.

    `clients` is how many were looked at; the score is `accuracy` or, where there is none, `error`.
    """

    clients: int
    examples: list[int]
    accuracy: list[Doubted] = []
    error: list[Doubted] = []

    @property
    def scores(self) -> list[Interval]:
        """The score that the task has."""
        return self.accuracy or self.error


class Harm(Entry):
    """Who is better off than with the baseline, and who is hurt; `apiece.evaluate.hurt` defines the numbers."""

    baseline: str = "local"
    """With what the method was compared."""

    clients: int
    clients_empty: int
    delta: Number
    hurt_proved: Number
    hurt_expected: Number
    hurt_expected_low: Number
    hurt_expected_high: Number
    prior: str
    worst_client: Number
    worst_tenth: Number
    naive: Number
    naive_if_tied: Number
    gain: Doubted
    """The mean over clients of the gain over the baseline, in points of what methods are ranked by; the interval is the
    wider of two, over seeds and over clients."""
    named: list[str] = []
    """The clients that are proved to be hurt."""
    so_far: bool = False
    """Whether the baseline still improves, or the method does and may catch up with it: then nothing is proved yet."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _of_format_2(cls, values: Any) -> Any:
        old = isinstance(values, dict) and "gain" not in values and "gain_over_local" in values
        return {("gain" if key == "gain_over_local" else key): v for key, v in values.items()} if old else values


class Diverged(Entry):
    """There is no comparison with the baseline: one of the two diverged."""

    diverged: bool


class BesideLocal(Entry):
    """How many training clients score better, the same and worse than with the baseline, by their means over seeds."""

    better: int
    same: int
    worse: int


class Edge(Entry):
    """A tuned option whose chosen value is the lowest or the highest of those that were tried."""

    option: str
    value: float
    end: Literal["lowest", "highest"]


class Convergence(Entry):
    """What more rounds or other settings might change: `apiece.evaluate.trend_of` defines the rule.

    A method is "improving" while its validation loss falls beyond its noise, and as many rounds again would lower it by
    more than a hundredth; "rising" when it grows; "unknown" with fewer than four looks in the last quarter of the
    rounds, or with noise that could hide a fall.
    """

    state: Literal["resting", "improving", "rising", "diverged", "unknown"]
    """Of all seeds together."""
    by_seed: dict[int, Literal["resting", "improving", "rising", "diverged", "unknown"]]
    """Of each alone."""
    rounds: int
    """How many were run; of several seeds the most."""
    looks: int
    """How often validation was looked at in the last quarter of the rounds."""
    change: Doubted
    """Of the validation loss over that quarter; negative: it falls. The interval is that of its noise."""
    gain: Number
    """By how much the loss is expected to fall over as many rounds again."""
    loss: Number
    """At the last look, mean over seeds."""
    edges: list[Edge]
    """Of at least three values that were tried."""

    @property
    def improves(self) -> bool:
        """Whether more rounds are expected to lower its loss."""
        return self.state == "improving"


class Partners(Entry):
    """Who learns from whom at the end of the first seed's run, if the method says so: a row and a column a client."""

    clients: list[str]
    groups: list[int]
    """Of each client, the group of those who learn from one another, directly or through others."""
    weights: list[list[Number]]
    """W: how much the column's gradient moves the row's model."""
    bias: list[list[Number]]
    """b: what the row's client loses at most with the column's optimum; null: not known."""


class MethodRecord(Entry):
    """One method: what it ran with, every seed, and what the seeds say together."""

    method: str = ""
    """The method of the row: a name of the catalog, or where it is imported from; "" if the row has its name."""
    options: dict[str, Any]
    tuning: list[Candidate]
    seeds: list[SeedRecord]
    summary: Summary
    """The metrics of the seeds, with an interval over them in place of each number."""
    newcomers: Newcomers | None
    hurt: Harm | Diverged | None
    """Against the baseline; null for the baseline itself, and without one."""
    against: dict[str, Doubted | None]
    """The paired difference in weighted test error to each baseline, in points; positive: worse."""
    chosen: int | None
    """Which candidate has the least validation loss; null: there was nothing to choose from."""
    costs: dict[str, Amount]
    """Means over seeds; of memory the peak."""
    beside_local: BesideLocal | None
    fallen: list[str] = []
    """Clients whose own model was no number after the run of some seed; they use the shared or the initial one."""
    convergence: Convergence | None = None
    """Whether it has come to rest; null in records of versions that did not ask."""
    partners: Partners | None = None
    """Who learns from whom; null: the method does not say, or there are more than 100 clients."""

    @property
    def improves(self) -> bool:
        """Whether more rounds are expected to lower its validation loss."""
        return self.convergence is not None and self.convergence.improves

    @property
    def harm(self) -> Harm | None:
        """The comparison with the baseline, if there is one and neither of the two diverged."""
        return self.hurt if isinstance(self.hurt, Harm) else None

    def statistic(self, part: str, metric: str, name: str | None = None) -> Interval | None:
        """An interval over seeds of the summary, by its three names (or two, if pooled); None: no such number."""
        return _statistic(self.summary, part, metric, name)


class ConstantRecord(Entry):
    """An answer that looks at no example: judged as methods are, and none of them."""

    about: str
    """What it answers."""
    summary: Summary

    def statistic(self, part: str, metric: str, name: str | None = None) -> Interval | None:
        """A number of the summary, as of a method; it has no interval, because seeds do not change it."""
        return _statistic(self.summary, part, metric, name)


def _statistic(summary: Summary, part: str, metric: str, name: str | None) -> Interval | None:
    found = summary.get(part, {}).get(metric)
    if isinstance(found, dict):
        found = found.get(name or "")
    return found if isinstance(found, Interval) and math.isfinite(found.mean) else None


class Comparator(Entry):
    """The baseline over which gains are told: of training alone and the constants, the best on validation."""

    name: str
    constant: bool
    """Whether it is a constant, and no method."""
    metric: str
    """What it was chosen by."""
    validation: dict[str, Number]
    """What each candidate scored: a mean over all training clients' validation examples."""


class Gap(Entry):
    """How far a method is behind the best (positive: worse), in points or units of the error.

    The interval is the wider of two, over seeds and over clients. `told_apart`: it excludes a tie, and the method
    behind is not about to close the gap. `so_far`: it excludes a tie, but the method behind still improves by so much.
    """

    interval: Doubted
    told_apart: bool
    so_far: bool = False


class Ranking(Entry):
    """The methods by their weighted test score, and how sure that order is."""

    metric: str
    """What they are ranked by: accuracy, error, loss, a metric, or what an objective of one's own calls its error."""
    higher: bool
    """Whether more of it is better."""
    order: list[str]
    """Every method, best first; diverged ones last."""
    diverged: list[str]
    """Those without a test score, in the order of the spec."""
    behind: dict[str, Gap]
    """Of those with a score, all but the best."""
    by_validation: str | None
    """Whom validation alone would choose, of those with a test score: by the loss or, if tuning chose by something
    else, by what they are ranked by; null: fewer than two have such a number."""
    beside_local: str | None
    """Whose gains are told of first: what validation chose or, if that is the baseline, the best on test."""
    chosen_by: str = "loss"
    """What tuning chose by, on validation."""

    @property
    def scored(self) -> list[str]:
        """The methods that have a test score, best first."""
        return [name for name in self.order if name not in self.diverged]


class StepSizes(Entry):
    """How long steps may be on this federation, and what became of the methods' own ideas of it."""

    found_by: str
    """"curvature", of the clients' rows (of linear models), or "range test", on their pooled batches (of others)."""
    longest: Number
    """The top of where step sizes are searched, of methods that draw batches as most do."""
    client: str | None
    """Whose curvature is the largest; null: the range test asks all together."""
    exchanges: int
    """What finding this cost, as tuning does beside the runs: messages to clients and back."""
    gradients: int
    """And gradients, or what takes as long."""
    ranges: dict[str, dict[str, tuple[float, float]]]
    """By row and option, where tuning looks instead of where the method says."""
    defaults: dict[str, dict[str, float]]
    """By row and option, what is taken instead of a default that is too long, or outside of that range."""


class PrivacyRecord(Entry):
    """The promise of differential privacy that every training run of the record keeps, and what it rests on."""

    epsilon: Number
    """As the accountant says, of one run over all its rounds."""
    delta: Number
    slack: Number
    """By how much delta is larger because the engines' draw is not quite a Poisson one."""
    noise: Number
    """The deviation of the noise of a round's sum, in clips."""
    clip: Number
    """How long a reply may be; with a quantile, where that began."""
    quantile: float | None
    sampling: str
    """How the accountant was told that clients are drawn: everybody, poisson or fixed."""
    rate: Number
    """The share of clients in a round."""
    rounds: int
    clients: int
    adjacency: str
    """What two populations differ in that cannot be told apart."""
    at: str
    """Who adds the noise."""
    secret: bool
    """Whether the noise came from the operating system's randomness, and not from the run's seed."""
    accountant: str
    """Of which library and version."""
    assumptions: list[str]
    not_covered: list[str]


class Record(Entry):
    """All that a comparison found: what record.json holds.

    >>> "ranking" in Record.model_fields
    True
    """

    format: int
    """Of this file; raised when a key goes or changes its meaning, not when one is added."""
    environment: Environment
    revision: str | None
    """The git revision of the working folder."""
    # Plain values: a record can be read where a method of somebody's own, which its spec names, is not installed.
    spec: dict[str, Any]
    """The resolved spec, as in spec.toml."""
    model: str
    federation: Federated
    methods: dict[str, MethodRecord]
    notes: list[str]
    ranking: Ranking
    tested: list[int] = []
    """After how many rounds the test was looked at before: a run that was continued has seen it more than once."""
    metrics: dict[str, bool] = {}
    """Metrics of one's own, which stand among the others, and whether more of each is better."""
    steps: StepSizes | None = None
    """How long steps may be; null: nobody had to know, or nobody could."""
    constants: dict[str, ConstantRecord] = {}
    """Answers that look at no example, by name."""
    privacy: PrivacyRecord | None = None
    """Differential privacy of what was sent; null: none was asked for."""
    baseline: Comparator | None = None
    """Over what gains are told; null: nobody trained alone."""

    @property
    def over(self) -> str:
        """What gains are told over: `local`, unless another baseline was better on validation."""
        return self.baseline.name if self.baseline is not None else "local"

    @property
    def seeds(self) -> int:
        """How many seeds every method was run with."""
        return max((len(method.seeds) for method in self.methods.values()), default=0)

    def plain(self) -> dict[str, Any]:
        """The record as JSON has it, with null for numbers that are not finite."""
        return as_plain(self.model_dump(exclude_unset=True))
