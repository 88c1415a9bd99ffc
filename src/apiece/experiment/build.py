"""From a spec to the things it names: federation, model, objective, engine."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.client.optimize import make_optimizer
from apiece.client.schedule import schedule
from apiece.data import SOURCES, Federation, load, source
from apiece.data.federation import HITS
from apiece.data.scaling import Scaling
from apiece.data.unit_scale import find_unit_scale
from apiece.engines.contact import Build
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.asynchronous import BLOCK, Asynchronous
from apiece.engines.simulation.crew import crew_here
from apiece.engines.simulation.division import mesh_of, on_devices
from apiece.engines.simulation.hosted import Hosted
from apiece.engines.simulation.lending import stay_on_host
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.faults import Faults
from apiece.errors import UserError, suggest
from apiece.experiment.metric import Criterion, Metric
from apiece.experiment.privacy import check_privacy
from apiece.experiment.secure import check_secure, secure_of
from apiece.experiment.spec_tables import DataSpec, ModelSpec, TrainSpec
from apiece.experiment.world import arrivals_of, pace_of, participation_of, wrap_method
from apiece.methods import CATALOG
from apiece.methods.bind import bind
from apiece.models import MODELS, Model, Objective, adapted, named_model, objective
from apiece.models.catalog import use_of
from apiece.models.foreign import adopt
from apiece.models.outputs import check_objective, check_outputs
from apiece.own import import_thing
from apiece.protocol import Data, Method, apply_model
from apiece.shelf import Shelf

_PREDICTED = Shelf(most=64)  # programs are compiled for a function: the same one again compiles nothing
_OUTPUTS, _ADAPTED, _OBJECTIVES = Shelf(most=64), Shelf(most=64), Shelf(most=64)
AUTO = {"classification": "softmax", "regression": "linear", "custom": "quadratic", "next_character": "char_lstm"}


class MissingData(UserError):
    """The data that a spec names are not where it says."""


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
        raise MissingData(f"there is no data '{spec.source}': neither a file or folder, nor a source by that name; "
                        f"{suggest(spec.source, SOURCES)}")  # fmt: skip
    return with_new_clients(federation, spec)


def with_new_clients(federation: Federation, spec: DataSpec) -> Federation:
    """The federation with a share of new clients set aside, if it is large enough and has none."""
    if federation.new is None and spec.new_clients and federation.clients >= 10:
        return federation.hold_out_clients(max(spec.new_clients, 1.01 / federation.clients), spec.seed)
    return federation


def model_of(spec: ModelSpec, federation: Federation) -> Model:
    """The model a spec names, sized for the federation.

    >>> from apiece.data import digits
    >>> model_of(ModelSpec(), digits()).name
    'softmax 64-10'
    """
    return model_and_objective(spec, federation)[0]


def model_and_objective(spec: ModelSpec, federation: Federation) -> tuple[Model, Objective | None]:
    """The model and, if that is one's own (the spec's, or one that the model brings along), its objective."""
    # For shapes: it says nothing about anybody, so that every party can make the same initial model.
    rows = federation.train.x[:1]
    example = jnp.zeros(rows.shape, jax.dtypes.canonicalize_dtype(rows.dtype))
    model, brought = adopt(_made(spec, federation), example)
    own = import_thing(spec.objective, "objective") if isinstance(spec.objective, str) else spec.objective
    if callable(own) and not isinstance(own, Objective):
        make = own
        own = _OBJECTIVES.take((make, model), lambda: make(model))
    if own is not None and not isinstance(own, Objective):
        raise UserError(f"model.objective is an apiece.models.Objective, or a function of the model that makes one, "
                        f"not {own!r}")  # fmt: skip
    if spec.adapter is not None:
        if own is not None or brought is not None:
            raise UserError("model.adapter changes what the model computes, and an objective of one's own does not "
                            "know of that; leave one of them out")  # fmt: skip
        wanted = (model, spec.adapter.rank, spec.adapter.where)
        model = _ADAPTED.take(wanted, lambda: adapted(*wanted))
    return model, own or brought


def _made(spec: ModelSpec, federation: Federation) -> Any:
    train, task = federation.train, federation.task
    name = AUTO[task] if isinstance(spec.name, str) and spec.name == "auto" else spec.name
    if not isinstance(name, str) and not _is_factory(name):
        if spec.options or spec.hidden:
            raise UserError("a model that is given as an object has no options; leave 'hidden' and 'options' out")
        return name
    options = spec.options if spec.hidden is None else {"hidden": spec.hidden, **spec.options}
    if "hidden" in options and not MODELS.takes(name, "hidden"):
        layered = [other for other in MODELS if MODELS.takes(other, "hidden")]
        raise UserError(f"model '{name}' has no hidden layers to give widths to; leave 'hidden' out, or take one that "
                        f"has: {', '.join(layered)}")  # fmt: skip
    outputs = len(federation.classes) or int(np.prod(train.y.shape[1:], dtype=int))
    every = train.y.ndim > 1
    tokens = outputs if every else tokens_of(federation) if use_of(name).examples == "tokens" else 0
    return named_model(name, task, train.x.shape[1:], outputs, tokens, every, options)


def _is_factory(thing: Any) -> bool:
    """Whether it makes a model, and is none: a plain function, or a class."""
    return isinstance(thing, type | FunctionType | partial) and not hasattr(thing, "init")


def tokens_of(federation: Federation) -> int:
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
    metrics: tuple[Metric, ...] = ()  # of the user's own
    asked: Criterion | None = None  # what the user ranks by
    outputs: Callable[..., Any] | None = None  # what metrics look at: a personal model and a batch -> (outputs,)
    given: Scaling | None = None  # what became of examples as they were given: they were brought to unit scale

    @property
    def score(self) -> str:
        """The score of the task: "accuracy" where errors are mistakes, else what the objective calls its error."""
        hits = self.federation.task in HITS and self.objective.error == "error"
        return "accuracy" if hits else self.objective.error

    @property
    def criterion(self) -> Criterion:
        """What methods are ranked by, and tuning chooses by: the user's or, if nobody said so, the task's."""
        return self.asked or Criterion(self.score, self.score == "accuracy")

    @property
    def new(self) -> np.ndarray:
        """The numbers of the new clients."""
        return np.arange(self.population, len(self.ids))

    def sizes(self, part: str) -> np.ndarray:
        """Every client's number of examples in "train", "validation" or "test"."""
        return np.diff(self.offsets if part == "train" else self.splits[part][2])

    def client_shapes(self) -> Data:
        """The shapes of one client's training data, without any of it."""
        x, y = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (self.x, self.y))
        return Data(x, y, np.int32(0), np.int32(1), int(self.sizes("train").max()))

    @property
    def target_scaling(self) -> Scaling | None:
        """How targets were scaled for training, if they were; everything that is told of them is in their own units."""
        scaling = self.federation.scaling
        return scaling if scaling is not None and scaling.of_targets else None

    def targets(self, part: str) -> np.ndarray:
        """Everybody's targets of a held-out part, in their own units."""
        y, scaling = np.asarray(self.splits[part][1]), self.target_scaling
        return y if scaling is None else scaling.in_own_units(y)

    def check_own_objective(self) -> None:
        """Raise a `UserError` if an objective of one's own does not give what is judged by."""
        if self.own_outcomes:
            check_objective(self.objective, self.model, self.federation)

    def judged_by(self, predict: Callable[..., Any]) -> "Arena":
        """The same where clients predict in a way of their method's own."""
        if predict is apply_model:
            self.check_own_objective()
            return self
        if not self.own_outcomes:
            apply = _PREDICTED.take((predict, self.model.apply), lambda: partial(predict, self.model.apply))
            judge = objective(self.model._replace(apply=apply), self.federation.task)
            # Parameters are trained by the model's own loss, however clients predict.
            return self._replace(objective=judge._replace(loss=self.objective.loss), outputs=_outputs(apply))
        raise UserError(
            "this method predicts in a way of its own, and an objective of one's own judges models by their parameters "
            "alone; leave the objective out, or take another method"
        )


