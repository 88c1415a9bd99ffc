"""Is accuracy ordered as claimed: growing from rung to rung, between two ends, and in the published order?

Accuracies are arrays [seeds] by method. "Above for sure": the paired 95% interval over seeds lies above zero.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from apiece.evaluate import hurt, trend_of_seeds
from apiece.experiment.judge import Outcome
from apiece.reproduce.fedclup.published import DEGREES, HIGH, LOW, published, rung
from apiece.reproduce.verdict import Claim, Mean, effect, mean_of, weakest

Accuracy = dict[str, np.ndarray]  # [seeds] by method
Curves = dict[str, list[dict[str, list[float]]]]  # by method and seed: columns of a curve, among them "round"
SLACK = 0.01  # what counts as equal


def above(accuracy: Accuracy, more: str, less: str) -> Mean:
    """The difference, paired by seed.

    >>> above({"a": np.array([0.5, 0.75]), "b": np.array([0.25, 0.5])}, "a", "b").value
    0.25
    """
    return mean_of(accuracy[more] - accuracy[less])


def grows(where: str, accuracy: Accuracy, method: str, unfinished: str = "", source: str = "paper") -> Claim:
    """Low above high personalization, the two ends of the ladder.

    >>> up = {rung("fed_clup", degree): np.array([0.11, 0.1101]) * k for k, degree in enumerate(DEGREES, 1)}
    >>> grows("here", up, "fed_clup").verdict
    'holds'
    """
    ends = above(accuracy, rung(method, LOW), rung(method, HIGH))
    what = f"{where}: {method}'s accuracy at low less that at high personalization"
    return effect(what, "above 0", ends, above=0, unfinished=unfinished, source=source)


def between(where: str, accuracy: Accuracy, method: str, unfinished: str = "", source: str = "paper") -> Claim:
    """Every rung is above Local and below Global: the least of these six distances."""
    rungs = [rung(method, degree) for degree in DEGREES]
    gaps = [above(accuracy, one, "local") for one in rungs] + [above(accuracy, "fed_avg", one) for one in rungs]
    what = f"{where}: {method} lies between Local and Global, least distance to either"
    return effect(what, "above 0", weakest(gaps), above=0, unfinished=unfinished, source=source)


def fewer_classes(task: str, alone: dict[int, np.ndarray]) -> Claim:
    """Local, by the number of classes held: the least rise to the next number.

    >>> fewer_classes("MNIST", {2: np.array([0.2, 0.2]), 10: np.array([0.8, 0.81])}).verdict
    'holds'
    """
    values = [alone[held] for held in sorted(alone)]
    rises = [mean_of(more - less) for less, more in pairwise(values)]
    what = f"{task}: the fewer classes a client holds, the lower is Local on all classes, least difference"
    return effect(what, "above 0", weakest(rises), above=0)


def same_order(task: str, printed_as: str, found: dict[int, Accuracy], unfinished: str = "") -> Claim:
    """Kendall's rank correlation of our eight accuracies with the printed ones, mean over classes, by seed."""

    def alike(held: int, seed: int) -> float:
        printed = published(printed_as, held)
        ours = [float(found[held][name][seed]) for name in printed]
        return float(stats.kendalltau(list(printed.values()), ours).statistic)

    seeds = range(len(next(iter(found.values()))["local"]))
    by_seed = mean_of([np.mean([alike(held, seed) for held in found]) for seed in seeds])
    what = f"{task}: the methods' order is the published one (rank correlation above 0.6)"
    return effect(what, 1.0, by_seed, above=0.6, unfinished=unfinished)


def more_on_own(where: str, own: Accuracy, method: str, other: str) -> Claim:
    """On a client's own classes: high personalization less the other."""
    high = rung(method, HIGH)
    what = f"{where}: on a client's own classes {high} personalization is above {other}"
    return effect(what, "above 0", above(own, high, other), above=0, source="here")


def settled(curve: Sequence[float]) -> int:
    """The first round from which an error stays within a point of its last value.

    >>> settled([0.9, 0.505, 0.6, 0.509, 0.5])
    4
    """
    away = [at for at, error in enumerate(curve, 1) if abs(error - curve[-1]) > SLACK]
    return max(away, default=0) + 1


def fewer_rounds(task: str, cells: Sequence[Curves], method: str, unfinished: str = "") -> Claim:
    """Rounds to settle (own validation error) at low minus at high personalization, mean over numbers of classes.

    Smaller lambda, fewer rounds: the difference is above zero, over seeds (which share pictures and initial models
    between numbers of classes).
    """
    rounds = lambda curve: curve["round"][settled(curve["validation_error"]) - 1]
    by_seed = lambda degree: np.mean([[rounds(one) for one in of[rung(method, degree)]] for of in cells], axis=0)
    later = mean_of(by_seed(LOW) - by_seed(HIGH))
    what = f"{task}: {method} settles in fewer rounds at high than at low personalization (rounds saved)"
    return effect(what, "above 0", later, above=0, unfinished=unfinished)


def still_moving(curves: Curves, names: Sequence[str], loss: str = "validation_loss") -> str:
    """Which of these methods had not come to rest, by this loss of theirs; empty if all had."""
    state = {name: trend_of_seeds([(one["round"], one[loss]) for one in curves[name]]).state for name in names}
    moving = [name for name, found in state.items() if found not in ("resting", "rising")]
    return f"not at rest: {', '.join(moving)}" if moving else ""


def gains(outcomes: dict[str, list[Outcome]]) -> dict[str, dict[str, float]]:
    """A row for each method, on own classes: test error, gain over `local` in points, who is hurt (`evaluate.hurt`).

    Outcomes are one for each seed; every seed has other clients, and all of them are counted together.
    """
    scores = {name: [outcome.scores("test", "error") for outcome in seeds] for name, seeds in outcomes.items()}
    pooled = {name: np.concatenate([values for values, _ in seeds]) for name, seeds in scores.items()}
    offsets = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(ends) for _, ends in scores["local"]]))])
    table = {}
    for name, seeds in scores.items():
        error = mean_of([values.mean(dtype=np.float64) for values, _ in seeds])
        row = {"test error": error.value, "+-": error.interval[1] - error.value}
        harm = hurt(pooled[name], pooled["local"], offsets)
        gain = 100 * float(pooled["local"].mean(dtype=np.float64) - pooled[name].mean(dtype=np.float64))
        expected, low, high = (
            round(share, 6) for share in (harm.hurt_expected, harm.hurt_expected_low, harm.hurt_expected_high)
        )
        row |= {"gain over local": gain, "hurt proved": harm.hurt_proved, "hurt expected": expected}
        row |= {"at least": low, "at most": high, "worst client": harm.worst_client}
        table[name] = row if name != "local" else row | dict.fromkeys(list(row)[2:], math.nan)
    return table
