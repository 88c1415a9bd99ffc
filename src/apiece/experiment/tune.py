"""Tuning: the same number of trials for every method, chosen by validation, never by test."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import qmc

ZERO_SHARE, DECADES = (
    1 / 3,
    4,
)  # of a range from 0: how much of it is 0 itself, and how far below its end the rest begins


def candidates(space: dict[str, tuple[float, float]], defaults: dict[str, Any], trials: int) -> list[dict[str, float]]:
    """`trials` settings: the defaults, then points spread evenly over the space on a logarithmic scale.

    A Halton sequence covers any number of options with any number of trials, so that a method with three options
    gets no more trials than one with one.

    >>> candidates({"lr": (0.01, 1.0)}, {"lr": 0.1}, 3)
    [{'lr': 0.1}, {'lr': 0.1}, {'lr': 0.0316}]
    """
    points = [{name: defaults[name] for name in space}]
    return [*points, *(spread(space, {}, trials - 1) if space and trials > 1 else [])]


def spread(space: dict[str, tuple[float, float]], grid: dict[str, list], trials: int) -> list[dict[str, Any]]:
    """`trials` points spread evenly over the space, on a logarithmic scale, and over lists of values.

    Of a range that begins at 0, a third of the points are 0, and the others lie in the four decades below its end.

    >>> spread({"lr": (0.01, 1.0)}, {"steps": [5, 10]}, 2)
    [{'lr': 0.1, 'steps': 5}, {'lr': 0.0316, 'steps': 10}]
    >>> [point["ridge"] for point in spread({"ridge": (0.0, 1.0)}, {}, 4)]
    [0.001, 0.0, 0.0316, 0.0]
    """
    # The first point of the sequence is the corner of the space: skipped.
    halton = qmc.Halton(d=len(space) + len(grid), scramble=False)
    halton.fast_forward(1)
    points: list[dict[str, Any]] = []
    for unit in halton.random(max(1, trials)):
        numbers = {name: between(*space[name], u) for name, u in zip(space, unit[: len(space)], strict=True)}
        chosen = zip(grid.items(), unit[len(space) :], strict=True)
        points.append(numbers | {name: values[int(u * len(values))] for (name, values), u in chosen})
    return points


def best(tried: Sequence[Mapping[str, Any]], by: str = "validation_loss", higher: bool = False) -> int:
    """Which trial has the least validation loss (or the best of what else is chosen by); of equals the first.

    A diverged one, whose loss is None or NaN, never wins.

    >>> best([{"validation_loss": loss} for loss in (None, 0.5, 0.4, 0.4)])
    2
    """
    known = lambda value: value is not None and not math.isnan(value)
    score = lambda value: math.inf if not known(value) else -value if higher else value
    # One that has no loss has diverged, whatever else it has.
    worth = [score(one.get(by)) if known(one["validation_loss"]) else math.inf for one in tried]
    return worth.index(min(worth))


def between(low: float, high: float, share: float) -> float:
    """The value at this share of the way through a range; in three digits: what a table shows is exactly what ran.

    >>> between(0.01, 1.0, 0.5), between(0.0, 1.0, 0.2)
    (0.1, 0.0)
    """
    if low == 0:
        if share < ZERO_SHARE:
            return 0.0
        low, share = high / 10**DECADES, (share - ZERO_SHARE) / (1 - ZERO_SHARE)
    value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return float(np.format_float_positional(value, precision=3, unique=False, fractional=False))


def share_of(low: float, high: float, value: float) -> float:
    """Where in a range a value lies: what `between` makes that value of, or the nearest end.

    >>> round(share_of(0.01, 1.0, 0.1), 6), share_of(0.0, 1.0, 0.0) < ZERO_SHARE
    (0.5, True)
    """
    if low == 0:
        if value <= 0:
            return ZERO_SHARE / 2
        return ZERO_SHARE + (1 - ZERO_SHARE) * share_of(high / 10**DECADES, high, value)
    return min(max(math.log(max(value, low) / low) / math.log(high / low), 0.0), 1.0)
