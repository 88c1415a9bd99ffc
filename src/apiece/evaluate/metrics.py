"""Columns of the result table: one federation's clients in a few numbers, and intervals over seeds."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from apiece.errors import UserError

STATISTICS = ("mean_weighted", "mean", "median", "spread", "iqr", "worst10", "top10_by_samples", "min", "max")


def summarize(
    score: ArrayLike, sizes: ArrayLike, higher_is_better: bool, *, train_sizes: ArrayLike | None = None
) -> dict[str, float]:
    """One federation in a few numbers, from each client's score and its number of test examples.

    - `mean_weighted` (by examples), `mean` (every client counts once), `median`;
    - `spread`: the standard deviation over clients (divisor: clients), `iqr`: upper minus lower quartile;
    - `worst10`: the mean of the worst tenth of the clients, that is of the ceil(clients / 10) worst;
    - `top10_by_samples`: the weighted score of the ceil(clients / 10) clients with most training samples
      (`train_sizes`; the test sizes stand in for them if not given). Clients tied at the cut count in part, so that
      the order of the clients never matters;
    - `min`, `max`, `clients` (with test examples) and `clients_empty` (without: they are in no other number).

    A client that has examples but no score (NaN: its model diverged) is not dropped: every statistic is then NaN.

    >>> row = summarize([0.9, 0.5, 0.7, float("nan")], [10, 10, 20, 0], higher_is_better=True)
    >>> {name: round(value, 3) for name, value in row.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'mean_weighted': 0.7, 'mean': 0.7, 'median': 0.7, 'spread': 0.163, 'iqr': 0.2, 'worst10': 0.5,
     'top10_by_samples': 0.7, 'min': 0.5, 'max': 0.9, 'clients': 3, 'clients_empty': 1}
    """
    score, sizes = np.asarray(score, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    train_sizes = sizes if train_sizes is None else np.asarray(train_sizes, dtype=np.float64)
    if not score.shape == sizes.shape == train_sizes.shape or score.ndim != 1:
        raise UserError(f"one score and size per client: got {score.shape}, {sizes.shape}, {train_sizes.shape}")
    present = sizes > 0
    score, sizes, train_sizes = score[present], sizes[present], train_sizes[present]
    counts = {"clients": int(score.size), "clients_empty": int(np.sum(~present))}
    if score.size == 0 or np.isnan(score).any():
        return dict.fromkeys(STATISTICS, math.nan) | counts
    tenth = math.ceil(score.size / 10)
    worst_first = np.sort(score) if higher_is_better else -np.sort(-score)
    lower, upper = np.quantile(score, [0.25, 0.75])
    values = (
        np.average(score, weights=sizes),
        score.mean(),
        np.median(score),
        score.std(),
        upper - lower,
        worst_first[:tenth].mean(),
        np.average(score, weights=sizes * share_of_largest(train_sizes, tenth)),
        score.min(),
        score.max(),
    )
    return dict(zip(STATISTICS, map(float, values), strict=True)) | counts


def share_of_largest(sizes: ArrayLike, count: int) -> NDArray[np.float64]:
    """How much of each client belongs to the `count` largest: 1, 0, or an equal part of the places left to a tie.

    >>> share_of_largest([5, 9, 5, 1], 2)
    array([0.5, 1. , 0.5, 0. ])
    """
    sizes = np.asarray(sizes, dtype=np.float64)
    cut = np.partition(sizes, sizes.size - count)[sizes.size - count]
    above, tied = sizes > cut, sizes == cut
    return above + tied * (count - above.sum()) / tied.sum()


def r2(squared_error: ArrayLike, target: ArrayLike) -> float:
    """Explained share of the federation's variance, 1 - sum of squared errors / sum (y - mean y)^2, all rows pooled.

    Per client it would mean little: few rows, and a mean of their own that no model was promised. NaN if the target
    does not vary.

    >>> round(r2([0.0, 1.0, 0.0], [1.0, 2.0, 3.0]), 3)
    0.5
    """
    squared_error, target = np.asarray(squared_error, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if squared_error.shape != target.shape:
        raise UserError(f"one error for each target: got {squared_error.shape} and {target.shape}")
    if target.size == 0 or np.ptp(target) == 0:
        return math.nan
    return float(1 - squared_error.sum() / np.square(target - target.mean()).sum())


class Interval(NamedTuple):
    """A mean over seeds with its confidence interval, mean -+ half_width.

    >>> Interval(mean=0.8, low=0.7, high=0.9, half_width=0.1).high
    0.9
    """

    mean: float
    low: float
    high: float
    half_width: float


def interval(values: ArrayLike, level: float = 0.95) -> Interval:
    """Student-t confidence interval for the mean over seeds. One seed has no interval: NaN, never 0.

    >>> [round(x, 3) for x in interval([0.80, 0.82, 0.84])]
    [0.82, 0.77, 0.87, 0.05]
    >>> interval([0.8]).half_width
    nan
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise UserError("an interval needs one value for each seed, and at least one seed")
    if not 0 < level < 1:
        raise UserError(f"level must lie between 0 and 1, not {level}")
    seeds, mean = values.size, float(values.mean())
    half = math.nan
    if seeds > 1:
        half = float(stats.t.ppf((1 + level) / 2, seeds - 1) * values.std(ddof=1) / math.sqrt(seeds))
    return Interval(mean, mean - half, mean + half, half)


def paired_interval(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Interval of a - b, paired by seed: what the seeds share (data split, initial model) cancels.

    >>> [round(x, 3) for x in paired_interval([0.80, 0.90, 0.70], [0.78, 0.88, 0.67])]
    [0.023, 0.009, 0.038, 0.014]
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape:
        raise UserError(f"the same seeds on both sides: got {a.size} and {b.size}")
    return interval(a - b, level)
