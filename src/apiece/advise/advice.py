"""What is advised, typed and versioned: advice.json is this; the terminal shows it, and computes nothing."""

import html
from typing import Any, Literal

from apiece.advise.foresee import Expected
from apiece.experiment.record import Entry, Environment, Number
from apiece.files import as_plain

FORMAT = 2


class Ends(Entry):
    """A number with its 90 % interval."""

    mean: Number
    low: Number
    high: Number

    @classmethod
    def of(cls, found: Expected) -> "Ends":
        """The same of what was foreseen."""
        return cls(mean=found.mean, low=found.low, high=found.high)


class Heterogeneity(Entry):
    """How different the clients are."""

    clients: int
    examples: Number
    """The geometric mean of the clients' numbers of training examples."""
    z: Number
    """Evidence that clients differ at all: below 2 there is none; far below 0 the pilot knows its rows by heart."""
    radius: Number
    """How far a client's true model lies from the shared one, a parameter: the spread between clients."""
    noise: Number
    """How far a model that is fitted alone lies from the true one, a parameter; it falls as 1/sqrt(examples)."""
    between: Number
    """radius^2 / (radius^2 + noise^2): near 0, share; near 1, each alone."""
    features_between: Number
    """Of the variance of features, the share that lies between clients."""
    labels_between: Number
    """Of the variance of labels, the share that lies between clients."""
    groups_explain: Number
    """Of what personal models gain on held-out examples over the shared one, what group models gain."""
    kind: Literal["none", "label", "feature", "concept"]
    """What explains the difference: labels are differently frequent; inputs differ, and mean the same; or they mean
    something else."""
    label_share: Number
    """Of what personal models gain on held-out examples, what the client's own label frequencies gain alone."""
    feature_share: Number
    """Of the same, what it gains that the client's mean input counts as everybody's."""


class ClientDegree(Entry):
    """A client for whom the data support more than "as everybody"."""

    client: str
    examples: int
    advice: str
    gain: Number
    """Over local, in points: a posterior mean, and its standard deviation."""
    doubt: Number


class Degree(Entry):
    """How much to personalize."""

    c: Number
    """The point of the path: lambda_i = c n/n_i, n the geometric mean of the clients' examples n_i."""
    pull: Number
    """c n: divided by a client's examples it is its lambda, for RTFA, Ditto and FedCLUP."""
    lam: Number
    """lambda of a client of the usual size."""
    own_share: Number
    """How much of a client's model its own data decide, at that point: 0 shared, 1 alone."""
    steps: int
    """Steps of fine-tuning that go about as far, each of size `step_size`."""
    step_size: Number
    clients: list[ClientDegree]
    """Clients that differ; all others: as everybody."""


class Groups(Entry):
    """Groups of clients, where the hold-out supports them."""

    count: int
    sizes: list[int]
    members: list[int]
    """The group of each client, in the order of the federation."""
    gain: Ends
    """Of what is advised over the group models alone, in points; below 0: groups are better."""


class Tried(Entry):
    """A candidate that was scored on held-out examples, with models of three quarters of the data."""

    name: str
    loss: Number
    error: Ends | None = None
    """Expected with all data, in points."""


class Stacked(Entry):
    """The weights of a mixture."""

    weights: dict[str, Number]
    kappa: Number
    """Examples that the pooled weights count for, against those of a client, whose own weights stay with it; null:
    clients have no weights of their own."""
    gain: Number
    """In loss, over the best single candidate, on examples that the weights have not seen; and its standard error."""
    doubt: Number


class Harmed(Entry):
    """Who is expected to be worse off than alone."""

    proved: Number
    expected: Number
    expected_low: Number
    expected_high: Number
    worst_tenth: Number
    """Posterior mean of the difference from alone, in points, of the tenth that is worst off; below 0: better off."""
    named: list[str]
    """Clients that are proved to be worse off."""
    at_risk: dict[str, Number]
    """The clients at most risk, and how likely it is that they lose more than a point."""


