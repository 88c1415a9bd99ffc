"""What theory says about a setting, ready to be read: numbers, a table, a figure. Behind `apiece theory ...`."""

import math
from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.report.figure import Figure
from apiece.report.figure_page import Grid


class Prediction(NamedTuple):
    """`numbers` are what --json prints; `table` is for the terminal and the page; `notes` say what to read from it."""

    numbers: dict[str, Any]
    table: Grid
    figure: Figure
    notes: tuple[str, ...] = ()


LARGEST, SMALLEST = 1e50, 1e-50  # their squares are still numbers


def require(kind: str, **options: float | None) -> None:
    """Each option is a number of this kind ("above 0", "at least 0", "at least 1"), or a `UserError` names it.

    >>> try: require("above 0", noise=-1.0)
    ... except UserError as error: print(error)
    --noise -1: must be above 0
    """
    holds = {"above 0": lambda v: v > 0, "at least 0": lambda v: v >= 0, "at least 1": lambda v: v >= 1}[kind]
    for name, value in options.items():
        if value is None:
            continue
        option = f"--{name.replace('_', '-')} {value:g}"
        if not math.isfinite(value) or abs(value) > LARGEST or 0 < abs(value) < SMALLEST:
            raise UserError(f"{option}: a number between {SMALLEST:g} and {LARGEST:g} in size is needed")
        if not holds(value):
            raise UserError(f"{option}: must be {kind}")


def numbers_in(text: str, option: str) -> np.ndarray:
    """A comma-separated list of numbers.

    >>> numbers_in("1, 2.5", "--eps").tolist()
    [1.0, 2.5]
    """
    try:
        found = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise UserError(f"{option} {text}: numbers, separated by commas") from None
    if not (np.abs(found) <= LARGEST).all():
        raise UserError(f"{option} {text}: the numbers must be finite, and at most {LARGEST:g}")
    return found
