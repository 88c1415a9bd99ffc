"""Ask and tell: which setting to try next, and what came of it. One interface, whoever chooses.

`SpreadOut` knows its points beforehand (`experiment/tune.py`); `Tpe` (`tpe.py`) learns from what it is told. Both keep
what they know in the folder, so that a killed tuning goes on; neither spends more than the row's budget of gradients.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from apiece import files
from apiece.experiment.record import StepSizes
from apiece.experiment.tune import spread
from apiece.experiment.variant import Variant

AT_ONCE = 8  # points that are known beforehand, in one program


class Asked(NamedTuple):
    """A setting to try, by its number among the row's trials."""

    number: int
    options: dict[str, Any]


class Trial(NamedTuple):
    """What came of a setting: "finished", "pruned" (given up on the way), "diverged", or "lost" with its process.

    `validation` is what the last look saw, at round `rounds`; `gradients` is what it cost.
    """

    number: int
    options: dict[str, Any]
    state: str
    validation: dict[str, float | None]
    rounds: int
    gradients: float
    seconds: float

    @property
    def counts(self) -> bool:
        """Whether it may be chosen: only trials of full length are alike."""
        return self.state == "finished"


class Budget(NamedTuple):
    """What a row may spend: gradient evaluations, and so many trials at most. `cost`: of a setting, NaN if unknown."""

    gradients: float
    trials: int
    cost: Callable[[dict[str, Any]], float]

    def affords(self, options: dict[str, Any], spent: float, begun: int) -> bool:
        """Whether a trial of this setting may begin, when so much is spent and so many trials have begun.

        >>> budget = Budget(100.0, 3, lambda options: 40.0)
        >>> [budget.affords({}, 40.0 * trials, trials) for trials in range(4)]
        [True, True, False, False]
        """
        cost = self.cost(options)
        return begun < self.trials and (math.isnan(cost) or spent + cost <= self.gradients * (1 + 1e-9))


@runtime_checkable
class Search(Protocol):
    """Who chooses the settings of one row."""

    at_once: int  # settings that are best asked for together
    looks: int  # at validation, on the way of a trial

    def ask(self, most: int) -> list[Asked]:
        """Up to `most` settings to try now; none: there is no more to try, or no budget left for it."""
        ...

    def enough(self, asked: Asked, look: int, value: float) -> bool:
        """Told of a look at validation on the way (the lower the better): whether to give this setting up."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """What came of settings that were asked for together."""
        ...

    def trials(self) -> list[Trial]:
        """All that is known so far, also from other processes."""
        ...

    def running(self) -> int:
        """How many trials other processes are at."""
        ...


def first_points(row: Variant, steps: StepSizes | None, most: int) -> list[dict[str, Any]]:
    """Up to `most` different settings of a row, spread out; the defaults are the first of them.

    A grid that is written down is tried as it is, if it is no longer than that.

    >>> from apiece.experiment.variant import variant_of
    >>> first_points(variant_of("ditto", {"lam": 0.5}), None, 3)
    [{'lr': 0.1}, {'lr': 0.173}, {'lr': 0.0416}]
    >>> len(first_points(variant_of("ditto", {"lam": {"grid": [0.1, 1.0, 10.0]}, "lr": {"grid": [0.1, 1.0]}}), None, 4))
    4
    """
    points = row.points(2 * most, steps)  # more than are wanted: a value may be met again
    if row.grid and not row.ranges and len(points) > most:
        instead = {} if steps is None else steps.defaults.get(row.name, {})
        points = [{**instead, **point} for point in spread({}, row.grid, 8 * most)]
    different = [point for at, point in enumerate(points) if point not in points[:at]]
    return different[:most]


class SpreadOut:
    """The points that are spread evenly over a row's space, one after another, as far as the budget goes."""

    at_once, looks = AT_ONCE, 1

    def __init__(self, path: Path, points: Sequence[dict[str, Any]], budget: Budget) -> None:
        self._path, self._known = path, _read_trials(path)
        self._points: list[dict[str, Any]] = []
        spent = 0.0
        for point in points:
            if budget.affords(point, spent, len(self._points)):
                self._points.append(point)
                spent += _number(budget.cost(point))

    def ask(self, most: int) -> list[Asked]:
        """The next points."""
        done = len(self._known)
        return [Asked(done + at, point) for at, point in enumerate(self._points[done : done + most])]

    def enough(self, asked: Asked, look: int, value: float) -> bool:
        """Never: all are tried to their end."""
        return False

    def tell(self, trials: Sequence[Trial]) -> None:
        """Written down at once, so that those of one program are there together, or not at all."""
        self._known += sorted(trials, key=lambda trial: trial.number)
        files.write_json(self._path, [trial._asdict() for trial in self._known])

    def trials(self) -> list[Trial]:
        """All so far."""
        return list(self._known)

    def running(self) -> int:
        """Nobody else works here."""
        return 0


def _read_trials(path: Path) -> list[Trial]:
    return [Trial(**entry) for entry in files.read_json(path)] if path.exists() else []


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value
