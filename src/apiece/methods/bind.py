"""From a method's name, or a factory, and options to what an engine runs: which of them are traced, which are fixed."""

from collections.abc import Callable
from typing import Any

from apiece.errors import UserError
from apiece.methods import CATALOG
from apiece.protocol import Loss, Method


def bind(
    method: str | Callable[..., Method],
    loss: Loss,
    options: dict[str, Any],
    schedule: Callable[[Any], Any] | None = None,
    population: int = 0,
    model: Any = None,
) -> tuple[Callable[[dict[str, Any], Any], Method], dict[str, float]]:
    """(build, hyper): the factory as an engine wants it, and the values of its traced options.

    Options that are fractions are traced, so tuning them never compiles again; counts, switches, and fractions that
    are none unless given (a theory's constants) are fixed.

    Args:
        method: a name of the catalog, "package.module:factory", or a factory. options: the user's, to be checked.
        schedule: scales `lr`, the step size of the clients' training. population: the number of clients, told to a
        factory that has an option `population` which is left at 0. model: given to a factory that has a parameter
        `model`, because it looks into the model.

    >>> build, hyper = bind("fed_avg", lambda p, b, k: 0.0, {"lr": 0.5})
    >>> hyper
    {'lr': 0.5, 'server_lr': 1.0}
    """
    factory, name = CATALOG.find(method), CATALOG.name_of(method)
    every, known = CATALOG.complete(method, options), CATALOG.options(method)
    if not every.get("population", 1):
        every["population"] = population
    hyper = {key: value for key, value in every.items() if isinstance(value, float) and known[key].default is not None}
    fixed = {key: value for key, value in every.items() if key not in hyper}
    if CATALOG.takes(method, "model"):
        if model is None:
            raise UserError(f"method '{name}' looks into the model, and none was given to it here")
        fixed["model"] = model
    if schedule is not None and "lr" not in hyper:
        raise UserError(f"method '{name}' has no step size 'lr' for a schedule to scale; leave the schedule constant")

    def build(hyper: dict[str, Any], round: Any) -> Method:
        traced = dict(hyper)
        if schedule is not None:
            traced["lr"] = traced["lr"] * schedule(round)
        return factory(loss, **fixed, **traced)

    return build, hyper
