"""A method on a federation, ready to be tried: its engines are made when first needed, and their programs kept."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.engines.engine import Engine, RunState
from apiece.engines.simulation.base import Simulation
from apiece.engines.simulation.crew import crew_here
from apiece.engines.simulation.together import runs_at_once
from apiece.engines.simulation.vectorized import Vectorized
from apiece.experiment import fits
from apiece.experiment.build import Arena, engine_of
from apiece.experiment.judge import Outcome, judge
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import Curve, Enough, Look, Tick, spent, train, train_together
from apiece.methods import CATALOG
from apiece.methods.bind import bind
from apiece.protocol import Method
from apiece.shelf import Shelf, frozen

ENGINES = Shelf(most=64)  # of this process, by all that is compiled in; without data, which would fill the memory
_PREDICTS, _COMPILED = Shelf(most=256), Shelf(most=64)  # how clients of a method predict, and that as a program
_FITS = Shelf(most=256)  # what was found to fit the memory


class Bench:
    """What fitting, tuning, comparing and contests share: a setting is tried on validation, or trained and judged.

    Options that are traced share one engine; others need one each. What is compiled for one bench serves the next,
    whatever its data, if they have the same shapes, and its model and loss are the same objects.

    Args:
        place: the federation. method: a name, or a factory. options: those that stand. plan: how a run goes.
        notes: what a reader should know of these.
    """

    def __init__(
        self,
        place: Arena,
        method: str | Callable[..., Method],
        options: Mapping[str, Any],
        plan: TrainSpec,
        notes: Sequence[str] = (),
    ) -> None:
        self.method, self.options, self.plan, self.notes = method, dict(options), plan, tuple(notes)
        loss, population, model = place.objective.loss, place.population, place.model
        build, self.hyper = bind(method, loss, self.options, None, population, model)
        self._of = (CATALOG.find(method), loss, model, population)
        # How clients predict does not depend on traced options: whatever does is in their personal models.
        self._predict = _PREDICTS.take((*self._of, self._fixed({})), lambda: build(self.hyper, 0).predict)
        self.place = place.judged_by(self._predict)
        self._here: dict[Any, Engine] = {}

    def check_memory(self) -> None:
        """Raise a `UserError` if this is too much for the machine; asked once for benches that differ in data alone."""

        def check() -> bool:
            build, hyper = bind(self.method, self._of[1], self.options, None, self._of[3], self._of[2])
            asked = (CATALOG.name_of(self.method), build(hyper, 0), self.place, self.plan)
            fits.check_memory(*asked)
            fits.check_disk(*asked)
            return True

        _FITS.take((*self._of, self._fixed({}), compiled_in(self.plan), fits.memory()), check)

    def engine(self, options: Mapping[str, Any]) -> tuple[Engine, dict[str, float]]:
        """(engine, traced options) of a setting."""
        every, fixed = {**self.options, **options}, self._fixed(options)
        traced = {name: float(value) for name, value in every.items() if name in self.hyper}
        try:
            key = frozen(fixed)
        except TypeError:  # a stranger's value that cannot be compared: what it says of itself must do
            key = repr(fixed)
        if key not in self._here:
            self._here[key] = self._made(every, fixed)
        return self._here[key], self.hyper | traced

    @property
    def predict(self) -> Callable[..., Any]:
        """(personal model, examples) -> what it says of them; compiled."""
        predict, apply = self._predict, self.place.model.apply
        return _COMPILED.take((predict, apply), lambda: jax.jit(partial(predict, apply)))

    def _fixed(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in {**self.options, **options}.items() if name not in self.hyper}

    def _made(self, options: dict[str, Any], fixed: dict[str, Any]) -> Engine:
        place, make = self.place, lambda: engine_of(self.place, self.method, options, self.plan)[0]
        if self.plan.engine != "vectorized":  # only a simulation can be moved
            return make()

        def programs() -> Simulation:
            made = make()
            assert isinstance(made, Simulation)
            return made.without_data()

        sizes = place.sizes("train")
        shape = lambda leaf: (np.shape(leaf), leaf.dtype)
        shapes = [*map(shape, jax.tree.leaves((place.x, place.y))), int(sizes.max(initial=1)), len(sizes)]
        exact = jax.dtypes.canonicalize_dtype(np.float64)  # whether programs compute in float64
        kept = ENGINES.take((*self._of, fixed, compiled_in(self.plan), shapes, exact, id(crew_here())), programs)
        return kept.moved(place.x, place.y, place.offsets, place.splits)

    def looks(
        self,
        settings: Sequence[Mapping[str, Any]],
        seed: int,
        rounds: int | None = None,
        *,
        done: int = 0,
        tick: Tick = lambda rounds: None,
    ) -> Iterator[tuple[Engine, RunState, Curve]]:
        """(engine, run, curve of one point) of each setting after so many rounds, by validation alone; in their order.

        The first `done` of them are left out; the others have the same numbers as if they were not.
        """
        last = rounds or self.plan.tuning_rounds
        # One look is the best of all: no run may stop, and so several can be done together.
        plan = self.plan.model_copy(update={"rounds": last, "evaluate_every": last, "stop": None, "until_rest": False})
        early: dict[int, tuple[Engine, RunState, Curve]] = {}
        trials = [(options, seed) for options in settings]
        for which, engine, run, curve, _ in self.runs(trials, plan, done=done, tick=tick):
            early[which] = (engine, run, curve)
            while done in early:
                yield early.pop(done)
                done += 1

    def runs(
        self,
        trials: Sequence[tuple[Mapping[str, Any], int]],
        plan: TrainSpec | None = None,
        *,
        done: int = 0,
        tick: Tick = lambda rounds: None,
        enough: Sequence[Enough] = (),
        width: int | None = None,
    ) -> Iterator[tuple[int, Engine, RunState, Curve, float]]:
        """(which, engine, run, curve, seconds) of every trial (options, seed) but the first `done`, in any order.

        Those of one seed that differ in traced options are done in one program, `width` at a time: by default as many
        as is fastest (`engines.simulation.together`). `enough`: of each, when it is given up.
        """
        plan = plan or self.plan
        alike: dict[tuple[int, int], tuple[Engine, int, list]] = {}
        for which, (options, seed) in enumerate(trials):
            engine, hyper = self.engine(options)
            alike.setdefault((id(engine), seed), (engine, seed, []))[2].append((which, hyper))
        for engine, seed, members in alike.values():
            start = engine.start(self.place.model.init, seed, members[0][1])
            at_once = width or runs_at_once(engine, start, len(members), plan.rounds * len(trials))
            for first in range(0, len(members), at_once):
                some = members[first : first + at_once]
                new = [which >= done for which, _ in some]
                if not any(new):
                    continue
                # All of a program's runs are done again, so that those that count are in the same company as before.
                hypers = [hyper for _, hyper in some]
                tired = [enough[which] if enough else None for which, _ in some]
                found = self._trained(engine, hypers, seed, plan, at_once, tick=tick, ticks=new, enough=tired)
                for (which, _), is_new, result in zip(some, new, found, strict=True):
                    if is_new:
                        yield which, engine, *result

    def _trained(
        self,
        engine: Engine,
        hypers: list,
        seed: int,
        plan: TrainSpec,
        width: int,
        *,
        tick: Tick,
        ticks: list[bool],
        enough: list[Enough],
    ) -> list[tuple[RunState, Curve, float]]:
        if width > 1 and isinstance(engine, Vectorized) and plan.stop is None and not plan.until_rest:
            return train_together(engine, self.place, hypers, seed, plan, width, tick=tick, ticks=ticks, enough=enough)
        every = zip(hypers, enough, strict=True)
        return [train(engine, self.place, hyper, seed, plan, tick=tick, enough=stop) for hyper, stop in every]

    def width(self, options: Mapping[str, Any], seed: int, wanted: int, rounds: int) -> int:
        """How many of the wanted settings that differ in traced options are best tried at a time; `rounds`: of all."""
        engine, hyper = self.engine(options)
        return runs_at_once(engine, engine.start(self.place.model.init, seed, hyper), wanted, rounds)

    def gradients(self, options: Mapping[str, Any], seed: int, rounds: int, looks: int = 1) -> float:
        """What a trial of a setting costs, in gradient evaluations of all clients together; NaN: only the run tells.

        With each look at validation clients make the models that they use, which may take gradients, too.
        """
        engine, hyper = self.engine(options)
        run = dataclasses.replace(engine.start(self.place.model.init, seed, hyper), round=rounds)
        costs = engine.costs(run)
        return costs["gradients"] + looks * costs["gradients_personal"]

    def trial(
        self,
        options: Mapping[str, Any],
        seed: int,
        *,
        other: Arena | None = None,
        keep: Path | None = None,
        tick: Tick = lambda rounds: None,
        look: Look = lambda engine, run, seen: None,
        costs: bool = True,
    ) -> tuple[Engine, RunState, Outcome]:
        """A setting trained and judged, on the bench's own place or on another deal of its rows."""
        engine, hyper = self.engine(options)
        place = self.place
        if other is not None:
            assert isinstance(engine, Simulation)  # the others cannot be moved
            place, engine = other.judged_by(self._predict), engine.moved(other.x, other.y, other.offsets, other.splits)
        run, curve, seconds = train(engine, place, hyper, seed, self.plan, keep=keep, tick=tick, look=look)
        judged, arrays = judge(engine, place, run)
        cost = {**(spent(engine, run, curve) if costs else {}), "seconds": seconds}
        return engine, run, Outcome(judged, arrays, curve, cost)


def compiled_in(plan: TrainSpec) -> dict[str, Any]:
    """The parts of a plan that an engine is made of: not how often a run is looked at, and what is kept of it.

    >>> compiled_in(TrainSpec(rounds=5)) == compiled_in(TrainSpec(rounds=7))
    True
    >>> decay = dict(schedule="linear", schedule_options={"end": 0.1})
    >>> compiled_in(TrainSpec(rounds=5, **decay)) == compiled_in(TrainSpec(rounds=7, **decay))
    False
    """
    idle = {"until_rest", "evaluate_clients", "newcomer_examples", "checkpoint_seconds", "models_gb"}
    # An epsilon is for all rounds together: how much noise that is depends on their number.
    counted = plan.schedule != "constant" or (plan.private is not None and plan.private.epsilon is not None)
    return plan.model_dump(exclude=idle if counted else {*idle, "rounds"})
