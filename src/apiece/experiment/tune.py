"""Tuning: the same number of trials for every method, chosen by validation, never by test."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import qmc


def candidates(
    space: dict[str, tuple[float, float]], defaults: dict[str, float], trials: int
) -> list[dict[str, float]]:
    """`trials` settings: the defaults, then points spread evenly over the space on a logarithmic scale.

    A Halton sequence covers any number of options with any number of trials, so that a method with three options
    gets no more trials than one with one.

    >>> candidates({"lr": (0.01, 1.0)}, {"lr": 0.1}, 3)
    [{'lr': 0.1}, {'lr': 0.1}, {'lr': 0.0316}]
    """
    points = [{name: defaults[name] for name in space}]
    if space and trials > 1:
        # The first point of the sequence is the corner of the space: skipped.
        halton = qmc.Halton(d=len(space), scramble=False)
        halton.fast_forward(1)
        for unit in halton.random(trials - 1):
            points.append({name: _between(*space[name], u) for name, u in zip(space, unit, strict=True)})
    return points[: max(1, trials)]


def best(losses: Sequence[float | None]) -> int:
    """Which trial has the least validation loss; a diverged one (None or NaN) never wins, of equals the first does.

    >>> best([None, 0.5, 0.4, 0.4])
    2
    """
    worth = [math.inf if loss is None or math.isnan(loss) else loss for loss in losses]
    return worth.index(min(worth))


def _between(low: float, high: float, share: float) -> float:
    """Rounded to four digits: what a table shows is then exactly what ran."""
    value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    return float(np.format_float_positional(value, precision=3, unique=False, fractional=False))
