"""What the theory's arguments have to be: a wrong one is named, with the assumption that fails."""

from typing import Any

import numpy as np

from apiece.errors import UserError


def above_zero(**values: Any) -> tuple[np.ndarray, ...]:
    """The values as arrays, when they are all above 0.

    >>> above_zero(lam=0.0)
    Traceback (most recent call last):
    apiece.errors.UserError: lam must be above 0; got 0.0
    """
    return tuple(_where(name, value, "above 0", lambda x: x > 0) for name, value in values.items())


def from_zero(**values: Any) -> tuple[np.ndarray, ...]:
    """The values as arrays, when none is below 0.

    >>> from_zero(variance=-1.0)
    Traceback (most recent call last):
    apiece.errors.UserError: variance must be at least 0; got -1.0
    """
    return tuple(_where(name, value, "at least 0", lambda x: x >= 0) for name, value in values.items())


def curvatures(smoothness: Any, convexity: Any) -> tuple[np.ndarray, np.ndarray]:
    """(L, mu) as arrays, when 0 < mu <= L.

    >>> curvatures(1.0, 2.0)
    Traceback (most recent call last):
    apiece.errors.UserError: the strong convexity mu is never above the smoothness L; got mu = 2.0 and L = 1.0
    """
    smooth, convex = above_zero(smoothness=smoothness, convexity=convexity)
    if (convex > smooth).any():
        raise UserError(
            f"the strong convexity mu is never above the smoothness L; got mu = {convexity} and L = {smoothness}"
        )
    return smooth, convex


def shares(what: str, values: Any) -> np.ndarray:
    """The values as an array, when they are shares of a whole.

    >>> shares("weights", [0.5, 0.6])
    Traceback (most recent call last):
    apiece.errors.UserError: the weights are not negative and sum to 1; they sum to 1.1
    """
    values = np.asarray(values, float)
    if not (values >= 0).all() or abs(values.sum() - 1) > 1e-9:
        raise UserError(f"the {what} are not negative and sum to 1; they sum to {values.sum():.6g}")
    return values


def _where(name: str, value: Any, wanted: str, holds: Any) -> np.ndarray:
    found = np.asarray(value, float)
    if not holds(found).all():
        raise UserError(f"{name} must be {wanted}; got {value}")
    return found
