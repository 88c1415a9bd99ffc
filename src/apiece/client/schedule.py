"""Learning-rate schedules: a factor on the clients' step size, from the round (which may be traced).

Constant and exponential are optax's. The linear one is written out: optax's `(a - b) (1 - t/T) + b` rounds differently
in float32 from `t/T` itself, by up to 2e-5 of the factor near the end of 1,000 rounds, and published runs would change.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

from apiece.errors import UserError
from apiece.registry import Registry

Schedule = Callable[[Any], Any]
ENDLESS = ("constant", "exponential")  # those that are the same however many rounds there are


def constant(rounds: int) -> Schedule:
    """Always 1.

    >>> constant(100)(7)
    1.0
    """
    return optax.constant_schedule(1.0)


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
    return optax.exponential_decay(1.0, transition_steps=every, decay_rate=0.5, staircase=True)


def cosine(rounds: int, warmup: float = 0.0, end: float = 0.0) -> Schedule:
    """Up in a line over the first `warmup` share of the rounds, then down along half a cosine to `end`.

    >>> [round(float(cosine(10)(r)), 3) for r in (0, 5, 10)]
    [1.0, 0.5, 0.0]
    """
    rise = round(warmup * rounds)
    if not rise:
        return optax.cosine_decay_schedule(1.0, max(1, rounds), alpha=end)
    return optax.warmup_cosine_decay_schedule(0.0, 1.0, rise, max(rise + 1, rounds), end_value=end)


SCHEDULES = Registry("schedule", group="apiece.schedules", positional=1).add(
    constant=constant,
    linear=linear,
    exponential=exponential,
    cosine=cosine,
)


def schedule(name: str | Callable[..., Schedule], rounds: int, **options: Any) -> Schedule:
    """The schedule of that name over so many rounds; or one's own, a function of the round (optax's are such).

    >>> schedule("constant", 10)(3)
    1.0
    >>> schedule("exponential", 10, evry=5)
    Traceback (most recent call last):
    apiece.errors.UserError: schedule 'exponential' has no option 'evry': did you mean 'every'?
    """
    if not rounds >= 1:
        raise UserError(f"rounds = {rounds}: a schedule is over 1 round or more")
    made = SCHEDULES.make(name, options, rounds)
    if callable(made):
        return made
    # What gives a number for a number of rounds is a schedule itself, and does not make one.
    return SCHEDULES.find(name)
