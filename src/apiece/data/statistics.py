"""Statistics of all clients' training rows without moving a row: what each client sends is a sum or a count.

Each is a pooled question (`apiece.protocol.Question`), so it can be put to the rows at hand (`ask_rows`, when a file is
loaded) and to the clients of any engine (`Engine.ask`) alike. Mean and spread take two exchanges. First every client
sends how many values it has and their sum; the server adds these, and the mean goes back. Then every client sends the
sum of its squared distances to that mean. (Sums of plain squares would save an exchange and lose the digits of numbers
that are large beside their spread.) A median takes one count per bit of a float32: "how many of your values are at
most t?". All of it can go through a secure sum.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from apiece.protocol import Data, Message, Question, Tree

__all__ = ["Ask", "ask_rows", "mean_and_spread", "median", "medians"]

BLOCK = 1 << 22  # values held in float64 at a time
Ask = Callable[..., Tree]  # (question, message) -> the clients' answers, added


@dataclasses.dataclass(frozen=True)
class RowSums:
    """An answer that is a sum over the client's own rows of `each(array module, message, x)`, [rows, ...] or two such.

    >>> import jax.numpy as jnp
    >>> tally = RowSums(lambda xp, at_most, x: x <= at_most)
    >>> mine = Data(x=jnp.array([[5.0], [1.0], [9.0], [2.0]]), y=None, start=1, size=3, capacity=4)
    >>> tally(2.0, mine, None).tolist()
    [2]
    """

    each: Callable[[Any, Message, Any], Tree]

    def __call__(self, message: Message, data: Data, key: Any) -> Tree:
        """As an engine asks it, inside a compiled program."""
        import jax.numpy as jnp  # here, because loading JAX takes a while, and loading data needs none

        from apiece.client.draw import whole

        batch = whole(data)

        def total(values: Any) -> Any:
            mine = (batch.weight > 0).reshape((-1,) + (1,) * (values.ndim - 1))
            return jnp.where(mine, values, 0).sum(axis=0)

        return _of_each(total, self.each(jnp, message, batch.x))


def _present(xp: Any, message: Message, x: Any) -> Tree:
    there = ~xp.isnan(x)
    return there, xp.where(there, x, 0)


def _squares(xp: Any, mean: Any, x: Any) -> Tree:
    wide = x.astype(xp.result_type(x.dtype, mean.dtype))
    return xp.square(xp.nan_to_num(wide - mean, nan=0.0))


COUNT_AND_SUM = Question(RowSums(_present))  # of each feature the number of values that are there, and their sum
SQUARED_DISTANCES = Question(RowSums(_squares))  # of each feature the sum of (value - mean)^2
COUNT_NO_BITS = Question(RowSums(lambda xp, message, x: (x != 0) & (x != 1)))  # how many values are neither 0 nor 1
COUNT_AT_MOST = Question(RowSums(lambda xp, t, x: x <= t))  # of each feature, how many values are at most t


def ask_rows(x: np.ndarray, offsets: np.ndarray | None = None) -> Ask:
    """Questions put to rows at hand, client i owning those from `offsets[i]` up to `offsets[i + 1]` (default: one
    client has all). Sums are taken client by client, in float64.

    >>> ask = ask_rows(np.array([[1.0], [np.nan], [5.0], [7.0]]), np.array([0, 2, 4]))
    >>> [part.tolist() for part in ask(COUNT_AND_SUM)]
    [[3], [13.0]]
    """
    edges = np.array([0, len(x)]) if offsets is None else offsets

    def ask(question: Question, message: Message = ()) -> Tree:
        assert isinstance(question.answer, RowSums) and not question.stacked
        total: Tree = None
        for rows, starts in _blocks(x, edges):
            sums = _of_each(lambda v: _sums(v, starts).sum(0), question.answer.each(np, message, rows))  # noqa: B023
            total = sums if total is None else _of_each(np.add, total, sums)
        if total is None:  # nobody has a row
            nothing = question.answer.each(np, message, x[:0])
            return _of_each(lambda v: np.zeros(v.shape[1:], np.int64 if v.dtype == bool else np.float64), nothing)
        return total

    return ask


def mean_and_spread(ask: Ask) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every feature, from what the clients answer. A constant feature has spread 0.

    NaN for a feature that nobody has.

    >>> mean, spread = mean_and_spread(ask_rows(np.array([[1.0, 3.0], [3.0, 3.0], [5.0, 3.0]]), np.array([0, 1, 3])))
    >>> mean.tolist(), spread.round(6).tolist()
    ([3.0, 3.0], [1.632993, 0.0])
    """
    count, total = map(np.asarray, ask(COUNT_AND_SUM))
    known = np.where(count > 0, count, 1)
    mean = np.where(count > 0, total / known, np.nan)
    squares = np.asarray(ask(SQUARED_DISTANCES, mean))
    spread = np.where(count > 0, np.sqrt(squares / known), np.nan)
    # The mean of equal numbers may differ from them in the last digit: that is not a spread.
    exact = 1e-12 if squares.dtype == np.float64 else 1e-6
    return mean, np.where(spread <= exact * np.abs(mean), 0.0, spread)


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


def medians(ask: Ask) -> np.ndarray:
    """The median of every feature, of the values that are there; NaN for a feature that nobody has.

    >>> medians(ask_rows(np.array([[5.0, 1.0], [np.nan, 2.0], [1.0, 4.0]], np.float32))).tolist()
    [3.0, 2.0]
    """
    count = np.asarray(ask(COUNT_AND_SUM)[0])
    at_most = lambda t, k: int(np.asarray(ask(COUNT_AT_MOST, t))[k])
    middle = lambda k: median(lambda t: at_most(t, k), int(count[k])) if count[k] else np.nan
    return np.array([middle(k) for k in range(len(count))])


def _smallest(count_at_most: Callable[[np.float32], int], k: int) -> float:
    """The k-th smallest value: halve the float32 numbers, in their order, until one is left."""
    largest = int(np.float32(np.inf).view(np.int32))
    low, high = -largest, largest
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count_at_most(float_at(middle)) >= k else (middle + 1, high)
    return float(float_at(low))


def float_at(place: Any) -> Any:
    """The float32 at a place in their order: the bits of a positive one count up, of a negative one down.

    >>> float_at(np.array([0, 1065353216, -1065353216])).tolist()
    [0.0, 1.0, -1.0]
    """
    size = np.abs(place).astype(np.uint32).view(np.float32)
    return np.where(np.asarray(place) >= 0, size, -size)[()]


def _of_each(function: Callable, *values: Any) -> Any:
    """The function of each part where there are several, else of the one."""
    return tuple(map(function, *values)) if isinstance(values[0], tuple) else function(*values)


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


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """A row a client: counts of what is true as whole numbers, sums of numbers in float64."""
    return np.add.reduceat(values, starts, axis=0, dtype=np.int64 if values.dtype == bool else np.float64)
