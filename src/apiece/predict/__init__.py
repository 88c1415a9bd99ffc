"""What theory says about a setting, ready to be read: numbers, a table, a figure. Behind `apiece theory ...`."""

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


def numbers_in(text: str, option: str) -> np.ndarray:
    """A comma-separated list of numbers.

    >>> numbers_in("1, 2.5", "--eps").tolist()
    [1.0, 2.5]
    """
    try:
        found = np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise UserError(f"{option} {text}: numbers, separated by commas") from None
    if not np.isfinite(found).all():
        raise UserError(f"{option} {text}: the numbers must be finite")
    return found
