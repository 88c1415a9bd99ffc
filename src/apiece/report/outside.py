"""What lies far outside: axes follow the sensible rows; the others leave at the edge, and are named beside it."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apiece.report.look import shortened
from apiece.report.numbers import number

TIMES, LOG_TIMES = 30.0, 1000.0  # as far out as what half of the rows keep within; on a logarithmic axis
Far = tuple[str, float]  # a row that leaves the axis: its name, and the value that is farthest out


def farthest(rows: Iterable[ArrayLike], times: float = TIMES) -> float:
    """The size beyond which a value is outside: so many times what half of the rows keep within.

    >>> farthest([[0.5, 2.0], [1.0, 3.0], [2.0, 1e12]])
    90.0
    """
    sizes = [np.abs(np.asarray(row, np.float64)) for row in rows]
    reach = sorted(float(size[np.isfinite(size)].max()) for size in sizes if np.isfinite(size).any() and size.any())
    return times * reach[(len(reach) - 1) // 2] if reach else np.inf


def within(values: NDArray, limit: float) -> NDArray:
    """The values that an axis should show.

    >>> within(np.array([1.0, np.nan, 1e9]), 100.0).tolist()
    [1.0]
    """
    return values[np.isfinite(values) & (np.abs(values) <= limit)]


def far_out(rows: Iterable[tuple[str, NDArray]], low: float, high: float) -> list[Far]:
    """Of rows (name, values) those that leave the axis.

    >>> far_out([("a", np.array([1.0])), ("b", np.array([2.0, 1e9, np.nan]))], 0, 3)
    [('b', 1000000000.0)]
    """
    found = []
    for name, values in rows:
        beyond = values[np.isfinite(values) & ((values > high) | (values < low))]
        if beyond.size:
            found.append((name, float(beyond[np.abs(beyond).argmax()])))
    return found


def in_words(far: Sequence[Far], most: int = 1000) -> str:
    """Who leaves the axis, and how far it goes; without names where these are too long.

    >>> in_words([("ditto", 1e15), ("apfl", 3e6)]), in_words([("ditto", 1e15), ("apfl", 3e6)], 20)
    ('outside: ditto, to 1e15; apfl, to 3,000,000', 'outside: 2, to 1e15')
    """
    if not far:
        return ""
    text = "outside: " + "; ".join(f"{shortened(name, 30)}, to {number(value)}" for name, value in far)
    largest = max((value for _, value in far), key=abs)
    return text if len(text) <= most else f"outside: {len(far)}, to {number(largest)}"


def limits(given: ArrayLike, *, log: bool = False, room: float = 0.04) -> tuple[float, float]:
    """The ends of an axis that shows all finite values with a little room; one value alone gets room as well.

    >>> limits([0.0, 1.0], room=0.1)
    (-0.1, 1.1)
    """
    values = np.asarray(given, np.float64)
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.5, 1.0)
    if log:
        by = max((high / low) ** room, 1.05)
        return low / by, high * by
    largest = max(abs(low), abs(high))
    by = room * (high - low) if high - low > 1e-6 * largest else 0.1 * largest or 1.0
    return low - by, high + by
