"""What lies far outside: axes follow the sensible rows; the others leave at the edge, and are named there."""

from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import ArrayLike, NDArray

from apiece.report.numbers import number
from apiece.report.svg import SOFT, Axis, label, look, shortened, tag

TIMES, LOG_TIMES = 30.0, 1000.0  # as far out as what half of the rows keep within; on a logarithmic axis
Far = tuple[str, int, float]  # a row that leaves the axis: its name, its style, and the value that is farthest out


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


def far_out(rows: Iterable[tuple[str, int, NDArray]], y: Axis) -> list[Far]:
    """Of rows (name, style, values) those that leave the axis.

    >>> far_out([("a", 0, np.array([1.0])), ("b", 1, np.array([2.0, 1e9, np.nan]))], Axis(0, 3, 0, 100))
    [('b', 1, 1000000000.0)]
    """
    found = []
    for name, style, values in rows:
        beyond = values[np.isfinite(values) & ((values > y.high) | (values < y.low))]
        if beyond.size:
            found.append((name, style, float(beyond[np.abs(beyond).argmax()])))
    return found


def in_words(far: Sequence[Far], most: int = 1000) -> str:
    """Who leaves the axis, and how far it goes; without names where these are too long.

    >>> in_words([("ditto", 0, 1e15), ("apfl", 1, 3e6)]), in_words([("ditto", 0, 1e15), ("apfl", 1, 3e6)], 20)
    ('outside: ditto, to 1e15; apfl, to 3,000,000', 'outside: 2, to 1e15')
    """
    if not far:
        return ""
    text = "outside: " + "; ".join(f"{shortened(name, 30)}, to {number(value)}" for name, _, value in far)
    largest = max((value for *_, value in far), key=abs)
    return text if len(text) <= most else f"outside: {len(far)}, to {number(largest)}"


def held(y: Axis, values: ArrayLike) -> NDArray:
    """Pixels of values; those of what lies outside are at the edge.

    >>> held(Axis(0, 1, 100, 0), [0.5, 1e9]).tolist()
    [50.0, 0.0]
    """
    return np.clip(y(values), min(y.start, y.end), max(y.start, y.end))


def pieces(y: Axis, values: NDArray) -> list[NDArray]:
    """Where a line is drawn: its places inside, each stretch of them with the step to the edge before and behind it.

    >>> [piece.tolist() for piece in pieces(Axis(0, 1, 100, 0), np.array([9.0, 8.0, 0.5, 0.6, 7.0, 9.0, 0.5]))]
    [[1, 2, 3, 4], [5, 6]]
    """
    inside = (values >= y.low) & (values <= y.high)
    drawn = inside | np.append(inside[1:], False) | np.append(False, inside[:-1])
    where = np.flatnonzero(drawn)
    breaks = np.flatnonzero((np.diff(where) > 1) | ~(inside[where[1:]] | inside[where[:-1]])) + 1
    return [piece for piece in np.split(where, breaks) if piece.size]


def edge_marks(far: Sequence[Far], places: dict[str, tuple[NDArray, NDArray]], x: Axis, y: Axis) -> list[Markup]:
    """An arrow where each of these rows leaves the axis (`places`: its x and y), and a word about them above it."""
    parts = []
    for name, style, value in far:
        at, values = places[name]
        first = int(np.flatnonzero(np.isfinite(values) & ((values > y.high) | (values < y.low)))[0])
        edge, way = (y.end, -1) if values[first] > y.high else (y.start, 1)
        arrow = f"M{x.at(at[first]) - 6:.1f} {edge - 8 * way:.1f}h12l-6 {8 * way}z"
        hint = tag("title", f"{name} goes on, to {number(value)}")
        parts.append(tag("path", hint, d=arrow, fill=look(style)[0], stroke="#ffffff"))
    said = in_words(far, 42)
    return [*parts, label(said, x.end, y.end - 16, 11, text_anchor="end", fill=SOFT)] if said else []
