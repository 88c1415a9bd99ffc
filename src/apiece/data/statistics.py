"""Statistics of all clients' training rows without moving a row: what each client sends is a sum or a count.

Mean and spread take two exchanges. First every client sends how many values it has and their sum; the server adds
these, and the mean goes back. Then every client sends the sum of its squared distances to that mean. (Sums of plain
squares would save an exchange and lose the digits of numbers that are large beside their spread.) A median takes one
count per bit of a float32: "how many of your values are at most t?". All of it can go through a secure sum.
"""

from collections.abc import Callable, Iterator

import numpy as np

BLOCK = 1 << 22  # values held in float64 at a time


def count_and_sum(x: np.ndarray, starts: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What clients send first: of each feature the number of values that are there, and their sum.

    One row per client, whose rows begin at `starts`; without it all rows are one client's. Missing values are NaN.

    >>> count, total = count_and_sum(np.array([[1.0], [np.nan], [5.0], [7.0]]), starts=np.array([0, 2]))
    >>> count.tolist(), total.tolist()
    ([[1], [2]], [[1.0], [12.0]])
    """
    there = ~np.isnan(x)
    return _sums(there, starts, np.int64), _sums(np.where(there, x, 0), starts, np.float64)


def squared_distances(x: np.ndarray, mean: np.ndarray, starts: np.ndarray | None = None) -> np.ndarray:
    """What clients send next: of each feature the sum of (value - mean)^2.

    >>> squared_distances(np.array([[1.0], [np.nan], [5.0]]), np.array([2.0])).tolist()
    [[10.0]]
    """
    away = np.nan_to_num(x.astype(np.float64) - mean, nan=0.0)
    return _sums(np.square(away), starts, np.float64)


def mean_and_spread(x: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every feature, from what the clients send. A constant feature has spread 0.

    Client i owns the rows from `offsets[i]` up to `offsets[i + 1]`. NaN for a feature that nobody has.

    >>> mean, spread = mean_and_spread(np.array([[1.0, 3.0], [3.0, 3.0], [5.0, 3.0]]), np.array([0, 1, 3]))
    >>> mean.tolist(), spread.round(6).tolist()
    ([3.0, 3.0], [1.632993, 0.0])
    """
    count, total = np.zeros(x.shape[1:], np.int64), np.zeros(x.shape[1:])
    for rows, starts in _blocks(x, offsets):
        counts, totals = count_and_sum(rows, starts)
        count, total = count + counts.sum(0), total + totals.sum(0)
    known = np.where(count > 0, count, 1)
    mean = np.where(count > 0, total / known, np.nan)
    squares = np.zeros(x.shape[1:])
    for rows, starts in _blocks(x, offsets):
        squares += squared_distances(rows, mean, starts).sum(0)
    spread = np.where(count > 0, np.sqrt(squares / known), np.nan)
    # The mean of equal numbers may differ from them in the last digit: that is not a spread.
    return mean, np.where(spread <= 1e-12 * np.abs(mean), 0.0, spread)


def median(count_at_most: Callable[[np.float32], int], size: int) -> float:
    """The median of `size` float32 values, from counts alone: `count_at_most(t)` is the clients' counts, added.

    With an even number of values it is the mean of the two in the middle, as usual.

    >>> clients = [np.array([5, 1], np.float32), np.array([2, 9], np.float32)]
    >>> median(lambda t: sum(int((x <= t).sum()) for x in clients), size=4)
    3.5
    """
    low = _smallest(count_at_most, (size + 1) // 2)
    high = low if size % 2 else _smallest(count_at_most, size // 2 + 1)
    return (low + high) / 2


def _smallest(count_at_most: Callable[[np.float32], int], k: int) -> float:
    """The k-th smallest value: halve the float32 numbers, in their order, until one is left."""
    largest = int(np.float32(np.inf).view(np.int32))
    low, high = -largest, largest
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count_at_most(_float(middle)) >= k else (middle + 1, high)
    return float(_float(low))


def _float(place: int) -> np.float32:
    """The float32 at a place in their order: the bits of a positive one count up, of a negative one down."""
    size = np.uint32(abs(place)).view(np.float32)
    return size if place >= 0 else -size


def _blocks(x: np.ndarray, offsets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Whole clients, as many at a time as fit: their rows, and where each client's begin."""
    edges = np.asarray(offsets, np.int64)
    rows = max(BLOCK // max(int(np.prod(x.shape[1:], dtype=np.int64)), 1), 1)
    first = 0
    while first < len(edges) - 1:
        last = max(int(np.searchsorted(edges, edges[first] + rows, side="right")) - 1, first + 1)
        starts = edges[first:last]
        owning = starts[np.diff(edges[first : last + 1]) > 0]  # a client without rows has nothing to send
        if len(owning):
            yield x[edges[first] : edges[last]], owning - edges[first]
        first = last


def _sums(values: np.ndarray, starts: np.ndarray | None, dtype: type) -> np.ndarray:
    return np.add.reduceat(values, np.zeros(1, np.int64) if starts is None else starts, axis=0, dtype=dtype)
