"""What is to be expected of what is advised: errors and gains with 90 % intervals, and who may be worse off.

Models of the pilot were trained on three quarters of the data, and once more on half of them: if the risk is a + b/n,
that of all data is 1.5 times the one less half the other. Without that, gains over local are overstated by two points.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from apiece.advise.choose import Choice, shrunken
from apiece.advise.stacking import client_means, paired
from apiece.advise.weigh import Told
from apiece.evaluate.empirical_bayes import fit_normal, posterior
from apiece.evaluate.hurt import Hurt, hurt_from_sums

LEVEL = 0.9
UNSURE = 0.15  # of a gain: how far extrapolation was off, in the study
FEW = 15  # clients, below which Student's t widens intervals
JUDGED = 2000  # clients, at most, that harm is foreseen for


class Expected(NamedTuple):
    """A number and its 90 % interval."""

    mean: float
    low: float
    high: float


class Foreseen(NamedTuple):
    """By kind ("advised", "shared", "local", ...): errors in points; gains of the advised over shared and local."""

    errors: dict[str, Expected]
    gains: dict[str, Expected]
    loss_gains: dict[str, Expected]
    hurt: Hurt | None
    judged: np.ndarray
    client_gains: np.ndarray  # over local, posterior means in points; NaN for clients without held-out examples
    client_doubts: np.ndarray
    supported: np.ndarray  # how much of that is the client's own, 0 to 1


def foresee(
    choice: Choice, told: Told, scale: float, mistakes: bool, seed: int = 0, alone: np.ndarray | None = None
) -> Foreseen:
    """Expectations from held-out sums, of models on three quarters of the data and on half of them.

    `scale`: a point is a hundredth of it: 1 for classes, the targets' variance for numbers. `mistakes`: errors are
    0 or 1. `alone`: the clients that have a local model, if not all have.
    """
    points = 100 / scale
    every = {name: choice.predictor(name) for name in dict.fromkeys(["advised", *choice.kinds])}
    there = np.ones(len(told.count), bool) if alone is None else alone
    guarded = np.isin(np.arange(len(told.count)), choice.alone)  # of them what is advised is local

    def part(sums: np.ndarray, name: str, k: int) -> np.ndarray:
        means = client_means(sums[:, k, every[name]], told.count[:, k])
        if name == "advised" and guarded.any():
            means = np.where(guarded, client_means(sums[:, k, every["local"]], told.count[:, k]), means)
        return np.where(there, means, np.nan) if every[name] == every.get("local") else means

    at_full = lambda sums, name: 1.5 * part(sums, name, 0) - 0.5 * part(sums, name, 1)
    errors, gains, loss_gains = {}, {}, {}
    for name in every:
        correction = _mean(part(told.error, name, 0)) - _mean(part(told.error, name, 1))
        found = _interval(points * at_full(told.error, name), points * correction / 2)
        errors[name] = Expected(*np.clip(found, 0, 100 if mistakes else None).tolist())
    for other in choice.kinds:
        less = lambda sums: at_full(sums, other) - at_full(sums, "advised")  # noqa: B023 (used at once)
        gains[other] = _interval(points * less(told.error), None)
        loss_gains[other] = _interval(less(told.loss), None)
    nothing = np.full(len(told.count), np.nan)
    if "local" not in every:
        return Foreseen(errors, gains, loss_gains, None, np.zeros(0, int), nothing, nothing, np.zeros(len(nothing)))
    without = choice.named if guarded.any() else "advised"
    corrected = points * (at_full(told.error, "local") - at_full(told.error, without))
    total, square = paired(told.error, told.error_cross, every["local"], every["advised"])
    count = np.where(there, told.count[:, 0], 0)
    seen = _posterior(points * total, points**2 * square, corrected, count)  # of the guarded: had they no guard
    judged, hurt = _harm(np.where(guarded, 0, -total), np.where(guarded, 0, square), count, scale, mistakes, seed)
    return Foreseen(errors, gains, loss_gains, hurt, judged, *seen)


def _mean(values: np.ndarray) -> float:
    some = values[np.isfinite(values)]
    return float(some.mean()) if len(some) else 0.0


def _interval(of_clients: np.ndarray, unsure: float | None) -> Expected:
    """The mean over clients with its interval; `unsure`: a standard deviation to add, or a share of the mean."""
    there = of_clients[np.isfinite(of_clients)]
    if not len(there):
        return Expected(float("nan"), float("nan"), float("nan"))
    middle, count = float(there.mean()), len(there)
    more = UNSURE * middle if unsure is None else unsure
    # Between clients twice: that of their means, and that of the examples within them, which the first has once.
    s = np.sqrt((there.var(ddof=1) / count if count > 1 else np.inf) + more**2)
    width = (stats.t.ppf((1 + LEVEL) / 2, count - 1) if 1 < count < FEW else stats.norm.ppf((1 + LEVEL) / 2)) * s
    return Expected(middle, float(middle - width), float(middle + width))


def _posterior(
    total: np.ndarray, square: np.ndarray, corrected: np.ndarray, count: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every client's gain as all clients' examples together tell it: (mean, standard deviation, share of its own)."""
    there = np.flatnonzero((count > 0) & np.isfinite(corrected))
    nothing = np.full(len(count), np.nan)
    if len(there) < 2:
        return nothing, nothing, np.zeros(len(count))
    d = corrected[there]
    v = 2.5 * shrunken(total[there], square[there], count[there])[1]  # 1.5^2 + 0.5^2: of the extrapolation
    if not (v > 0).all():
        return nothing, nothing, np.zeros(len(count))
    prior = fit_normal(d, v)
    mean, variance = posterior(d, v, prior)
    found = [nothing.copy(), nothing.copy(), np.zeros(len(count))]
    found[0][there], found[1][there] = mean, np.sqrt(1.5 * variance + 0.5 * prior.tau2)
    found[2][there] = prior.tau2 / (prior.tau2 + v)
    return found[0], found[1], found[2]


def _harm(
    total: np.ndarray, square: np.ndarray, count: np.ndarray, scale: float, mistakes: bool, seed: int
) -> tuple[np.ndarray, Hurt | None]:
    """Who is worse off than alone, on held-out examples, as `apiece.evaluate.hurt` tells it."""
    judged = np.flatnonzero(count > 0)
    if len(judged) > JUDGED:
        judged = np.sort(np.random.default_rng([seed, 0x687572]).permutation(judged)[:JUDGED])
    if not len(judged):
        return judged, None
    found = hurt_from_sums(total[judged], square[judged], count[judged], mistakes=mistakes, scale=scale, level=LEVEL,
                           seed=seed)  # fmt: skip
    return judged, found
