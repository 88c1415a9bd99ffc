"""Learning-rate schedules: a factor on the clients' step size, from the round (which may be traced)."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from apiece.errors import UserError, suggest

Schedule = Callable[[Any], Any]


def constant(rounds: int) -> Schedule:
    """Always 1.

    >>> constant(100)(7)
    1.0
    """
    return lambda round: 1.0


def linear(rounds: int, warmup: float = 0.1) -> Schedule:
    """Up in a line over the first `warmup` share of the rounds, then down in a line towards 0.

    >>> [round(float(linear(20)(r)), 3) for r in (0, 1, 2, 19)]
    [0.5, 1.0, 1.0, 0.056]
    """
    rise = max(1, round(warmup * rounds))
    fall = max(1, rounds - rise)
    return lambda round: jnp.where(round < rise, (round + 1) / rise, (rounds - round) / fall)


def exponential(rounds: int, every: int = 500) -> Schedule:
    """Halved after every `every` rounds.

    >>> [float(exponential(100, every=10)(r)) for r in (0, 9, 10, 25)]
    [1.0, 1.0, 0.5, 0.25]
    """
    return lambda round: 0.5 ** jnp.floor(round / every)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "linear": linear,
    "exponential": exponential,
}


def schedule(name: str, rounds: int, **options: Any) -> Schedule:
    """The schedule of that name over so many rounds.

    >>> schedule("constant", 10)(3)
    1.0
    """
    if name not in SCHEDULES:
        raise UserError(f"unknown schedule '{name}': {suggest(name, SCHEDULES)}")
    try:
        return SCHEDULES[name](rounds, **options)
    except TypeError:
        raise UserError(f"schedule '{name}' does not take {', '.join(options)}") from None
