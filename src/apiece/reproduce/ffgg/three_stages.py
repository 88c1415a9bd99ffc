"""The three stages of partial personalization: shared training, then one part made private, then its tuning.

The first stage is the same for every split, so it is trained once a seed; each variant of the second starts from the
model it found. How much inner work a variant does is tried with the first seed, and so is the step of the third stage,
which costs no rounds: both are chosen on validation. Pieces that are done are kept (`keep.kept`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.engines.contact import keys
from apiece.engines.engine import Engine, RunState
from apiece.estimate.diagnose import diagnose_split
from apiece.evaluate import per_client
from apiece.experiment import build as setup
from apiece.experiment.build import Arena
from apiece.experiment.contest import Step
from apiece.experiment.judge import by_examples, judge, sample
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.train import train
from apiece.files import arrays_by_path, rebuild_tree
from apiece.methods.fed_adam import adam_uncorrected
from apiece.methods.fed_avg import fed_avg
from apiece.methods.local_ffgg import local_ffgg, visit_of
from apiece.models import Model, adapted
from apiece.protocol import Loss, Method, Params, Tree
from apiece.reproduce.kept import Piece, kept
from apiece.split import divide, join, part_of
from apiece.wrap import fine_tuned, server_optimized


class Work(NamedTuple):
    """A client's inner work: passes over its examples to solve for its private part, and their step (None: `lr`)."""

    epochs: float = 1.0
    lr: float | None = None


class Variant(NamedTuple):
    """A second stage: which part is private ("": none, FedAvg goes on), where it starts each time, and what is tried.

    start: "initial", at what the first stage left; "fresh", at new random values of an untrained model's law.
    """

    private: str = ""
    start: str = "initial"
    inner: tuple[Work, ...] = (Work(),)


class Course(NamedTuple):
    """What the stages are told; `lr` and `server_lr` of the first and of the second.

    rank: of adapters. passes, tune_lrs: of the third stage, and steps to choose from. newcomers: numbers of examples.
    chosen_on: how many clients' validation chooses. diagnosed: clients whose gradients judge a split, 0 for none.
    """

    first: TrainSpec
    second: TrainSpec
    seeds: Sequence[int]
    lr: tuple[float, float]
    server_lr: tuple[float, float] = (1.0, 1.0)
    adam: bool = False
    rank: int = 2
    passes: int = 5
    tune_lrs: tuple[float, ...] = (0.01,)
    newcomers: tuple[int, ...] = ()
    chosen_on: int = 60
    diagnosed: int = 40


class Tried(NamedTuple):
    """Inner work and step of the third stage, and what they gave: every chosen-on client's validation error."""

    work: Work
    tune_lr: float
    loss: float
    errors: np.ndarray


class Diagnosis(NamedTuple):
    """The split diagnostic: the median client's share of the shared gradient left by tuning; see `diagnose_split`."""

    left: float
    agreement: float
    private: int
    shared: int


class Finished(NamedTuple):
    """A variant's errors: [seeds, clients], before and after the third stage, on its test examples.

    validation: [seeds, clients], after. newcomers: by number of examples (0: untuned), [seeds, new clients].
    """

    before: np.ndarray
    after: np.ndarray
    validation: np.ndarray
    newcomers: dict[int, np.ndarray]
    chosen: Tried
    tried: list[Tried]
    diagnosis: Diagnosis | None


def two_stages(
    loss: Loss,
    *,
    private: str = "",
    start: str = "initial",
    adam: bool = False,
    inner_epochs: Tree = 1.0,
    inner_lr: Tree | None = None,
    lr: Tree = 0.01,
    server_lr: Tree = 1.0,
    passes: Tree = 5.0,
    tune_lr: Tree = 0.01,
    batch: int = 32,
) -> Method:
    """FedAvg, or Local FFGG with a private part, one epoch a visit; then `passes` of tuning that part (or all).

    With `adam` the server steps by Adam. All but words and counts may be traced, `passes` and `inner_epochs` too.

    >>> two_stages(lambda params, batch, key: 0.0, private="b").init({"w": jnp.ones(1), "b": jnp.ones(1)}, None)
    {'b': None, 'w': Array([1.], dtype=float32)}
    """
    own = 1.0 if adam else server_lr
    whole = lambda count: jnp.asarray(count).astype(jnp.int32)
    if private:
        method = local_ffgg(loss, private=private, start=start, server_lr=own, tune_epochs=None, tune_steps=0)
        inner = dict(inner_epochs=whole(inner_epochs), inner_lr=lr if inner_lr is None else inner_lr)
        method = method._replace(local=visit_of(loss, epochs=1, lr=lr, start=start, batch=batch, **inner))
    else:
        method = fed_avg(loss, epochs=1, lr=lr, server_lr=own, batch=batch)
    if adam:
        method = server_optimized(method, adam_uncorrected(server_lr, 0.9, 0.99, 1e-3))
    return fine_tuned(method, loss, epochs=whole(passes), lr=tune_lr, batch=batch, part=private)


