"""Regression in the units of the target (RMSE) and as a share of its variance (R2), pooled and for each client."""

import math
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apiece.errors import UserError
from apiece.evaluate.clients import per_client, sizes_of, sum_per_client


def rmse(squared_error: ArrayLike) -> float:
    """Root of the mean squared error of all rows pooled, in the units of the target; NaN without rows.

    >>> rmse([9.0, 16.0, 0.0, 0.0])
    2.5
    """
    squared_error = np.asarray(squared_error, np.float64)
    return math.sqrt(squared_error.mean()) if squared_error.size else math.nan


def rmse_per_client(squared_error: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """Each client's RMSE; NaN without rows. The mean over clients is not the pooled RMSE: roots do not add.

    >>> rmse_per_client([9.0, 9.0, 4.0], [0, 2, 3, 3])
    array([ 3.,  2., nan])
    """
    return np.sqrt(per_client(squared_error, offsets))


def r2_per_client(squared_error: ArrayLike, target: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """Each client's explained share of its own variance; NaN where that is 0 or there are fewer than two rows.

    Its own mean is the rival here, which no model was promised, and few rows make it a noisy number that may be far
    below zero: read the median over clients, or `metrics.r2`, pooled.

    >>> r2_per_client([0.0, 1.0, 0.0, 5.0], [1.0, 2.0, 3.0, 9.0], [0, 3, 4])
    array([0.5, nan])
    """
    squared_error, target = np.asarray(squared_error, np.float64), np.asarray(target, np.float64)
    if squared_error.shape != target.shape or target.ndim != 1:
        raise UserError(f"one error for each target: got {squared_error.shape} and {target.shape}")
    varies = has_variance(target, offsets)
    mean = np.repeat(per_client(target, offsets), sizes_of(offsets))
    around = sum_per_client(np.square(target - mean), offsets)
    return 1 - sum_per_client(squared_error, offsets) / np.where(varies, around, np.nan)


def has_variance(target: ArrayLike, offsets: ArrayLike) -> NDArray[np.bool_]:
    """Whether a client's targets differ, so that its R2 is defined.

    >>> has_variance([1.0, 2.0, 3.0, 3.0], [0, 2, 4, 4])
    array([ True, False, False])
    """
    target = np.asarray(target, np.float64)
    edges = np.asarray(offsets, np.int64)
    return np.array([b > a and np.ptp(target[a:b]) > 0 for a, b in pairwise(edges)], bool)
