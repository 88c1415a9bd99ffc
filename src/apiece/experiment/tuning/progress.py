"""How far a tuning is: gradient evaluations spent, of all that may be."""

import math
from collections.abc import Mapping, Sequence

from apiece.experiment.train import Watch
from apiece.experiment.tuning.search import Trial


class Progress:
    """Gradients spent of all that are to be spent, row by row.

    >>> seen = []
    >>> told = Progress(lambda *now: seen.append(now), {"ditto": (80.0, 40.0)})
    >>> told.begin("ditto", [])
    >>> told.know([Trial(0, {}, "finished", {}, 10, 40.0, 0.1)])
    >>> seen
    [('ditto: trial 1', 0, 80), ('ditto: trial 2', 40, 80)]
    """

    def __init__(self, watch: Watch, expected: Mapping[str, tuple[float, float]]) -> None:
        self._watch, self._expected, self._name, self._ended = watch, expected, "", set[str]()
        self._trials, self._spent = 0, 0.0

    def begin(self, name: str, trials: Sequence[Trial], quiet: bool = False) -> None:
        """A row begins, or (`quiet`) is looked at again."""
        self._ended |= {self._name} if self._name else set()
        self._name = name
        self.know(trials, quiet)

    def know(self, trials: Sequence[Trial], quiet: bool = False) -> None:
        """All of its trials so far."""
        wanted, cost = self._expected[self._name]
        spent = [cost if math.isnan(trial.gradients) else trial.gradients for trial in trials]
        self._trials, self._spent = len(trials), min(sum(spent), wanted)
        if not quiet:
            self.tick(0)

    def tick(self, rounds: int) -> None:
        """Somebody works."""
        ended = sum(wanted for name, (wanted, _) in self._expected.items() if name in self._ended - {self._name})
        total = sum(wanted for wanted, _ in self._expected.values())
        self._watch(f"{self._name}: trial {self._trials + 1}", int(ended + self._spent), max(int(total), 1))
