"""The three stages of partial personalization: shared training, then one part made private, then its tuning.

The first stage is the same for every split, so it is trained once a seed; each variant of the second starts from the
model it found. The third costs no rounds: its step size is chosen after training, on validation.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.engines.contact import keys
from apiece.engines.engine import Engine, RunState
from apiece.estimate.diagnose import SplitDiagnosis, diagnose_split
from apiece.experiment import build as setup
from apiece.experiment.build import Arena
from apiece.experiment.contest import Result, Step
from apiece.experiment.judge import Outcome, by_examples, judge
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import train
from apiece.methods.fed_adam import adam_uncorrected
from apiece.methods.fed_avg import fed_avg
from apiece.methods.local_ffgg import local_ffgg
from apiece.models import Model, adapted
from apiece.protocol import Loss, Method, Params, Tree
from apiece.wrap import fine_tuned, server_optimized


class Variant(NamedTuple):
    """A second stage: which part is private ("": none, FedAvg goes on), and where it starts in every round."""

    private: str = ""
    start: str = "initial"


class Course(NamedTuple):
    """What the stages are told; `lr` and `server_lr` of the first and of the second.

    inner_steps: of a client's solve for its private part. rank: of adapters. passes, tune_lrs: of the third stage, and
    steps to choose from. newcomers: numbers of examples. diagnosed: clients whose gradients judge a split, 0 for none.
    """

    first: TrainSpec
    second: TrainSpec
    seeds: Sequence[int]
    lr: tuple[float, float]
    server_lr: tuple[float, float] = (1.0, 1.0)
    adam: bool = False
    inner_steps: int = 3
    rank: int = 2
    passes: int = 5
    tune_lrs: tuple[float, ...] = (0.01,)
    newcomers: tuple[int, ...] = ()
    diagnosed: int = 40


class Finished(NamedTuple):
    """A variant before and after the third stage, with what was tried in it."""

    before: Result
    after: Result
    diagnosis: SplitDiagnosis | None


def two_stages(
    loss: Loss,
    *,
    private: str = "",
    start: str = "initial",
    adam: bool = False,
    inner_steps: int = 3,
    lr: Tree = 0.01,
    server_lr: Tree = 1.0,
    passes: Tree = 5.0,
    tune_lr: Tree = 0.01,
    batch: int = 32,
) -> Method:
    """FedAvg, or Local FFGG with a private part, one epoch a visit; then `passes` of tuning that part (or all).

    With `adam` the server steps by Adam. All but words and counts may be traced, `passes` too.

    >>> two_stages(lambda params, batch, key: 0.0, private="b").init({"w": jnp.ones(1), "b": jnp.ones(1)}, None)
    {'b': None, 'w': Array([1.], dtype=float32)}
    """
    own = 1.0 if adam else server_lr
    if private:
        how = dict(private=private, start=start, inner_steps=inner_steps, inner_lr=lr, tune_epochs=None, tune_steps=0)
        method = local_ffgg(loss, epochs=1, lr=lr, server_lr=own, batch=batch, **how)
    else:
        method = fed_avg(loss, epochs=1, lr=lr, server_lr=own, batch=batch)
    if adam:
        method = server_optimized(method, adam_uncorrected(server_lr, 0.9, 0.99, 1e-3))
    return fine_tuned(method, loss, epochs=jnp.asarray(passes).astype(jnp.int32), lr=tune_lr, batch=batch, part=private)


def followed(place: Arena, course: Course, variants: dict[str, Variant], step: Step) -> dict[str, Finished]:
    """All variants, from one first stage a seed."""
    models = {}
    engines = _Engines(course)
    engine, hyper = engines.of(place, Variant(), 0)
    for seed in course.seeds:
        step(f"first stage: seed {seed}")
        run, _, _ = train(engine, place, hyper, seed, course.first)
        models[seed] = jax.tree.map(np.asarray, run.server[0] if course.adam else run.server)
    return {name: _variant(place, course, variant, models, engines, name, step) for name, variant in variants.items()}


def steps(course: Course, variants: dict[str, Variant]) -> int:
    """How often `followed` calls `step`.

    >>> steps(Course(TrainSpec(), TrainSpec(), (0, 1, 2), (0.5, 0.01)), {"FedAvg": Variant()})
    6
    """
    return len(course.seeds) * (1 + len(variants))


class _Engines:
    """FedAvg's engine serves both stages where their schedules are one."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.known: dict[Any, Engine] = {}

    def of(self, place: Arena, variant: Variant, stage: int) -> tuple[Engine, dict[str, float]]:
        """Untuned: looking on the way then costs no tuning."""
        course = self.course
        options: dict[str, Any] = dict(private=variant.private, start=variant.start, adam=course.adam, passes=0.0)
        options |= dict(inner_steps=course.inner_steps, lr=course.lr[stage], server_lr=course.server_lr[stage])
        plan = (course.first, course.second)[stage]
        engine, hyper = setup.engine_of(place, two_stages, options, plan)
        alike = plan if plan.schedule == "linear" else plan.model_copy(update={"rounds": 1})
        return self.known.setdefault((variant, repr(alike)), engine), hyper


