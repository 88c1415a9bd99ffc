"""Clients that never trained, by how many examples they bring: what a method offers somebody who comes late."""

import numpy as np

from apiece.engines.engine import Engine, RunState
from apiece.evaluate import interval
from apiece.experiment.build import Arena
from apiece.experiment.judge import JUDGED_AT_MOST, Outcome, by_examples, finite, sample
from apiece.experiment.record import Newcomers
from apiece.experiment.spec_tables import TrainSpec


def counts(wanted: list[int], largest: int) -> list[int]:
    """The numbers of examples to judge newcomers with: the wanted ones that cut somebody short, then all there are.

    >>> counts([1, 10, 100], largest=36)
    [1, 10, 36]
    """
    below = sorted({count for count in wanted if count < largest})
    return [*below, largest] if wanted and largest > 0 else []


def judge_newcomers(
    engine: Engine, place: Arena, run: RunState, plan: TrainSpec, outcome: Outcome
) -> dict[str, np.ndarray]:
    """Arrays for an outcome: `newcomers`, who was looked at, `newcomers_examples`, `newcomers_error` (pooled).

    From all their examples they were judged already, with everybody else; only the smaller numbers cost anything.
    """
    new = place.new[:JUDGED_AT_MOST]
    who = new[sample(len(new), plan.evaluate_clients)]
    wanted = counts(plan.newcomer_examples, int(engine.sizes[who].max(initial=0)))
    if not wanted or not place.sizes("test")[who].any():
        return {}
    found = by_examples(engine, place, run, wanted[:-1], who)
    errors, offsets = outcome.scores("test", "error")
    found[wanted[-1]] = errors[np.repeat(np.isin(outcome.judged, who), np.diff(offsets))]
    pooled = [float(finite(found[count]).mean(dtype=np.float64)) for count in wanted]
    return {"newcomers": who, "newcomers_examples": np.array(wanted), "newcomers_error": np.array(pooled)}


def newcomers_over_seeds(place: Arena, by_seed: dict[int, Outcome]) -> Newcomers | None:
    """For the record: for each number of examples an interval over seeds of the newcomers' score.

    All their test examples count alike. None without newcomers.
    """
    first = next(iter(by_seed.values())).arrays
    if "newcomers" not in first:
        return None
    errors = np.stack([outcome.arrays["newcomers_error"] for outcome in by_seed.values()])
    name, scores = ("accuracy", 1 - errors) if place.score == "accuracy" else ("error", errors)
    intervals = {name: [interval(column) for column in scores.T]}
    examples = first["newcomers_examples"].tolist()
    return Newcomers.model_validate({"clients": len(first["newcomers"]), "examples": examples, **intervals})
