"""A federation of few, fixed clients, split again and again: each split is tuned, trained and tested by itself."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from apiece.data import Federation
from apiece.experiment import contest, measure
from apiece.experiment.build import Arena, arena, model_of
from apiece.experiment.contest import Result, Rival, Step
from apiece.experiment.spec_tables import ModelSpec, TrainSpec


class Silos(NamedTuple):
    """What every method did on every split: arenas, results, and who is hurt, as `measure.gains` tells it."""

    name: str
    places: list[Arena]
    results: list[dict[str, Result]]
    harm: list[dict[str, dict[str, Any]]]

    @property
    def methods(self) -> list[str]:
        """The rivals, in their order."""
        return list(self.results[0])

    def points(self, method: str, each_client: bool = False) -> np.ndarray:
        """[splits]: test error in points, all examples alike or, `each_client`, [splits, clients].

        A point is a hundredth of all examples, or in a regression a hundredth of the variance of the test targets.
        """
        of = contest.client_errors if each_client else contest.errors
        pairs = zip(self.places, self.results, strict=True)
        rows = [100 * of(place, found[method])[0] / self.scale(place, found) for place, found in pairs]
        return np.array(rows)

    def scale(self, place: Arena, found: dict[str, Result]) -> float:
        """What one hundred points are."""
        return measure.error_scale(place, next(iter(next(iter(found.values())).outcomes.values())))

    def newcomers(self, method: str) -> np.ndarray:
        """[splits, numbers of examples]: the new clients' test error in points."""
        pairs = zip(self.places, self.results, strict=True)
        return np.array([
            [100 * seeds[0] / self.scale(place, found) for seeds in found[method].newcomers.values()]
            for place, found in pairs
        ])  # fmt: skip

    def validation(self, method: str) -> float:
        """The mean validation error over clients and splits: what may choose a method."""
        ends = [outcome.curve[-1] for found in self.results for outcome in found[method].outcomes.values()]
        return float(np.mean([end["validation_error"] for end in ends]))

    def hurt(self, method: str, key: str) -> np.ndarray:
        """[splits]: a number of `apiece.evaluate.hurt`; NaN where a model diverged."""
        return np.array([harm.get(method, {}).get(key, math.nan) for harm in self.harm], float)

    def proved(self, *methods: str) -> int:
        """The most clients that are proved hurt by one of these methods in one split."""
        return max(round(float(np.nanmax(self.hurt(m, "hurt_proved") * self.hurt(m, "clients")))) for m in methods)

    def metric(self, method: str, key: str, part: str = "test") -> np.ndarray:
        """[splits]: a metric of the task, pooled over all test examples."""
        pairs = zip(self.places, self.results, strict=True)
        every = [(place, outcome) for place, found in pairs for outcome in found[method].outcomes.values()]
        return np.array([measure.metrics(place, outcome)[part][key] for place, outcome in every], float)


def compete(
    name: str,
    make: Callable[[int], Federation],
    rivals: dict[str, Rival],
    plan: TrainSpec,
    splits: int,
    newcomers: Sequence[int],
    step: Step,
) -> Silos:
    """All rivals on so many splits, `make(seed)`; programs are compiled for the first one and used for all."""
    places: list[Arena] = []
    results, harm = [], []
    for split in range(splits):
        federation = make(split)
        model = places[0].model if places else model_of(ModelSpec(), federation)
        place = arena(federation, model, places[0].objective if places else None)
        known = newcomers if len(place.new) else ()
        told = lambda what, split=split: step(f"{name}, split {split + 1}: {what}")
        found = contest.contest(place, rivals, plan, (split,), newcomers=known, step=told)
        places.append(place)
        results.append(found)
        harm.append(measure.gains(place, contest.trials_of(found)))
    return Silos(name, places, results, harm)
