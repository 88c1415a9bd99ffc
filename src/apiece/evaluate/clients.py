"""From rows to clients: whose rows are whose is told by `offsets`, client i owning rows offsets[i] to offsets[i+1]."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apiece.errors import UserError


def sizes_of(offsets: ArrayLike, rows: int | None = None) -> NDArray[np.int64]:
    """How many rows each client has; offsets that cannot be right (or do not cover `rows` rows) raise a `UserError`.

    >>> sizes_of([0, 2, 2, 5])
    array([2, 0, 3])
    """
    offsets = np.asarray(offsets, dtype=np.int64)
    if offsets.ndim != 1 or offsets.size == 0 or offsets[0] != 0:
        raise UserError("offsets must be one list of clients + 1 row numbers that starts at 0")
    sizes = np.diff(offsets)
    if np.any(sizes < 0):
        client = int(np.argmax(sizes < 0))
        raise UserError(f"offsets must not fall: client {client} would own {sizes[client]} rows")
    if rows is not None and offsets[-1] != rows:
        raise UserError(f"offsets end at row {offsets[-1]}, but there are {rows} rows")
    return sizes


def sum_per_client(values: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """Sum of each client's rows along the last axis; 0 for a client without rows.

    >>> sum_per_client([1.0, 3.0, 5.0, 6.0, 7.0], [0, 2, 2, 5])
    array([ 4.,  0., 18.])
    """
    values = np.asarray(values, dtype=np.float64)
    sizes = sizes_of(offsets, values.shape[-1])
    owns = sizes > 0
    sums = np.zeros((*values.shape[:-1], sizes.size))
    if owns.any():
        # reduceat returns a neighbour's row for an empty segment, and refuses one that starts at the end. An empty
        # client stands between no rows, so the other clients' starts alone cut the same segments.
        sums[..., owns] = np.add.reduceat(values, np.asarray(offsets, dtype=np.int64)[:-1][owns], axis=-1)
    return sums


def per_client(values: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """Mean of each client's rows along the last axis (leading axes, such as seeds, are kept); NaN without rows.

    >>> per_client([1.0, 3.0, 5.0, 6.0, 7.0], [0, 2, 2, 5])
    array([ 2., nan,  6.])
    """
    sizes = sizes_of(offsets)
    return sum_per_client(values, offsets) / np.where(sizes > 0, sizes, np.nan)
