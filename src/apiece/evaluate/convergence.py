"""Has a run come to rest? From its validation curve: is it still falling, beyond its noise, by an amount that matters?

A curve is a mean over clients, look by look; its noise is the scatter around a smooth trend. The rule:

- looked at is the last quarter of the rounds; with fewer than four looks in it nothing can be told ("unknown").
- falling or rising: the 95 % interval of the slope of a straight line through these looks, from their scatter around
  it, lies on one side of zero. To be called improving, so does that of the last half: a swing is no trend.
- noise that could hide a fall of a twentieth of the loss within that quarter leaves it "unknown", too.
- what matters is one hundredth of the loss. What counts of a fall is what as many rounds again would bring: a fall of f
  in the last quarter that was f / q in the quarter before goes on as f (q + q^2 + q^3 + q^4), with q at most 1. So a
  loss that has nearly arrived rests, however clean its last digits are; and one that creeps on does not.

Several seeds are judged by the mean of their curves: seeds that differ in nothing then count as one.
"""

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from apiece.evaluate.metrics import Interval

LEAST_LOOKS = 4  # in the last quarter of the rounds
MATTERS, HIDDEN = 0.01, 0.05  # of the loss: a gain that matters, and a fall that noise must not hide
State = Literal["resting", "improving", "rising", "diverged", "unknown"]


class Trend(NamedTuple):
    """Where a validation curve goes.

    >>> trend_of([10, 20, 30], [0.3, 0.2, 0.1]).state
    'unknown'
    """

    state: State
    looks: int  # in the last quarter of the rounds
    change: Interval  # of the loss over that quarter; negative: it falls
    gain: float  # by how much the loss is expected to fall over as many rounds again; 0 if it does not fall
    loss: float  # at the last look


def trend_of(rounds: ArrayLike, losses: ArrayLike) -> Trend:
    """The trend of one curve: losses after so many rounds, the last look at the end of the run.

    >>> rounds = np.arange(5, 101, 5)
    >>> trend_of(rounds, 0.1 + 0.9**rounds).state, trend_of(rounds, 0.1 + 0.99**rounds).state
    ('resting', 'improving')
    >>> round(trend_of(rounds, 0.1 + 0.99**rounds).gain, 2), round(0.99**100 - 0.99**200, 2)
    (0.23, 0.23)
    """
    at, loss = np.asarray(rounds, np.float64), np.asarray(losses, np.float64)
    last = at > 0.75 * at[-1] if at.size else np.zeros(0, bool)
    none, looks = Interval(*[np.nan] * 4), int(last.sum())
    end = float(loss[-1]) if loss.size else np.nan
    if looks and np.isfinite(loss).any() and not np.isfinite(end):
        return Trend("diverged", looks, none, 0.0, np.nan)
    if looks < LEAST_LOOKS or not np.isfinite(loss[last]).all():
        return Trend("unknown", looks, none, np.nan, end)
    latter = (at > 0.5 * at[-1]) & np.isfinite(loss)
    quarter = 0.25 * float(at[-1])
    change = _change(at[last], loss[last], quarter)
    gain, matters = 0.0, MATTERS * abs(end)
    if change.mean < 0:
        before = latter & ~last
        earlier = _change(at[before], loss[before], quarter).mean if before.sum() > 1 else 0.0
        q = min(1.0, change.mean / earlier) if earlier < 0 else 1.0
        gain = -change.mean * (q + q**2 + q**3 + q**4)
    state: State = "resting"
    if change.high < 0 and _change(at[latter], loss[latter], 1.0).high < 0 and gain > matters:
        state = "improving"
    elif change.low > 0 and change.mean > matters:
        state = "rising"
    elif -change.low > HIDDEN * abs(end):
        state = "unknown"
    return Trend(state, looks, change, gain, end)


def trend_of_seeds(curves: Sequence[tuple[ArrayLike, ArrayLike]]) -> Trend:
    """The trend of a method: of the mean curve of its seeds, each (rounds, losses).

    Where they do not have the same looks, the one that gains most by more rounds stands for all.

    >>> rounds = np.arange(5, 101, 5)
    >>> trend_of_seeds([(rounds, 0.99**rounds), (rounds, 0.98**rounds)]).state
    'improving'
    """
    trends = [trend_of(*curve) for curve in curves]
    if diverged := [one for one in trends if one.state == "diverged"]:
        return diverged[0]
    if all(np.array_equal(rounds, curves[0][0]) for rounds, _ in curves):
        return trend_of(curves[0][0], np.mean([np.asarray(losses, np.float64) for _, losses in curves], axis=0))
    least = lambda trend: (trend.state == "improving", trend.gain if np.isfinite(trend.gain) else 0.0)
    return max(trends, key=least)


def _change(at: NDArray, values: NDArray, over: float) -> Interval:
    """How much a straight line through points changes over a stretch, with the 95 % interval that its scatter gives."""
    centred = at - at.mean()
    spread = float(centred @ centred)
    slope = float(centred @ values) / spread
    rest = values - values.mean() - slope * centred
    free = max(1, at.size - 2)
    half = over * _quantile(free) * (float(rest @ rest) / free / spread) ** 0.5
    return Interval(over * slope, over * slope - half, over * slope + half, half)


@functools.cache
def _quantile(free: int) -> float:
    """Of Student's t, for 95 % on both sides."""
    return float(stats.t.ppf(0.975, free))
