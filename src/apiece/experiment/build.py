"""From a spec to the things it names: federation, model, objective, engine."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece.aggregate import rule
from apiece.client.schedule import schedule
from apiece.data import SOURCES, Federation, load, source
from apiece.engines.contact import Build, model_shapes
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.division import mesh_of, on_devices
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Speeds
from apiece.engines.world.cohort import Availability, Participation
from apiece.engines.world.faults import Faults
from apiece.engines.world.pace import Pace
from apiece.errors import UserError, suggest
from apiece.experiment.spec import DataSpec, ModelSpec, PaceSpec, Spec, TrainSpec
from apiece.methods.bind import bind
from apiece.models import MODELS, Model, Objective, named_model, objective
from apiece.models.catalog import use_of
from apiece.protocol import Method, apply_model
from apiece.shelf import Shelf
from apiece.wrap import attacked, attackers, corrupted, guarded, robust
from apiece.wrap.attacks import attack as attack_named

_PREDICTED = Shelf(most=64)  # programs are compiled for a function: the same one again compiles nothing
_OUTPUTS = Shelf(most=64)
AUTO = {"classification": "softmax", "regression": "linear", "custom": "quadratic", "next_character": "char_lstm"}


def federation_of(spec: DataSpec) -> Federation:
    """The federation a spec names, with a share of new clients set aside when there are ten clients or more.

    >>> federation_of(DataSpec(source="digits", options={"clients": 20})).new.clients
    2
    """
    path = Path(spec.source)
    if spec.source in SOURCES:
        federation = source(spec.source, **spec.options)
    elif path.exists():
        federation = load(path, **spec.options)
    else:
        raise UserError(f"there is no data '{spec.source}': neither a file or folder, nor a source by that name; "
                        f"{suggest(spec.source, SOURCES)}")  # fmt: skip
    return _with_new_clients(federation, spec)


def _with_new_clients(federation: Federation, spec: DataSpec) -> Federation:
    if federation.new is None and spec.new_clients and federation.clients >= 10:
        return federation.hold_out_clients(max(spec.new_clients, 1.01 / federation.clients), spec.seed)
    return federation


def model_of(spec: ModelSpec, federation: Federation) -> Model:
    """The model a spec names, sized for the federation.

    >>> from apiece.data import digits
    >>> model_of(ModelSpec(), digits()).name
    'softmax 64-10'
    """
    train, task = federation.train, federation.task
    name = AUTO[task] if spec.name == "auto" else spec.name
    options = spec.options if spec.hidden is None else {"hidden": spec.hidden, **spec.options}
    if "hidden" in options and not MODELS.takes(name, "hidden"):
        layered = [other for other in MODELS if MODELS.takes(other, "hidden")]
        raise UserError(f"model '{name}' has no hidden layers to give widths to; leave 'hidden' out, or take one that "
                        f"has: {', '.join(layered)}")  # fmt: skip
    outputs = len(federation.classes) or int(np.prod(train.y.shape[1:], dtype=int))
    every = train.y.ndim > 1
    tokens = outputs if every else _tokens(federation) if use_of(name).examples == "tokens" else 0
    return named_model(name, task, train.x.shape[1:], outputs, tokens, every, options)


def _tokens(federation: Federation) -> int:
    """One more than the largest token of anybody; 0 if examples are no tokens."""
    sides = [federation] if federation.new is None else [federation, federation.new]
    parts = [split.x for side in sides for split in (side.train, side.validation, side.test) if split.rows]
    return 1 + max(int(x.max()) for x in parts) if parts[0].dtype.kind in "iu" else 0


class Arena(NamedTuple):
    """A federation laid out for one engine. Clients that train come first; new ones follow and are never sampled."""

    federation: Federation
    model: Model
    objective: Objective
    ids: np.ndarray
    population: int
    x: jax.Array
    y: jax.Array
    offsets: np.ndarray
    splits: dict[str, tuple[jax.Array, jax.Array, np.ndarray]]
    own_outcomes: bool = False  # the objective is the user's

    @property
    def new(self) -> np.ndarray:
        """The numbers of the new clients."""
        return np.arange(self.population, len(self.ids))

    def sizes(self, part: str) -> np.ndarray:
        """Every client's number of examples in "train", "validation" or "test"."""
        return np.diff(self.offsets if part == "train" else self.splits[part][2])

    def judged_by(self, predict: Callable[..., Any]) -> "Arena":
        """The same where clients predict in a way of their method's own."""
        if predict is apply_model:
            return self
        if not self.own_outcomes:
            apply = _PREDICTED.take((predict, self.model.apply), lambda: partial(predict, self.model.apply))
            judge = objective(self.model._replace(apply=apply), self.federation.task)
            # Parameters are trained by the model's own loss, however clients predict.
            return self._replace(objective=judge._replace(loss=self.objective.loss))
        raise UserError(
            "this method predicts in a way of its own, and an objective of one's own judges models by their parameters "
            "alone; leave the objective out, or take another method"
        )