def followed(place: Arena, course: Course, variants: dict[str, Variant], step: Step) -> dict[str, Finished]:
    """All variants, from one first stage a seed."""
    engine, hyper = _engine(place, course, Variant(), 0)
    shapes = jax.eval_shape(place.model.init, jax.random.key(0))
    what = f"{place.model.name}, {place.population} clients, {place.federation.train.x.shape}"

    def first_stage(seed: int) -> Piece:
        run, _, _ = train(engine, place, hyper, seed, course.first)
        return arrays_by_path("model", run.server[0] if course.adam else run.server), {}

    models = {}
    for seed in course.seeds:
        step(f"first stage: seed {seed}")
        settings = (what, course.first, course.lr[0], course.server_lr[0], course.adam, seed)
        arrays, _ = kept("first stage", settings, partial(first_stage, seed))
        models[seed] = rebuild_tree("model", shapes, arrays)
    return {name: _variant(place, course, variant, models, step, (what, name)) for name, variant in variants.items()}


def steps(course: Course, variants: dict[str, Variant]) -> int:
    """How often `followed` calls `step`.

    >>> steps(Course(TrainSpec(), TrainSpec(), (0, 1, 2), (0.5, 0.01)), {"FedAvg": Variant()})
    6
    """
    return len(course.seeds) * (1 + len(variants))


def _engine(place: Arena, course: Course, variant: Variant, stage: int) -> tuple[Engine, dict[str, float]]:
    """Untuned: looking on the way then costs no tuning."""
    start = "random" if variant.start == "fresh" else variant.start
    options: dict[str, Any] = dict(private=variant.private, start=start, adam=course.adam, passes=0.0)
    options |= dict(lr=course.lr[stage], server_lr=course.server_lr[stage], tune_lr=course.tune_lrs[0])
    if variant.private:
        options |= dict(inner_epochs=1.0) | ({} if variant.inner[0].lr is None else dict(inner_lr=1.0))
    return setup.engine_of(place, two_stages, options, (course.first, course.second)[stage])


def _variant(
    place: Arena, course: Course, variant: Variant, models: dict[int, Params], step: Step, settings: Any
) -> Finished:
    if variant.private == "adapter":
        wider = adapted(place.model, course.rank)
        models = {seed: wider.init(keys(seed).model) | {"model": model} for seed, model in models.items()}
        place = setup.arena(place.federation, wider)
    elif variant.start == "fresh":
        models = {seed: with_fresh_part(place.model, model, variant.private, seed) for seed, model in models.items()}
    engine, hyper = _engine(place, course, variant, 1)
    first, *others = course.seeds

    def trained(seed: int, work: Work) -> RunState:
        inner = {"inner_epochs": work.epochs, "inner_lr": work.lr}
        mine = hyper | {name: value for name, value in inner.items() if name in hyper and value is not None}
        here = place._replace(model=_starting(place.model, models[seed]))
        return train(engine, here, mine, seed, course.second)[0]

    def first_seed() -> Piece:
        tried, runs = [], {}
        for work in variant.inner:
            runs[work] = trained(first, work)
            # A part that has to be learned anew is tuned at the end as it was in every round.
            lrs = course.tune_lrs if work.lr is None else (work.lr,)
            tried += [_tried(engine, place, course, runs[work], work, lr) for lr in lrs]
        best = min(tried, key=_merit)
        about: dict[str, Any] = {"tried": [[list(one.work), one.tune_lr, one.loss] for one in tried]}
        if variant.private and course.diagnosed:
            about["diagnosis"] = _diagnosed(place, course, variant, models[first], best)
        errors = np.stack([one.errors for one in tried])
        return _judged(engine, place, course, runs[best.work], best) | {"tried": errors}, about

    def later(seed: int) -> Piece:
        return _judged(engine, place, course, trained(seed, best.work), best), {}

    name = settings[1]
    step(f"{name}: seed {first}")
    settings = (settings, course, variant, first)
    arrays, about = kept(f"{variant.private or 'none'} {variant.start}", settings, first_seed)
    rows = zip(about["tried"], arrays["tried"], strict=True)
    tried = [Tried(Work(*work), lr, loss, errors) for (work, lr, loss), errors in rows]
    best = min(tried, key=_merit)
    found = [arrays]
    for seed in others:
        step(f"{name}: seed {seed}")
        found.append(kept(f"{variant.private or 'none'} {variant.start}", (settings, seed), partial(later, seed))[0])
    of = lambda name: np.stack([each[name] for each in found])
    newcomers = {most: of(f"new_{most}") for most in ((0, *course.newcomers) if course.newcomers else ())}
    diagnosis = Diagnosis(*about["diagnosis"]) if about.get("diagnosis") else None
    return Finished(of("before"), of("after"), of("validation"), newcomers, best, tried, diagnosis)