def _variant(
    place: Arena,
    course: Course,
    variant: Variant,
    models: dict[int, Params],
    engines: _Engines,
    name: str,
    step: Step,
) -> Finished:
    if variant.private == "adapter":
        wider = adapted(place.model, course.rank)
        models = {seed: wider.init(keys(seed).model) | {"model": model} for seed, model in models.items()}
        place = setup.arena(place.federation, wider)
    engine, hyper = engines.of(place, variant, 1)
    runs, curves, seconds = {}, {}, []
    for seed, model in models.items():
        step(f"{name}: seed {seed}")
        began = time.perf_counter()
        here = place._replace(model=_starting(place.model, model))
        runs[seed], curves[seed], _ = train(engine, here, hyper, seed, course.second)
        seconds.append(time.perf_counter() - began)
    told = lambda tuning: Result(
        {**variant._asdict(), **tuning},
        [],
        {seed: _judged(engine, place, run, tuning, curves[seed]) for seed, run in runs.items()},
        _newcomers(engine, place, runs, tuning, course.newcomers),
        [],
        seconds,
    )
    first = course.seeds[0]
    tried = [
        (tuning, *_validation(engine, place, runs[first], tuning))
        for tuning in (dict(passes=float(course.passes), tune_lr=lr) for lr in course.tune_lrs)
    ]
    best = min(tried, key=lambda row: (row[2], row[1]))[0]
    asked = variant.private and course.diagnosed
    diagnosis = _diagnosed(place, course, variant, models[first], best["tune_lr"]) if asked else None
    return Finished(told(dict(passes=0.0)), told(best)._replace(tried=tried), diagnosis)


def _starting(model: Model, params: Params) -> Model:
    """The model, started where another training ended."""
    started: Callable[[Any], Params] = lambda key: jax.tree.map(jnp.asarray, params)
    return model._replace(init=started)


def _tuned(run: RunState, tuning: dict[str, float]) -> RunState:
    return dataclasses.replace(run, hyper=run.hyper | tuning)


def _judged(engine: Engine, place: Arena, run: RunState, tuning: dict, curve: list) -> Outcome:
    return Outcome(*judge(engine, place, _tuned(run, tuning)), curve, {})


def _validation(engine: Engine, place: Arena, run: RunState, tuning: dict) -> tuple[float, float]:
    """(loss, error) over all validation examples of those who trained."""
    who, outcomes = np.arange(place.population), place.objective.outcomes
    loss, error = engine.outcomes(_tuned(run, tuning), who, outcomes, ("validation",))["validation"]
    return float(loss.mean()), float(error.mean())


def _newcomers(
    engine: Engine, place: Arena, runs: dict[int, RunState], tuning: dict, counts: Sequence[int]
) -> dict[int, list[float]]:
    ask = lambda run: by_examples(engine, place, _tuned(run, tuning), counts)
    each = [ask(run) for run in runs.values()]
    return {most: [float(errors[most].mean()) for errors in each] for most in counts}


def _diagnosed(place: Arena, course: Course, variant: Variant, model: Params, lr: float) -> SplitDiagnosis:
    """The split at the model of the first stage, the private part tuned as in the third."""
    mine = place.federation.train
    offsets = mine.offsets[: course.diagnosed + 1]
    batches = -(-int(np.diff(offsets).max()) // 32)
    how: dict[str, Any] = dict(private=variant.private, steps=course.passes * batches, lr=lr, batch=32)
    here = slice(0, int(offsets[-1]))
    return diagnose_split(place.objective.loss, model, mine.x[here], mine.y[here], offsets, **how)
