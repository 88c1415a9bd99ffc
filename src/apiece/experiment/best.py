"""The best round of a run so far, by validation: when to stop, and what to go back to."""

import math
import tempfile
from pathlib import Path
from typing import Any

from apiece.engines.engine import Engine, RunState
from apiece.experiment.spec_tables import StopSpec, TrainSpec
from apiece.methods import CATALOG

Curve = list[dict[str, float]]


def best_look(curve: Curve, by: str, higher: bool, least: float = 0.0) -> int:
    """Which look at validation was the best: one has to be better by more than `least`, so of equals the first is.

    >>> best_look([{"validation_loss": loss} for loss in (0.9, 0.5, float("nan"), 0.5, 0.6)], "validation_loss", False)
    1
    """
    best, found = 0, -math.inf
    for at, point in enumerate(curve):
        value = point[by] if higher else -point[by]
        if value > found + (least if math.isfinite(found) else 0):
            best, found = at, value
    return best


def at_its_best(plan: TrainSpec) -> TrainSpec:
    """The same plan, to be run to its end, of which the best round by validation counts; or as it is, if it may stop.

    So `local` is run: a client that trains alone would stop where its own held-out examples stop improving
    (docs/decisions/0021-baselines-hard-to-beat.md).

    >>> at_its_best(TrainSpec(rounds=50)).stop.patience, at_its_best(TrainSpec(stop=StopSpec(patience=3))).stop.patience
    (50, 3)
    """
    if plan.stop is not None:
        return plan
    return plan.model_copy(update={"stop": StopSpec(patience=plan.rounds), "evaluate_every": plan.look_every})


def plan_of(method: Any, plan: TrainSpec) -> TrainSpec:
    """How a method of a comparison is run: `local` at its best round, the others as planned."""
    return at_its_best(plan) if CATALOG.find(method) is CATALOG["local"] else plan


def may_stop(plan: TrainSpec) -> bool:
    """Whether a run of this plan may end before its last round; one that is only judged at its best round does not.

    >>> may_stop(at_its_best(TrainSpec(rounds=50))), may_stop(TrainSpec(stop=StopSpec(patience=3)))
    (False, True)
    """
    return plan.stop is not None and plan.stop.patience < plan.rounds


class BestRound:
    """Looks at a run as it goes: keeps its best round on disk, and says when it has not improved for long enough.

    All of it is read off the curve, so that a run that is continued stops where it would have stopped.
    """

    def __init__(self, engine: Engine, stop: StopSpec, by: tuple[str, bool], keep: Path | None) -> None:
        self.engine, self.stop, self.by = engine, stop, by
        self._folder = tempfile.TemporaryDirectory()  # where nothing else is kept
        self.path = Path(self._folder.name) / "best" if keep is None else keep.with_name(keep.name + ".best")

    def look(self, run: RunState, curve: Curve) -> bool:
        """Whether to stop now; the run is saved if this round is the best so far."""
        since = len(curve) - 1 - self._best(curve)
        if not since:
            self.engine.save(run, self.path, {})
        return since >= self.stop.patience

    def result(self, run: RunState, fresh: RunState, curve: Curve) -> RunState:
        """The run as it was at its best round."""
        at_best = self._best(curve) == len(curve) - 1
        found = run if at_best else self.engine.restore(self.path, fresh)[0]
        self.path.unlink(missing_ok=True)
        self._folder.cleanup()
        return found

    def _best(self, curve: Curve) -> int:
        return best_look(curve, *self.by, self.stop.least)