class Cost(Entry):
    """What the advice took, and what training takes that follows it."""

    passes: Number
    """Gradients of everybody's whole data, or as much work."""
    exchanges: int
    gradients: int
    seconds: Number
    rounds: int
    bytes_up: int
    bytes_down: int
    training_gradients: int
    training_seconds: Number


class Theory(Entry):
    """What theory predicts from moments, and whether its assumptions are near enough to say so."""

    lam: Number
    """Of a client of the usual size."""
    holds: bool
    why: str


class ReleasedSum(Entry):
    """A sum of clients' answers that was looked at, with noise."""

    name: str
    clip: Number
    """How long a client's answer may be."""
    noise: Number
    """The deviation of the noise of each of its numbers, in clips."""
    numbers: int


class AdvicePrivacy(Entry):
    """The promise of differential privacy that the pilot keeps to each client, and what it rests on."""

    epsilon: Number
    """As the accountant says, of all releases together."""
    delta: Number
    asked: Number
    """What the pilot was allowed to spend."""
    clients: int
    adjacency: str
    """What two populations differ in that cannot be told apart."""
    decided: bool
    """Whether personal models differ from the shared one by more than noise makes; false: what is advised is what to
    fall back on."""
    hidden_loss: Number
    """Differences of mean held-out loss below this are hidden by the noise; then in points of error."""
    hidden_points: Number
    steps: int
    """Of the pilot's shared model."""
    accountant: str
    releases: list[ReleasedSum]
    assumptions: list[str]
    left_out: list[str]
    """What a plain advice tells, and this one does not."""
    not_covered: list[str]


class Advice(Entry):
    """How much to personalize, with whom, by which method; with reasons, doubts, and a spec to run.

    >>> Advice.model_fields["format"].annotation
    <class 'int'>
    """

    format: int
    data: str
    task: str
    model: str
    metric: str
    """What points are of: "error", in percent, or "squared error", in percent of the targets' variance."""
    answer: list[str]
    """Three sentences."""
    kind: Literal["shared", "path", "nearer", "local", "groups", "tuned", "stack"]
    method: str
    options: dict[str, Any]
    heterogeneity: Heterogeneity
    degree: Degree
    private: dict[str, Any] | None = None
    """Which part of a network to keep private: held-out losses with each part of one's own, and what the clients'
    gradients say of the split; null for linear models, whose parts are not told apart."""
    privacy: AdvicePrivacy | None = None
    """The promise to clients, of an advice that was asked for with one."""
    groups: Groups | None
    errors: dict[str, Ends]
    """Expected test errors in points: of what is advised, of shared, of local, and of other candidates."""
    gains: dict[str, Ends]
    """Of what is advised over the others, in points."""
    loss_gains: dict[str, Ends]
    hurt: Harmed | None
    stack: Stacked
    tried: list[Tried]
    theory: Theory
    reasons: list[str]
    doubts: list[str]
    notes: list[str]
    spec: dict[str, Any]
    next: list[str]
    cost: Cost
    seed: int
    folds: int
    environment: Environment

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return as_plain(self.model_dump())

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, what was tried, and what to do next."""
        answer = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.answer)
        rows = "".join(f"<tr><th>{html.escape(one.name)}</th><td>{one.loss:.4f}</td></tr>" for one in self.tried)
        steps = "".join(f"<p><code>{html.escape(step)}</code></p>" for step in self.next)
        head = "<tr><th>tried</th><th>held-out loss</th></tr>"
        return f"{answer}<table><thead>{head}</thead><tbody>{rows}</tbody></table>{steps}"


def read_advice(values: dict[str, Any]) -> Advice:
    """An advice from the values of an advice.json.

    >>> try: read_advice({})
    ... except ValueError as error: print(error.error_count() > 10)
    True
    """
    return Advice.model_validate(values)
