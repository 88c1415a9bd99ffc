"""How far a comparison is: rounds done of all rounds to do, tuning included."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from apiece.engines.engine import Engine, RunState
from apiece.experiment.spec import Spec
from apiece.experiment.train import Look, Watch
from apiece.experiment.variant import Variant


@runtime_checkable
class Listener(Protocol):
    """Somebody who is told of a run while it goes: a file that `apiece watch` reads, a logger."""

    def progressed(self, what: str, done: int, total: int) -> None:
        """What is going on, and how many rounds are done of how many."""

    def seen(self, row: str, seed: int, numbers: dict[str, float]) -> None:
        """What was seen of a row's run from a seed: `round`, and numbers by name."""

    def close(self) -> None:
        """The run is over, or was stopped."""


class Progress:
    """Rounds done of all rounds to do, tuning included."""

    def __init__(self, spec: Spec, watch: Watch, listeners: Sequence[Listener] = ()) -> None:
        self.watch, self.plan, self.done, self.what = watch, spec.train, 0, "starting"
        self.listeners = listeners
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
        for one in self.listeners:
            one.progressed(self.what, self.done, self.total)

    def looker(self, row: str, seed: int) -> Look:
        """Who is shown a row's run from a seed, on its way."""

        def look(engine: Engine, run: RunState, seen: dict[str, Any]) -> None:
            if not self.listeners:
                return
            plain = {key: float(value) for key, value in seen.items() if isinstance(value, int | float)}
            counted = {"visits": float(engine.costs(run).get("visits", 0)), "refused": float(run.refused)}
            for one in self.listeners:
                one.seen(row, seed, plain | counted)

        return look

    def skip(self, trials: int = 0, tuning: int = 0) -> None:
        """So many trials of a seed, and of tuning, need not be run."""
        self.tick(self._rounds(trials, tuning))

    def _rounds(self, trials: int, tuning: int) -> int:
        return trials * self.plan.rounds + tuning * self.plan.tuning_rounds


def count_trials(spec: Spec, row: Variant) -> int:
    """How many tuning trials are counted for a row."""
    return len(row.points(spec.tune)) if row.grid or row.ranges else spec.tune
