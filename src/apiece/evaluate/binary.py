"""Two classes, one of them to be found: how well scores rank it first, and what it costs to find nearly all of it.

A score is any number that grows with the belief in the second class, such as the difference of two logits. (The log
loss will not do instead of it: that of a confident right answer is rounded to 0, and the order is lost.) Where a
client's examples are all of one class there is nothing to rank: the value is NaN, and the client is left out of means
and counted (`summarize_defined`).
"""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from apiece.errors import UserError
from apiece.evaluate.clients import sizes_of, sum_per_client
from apiece.evaluate.metrics import summarize

FALSE_REJECTS = 0.05


def auc(score: ArrayLike, positive: ArrayLike) -> float:
    """The probability that a positive example scores above a negative one (ties count half); NaN with one class only.

    >>> auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    0.75
    """
    score, positive = _checked(score, positive)
    ones = int(positive.sum())
    zeros = positive.size - ones
    if ones == 0 or zeros == 0 or np.isnan(score).any():
        return math.nan
    return float((stats.rankdata(score)[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def threshold(score: ArrayLike, positive: ArrayLike, false_rejects: float = FALSE_REJECTS) -> float:
    """The highest threshold (accept what scores at least that) that rejects at most this share of the positives.

    Choose it on validation examples and use it on test examples (`rates`) to judge a detector as it would be shipped.
    Fewer than 1 / false_rejects positives allow no rejection at all. NaN without positives.

    >>> threshold([0.9, 0.8, 0.7, 0.2], [1, 1, 1, 1], false_rejects=0.25)
    0.7
    """
    if not 0 <= false_rejects < 1:
        raise UserError(f"false_rejects must be a share of the positives, 0 or more and below 1, not {false_rejects}")
    score, positive = _checked(score, positive)
    found = np.sort(score[positive])
    if found.size == 0 or np.isnan(score).any():
        return math.nan
    return float(found[math.floor(false_rejects * found.size + 1e-9)])  # 0.05 * 20 must allow one


def rates(score: ArrayLike, positive: ArrayLike, threshold: float) -> tuple[float, float]:
    """(false accepts, false rejects): the share of negatives at or above a threshold, and of positives below it.

    >>> rates([0.9, 0.6, 0.7, 0.2], [1, 1, 0, 0], threshold=0.65)
    (0.5, 0.5)
    """
    score, positive = _checked(score, positive)
    if math.isnan(threshold) or np.isnan(score).any():
        return math.nan, math.nan
    accepted = score >= threshold
    share = lambda of: float(of.mean()) if of.size else math.nan
    return share(accepted[~positive]), share(~accepted[positive])


def false_accepts(score: ArrayLike, positive: ArrayLike, false_rejects: float = FALSE_REJECTS) -> float:
    """The share of negatives accepted when at most `false_rejects` of the positives may be rejected; lower is better.

    A point of the ROC curve of these examples: 1 - specificity at sensitivity 1 - false_rejects. NaN with one class.

    >>> false_accepts([0.9, 0.8, 0.7, 0.75, 0.1, 0.2], [1, 1, 1, 0, 0, 0], false_rejects=0.0)
    0.3333333333333333
    """
    return rates(score, positive, threshold(score, positive, false_rejects))[0]


def binary_per_client(
    score: ArrayLike, positive: ArrayLike, offsets: ArrayLike, metric: Callable[[NDArray, NDArray], float] = auc
) -> NDArray[np.float64]:
    """A metric of scores and labels for each client; NaN where it has examples of one class only, or none.

    >>> binary_per_client([0.1, 0.4, 0.35, 0.8, 0.5], [0, 0, 1, 1, 1], [0, 4, 5])
    array([0.75,  nan])
    """
    score, positive = _checked(score, positive)
    sizes_of(offsets, score.size)
    edges = np.asarray(offsets, np.int64)
    both = zip(has_both_classes(positive, offsets), pairwise(edges), strict=True)
    values = [metric(score[a:b], positive[a:b]) if ok else math.nan for ok, (a, b) in both]
    return np.array(values, np.float64)


def has_both_classes(positive: ArrayLike, offsets: ArrayLike) -> NDArray[np.bool_]:
    """Whether a client has examples of both classes, so that its AUC is defined.

    >>> has_both_classes([0, 1, 1, 1], [0, 2, 4])
    array([ True, False])
    """
    ones = sum_per_client(np.asarray(positive, bool), offsets)
    return (ones > 0) & (ones < sizes_of(offsets))


def summarize_defined(
    value: ArrayLike,
    sizes: ArrayLike,
    defined: ArrayLike,
    higher_is_better: bool,
    *,
    train_sizes: ArrayLike | None = None,
) -> dict[str, float]:
    """`summarize` over the clients where the metric is defined; `clients_undefined` counts the others with examples.

    `defined` comes from the labels (`has_both_classes`), not from the values: a diverged model is NaN too, and is not
    left out.

    >>> row = summarize_defined([0.9, float("nan"), 0.7], [10, 4, 10], [True, False, True], higher_is_better=True)
    >>> round(row["mean"], 3), row["clients"], row["clients_undefined"], row["clients_empty"]
    (0.8, 2, 1, 0)
    """
    sizes, defined = np.asarray(sizes), np.asarray(defined, bool)
    row = summarize(value, np.where(defined, sizes, 0), higher_is_better, train_sizes=train_sizes)
    undefined, empty = int(np.sum(~defined & (sizes > 0))), int(np.sum(sizes == 0))
    return row | {"clients_empty": empty, "clients_undefined": undefined}


def _checked(score: ArrayLike, positive: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    score, positive = np.asarray(score, np.float64), np.asarray(positive, bool)
    if score.shape != positive.shape or score.ndim != 1:
        raise UserError(f"one score for each label: got {score.shape} and {positive.shape}")
    return score, positive
