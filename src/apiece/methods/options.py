"""A method's options, read off its factory's signature: one source for checks, the command line and the docs."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from apiece.errors import UserError, suggest
from apiece.methods import CATALOG
from apiece.protocol import Loss, Method

# Where tuning looks, on a logarithmic scale: one range per idea, the same for every method.
SEARCH: dict[str, tuple[float, float]] = {
    "lr": (0.01, 3.0),
    "tune_lr": (0.01, 3.0),
    "lam": (0.01, 10.0),
    "eps": (0.1, 10.0),
}
COUNTS = ("epochs", "tune_epochs")  # whole numbers whose default is none
# Counts that may be 0; all others start at 1.
FROM_ZERO = ("batch", "population", "agent", "halve_every", "inner_steps")
POSITIVE = ("lr", "tune_lr", "prox_lr", "server_lr", "beta", "gamma", "smoothness", "convexity", "p", "noise", "eps")


def options_of(method: str | Callable[..., Method]) -> dict[str, Any]:
    """The options of a method (by its name in the catalog, or its factory) with their defaults.

    >>> options_of("fed_avg")["steps"]
    20
    """
    if isinstance(method, str) and method not in CATALOG:
        raise UserError(f"unknown method '{method}': {suggest(method, CATALOG)}")
    parameters = inspect.signature(CATALOG[method] if isinstance(method, str) else method).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def checked(method: str | Callable[..., Method], options: dict[str, Any]) -> dict[str, Any]:
    """All options of the method, the given ones in place of the defaults; a wrong one is an error that names it.

    >>> checked("fed_avg", {"lr": 1})["lr"]
    1.0
    >>> try: checked("ditto", {"lambda": 1.0})
    ... except UserError as error: print(error)
    method 'ditto' has no option 'lambda': did you mean 'lam'?
    """
    known = options_of(method)
    name = method if isinstance(method, str) else getattr(method, "__name__", "given")
    for option in options:
        if option not in known:
            raise UserError(f"method '{name}' has no option '{option}': {suggest(option, known)}")
    return {option: _value(name, option, known[option], options.get(option, known[option])) for option in known}


def _value(name: str, option: str, default: Any, value: Any) -> Any:
    if value is None:
        return value
    where = f"option '{option}' of method '{name}'"
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UserError(f"{where} is true or false, not {value!r}")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise UserError(f"{where} is a word, not {value!r}")
        return value
    if isinstance(default, tuple):
        return _numbers(where, value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{where} is a finite number, not {value!r}")
    if isinstance(default, int) or option in COUNTS:
        least = 0 if option in FROM_ZERO else 1
        if value != int(value) or value < least:
            raise UserError(f"{where} is a whole number of at least {least}, not {value!r}")
        return int(value)
    if value < 0 or (value == 0 and option in POSITIVE):
        raise UserError(f"{where} must be {'above' if option in POSITIVE else 'at least'} 0, not {value!r}")
    return float(value)


def _numbers(where: str, value: Any) -> Any:
    """A list of numbers, or a list of such lists: as an array, or () for none."""
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise UserError(f"{where} is a list of numbers, or of equally long lists of numbers, not {value!r}") from None
    if array.ndim not in (1, 2) or np.isnan(array).any():
        raise UserError(f"{where} is a list of numbers, or of equally long lists of numbers, not {value!r}")
    return array if array.size else ()


def tunable(name: str, options: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """The options that tuning may choose, with their ranges: those the user did not set.

    >>> tunable("ditto", {"lam": 1.0})
    {'lr': (0.01, 3.0)}
    """
    return {option: SEARCH[option] for option in options_of(name) if option in SEARCH and option not in options}


def bind(
    method: str | Callable[..., Method],
    loss: Loss,
    options: dict[str, Any],
    schedule: Callable[[Any], Any] | None = None,
    population: int = 0,
) -> tuple[Callable[[dict[str, Any], Any], Method], dict[str, float]]:
    """(build, hyper): the factory as an engine wants it, and the values of its traced options.

    Options whose default is a fraction are traced, so tuning them never compiles again; counts and switches are
    fixed. The schedule scales `lr`, the step size of the clients' training. A factory of one's own may stand in
    place of a name. One that has an option `population` is told the number of clients.

    >>> build, hyper = bind("fed_avg", lambda p, b, k: 0.0, {"lr": 0.5})
    >>> hyper
    {'lr': 0.5, 'server_lr': 1.0}
    """
    every = checked(method, options)
    if not every.get("population", 1):
        every["population"] = population
    factory = CATALOG[method] if isinstance(method, str) else method
    hyper = {option: every[option] for option, default in options_of(method).items() if isinstance(default, float)}
    fixed = {option: value for option, value in every.items() if option not in hyper}

    def build(hyper: dict[str, Any], round: Any) -> Method:
        traced = dict(hyper)
        if schedule is not None:
            traced["lr"] = traced["lr"] * schedule(round)
        return factory(loss, **fixed, **traced)

    return build, hyper
