"""A method in stages: one method warms the next up, and each client may fine-tune a part of its model at the end.

[methods.warm]
fine_tune = {part = "adapter", epochs = 5}       # optional
[[methods.warm.stages]]
method = "fed_avg"
rounds = 50                                       # the last stage has all the rounds that are left
lr = {grid = [0.1, 0.3]}                          # searched, as an option of any method
[[methods.warm.stages]]
method = "fed_per"
private = "adapter"

The whole is a method like any other: its options are those of its stages, `stage1_lr`, `stage2_private`, ..., and of
the fine-tuning, `fine_tune_epochs`, ...; so they are checked, tuned, traced and written down as all options are.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from apiece.errors import UserError, suggest
from apiece.methods import CATALOG
from apiece.protocol import Loss, Method
from apiece.registry import FromZero, Option, Whole, check_options, read_options
from apiece.wrap import fine_tuned, staged

TUNING = read_options(fine_tuned, positional=2)
TUNES = "fine_tune_"  # before the options of the fine-tuning


class Stage(NamedTuple):
    """A method, and how many rounds it has; None: those that are left."""

    method: str | Callable[..., Method]
    rounds: int | None


@dataclasses.dataclass(frozen=True, eq=False)
class Staged:
    """A factory of a method in stages, as every other factory: it is given the loss, and the model if a stage asks.

    >>> list(CATALOG.options(Staged((Stage("fed_avg", 5), Stage("local", None)))))[:3]
    ['population', 'stage1_steps', 'stage1_epochs']
    """

    stages: tuple[Stage, ...]
    tuned: bool = False

    def __call__(self, loss: Loss, *, model: Any, population: FromZero = 0, **options: Any) -> Method:
        """The stages, each followed by the next; then the fine-tuning, if there is one."""
        made = [self._make(at, loss, model, population, options) for at in range(1, len(self.stages) + 1)]
        method = made[-1]
        for stage, earlier in zip(self.stages[-2::-1], made[-2::-1], strict=True):
            method = staged(earlier, method, stage.rounds)
        return fine_tuned(method, loss, **_of(TUNES, options)) if self.tuned else method

    def _make(self, at: int, loss: Loss, model: Any, population: int, options: Mapping[str, Any]) -> Method:
        method, chosen = self.stages[at - 1].method, _of(prefix(at), options)
        if "population" in CATALOG.options(method):
            chosen["population"] = population
        given = {"model": model} if CATALOG.takes(method, "model") else {}
        return CATALOG.find(method)(loss, **chosen, **given)

    @property
    def __name__(self) -> str:
        """What messages call it."""
        return ", then ".join(CATALOG.name_of(stage.method) for stage in self.stages)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        """What the registry reads options off: those of the stages, by their names."""
        given = [p for p in inspect.signature(type(self).__call__).parameters.values() if p.name in GIVEN]
        only = lambda name, option: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.hint
        )
        return inspect.Signature([*given, *(only(name, option) for name, option in self._options())])

    def _options(self) -> Iterator[tuple[str, Option]]:
        for at, stage in enumerate(self.stages, 1):
            for name, option in CATALOG.options(stage.method).items():
                if name != "population":
                    yield prefix(at) + name, option
        for name, option in TUNING.items() if self.tuned else ():
            yield TUNES + name, option


GIVEN = ("loss", "model", "population")


def prefix(at: int) -> str:
    """What stands before the names of a stage's options."""
    return f"stage{at}_"


def _of(before: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(before): value for name, value in options.items() if name.startswith(before)}


def staged_of(where: str, stages: Any, tuning: Any) -> tuple[Staged, dict[str, Any]]:
    """(the factory that a table describes, its options by their names); a mistake is an error that names the stage.

    >>> first = {"method": "fed_avg", "rounds": 5, "lr": 1.0}
    >>> two, options = staged_of("methods.warm", [first, {"method": "ditto"}], None)
    >>> [stage.rounds for stage in two.stages], options
    ([5, None], {'stage1_lr': 1.0})
    >>> try: staged_of("methods.warm", [{"method": "fed_avg"}, {"method": "ditto"}], None)
    ... except UserError as error: print(error)
    methods.warm.stages: stage 1 needs 'rounds', after which the next one begins
    """
    if not isinstance(stages, list) or len(stages) < 2 or not all(isinstance(one, Mapping) for one in stages):
        raise UserError(f"{where}.stages is a list of at least two tables, each with a 'method'")
    options: dict[str, Any] = {}
    found = tuple(
        _stage(f"{where}.stages", at, dict(one), at == len(stages), options) for at, one in enumerate(stages, 1)
    )
    if tuning is not None and not isinstance(tuning, Mapping):
        raise UserError(f'{where}.fine_tune is a table, as in {{part = "out", epochs = 5}}, not {tuning!r}')
    check_options(f"{where}.fine_tune", TUNING, tuning or {}, "factory")  # names; values are checked with all others
    options |= {TUNES + name: value for name, value in (tuning or {}).items()}
    return Staged(found, tuning is not None), options


def _stage(where: str, at: int, table: dict[str, Any], last: bool, options: dict[str, Any]) -> Stage:
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
    whose = f"method '{CATALOG.name_of(method)}', stage {at} of {where},"
    check_options(whose, CATALOG.options(method), table, "factory")
    options |= {prefix(at) + name: value for name, value in table.items()}
    return Stage(method, rounds)
