"""What theory predicts: pure NumPy in float64, the equation and its assumptions in each docstring."""

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from apiece.theory import (
        all_for_all,
        all_for_all_rates,
        asymptotics,
        clup,
        complexities,
        crossovers,
        ffgg,
        finite,
        linear,
        printed,
        risk,
        robust,
        self_fl,
        spectrum,
    )

# fmt: off
__all__ = [
    "asymptotics", "risk", "crossovers", "finite", "spectrum", "printed", "linear",
    "clup", "complexities", "self_fl", "all_for_all", "all_for_all_rates", "ffgg", "robust",
]
# fmt: on


def plain(value: Any) -> Any:
    """A number for numbers, an array for arrays.

    >>> plain(np.array(2.0)), plain(np.array([2.0])).shape
    (2.0, (1,))
    """
    return float(value) if np.ndim(value) == 0 else np.asarray(value)


def __getattr__(name: str) -> Any:
    """A line of theory, loaded when first used."""
    if name not in __all__:
        raise AttributeError(f"module 'apiece.theory' has no attribute '{name}'")
    return importlib.import_module(f"apiece.theory.{name}")
