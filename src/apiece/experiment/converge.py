"""What more rounds or other settings might change: whether a method rests, and whether its setting was an edge."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from apiece.evaluate import Trend, trend_of, trend_of_seeds
from apiece.evaluate.convergence import State
from apiece.experiment.best import Curve
from apiece.experiment.judge import Outcome
from apiece.experiment.record import Convergence, Edge
from apiece.experiment.spec_tables import FIRST_STAGE, TrainSpec

TRIED = 3  # values of an option, of which the lowest or highest is an edge: of two, one always is


def convergence_of(
    by_seed: Mapping[int, Outcome], tried: Sequence[Mapping[str, Any]], chosen: int, plan: TrainSpec
) -> Convergence:
    """What a method's curves, its tuning trials and its clients say together."""
    curves = {seed: outcome.curve for seed, outcome in by_seed.items()}
    # A run that [train.stop] ended has rested by that rule, and is judged at its best round.
    going = {seed: curve for seed, curve in curves.items() if plan.stop is None or _rounds(curve) >= plan.rounds}
    if all(map(_is_solved, by_seed.values())):
        going = {}
    states: dict[int, State] = dict.fromkeys(curves, "resting")
    states |= {seed: _kept(trend_of_curve(curve).state, plan) for seed, curve in going.items()}
    trend = trend_of_seeds([_points(curve) for curve in (going or curves).values()])
    return Convergence(
        state=_kept(trend.state, plan) if going else "resting",
        by_seed=states,
        rounds=max(map(_rounds, curves.values())),
        looks=trend.looks,
        change=trend.change,
        gain=trend.gain,
        loss=trend.loss,
        edges=edges(tried, chosen),
    )


def _is_solved(outcome: Outcome) -> bool:
    """Whether its models were solved for at once: where nothing is sent or trained, rounds change nothing."""
    return all(outcome.costs.get(spent) == 0 for spent in ("bytes_up", "bytes_down", "gradients"))


def _kept(state: State, plan: TrainSpec) -> State:
    """What grows after its best round is at rest if that round is kept."""
    return "resting" if state == "rising" and plan.stop is not None else state


def trend_of_curve(curve: Curve) -> Trend:
    """The trend of one run's validation loss.

    >>> trend_of_curve([{"round": r, "validation_loss": 0.98**r} for r in range(5, 101, 5)]).state
    'improving'
    """
    return trend_of(*_points(curve))


def has_rested(curve: Curve) -> bool:
    """Whether a run until rest ends here: at a stage's end (100, 200, 400, ... rounds) where its loss no longer falls.

    Read off the curve alone, so that a run that is continued ends where it would have ended. Between the stages nobody
    asks: with enough looks chance finds a quiet one. Where noise hides the trend it goes on, for more looks.

    >>> arrived = [{"round": r, "validation_loss": 0.5 + 0.9**r} for r in range(5, 401, 5)]
    >>> [has_rested(arrived[: rounds // 5]) for rounds in (50, 100, 105, 200)]
    [False, True, False, True]
    """
    if not curve:
        return False
    before, now, stage = _rounds(curve[:-1]), _rounds(curve), FIRST_STAGE
    while stage <= before:
        stage *= 2
    return stage <= now and trend_of_curve(curve).state in ("resting", "rising", "diverged")


def edges(tried: Sequence[Mapping[str, Any]], chosen: int) -> list[Edge]:
    """The options whose chosen value is the lowest (but 0) or the highest of those tried: a better one may lie beyond.

    >>> edges([{"options": {"lr": lr}} for lr in (0.1, 1.0, 3.0)], chosen=2)
    [Edge(option='lr', value=3.0, end='highest')]
    """
    found = []
    for option, value in tried[chosen]["options"].items():
        values = [one["options"][option] for one in tried]
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
        if not numbers or len(set(values)) < TRIED or min(values) < value < max(values):
            continue
        if value == min(values) == 0:  # nothing lies beyond it
            continue
        found.append(Edge(option=option, value=value, end="lowest" if value == min(values) else "highest"))
    return found


def _points(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    column = lambda name: np.array([point[name] for point in curve], np.float64)
    return column("round"), column("validation_loss")


def _rounds(curve: Curve) -> int:
    return int(curve[-1]["round"]) if curve else 0
