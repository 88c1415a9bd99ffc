"""Is accuracy ordered as claimed: growing from rung to rung, between two ends, and in the published order?

Accuracies are arrays [seeds] by method. "Above for sure": the paired 95% interval over seeds lies above zero.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import stats

from apiece.evaluate import hurt
from apiece.experiment.judge import Outcome
from apiece.reproduce.fedclup.published import DEGREES, HIGH, LOW, published, rung
from apiece.reproduce.verdict import Claim, Mean, mean_of, stated

Accuracy = dict[str, np.ndarray]  # [seeds] by method
SLACK = 0.01  # what counts as equal


def above(accuracy: Accuracy, more: str, less: str) -> Mean:
    """The difference, paired by seed.

    >>> above({"a": np.array([0.5, 0.75]), "b": np.array([0.25, 0.5])}, "a", "b").value
    0.25
    """
    return mean_of(accuracy[more] - accuracy[less])


def grows(where: str, accuracy: Accuracy, method: str) -> Claim:
    """From high to low personalization: no step falls by more than a point, and the last is above the first for sure.

    >>> up = {rung("fed_clup", degree): np.array([0.11, 0.1101]) * k for k, degree in enumerate(DEGREES, 1)}
    >>> grows("here", up, "fed_clup").holds, grows("here", up, "fed_clup").ours
    (True, '0.110, 0.220, 0.330')
    """
    rungs = [rung(method, degree) for degree in DEGREES]
    ends = above(accuracy, rungs[-1], rungs[0])
    holds = ends.interval[0] > 0 and min(np.diff([accuracy[name].mean() for name in rungs])) >= -SLACK
    what = f"{where}: {method}'s accuracy on all classes grows with lambda (interval: of the last minus the first)"
    return stated(what, "yes", listed(accuracy, rungs), holds, ends.interval)


def between(where: str, accuracy: Accuracy, method: str) -> Claim:
    """No rung is more than a point below Local or above Global, in the mean over seeds."""
    names = ["local", *(rung(method, degree) for degree in DEGREES), "fed_avg"]
    means = [accuracy[name].mean() for name in names]
    holds = min(means) >= means[0] - SLACK and max(means) <= means[-1] + SLACK
    return stated(f"{where}: {method} lies between Local and Global", "yes", listed(accuracy, names), holds)


def fewer_classes(task: str, alone: dict[int, np.ndarray]) -> Claim:
    """Local on all classes, by the number held: each is above the one before for sure.

    >>> fewer_classes("MNIST", {2: np.array([0.2, 0.2]), 10: np.array([0.8, 0.81])}).holds
    True
    """
    values = [alone[held] for held in sorted(alone)]
    rises = [mean_of(more - less) for less, more in pairwise(values)]
    ours = ", ".join(f"{value.mean():.3f}" for value in values)
    what = f"{task}: the fewer classes a client holds, the lower is Local on all classes"
    return stated(what, "yes", ours, all(rise.interval[0] > 0 for rise in rises))


def same_order(task: str, found: dict[int, Accuracy]) -> Claim:
    """Kendall's rank correlation of our eight accuracies with the printed ones, its mean over numbers of classes."""
    alike = []
    for held, accuracy in found.items():
        printed = published(task, held)
        ours = [float(accuracy[name].mean()) for name in printed]
        alike.append(float(stats.kendalltau(list(printed.values()), ours).statistic))
    what = f"{task}: the methods' order is the published one (rank correlation of at least 0.6)"
    return stated(what, 1.0, float(np.mean(alike)), np.mean(alike) >= 0.6)


def more_on_own(where: str, own: Accuracy, method: str, other: str) -> Claim:
    """On a client's own classes: high personalization is above the other for sure."""
    high = rung(method, HIGH)
    gain = above(own, high, other)
    what = f"{where}: on a client's own classes {high} personalization is above {other}"
    return stated(what, "yes", gain, gain.interval[0] > 0, source="here")


def settled(curve: Sequence[float]) -> int:
    """The first round from which an error stays within a point of its last value.

    >>> settled([0.9, 0.505, 0.6, 0.509, 0.5])
    4
    """
    away = [at for at, error in enumerate(curve, 1) if abs(error - curve[-1]) > SLACK]
    return max(away, default=0) + 1


def fewer_rounds(task: str, outcomes: Sequence[dict[str, list[Outcome]]], method: str) -> Claim:
    """Rounds to settle (own validation error) at low minus at high personalization, mean over numbers of classes.

    Smaller lambda, fewer rounds: the difference is above zero for sure, over seeds (which share pictures and initial
    models between numbers of classes).
    """
    rounds = lambda outcome: settled([point["validation_error"] for point in outcome.curve])
    by_seed = lambda degree: np.mean([[rounds(one) for one in of[rung(method, degree)]] for of in outcomes], axis=0)
    later = mean_of(by_seed(LOW) - by_seed(HIGH))
    what = f"{task}: {method} settles in fewer rounds at high than at low personalization (rounds saved)"
    return stated(what, "yes", later, later.interval[0] > 0)


def listed(accuracy: Accuracy, names: Sequence[str]) -> str:
    """Means over seeds, as text."""
    return ", ".join(f"{accuracy[name].mean():.3f}" for name in names)


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