def arena(federation: Federation, model: Model, judge: Objective | None = None) -> Arena:
    """Training and new clients side by side, split by split.

    >>> from apiece.data import digits
    >>> federation = digits(clients=20).hold_out_clients(0.1)
    >>> arena(federation, model_of(ModelSpec(), federation)).new.tolist()
    [18, 19]
    """
    mesh = mesh_of()
    sides = [federation] if federation.new is None else [federation, federation.new]

    def joined(part: str) -> tuple[jax.Array, jax.Array, np.ndarray]:
        splits = [getattr(side, part) for side in sides]
        sizes = np.concatenate([split.sizes for split in splits])
        # Laid out once: the engines of all methods share these arrays.
        x, y = (on_devices(_concatenated([getattr(s, name) for s in splits]), mesh) for name in ("x", "y"))
        return x, y, np.concatenate([[0], np.cumsum(sizes)])

    if judge is None:
        _check_outputs(model, federation)
    x, y, offsets = joined("train")
    ids = np.concatenate([side.ids for side in sides])
    splits = {part: joined(part) for part in ("validation", "test")}
    mine = judge or objective(model, federation.task)
    return Arena(federation, model, mine, ids, federation.clients, x, y, offsets, splits, judge is not None)


def _concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    # Of an empty split one row is made up, which no client owns: a program cannot gather from no rows at all.
    arrays = arrays if sum(map(len, arrays)) else [np.zeros((1, *arrays[0].shape[1:]), arrays[0].dtype)]
    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    # float64 becomes float32 here, where JAX computes in that, rather than by JAX with a warning.
    return joined.astype(jax.dtypes.canonicalize_dtype(joined.dtype), copy=False)


def _check_outputs(model: Model, federation: Federation) -> None:
    """Outputs of another shape than the labels would be broadcast, and the loss be silently wrong."""
    if federation.task == "custom":
        return
    example = jax.ShapeDtypeStruct((2, *federation.train.x.shape[1:]), federation.train.x.dtype)
    shape = lambda: jax.eval_shape(lambda x: model.apply(model.init(jax.random.key(0)), x), example).shape[1:]
    try:
        given = _OUTPUTS.take((model, example), shape)
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{model.name} does not take examples of shape {example.shape[1:]}: {error}") from None
    classes = (len(federation.classes),) if federation.classes else ()
    targets = (*federation.train.y.shape[1:], *classes)
    if given != targets:
        raise UserError(
            f"{model.name} gives outputs of shape {given} an example; this {federation.task} needs {targets}"
        )


