"""How far a comparison is: rounds done of all rounds to do, tuning included."""

from apiece.experiment.spec import Spec
from apiece.experiment.train import Watch
from apiece.experiment.variant import Variant


class Progress:
    """Rounds done of all rounds to do, tuning included."""

    def __init__(self, spec: Spec, watch: Watch) -> None:
        self.watch, self.plan, self.done, self.what = watch, spec.train, 0, "starting"
        tuning = sum(count_trials(spec, row) for row in spec.rows.values())
        self.total = self._rounds(len(spec.rows) * len(spec.seeds), tuning)

    def say(self, what: str) -> None:
        """What is going on now."""
        self.what = what
        self.tick(0)

    def tick(self, rounds: int) -> None:
        """So many rounds more are done."""
        self.done += rounds
        self.watch(self.what, self.done, self.total)

    def skip(self, trials: int = 0, tuning: int = 0) -> None:
        """So many trials of a seed, and of tuning, need not be run."""
        self.tick(self._rounds(trials, tuning))

    def _rounds(self, trials: int, tuning: int) -> int:
        return trials * self.plan.rounds + tuning * self.plan.tuning_rounds


def count_trials(spec: Spec, row: Variant) -> int:
    """How many tuning trials are counted for a row."""
    return len(row.points(spec.tune)) if row.grid or row.ranges else spec.tune
