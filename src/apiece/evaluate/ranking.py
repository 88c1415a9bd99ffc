"""Who is best, and which differences to the best the data support."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from apiece.evaluate.metrics import Interval, paired_interval


def ranked(scores: Mapping[str, float], higher_is_better: bool) -> list[str]:
    """Names by score, best first; those without one (NaN) last, and of equals the first first.

    >>> ranked({"a": 0.5, "b": float("nan"), "c": 0.9}, higher_is_better=True)
    ['c', 'a', 'b']
    """
    sign = -1 if higher_is_better else 1
    return sorted(scores, key=lambda name: (math.isnan(scores[name]), sign * scores[name]))


def gap_to_best(best: Mapping[int, float], other: Mapping[int, float], over_clients: float = 0.0) -> Interval | None:
    """How far another is behind the best (higher scores are better), from their scores by seed; None: no seed shared.

    The interval is the wider of two, paired in both: over seeds (the luck of training), and `over_clients`, half of
    the one over clients (the luck of the test examples). Seeds alone would tell methods apart by a single test example
    when training is steady.

    >>> [round(x, 2) for x in gap_to_best({0: 0.9, 1: 0.9}, {0: 0.8, 1: 0.8}, over_clients=0.2)]
    [0.1, -0.1, 0.3, 0.2]
    """
    seeds = [seed for seed in best if seed in other]
    if not seeds:
        return None
    over_seeds = paired_interval([best[seed] for seed in seeds], [other[seed] for seed in seeds])
    half = float(np.maximum(over_seeds.half_width, over_clients))
    return Interval(over_seeds.mean, over_seeds.mean - half, over_seeds.mean + half, half)


def half_over_clients(ours: ArrayLike, theirs: ArrayLike, sizes: ArrayLike, level: float = 0.95) -> float:
    """Half the interval of the weighted difference of scores, were other clients drawn; 0 where there is only one.

    Clients without test examples (size 0) or without a score on either side (NaN) are left out.

    >>> round(half_over_clients([0.9, 0.8, 0.7], [0.8, 0.8, 0.8], [10, 10, 10]), 3)
    0.248
    """
    ours, theirs, sizes = (np.asarray(values, dtype=np.float64) for values in (ours, theirs, sizes))
    there = (sizes > 0) & np.isfinite(ours) & np.isfinite(theirs)
    count = int(there.sum())
    if count < 2:
        return 0.0
    share = sizes[there] / sizes[there].sum()
    gap = (ours - theirs)[there]
    variance = np.sum(share**2 * (gap - share @ gap) ** 2) * count / (count - 1)
    return float(stats.t.ppf((1 + level) / 2, count - 1) * np.sqrt(variance))


def excludes_tie(found: Interval) -> bool:
    """Whether the interval of a difference excludes zero; one seed excludes nothing.

    >>> excludes_tie(Interval(1.0, 0.5, 1.5, 0.5)), excludes_tie(Interval(1.0, *[float("nan")] * 3))
    (True, False)
    """
    return bool(found.low > 0 or found.high < 0)