def engine_of(
    place: Arena, method: str | Callable[..., Method], options: dict[str, Any], train: TrainSpec
) -> tuple[Engine, dict[str, float]]:
    """(engine, hyper): the engine that a spec asks for, for a method, and its traced options."""
    plan = schedule(train.schedule, train.rounds, **train.schedule_options)
    scale = None if train.schedule == "constant" else plan
    build, hyper = bind(method, place.objective.loss, options, scale, place.population, place.model)
    build = wrap_method(build, train, place.population)
    how: dict[str, Any] = dict(population=place.population, weights=train.weights, stateless=train.stateless)
    how["held_out"] = place.splits
    here = (build, place.x, place.y, place.offsets)
    if train.arrivals is not None:
        arrivals = train.arrivals
        pace = _pace(arrivals.pace)
        return Asynchronous(
            *here, arrivals=Speeds(arrivals.active, arrivals.buffer, arrivals.policy, pace), **how
        ), hyper
    wrong = train.faults
    faults = None if wrong is None else Faults(wrong.dropout, wrong.deadline, wrong.quorum, _pace(wrong.pace))
    how |= dict(participation=participation_of(train), faults=faults)
    if train.engine == "remote":
        return Remote(*here, **how), hyper
    return Vectorized(*here, block=train.evaluate_every, **how), hyper


def wrap_method(build: Build, train: TrainSpec, population: int) -> Build:
    """The method as the spec's world treats it: attacked, its replies broken, and defended.

    >>> build = lambda hyper, round: None
    >>> wrap_method(build, TrainSpec(), 10) is build
    True
    """
    attack, defence, faults = train.attack, train.defence, train.faults
    wraps: list[Callable[[Method], Method]] = []  # from the inside out
    if defence is not None and defence.rule is not None:
        chosen = rule(defence.rule, **defence.options)
        wraps.append(lambda method: robust(method, chosen))
    if defence is not None and defence.most is not None:
        most = defence.most
        wraps.append(lambda method: guarded(method, most=most))
    if faults is not None and faults.corrupt:
        share, kind = faults.corrupt, faults.corruption
        wraps.append(lambda method: corrupted(method, share=share, kind=kind))
    if attack is not None:
        forge = attack_named(attack.name, **attack.options)
        who = attackers(attack.clients, attack.share, population)
        if who and who[-1] >= population:
            raise UserError(f"train.attack.clients names client {who[-1]}, but {population} clients train")
        wraps.append(lambda method: attacked(method, forge, clients=who))
    if not wraps:
        return build

    def wrapped(hyper: dict[str, Any], round: Any) -> Method:
        method = build(hyper, round)
        for wrap in wraps:
            method = wrap(method)
        return method

    return wrapped


def participation_of(train: TrainSpec) -> Participation:
    """Who takes part, and when.

    >>> participation_of(TrainSpec(cohort=3)).size
    3
    """
    there = Availability(**train.availability.model_dump()) if train.availability else Availability()
    return Participation(train.cohort, train.probability, there)


def _pace(spec: PaceSpec) -> Pace:
    return Pace(spec.law, spec.spread, tuple(spec.times), spec.jitter)


def check(spec: Spec, federation: Federation | None = None) -> Arena:
    """Everything a spec names (or with a federation at hand), made and fitted together, before anything is written."""
    federation = federation_of(spec.data) if federation is None else _with_new_clients(federation, spec.data)
    if not federation.test.rows:
        raise UserError(f"{federation.name} has no test examples to compare methods on; give test a share")
    if not federation.validation.rows and spec.tune > 1:
        raise UserError(
            f"{federation.name} has no validation examples to tune on; give validation a share, or tune = 1"
        )
    place = arena(federation, model_of(spec.model, federation))
    participation_of(spec.train).places(place.population)
    if spec.train.arrivals is not None:
        _pace(spec.train.arrivals.pace).typical(0, place.population)
        if spec.train.arrivals.active > place.population:
            raise UserError(f"train.arrivals.active = {spec.train.arrivals.active} clients at work are more than the "
                            f"{place.population} that train; lower it")  # fmt: skip
    schedule(spec.train.schedule, spec.train.rounds, **spec.train.schedule_options)
    for name, options in spec.methods.items():
        build, hyper = bind(name, place.objective.loss, options, population=place.population, model=place.model)
        method = wrap_method(build, spec.train, place.population)(hyper, 0)
        # A method that does not fit the model or the labels (a split that leaves nothing to share, no single answer to
        # remember) says so when it opens its state, or when a client enrolls.
        params = jax.eval_shape(place.model.init, jax.random.key(0))
        model_shapes(method, params, (place.x, place.y), int(place.sizes("train").max()))
    return place
