"""Pre-train, freeze, federate the last layer: fine-tuned averaging against its rivals.

Cheng, Chadha and Duchi (2021) train a network centrally, freeze it, and federate multinomial logistic regression on
its penultimate features: 80/10/10 % of each client's examples, 400 rounds of 20 clients, 20 local steps on batches of
32, 10 epochs of personalization, 11 trials over seeds and 11 over splits. They publish figures for CIFAR-100 (600
clients), Shakespeare (669), EMNIST (3,400) and StackOverflow (300), and no numbers. Their claims: fine-tuned (FTFA) and
ridge-tuned (RTFA) averaging are about as good as MAML, and better than FedAvg, training alone and pFedMe; accuracy
grows with the steps of personalization; pFedMe takes about twenty times the compute.

Here: MNIST by writer (small convolutional network, 32 features), Shakespeare by role (LSTM, 64 features; an example is
80 characters and the next one, as published), 10,000 CIFAR-10 pictures dealt to 100 clients by a Dirichlet law of 0.3
(32 features), HAR by subject (32 features). Some of the clients pre-train and are never federated: 180 of 539 writers,
223 of 670 roles, 50 of 100 CIFAR clients, 10 of 30 people. New clients: 99 of MNIST's 297 test writers, and of the
others a tenth (roles) or a fifth. Features are centred and given one scale, so that one grid of step sizes fits all.
The networks are far smaller than the published ones, and so is pre-training (6 to 12 passes instead of 25 to 200).

Every method is tuned on validation with the first seed for 100 rounds, over a part of the published grids where most of
their best values lie: step sizes 0.01, 0.1, 1 (and 0.001 where there is only one), RTFA's pull 0.01, 0.1, 1, pFedMe's
step size 0.0005, 0.005, 0.05 with server mixing 1 or 2, its pull 15, inner step 0.05 and 5 inner steps as published.
The width of the difference in Hessian-free MAML is set by rule, not tuned. Then 400 rounds, 11 seeds, and 11 other
deals of the training and validation rows with the first seed; test rows stay, and are looked at once. Accuracy is the
share of right answers of all clients' test examples. "A above B": the paired 95 % interval of A - B lies above 0, over
seeds, or over deals and then widened, as deals share most rows. "A about B": the interval lies within one point of 0.
HAR's windows overlap by half, so that a test window is half seen in training: that favours models of one's own."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from apiece.experiment.build import Arena, arena
from apiece.experiment.contest import Result, Rival, Step, client_errors, contest, counter, errors, per_method, steps
from apiece.experiment.spec import make_spec
from apiece.experiment.train import Watch
from apiece.models import softmax
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.lines import curve, newcomer_lines
from apiece.reproduce.tuned_averaging.last_layer_data import FEDERATIONS, SHARES, Frozen, mnist
from apiece.reproduce.tuned_averaging.last_layer_rivals import PASSES, by_passes, rivals
from apiece.reproduce.tuned_averaging.redeal import redealt
from apiece.reproduce.verdict import Claim, Mean, Reproduction, effect, mean_of, over_splits, weakest, within

COHORT, EVERY = 20, 50
EXCHANGED = SHARES[1] / SHARES[0]  # validation rows for each training row
SHOWN = {"local": "training alone", "fed_avg": "FedAvg", "ftfa": "FTFA", "rtfa": "RTFA", "pfedme": "pFedMe"}
SHOWN |= {"maml_fl (first)": "first-order MAML", "maml_fl (free)": "Hessian-free MAML"}
ALIKE = ("rtfa", "maml_fl (first)", "maml_fl (free)")
WORSE = ("fed_avg", "local", "pfedme")


class Size(NamedTuple):
    """How much is run: seeds, other deals of the rows, rounds, and those of tuning; what newcomers bring."""

    seeds: int = 11
    deals: int = 11
    rounds: int = 400
    tune_rounds: int = 100
    newcomers: tuple[int, ...] = (1, 4, 16, 64)


class Played(NamedTuple):
    """A federation of features, and what became of every method on it."""

    title: str
    frozen: Frozen
    place: Arena
    results: dict[str, Result]


def run(quick: bool, watch: Watch) -> Reproduction:
    """All four federations; `quick`: MNIST with 60 writers, 100 rounds, 3 seeds, 2 deals, coarser grids."""
    size = Size(3, 2, 100, 50, (1, 16)) if quick else Size()
    sources = {"MNIST by writer": lambda: mnist(quick=True)} if quick else FEDERATIONS
    each = steps(rivals(quick), range(size.seeds), size.deals) + 1  # and pre-training
    step = counter(watch, each * len(sources))
    played = [play(title, make, rivals(quick), size, step) for title, make in sources.items()]
    claims = [claim for one in played for claim in claims_of(one, quick)]
    claims += [] if quick else [seconds_of_pfedme(one) for one in played]
    told = {key: value for one in played for key, value in tables(one).items()}
    settings = {"federations": {one.title: one.frozen.about for one in played}, "cohort": COHORT, **size._asdict()}
    return Reproduction(claims, figure(played), {**settings, **told}, NOTES)


def play(title: str, make: Callable[[], Frozen], methods: dict[str, Rival], size: Size, step: Step) -> Played:
    """Pre-train, freeze, and let the methods federate the last layer."""
    step(f"{title}: pre-training")
    frozen = make()
    federation = frozen.federation
    place = arena(federation, softmax(federation.train.x.shape[1:], len(federation.classes)))
    train = dict(rounds=size.rounds, cohort=min(COHORT, place.population), evaluate_every=EVERY)
    results = contest(
        place,
        methods,
        make_spec({"train": train}).train,
        range(size.seeds),
        tune_rounds=size.tune_rounds,
        newcomers=size.newcomers,
        after=by_passes(place),
        deals=[redealt(place, deal) for deal in range(1, size.deals + 1)],
        step=lambda what: step(f"{title}: {what}"),
    )
    return Played(title, frozen, place, results)


NOTES = (
    "Intervals are over seeds (or deals) with the same clients and test rows: they tell the luck of training, not that "
    "of who was asked; the tables of hurt clients are about that.",
    "pFedMe's personal model is the one of a client's last visit, as published; it takes 100 gradients a visit against "
    "20 of FedAvg, so a factor of 5 is what these settings can give; the published 20 is not explained by them.",
    "HAR's windows overlap by half and were split at random: of its rows, FTFA above FedAvg proves least.",
    "A quick run has MNIST alone, with 60 writers, without Hessian-free MAML and the claims that so few cannot decide.",
)


def points(one: Played, name: str, deals: bool = False) -> np.ndarray:
    """Test accuracy in points, of every seed or of every deal."""
    result = one.results[name]
    if deals:
        result = result._replace(outcomes=dict(enumerate(result.dealt)))
    return 100 * (1 - errors(one.place, result))


def claims_of(one: Played, quick: bool) -> list[Claim]:
    """What is claimed of a federation; a quick run has what it can decide."""
    ours = points(one, "ftfa")
    claims = [
        within(
            f"{one.title}: {SHOWN[name]} minus FTFA, in points (about 0)", 0, mean_of(points(one, name) - ours), by=1
        )
        for name in ALIKE
        if name in one.results
    ]
    if (
        quick
    ):  # few writers, a short pre-training and two deals decide the rest otherwise than many, a long one and eleven
        return claims
    for name in WORSE:
        claims.append(above(f"{one.title}: FTFA above {SHOWN[name]}, in points", ours - points(one, name)))
    for name in WORSE:
        other = over_splits(points(one, "ftfa", deals=True) - points(one, name, deals=True), EXCHANGED)
        what = f"{one.title}, other deals of the rows: FTFA above {SHOWN[name]}, in points"
        claims.append(effect(what, "above 0", other, above=0))
    return [*claims, *personalization(one)]


def above(name: str, difference: np.ndarray) -> Claim:
    """Holds if the interval lies above 0."""
    return effect(name, "above 0", mean_of(difference), above=0)


def personalization(one: Played) -> list[Claim]:
    """Accuracy against passes: every step is one up, and so is the whole."""
    accuracy = 100 * np.array(one.results["ftfa"].after)
    rises = [mean_of(rise) for rise in np.diff(accuracy, axis=1).T]
    name = f"{one.title}: least rise of FTFA from {PASSES[0]} to {PASSES[-1]} passes, step by step, in points"
    return [
        effect(name, "above 0", weakest(rises), above=0),
        above(f"{one.title}: FTFA after {PASSES[-1]} passes above none, in points", accuracy[:, -1] - accuracy[:, 0]),
    ]


def seconds_of_pfedme(one: Played) -> Claim:
    """Over FedAvg's, by the typical seed: another program may have had the machine during one of them."""
    seconds = lambda name: np.median([o.costs["seconds"] for o in one.results[name].outcomes.values()])
    ratio = float(seconds("pfedme") / seconds("fed_avg"))
    return within(f"{one.title}: seconds of pFedMe over those of FedAvg, to a half", 20, ratio, share=0.5)