def with_fresh_part(model: Model, trained: Params, private: str, seed: int) -> Params:
    """A trained model whose private part is an untrained one's.

    FFGG's start "random" takes a part's values in random order: of these, new draws of the untrained law every time.
    """
    mine = part_of(trained, private)
    return join(divide(trained, mine)[0], divide(model.init(jax.random.fold_in(keys(seed).model, 1)), mine)[1])


def _starting(model: Model, params: Params) -> Model:
    """The model, started where another training ended."""
    started: Callable[[Any], Params] = lambda key: jax.tree.map(jnp.asarray, params)
    return model._replace(init=started)


def _tuned(run: RunState, course: Course, work: Work, tune_lr: float) -> RunState:
    """With the third stage: at least the published passes, and not fewer than the inner work had."""
    passes = max(float(course.passes), work.epochs)
    return dataclasses.replace(run, hyper=run.hyper | dict(passes=passes, tune_lr=tune_lr))


def _tried(engine: Engine, place: Arena, course: Course, run: RunState, work: Work, tune_lr: float) -> Tried:
    who, outcomes = sample(place.population, course.chosen_on), place.objective.outcomes
    loss, error = engine.outcomes(_tuned(run, course, work, tune_lr), who, outcomes, ("validation",))["validation"]
    return Tried(work, tune_lr, float(loss.mean()), per_client(error, _offsets(place, who, "validation")))


def _merit(one: Tried) -> tuple[float, float]:
    """Least validation error, clients alike; what diverged comes last."""
    return (float(np.nanmean(one.errors)), one.loss) if np.isfinite(one.loss) else (np.inf, np.inf)


def _offsets(place: Arena, who: np.ndarray, part: str) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(place.sizes(part)[who])]).astype(np.int64)


def _judged(engine: Engine, place: Arena, course: Course, run: RunState, best: Tried) -> dict[str, np.ndarray]:
    """Every client's error, by part; and every new client's, by how many examples it has."""

    def errors(run: RunState, part: str) -> np.ndarray:
        judged, arrays = judged_by[id(run)]
        each = per_client(arrays[f"{part}_error"], arrays[f"{part}_offsets"])
        return each[judged < place.population]

    tuned = _tuned(run, course, best.work, best.tune_lr)
    judged_by = {id(each): judge(engine, place, each) for each in (run, tuned)}
    told = {"before": errors(run, "test"), "after": errors(tuned, "test"), "validation": errors(tuned, "validation")}
    if course.newcomers:
        offsets = _offsets(place, place.new, "test")
        judged, arrays = judged_by[id(run)]
        told["new_0"] = per_client(arrays["test_error"], arrays["test_offsets"])[judged >= place.population]
        for most, each in by_examples(engine, place, tuned, course.newcomers).items():
            told[f"new_{most}"] = per_client(each, offsets)
    return told


def _diagnosed(place: Arena, course: Course, variant: Variant, model: Params, best: Tried) -> list[float]:
    """The split at the model of the first stage, the private part tuned as in the third."""
    mine = place.federation.train
    offsets = mine.offsets[: course.diagnosed + 1]
    batches = -(-int(np.diff(offsets).max()) // 32)
    passes = int(max(course.passes, best.work.epochs))
    how: dict[str, Any] = dict(private=variant.private, steps=passes * batches, lr=best.tune_lr, batch=32)
    here = slice(0, int(offsets[-1]))
    found = diagnose_split(place.objective.loss, model, mine.x[here], mine.y[here], offsets, **how)
    return list(Diagnosis(float(np.nanmedian(found.ratio)), found.agreement, found.private, found.shared))