def _outputs(apply: Callable[..., Any]) -> Callable[..., Any]:
    return _OUTPUTS.take(apply, lambda: lambda personal, batch: (apply(personal, batch.x),))


def arena(
    federation: Federation, model: Model, judge: Objective | None = None, metrics: tuple[Metric, ...] = ()
) -> Arena:
    """Training and new clients side by side, split by split.

    >>> from apiece.data import digits
    >>> federation = digits(clients=20).hold_out_clients(0.1)
    >>> arena(federation, model_of(ModelSpec(), federation)).new.tolist()
    [18, 19]
    """
    mesh = mesh_of()
    sides = [federation] if federation.new is None else [federation, federation.new]

    def joined(part: str) -> tuple[Any, Any, np.ndarray]:
        splits = [getattr(side, part) for side in sides]
        sizes = np.concatenate([split.sizes for split in splits])
        x, y = (_concatenated([getattr(s, name) for s in splits]) for name in ("x", "y"))
        if not stay_on_host((x, y)):  # laid out once: the engines of all methods share these arrays
            x, y = on_devices((x, y), mesh)
        return x, y, np.concatenate([[0], np.cumsum(sizes)])

    if judge is None:
        check_outputs(model, federation)
    x, y, offsets = joined("train")
    ids = np.concatenate([side.ids for side in sides])
    splits = {part: joined(part) for part in ("validation", "test")}
    mine = judge or objective(model, federation.task)
    given = (federation, model, mine, ids, federation.clients, x, y, offsets, splits)
    return Arena(*given, judge is not None, metrics, outputs=_outputs(model.apply))


