"""A method on a federation, ready to be tried: its engines are made when first needed, and kept."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.engines.engine import Engine, RunState
from apiece.engines.simulation.base import Simulation
from apiece.experiment.build import Arena, engine_of
from apiece.experiment.judge import Outcome, judge
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import Curve, Tick, train
from apiece.methods.bind import bind
from apiece.protocol import Method

Engines = dict[tuple, Engine]  # by all that is compiled in


class Bench:
    """What tuning, comparing and contests share: a setting is tried on validation, or trained and judged.

    Options that are traced share one engine; others need one each.

    Args:
        place: the federation. method: a name, or a factory. options: those that stand. plan: how a run goes.
        engines: where engines are kept, to share them with benches on other data of the same shapes and with the same
            objective; by default this bench's own.
    """

    def __init__(
        self,
        place: Arena,
        method: str | Callable[..., Method],
        options: Mapping[str, Any],
        plan: TrainSpec,
        engines: Engines | None = None,
    ) -> None:
        self.method, self.options, self.plan = method, dict(options), plan
        build, self.hyper = bind(method, place.objective.loss, self.options, None, place.population, place.model)
        self._predict = build(self.hyper, 0).predict
        self.place = place.judged_by(self._predict)
        self._shared = {} if engines is None else engines
        self._here: Engines = {}

    def engine(self, options: Mapping[str, Any]) -> tuple[Engine, dict[str, float]]:
        """(engine, traced options) of a setting."""
        every, place = {**self.options, **options}, self.place
        traced = {name: float(value) for name, value in every.items() if name in self.hyper}
        hyper = self.hyper | traced
        fixed = sorted((name, repr(value)) for name, value in every.items() if name not in hyper)
        sizes = place.sizes("train")
        shapes = jax.tree.map(np.shape, (place.x, place.y)), int(sizes.max(initial=1)), len(sizes), place.population
        key = (self.method, place.objective, repr((fixed, self.plan, shapes)))
        if key not in self._here:
            shared = self._shared.get(key)
            if isinstance(shared, Simulation):  # made for other data: what was compiled serves again
                made: Engine = shared.moved(place.x, place.y, place.offsets, place.splits)
            else:
                made = self._shared[key] = engine_of(place, self.method, every, self.plan)[0]
            self._here[key] = made
        return self._here[key], hyper

    def look(
        self, options: Mapping[str, Any], seed: int, rounds: int | None = None, tick: Tick = lambda rounds: None
    ) -> tuple[Engine, RunState, Curve]:
        """(engine, run, curve of one point) of a setting after so many rounds, by validation alone."""
        engine, hyper = self.engine(options)
        last = rounds or self.plan.rounds
        plan = self.plan.model_copy(update={"rounds": last, "evaluate_every": last})
        run, curve, _ = train(engine, self.place, hyper, seed, plan, tick=tick)
        return engine, run, curve

    def trial(
        self,
        options: Mapping[str, Any],
        seed: int,
        *,
        other: Arena | None = None,
        keep: Path | None = None,
        tick: Tick = lambda rounds: None,
        costs: bool = True,
    ) -> tuple[Engine, RunState, Outcome]:
        """A setting trained and judged, on the bench's own place or on another deal of its rows."""
        engine, hyper = self.engine(options)
        place = self.place
        if other is not None:
            assert isinstance(engine, Simulation)  # the others cannot be moved
            place, engine = other.judged_by(self._predict), engine.moved(other.x, other.y, other.offsets, other.splits)
        run, curve, seconds = train(engine, place, hyper, seed, self.plan, keep=keep, tick=tick)
        judged, arrays = judge(engine, place, run)
        spent = {**(engine.costs(run) if costs else {}), "seconds": seconds}
        return engine, run, Outcome(judged, arrays, curve, spent)
