"""A method in stages: one method warms the next up, and each client may fine-tune a part of its model at the end.

[methods.warm]
fine_tune = {part = "adapter", epochs = 5}       # optional
[[methods.warm.stages]]
method = "fed_avg"
rounds = 50                                       # the last stage has all the rounds that are left
[[methods.warm.stages]]
method = "fed_per"
private = "adapter"
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from apiece.errors import UserError, suggest
from apiece.methods import CATALOG
from apiece.protocol import Loss, Method
from apiece.registry import FromZero, Whole, check_options, read_options
from apiece.wrap import fine_tuned, staged

TUNING = read_options(fine_tuned, positional=2)


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """A method, its options, and how many rounds it has; None: those that are left."""

    method: str | Callable[..., Method]
    options: dict[str, Any]
    rounds: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class Staged:
    """A factory of a method in stages, as every other factory: it is given the loss, and the model if a stage asks."""

    stages: tuple[Stage, ...]
    tuning: dict[str, Any] | None = None

    def __call__(self, loss: Loss, *, model: Any, population: FromZero = 0) -> Method:
        """The stages, each followed by the next; then the fine-tuning, if there is one."""
        made = [self._make(stage, loss, model, population) for stage in self.stages]
        method = made[-1]
        for stage, earlier in zip(self.stages[-2::-1], made[-2::-1], strict=True):
            method = staged(earlier, method, stage.rounds)
        return method if self.tuning is None else fine_tuned(method, loss, **self.tuning)

    def _make(self, stage: Stage, loss: Loss, model: Any, population: int) -> Method:
        options = CATALOG.complete(stage.method, stage.options)
        if not options.get("population", 1):
            options["population"] = population
        given = {"model": model} if CATALOG.takes(stage.method, "model") else {}
        return CATALOG.find(stage.method)(loss, **options, **given)


def staged_of(where: str, stages: Any, tuning: Any) -> Staged:
    """The factory that a table describes; a mistake is an error that names the stage.

    >>> two = staged_of("methods.warm", [{"method": "fed_avg", "rounds": 5}, {"method": "ditto"}], None)
    >>> [stage.rounds for stage in two.stages]
    [5, None]
    >>> try: staged_of("methods.warm", [{"method": "fed_avg"}, {"method": "ditto"}], None)
    ... except UserError as error: print(error)
    methods.warm.stages: stage 1 needs 'rounds', after which the next one begins
    """
    if not isinstance(stages, list) or len(stages) < 2 or not all(isinstance(one, Mapping) for one in stages):
        raise UserError(f"{where}.stages is a list of at least two tables, each with a 'method'")
    found = tuple(_stage(f"{where}.stages", at, dict(one), at == len(stages)) for at, one in enumerate(stages, 1))
    if tuning is None:
        return Staged(found)
    if not isinstance(tuning, Mapping):
        raise UserError(f'{where}.fine_tune is a table, as in {{part = "out", epochs = 5}}, not {tuning!r}')
    return Staged(found, check_options(f"{where}.fine_tune", TUNING, tuning, "declared"))


def _stage(where: str, at: int, table: dict[str, Any], last: bool) -> Stage:
    if "method" not in table:
        known = suggest("method", table) if table else "it is empty"
        raise UserError(f"{where}: stage {at} names no 'method' ({known})")
    method, rounds = table.pop("method"), table.pop("rounds", None)
    if last and rounds is not None:
        raise UserError(f"{where}: the last stage has all the rounds that are left; leave its 'rounds' out")
    if not last and rounds is None:
        raise UserError(f"{where}: stage {at} needs 'rounds', after which the next one begins")
    if rounds is not None:
        rounds = Whole(1).checked(f"{where}: 'rounds' of stage {at}", rounds)
    return Stage(method, CATALOG.check(method, table), rounds)
