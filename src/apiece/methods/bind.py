"""From a method's name, or a factory, and options to what an engine runs: which of them are traced, which are fixed."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from apiece.client.optimize import OptimizedLoss, Tape, keep_memories
from apiece.errors import UserError
from apiece.methods import CATALOG
from apiece.protocol import Loss, Method
from apiece.registry import Option, StepSize


def bind(
    method: str | Callable[..., Method],
    loss: Loss,
    options: dict[str, Any],
    schedule: Callable[[Any], Any] | None = None,
    population: int = 0,
    model: Any = None,
    optimizer: Any = None,
    keep: bool = False,
    scheduled: Sequence[str] = (),
) -> tuple[Callable[[dict[str, Any], Any], Method], dict[str, float]]:
    """(build, hyper): the factory as an engine wants it, and the values of its traced options.

    Options that are fractions are traced, so tuning them never compiles again; counts, switches, and fractions that
    are none unless given (a theory's constants) are fixed.

    Args:
        method: a name of the catalog, "package.module:factory", or a factory. options: the user's, to be checked.
        schedule: scales the step sizes named in `scheduled`; by default `lr`, or all where there is none.
        population: the number of clients, told to a
        factory that has an option `population` which is left at 0. model: given to a factory that has a parameter
        `model`, because it looks into the model. optimizer: what the clients' gradients go through, as
        `apiece.client.optimize.make_optimizer` gives it; keep: they keep its memories from visit to visit.

    >>> build, hyper = bind("fed_avg", lambda p, b, k: 0.0, {"lr": 0.5})
    >>> hyper
    {'lr': 0.5, 'server_lr': 1.0}
    """
    factory, name = CATALOG.find(method), CATALOG.name_of(method)
    every, known = CATALOG.complete(method, options), CATALOG.options(method)
    if not every.get("population", 1):
        every["population"] = population
    _check_each(name, known, every, population)
    hyper = {key: value for key, value in every.items() if isinstance(value, float) and known[key].default is not None}
    fixed = {key: value for key, value in every.items() if key not in hyper}
    if CATALOG.takes(method, "model"):
        if model is None:
            raise UserError(f"method '{name}' looks into the model, and none was given to it here")
        fixed["model"] = model
    steps = _scheduled(name, known, hyper, scheduled) if schedule is not None else []

    def build(hyper: dict[str, Any], round: Any) -> Method:
        traced = dict(hyper)
        for step in steps:
            traced[step] = traced[step] * schedule(round)  # type: ignore[misc]
        if optimizer is None:
            return factory(loss, **fixed, **traced)
        tape = Tape()
        method = factory(OptimizedLoss(loss, optimizer, tape), **fixed, **traced)
        return keep_memories(method, tape) if keep else method

    return build, hyper


def _check_each(name: str, known: Mapping[str, Option], options: Mapping[str, Any], population: int) -> None:
    """Where every client has a value of its own, there is one for each that trains."""
    for option, value in options.items():
        each = isinstance(value, tuple) and getattr(known[option].rule, "each", False)
        if each and population and len(value) != population:
            raise UserError(
                f"option '{option}' of method '{name}' has {len(value)} values for {population} clients that train; "
                "give one for each, or one for all"
            )


def step_sizes(options: Mapping[str, Option]) -> list[str]:
    """The options that are step sizes: declared so, or called so.

    >>> step_sizes(CATALOG.options("ftfa"))
    ['lr', 'tune_lr']
    """
    return [
        name for name, option in options.items() if StepSize in option.kinds or name == "lr" or name.endswith("_lr")
    ]


def _scheduled(name: str, known: Mapping[str, Option], hyper: Container[str], wanted: Sequence[str]) -> list[str]:
    there = [step for step in step_sizes(known) if step in hyper]
    chosen = [step for step in wanted if step in there] if wanted else ["lr"] if "lr" in there else there
    if not chosen:
        which = " or ".join(f"'{step}'" for step in wanted) if wanted else "'lr'"
        raise UserError(
            f"method '{name}' has no step size {which} for a schedule to scale; leave the schedule constant, or the "
            "method out"
        )
    return chosen
