"""What a client tells of its held-out examples: counts and sums; and examples that have the same ones.

The record of a run is made of outcomes example by example. Over a network nobody sends those. Each client sends, of its
losses and errors, how many, their sum and the sum of their squares, and the same of their products with those of
training alone. The server makes stand-ins of them: made-up outcomes with exactly these sums. Of right and wrong
answers the pairs are exact (so many wrong by both, so many by one alone); of other numbers means, variances and
the variance of differences are. So means, gains and who is hurt come out as from the examples themselves.
"""

from typing import NamedTuple

import numpy as np

from apiece.errors import UserError


class Sums(NamedTuple):
    """Of one client and part: how many examples; of loss and error [2] their sums, squares and, beside training alone,
    that one's sums and squares and the products. float64; zeros where there is nothing beside."""

    rows: np.ndarray
    total: np.ndarray
    square: np.ndarray
    other: np.ndarray
    other_square: np.ndarray
    product: np.ndarray


def sum_outcomes(values: tuple[np.ndarray, ...], beside: tuple[np.ndarray, ...] | None = None) -> Sums:
    """The sums of (loss, error) of a client's examples, and beside those of training alone, if there are such.

    >>> found = sum_outcomes((np.array([0.5, 1.5]), np.array([0.0, 1.0])))
    >>> int(found.rows), found.total.tolist()
    (2, [2.0, 1.0])
    """
    mine = np.stack([np.asarray(one, np.float64) for one in values[:2]])
    theirs = np.zeros_like(mine) if beside is None else np.stack([np.asarray(one, np.float64) for one in beside[:2]])
    over = lambda each: each.sum(axis=1)
    count = np.array(mine.shape[1], np.int64)
    return Sums(count, over(mine), over(mine**2), over(theirs), over(theirs**2), over(mine * theirs))


def check_sums(sums: Sums, rows: int, what: str) -> None:
    """Raise a `UserError` unless so many examples can have these sums; a model without numbers may tell NaN.

    >>> try: check_sums(Sums(np.array(2), *[np.array([9.0, 0.0])] * 5), 2, "what north tells")
    ... except UserError as error: print(error)
    what north tells cannot be: 2 numbers whose sum is 9 have squares of at least 40.5, not 9
    """
    if int(sums.rows) != rows:
        raise UserError(f"{what} is of {int(sums.rows)} examples, and there are {rows}")
    for total, square in ((sums.total, sums.square), (sums.other, sums.other_square)):
        for one, squared in zip(total.tolist(), square.tolist(), strict=True):
            least = one * one / max(rows, 1)
            if np.isfinite([one, squared]).all() and squared < least * (1 - 1e-6) - 1e-9:
                raise UserError(f"{what} cannot be: {rows} numbers whose sum is {one:g} have squares of at least "
                                f"{least:g}, not {squared:g}")  # fmt: skip


def stand_ins(sums: Sums) -> tuple[np.ndarray, np.ndarray]:
    """(losses, errors) of made-up examples with these sums; beside others made by the same rule, the same products.

    >>> alone = (np.array([0.3, 0.1, 0.9, 0.2]), np.array([1.0, 0.0, 1.0, 0.0]))
    >>> mine = (np.array([0.2, 0.4, 0.8, 0.1]), np.array([0.0, 0.0, 1.0, 1.0]))
    >>> loss, error = stand_ins(sum_outcomes(mine, alone))
    >>> error.tolist(), stand_ins(sum_outcomes(alone, alone))[1].tolist()
    ([1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0])
    >>> bool(np.isclose(loss @ stand_ins(sum_outcomes(alone, alone))[0], mine[0] @ alone[0]))
    True
    """
    loss, error = (_made(int(sums.rows), *(float(of[k]) for of in sums[1:])) for k in (0, 1))
    return loss.astype(np.float32), error.astype(np.float32)


def numbers_with_sums(count: int, total: float, square: float) -> np.ndarray:
    """So many numbers with this sum and this sum of squares.

    >>> made = numbers_with_sums(4, 10.0, 30.0)
    >>> float(made.sum().round(6)), float((made**2).sum().round(6))
    (10.0, 30.0)
    """
    return _numbers(count, total, square, 0.0, 0.0, 0.0)


def _made(count: int, total: float, square: float, other: float, other_square: float, product: float) -> np.ndarray:
    if not np.isfinite([total, square]).all():
        return np.full(count, np.nan)
    if count and total == square and other == other_square and all(v == round(v) for v in (total, other, product)):
        return _zeros_and_ones(count, round(total), round(other), round(product))
    return _numbers(count, total, square, other, other_square, product)


def _zeros_and_ones(count: int, ones: int, others: int, both: int) -> np.ndarray:
    """Who is alone has its ones first; this one has `both` of them there, and its own behind."""
    made = np.zeros(count)
    if others == 0 and both == 0:
        made[:ones] = 1
        return made
    made[:both] = 1
    made[others : others + ones - both] = 1
    return made


def _numbers(count: int, total: float, square: float, other: float, other_square: float, product: float) -> np.ndarray:
    if count < 2:
        return np.full(count, total)
    mean, spread = total / count, _spread(count, total, square)
    their_mean, their_spread = other / count, _spread(count, other, other_square)
    u, w = _directions(count)
    if their_spread == 0 or spread == 0:
        return mean + spread * u
    share = np.clip((product / count - mean * their_mean) / (spread * their_spread), -1.0, 1.0)
    return mean + spread * (share * u + np.sqrt(1 - share**2) * w)


def _spread(count: int, total: float, square: float) -> float:
    return float(np.sqrt(max(square / count - (total / count) ** 2, 0.0)))


def _directions(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of numbers of mean 0 and variance 1 whose products have mean 0 (of two examples there is only one)."""
    if count == 2:
        return np.array([1.0, -1.0]), np.zeros(2)
    at = 2 * np.pi * np.arange(count) / count
    return np.sqrt(2) * np.cos(at), np.sqrt(2) * np.sin(at)
