"""What is to be expected of what is advised: errors and gains with 90 % intervals, and who may be worse off.

Models of the pilot were trained on three quarters of the data, and once more on half of them: if the risk is a + b/n,
that of all data is 1.5 times the one less half the other. Without that, gains over local are overstated by two points.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from apiece.advise import stacking
from apiece.advise.choose import Choice
from apiece.advise.stacking import Held
from apiece.evaluate.hurt import Hurt, hurt

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


def foresee(choice: Choice, held: Held, halves: Held, scale: float, seed: int = 0) -> Foreseen:
    """Expectations from held-out scores: `held` of models on three quarters of the data, `halves` on half of them.

    `scale`: a point is a hundredth of it: 1 for classes, the targets' variance for numbers.
    """
    points = 100 / scale
    most, less = held.take(choice.at), halves.take(choice.at)
    every = {}
    for name in dict.fromkeys(["advised", *choice.kinds]):
        every[name] = [_of(choice, part, name) for part in (most, less)]
    mean = lambda values, part: stacking.client_means(values, part.present)
    at_full = lambda pair: 1.5 * mean(pair[0], most) - 0.5 * mean(pair[1], less)
    errors, gains, loss_gains = {}, {}, {}
    for name, ((error, _), (error_less, _)) in every.items():
        correction = np.nanmean(mean(error, most)) - np.nanmean(mean(error_less, less))
        errors[name] = _interval(points * at_full((error, error_less)), points * correction / 2)
    for other in [name for name in every if name != "advised"]:
        both = [
            (every[other][k][0] - every["advised"][k][0], every[other][k][1] - every["advised"][k][1]) for k in (0, 1)
        ]
        gains[other] = _interval(points * at_full((both[0][0], both[1][0])), None)
        loss_gains[other] = _interval(at_full((both[0][1], both[1][1])), None)
    over = every["local"][0][0] - every["advised"][0][0]
    posterior = _posterior(points * over, points * at_full((over, every["local"][1][0] - every["advised"][1][0])), most)
    judged, found = _harm(every["advised"][0][0], every["local"][0][0], most, scale, seed)
    return Foreseen(errors, gains, loss_gains, found, judged, *posterior)


def _of(choice: Choice, held: Held, name: str) -> tuple[np.ndarray, np.ndarray]:
    """([clients, examples] errors, losses) of a candidate, or of what is advised."""
    name = choice.named if name == "advised" else name
    if name == "stack":
        weights = stacking.cross_fitted(held, choice.weights, choice.kappa)
    else:
        weights = stacking.only(held, choice.kinds.index(name))
    return stacking.mixed_errors(held, weights), -stacking.mixed_log_density(held, weights)


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


def _posterior(gain: np.ndarray, corrected: np.ndarray, held: Held) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every client's gain as all clients' examples together tell it: (mean, standard deviation, share of its own)."""
    from apiece.evaluate.empirical_bayes import fit_normal, posterior

    count = held.present.sum(axis=1)
    there = np.flatnonzero((count > 0) & np.isfinite(corrected))
    nothing = np.full(len(count), np.nan)
    if len(there) < 2:
        return nothing, nothing, np.zeros(len(count))
    d, n = corrected[there], count[there]
    centre = stacking.client_means(gain, held.present)[there]
    own = np.where(held.present[there] > 0, (gain[there] - centre[:, None]) ** 2, 0).sum(axis=1)
    v = 2.5 * (20 * own.sum() / max((n - 1).sum(), 1) + own) / (19 + n) / n  # 1.5^2 + 0.5^2: of the extrapolation
    if not (v > 0).all():
        return nothing, nothing, np.zeros(len(count))
    prior = fit_normal(d, v)
    mean, variance = posterior(d, v, prior)
    found = [nothing.copy(), nothing.copy(), np.zeros(len(count))]
    found[0][there], found[1][there] = mean, np.sqrt(1.5 * variance + 0.5 * prior.tau2)
    found[2][there] = prior.tau2 / (prior.tau2 + v)
    return found[0], found[1], found[2]


def _harm(error: np.ndarray, local: np.ndarray, held: Held, scale: float, seed: int) -> tuple[np.ndarray, Hurt | None]:
    """Who is worse off than alone, on held-out examples, as `apiece.evaluate.hurt` tells it."""
    count = held.present.sum(axis=1).astype(int)
    judged = np.flatnonzero(count > 0)
    if len(judged) > JUDGED:
        judged = np.sort(np.random.default_rng([seed, 0x687572]).permutation(judged)[:JUDGED])
    if not len(judged):
        return judged, None
    there = held.present[judged] > 0
    offsets = np.concatenate([[0], np.cumsum(count[judged])])
    return judged, hurt(error[judged][there], local[judged][there], offsets, scale=scale, level=LEVEL, seed=seed)