def tables(one: Played) -> dict[str, Any]:
    """For the page: methods, best-mean-worst of the trials, newcomers, and clients where they are few."""
    spread = lambda values: {"best": values.max(), "mean": values.mean(), "worst": values.min()}
    rows = {
        name: {f"{kind} {word}": float(value) for kind in ("seeds", "deals")
               for word, value in spread(points(one, name, kind == "deals")).items()}
        for name in one.results
    }  # fmt: skip
    fresh = lambda result: {str(most): 100 * (1 - float(np.mean(e))) for most, e in result.newcomers.items()}
    found = {
        f"{one.title}, methods": per_method(one.place, one.results),
        f"{one.title}, test accuracy of the trials": rows,
        f"{one.title}, new clients' accuracy by their examples": {n: fresh(r) for n, r in one.results.items()},
        f"{one.title}, chosen": {name: result.options for name, result in one.results.items()},
    }
    if one.place.population <= 30:
        mean = {name: client_errors(one.place, result).mean(0) for name, result in one.results.items()}
        ids = one.place.ids[: one.place.population]
        found[f"{one.title}, test error by client"] = {
            str(who): {name: float(of[i]) for name, of in mean.items()} for i, who in enumerate(ids)
        }
    return found


def figure(played: Sequence[Played]) -> Figure:
    """Accuracy against rounds for every federation; then against passes, and of newcomers."""
    panels = [
        Panel(one.title, "rounds", "validation accuracy",
              [curve(name, result, style) for style, (name, result) in enumerate(one.results.items())])
        for one in played
    ]  # fmt: skip
    gains = []
    for one in played:
        accuracy = 100 * np.array(one.results["ftfa"].after)
        found: list[Mean] = [mean_of(column) for column in (accuracy - accuracy[:, :1]).T]
        low, high = zip(*(mean.interval for mean in found), strict=True)
        gains.append(Line(one.title, PASSES, [mean.value for mean in found], low, high))
    panels.append(Panel("What personalization adds (FTFA)", "passes over the client's data", "points gained", gains))
    first = played[0]
    fresh = newcomer_lines(first.results)
    panels.append(Panel(f"New clients, {first.title}", "examples of the newcomer", "test accuracy", fresh, log_x=True))
    caption = (
        "Above: the mean over clients of validation accuracy; line: mean over seeds, band: worst to best. Below: 95% "
        "intervals over seeds. New clients never trained; who has fewer examples uses all."
    )
    return Figure("Federating the last layer", caption, panels)
