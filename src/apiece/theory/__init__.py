"""What theory predicts: pure NumPy in float64, the equation and its assumptions in each docstring."""

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A number for numbers, an array for arrays.

    >>> plain(np.array(2.0)), plain(np.array([2.0])).shape
    (2.0, (1,))
    """
    return float(value) if np.ndim(value) == 0 else np.asarray(value)