def scaled_arena(
    federation: Federation, model: Model, judge: Objective | None, metrics: tuple[Metric, ...], wanted: bool | None
) -> Arena:
    """The same of a federation that is brought to unit scale first, if it is far from it (or as `wanted` says)."""
    found = find_unit_scale(federation, wanted, targets=judge is None)
    if found is None:
        return arena(federation, model, judge, metrics)
    return arena(federation.rescaled(*found), model, judge, metrics)._replace(given=found.scaling)


def scaling_wanted(spec: DataSpec) -> bool | None:
    """What a spec says of scaling; a loader that is told not to scale means it."""
    told = spec.options.get("standardize")
    return spec.standardize if spec.standardize is not None or told is not False else False


def _concatenated(arrays: list[np.ndarray]) -> np.ndarray:
    # Of an empty split one row is made up, which no client owns: a program cannot gather from no rows at all.
    arrays = arrays if sum(map(len, arrays)) else [np.zeros((1, *arrays[0].shape[1:]), arrays[0].dtype)]
    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    # float64 becomes float32 here, where JAX computes in that, rather than by JAX with a warning.
    return joined.astype(jax.dtypes.canonicalize_dtype(joined.dtype), copy=False)


def engine_of(
    place: Arena, method: str | Callable[..., Method], options: dict[str, Any], train: TrainSpec
) -> tuple[Engine, dict[str, float]]:
    """(engine, hyper): the engine that a spec asks for, for a method, and its traced options."""
    build, hyper = method_of(place, method, options, train)
    how: dict[str, Any] = dict(population=place.population, weights=train.weights, stateless=train.stateless)
    how |= dict(states=train.states)
    how["held_out"] = place.splits
    here, crew = (build, place.x, place.y, place.offsets), crew_here()
    if crew is not None and (train.arrivals is not None or train.engine == "remote"):
        raise UserError("several machines run rounds by the engine 'vectorized'; leave --hosts out, or arrivals and "
                        "the engine 'remote'")  # fmt: skip
    if train.arrivals is not None:
        # Steps beyond the next look would be computed for nothing.
        how["block"] = min(train.look_every, BLOCK)
        return Asynchronous(*here, arrivals=arrivals_of(train.arrivals), **how), hyper
    wrong = train.faults
    faults = None if wrong is None else Faults(wrong.dropout, wrong.deadline, wrong.quorum, pace_of(wrong.pace))
    how |= dict(participation=participation_of(train), faults=faults)
    if train.engine == "remote":
        return Remote(*here, **how, secure=secure_of(train, place.population)), hyper
    if train.secure is not None:
        raise UserError("train.secure masks bytes, and the engine 'vectorized' has none; take engine = 'remote', or "
                        "leave the table out: the numbers are the same")  # fmt: skip
    if crew is not None:
        return Hosted(*here, crew=crew, **how), hyper
    # Not by the number of rounds: engines of runs that differ in that alone are the same.
    return Vectorized(*here, block=train.evaluate_every or 10, **how), hyper


def method_of(
    place: Arena, method: str | Callable[..., Method], options: dict[str, Any], train: TrainSpec
) -> tuple[Build, dict[str, float]]:
    """(build, hyper): the method as a spec's world treats it, and its traced options."""
    plan = schedule(train.schedule, train.rounds, **train.schedule_options)
    scale = None if train.schedule == "constant" else plan
    how_to_step = dict(optimizer=optimizer_of(train), keep=keeps_memories(train), scheduled=train.scheduled)
    given = (place.objective.loss, options, scale, place.population, place.model)
    build, hyper = bind(method, *given, **how_to_step)
    name = CATALOG.name_of(method)
    asked = (name, build(hyper, 0), train, place.model.init, place.client_shapes(), place.population)
    check_privacy(*asked)
    check_secure(*asked)
    return wrap_method(build, train, place.population, place.client_shapes()), hyper


def optimizer_of(train: TrainSpec) -> Any:
    """What the clients' gradients go through; None: nothing.

    >>> optimizer_of(TrainSpec()) is None
    True
    """
    chosen = train.optimizer
    return None if chosen is None else make_optimizer(chosen.name, chosen.options, chosen.clip)


def keeps_memories(train: TrainSpec) -> bool:
    """Whether clients keep their optimizer's memories from visit to visit."""
    return train.optimizer is not None and train.optimizer.keep
