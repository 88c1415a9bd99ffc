"""A method on a small, ragged federation: clients of 1, 3, 7 and 20 examples, and one of 5 that never takes part."""

import copy
import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.engines.contact import keys
from apiece.engines.engine import Engine
from apiece.engines.remote.engine import Remote
from apiece.engines.remote.halves import compile_programs
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.base import Simulation
from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.models import Model, mlp, objective, softmax
from apiece.protocol import Client, Data, Message, Method, Params, Reply, Server, Tree, apply_model
from apiece.testing.clients import FIRST_EVERYBODY, POPULATION, SIZES, Chosen, Punctual, Schedule, cohort_of
from apiece.testing.watched import Refusing, refuse_replies, watch_method

ENGINES = ("vectorized", "remote", "asynchronous")
FEATURES, HIDDEN, CLASSES = 3, 4, 3
SEED = 7
# Set where the factory has them: checks are quick, and fit a model with the parameters w and b.
SMALL = {"batch": 8, "steps": 3, "prox_steps": 2, "tune_epochs": 2, "population": POPULATION, "private": "b"}
HEAD = "out"  # what is private of the model with two layers, where the factory has that option


class Ending(NamedTuple):
    """What a run left: the server, the last round's replies, each client's state, what it enrolled with, its model.

    `fallen`: who has the shared model, because its own was no number.
    """

    server: Server
    replies: Reply
    clients: Client
    enrolled_with: Params
    models: Params
    fallen: np.ndarray


class Case:
    """A method on the small federation, with its compiled programs and its runs, which the checks share.

    Args:
        factory: `factory(loss, **options) -> Method`.
        options: what to give it, beside small numbers of steps, and the model where it asks for that. hyper: the
            options that are traced; by default those whose default value in the factory's signature is a float.
            engines: which must agree with one another.
        layers: whether the model is a network of two layers, `hidden0` and `out`, and not a softmax of w and b.

    >>> from apiece.methods import ditto
    >>> Case(ditto).hyper
    {'lam': 0.1, 'lr': 0.1}
    """

    def __init__(
        self,
        factory: Callable[..., Method],
        options: dict[str, Any] | None = None,
        hyper: dict[str, float] | None = None,
        engines: Sequence[str] = ENGINES,
        layers: bool = False,
    ) -> None:
        named = inspect.signature(factory).parameters
        self.given, self.has_private = dict(options or {}), "private" in named
        given = self.given | ({"private": HEAD} if layers and self.has_private else {})
        self.options = {name: value for name, value in SMALL.items() if name in named} | given
        floats = {name: p.default for name, p in named.items() if isinstance(p.default, float) and name not in given}
        self.hyper = floats if hyper is None else dict(hyper)
        self.factory, self.engines = factory, tuple(engines)
        plain = mlp((FEATURES,), CLASSES, hidden=(HIDDEN,)) if layers else softmax((FEATURES,), CLASSES)
        self.model = Model(jax.jit(functools.partial(some_start, plain)), plain.apply, features=plain.features)
        if "model" in named:  # it looks into the model: the engines' users give it theirs
            self.options.setdefault("model", self.model)
        self.loss = objective(self.model, "classification").loss
        self.params = self.model.init(keys(SEED).model)
        self.offsets = np.concatenate([[0], np.cumsum(SIZES)])
        rng = np.random.default_rng(SEED)
        self.x = rng.normal(size=(sum(SIZES), FEATURES)).astype(np.float32)
        self.y = rng.integers(0, CLASSES, sum(SIZES)).astype(np.int32)
        self._kept: dict[Any, Any] = {}

    @functools.cached_property
    def usual(self) -> "Shapes":
        """The shapes of everything as users have it: in float32, with the options as numbers; traced once."""
        return self.shapes()

    @functools.cached_property
    def reply(self) -> Reply:
        """The shapes of a reply."""
        return self.usual.reply

    @functools.cached_property
    def layered(self) -> "Case":
        """The same method on a network of two layers, no two of whose matrices have one shape."""
        return Case(self.factory, self.given, self.hyper, self.engines, layers=True)

    @functools.cached_property
    def refuses_layers(self) -> bool:
        """Whether the method is for models of one layer, and says so to whoever gives it another."""
        try:
            self.layered.usual  # noqa: B018 (made to see whether it can be)
        except UserError:
            return True
        return False

    def moved(self, origin: Tree) -> "Case":
        """The same case, all of whose parameters are larger by a number, and mean what they meant before."""
        there = copy.copy(self)
        back = lambda params: jax.tree.map(lambda leaf: leaf - origin, params)
        there.model = Model(self.model.init, lambda params, x: self.model.apply(back(params), x))
        there.loss = lambda params, batch, key: self.loss(back(params), batch, key)
        there.params = jax.tree.map(lambda leaf: leaf + origin, self.params)
        there._kept = {}
        return there

    @functools.cached_property
    def parameters(self) -> bool:
        """Whether a personal model is the parameters of one: the method has no `predict` of its own."""
        return self.build(self.hyper, 0).predict is apply_model

    def build(self, hyper: dict[str, Any], round: Any) -> Method:
        """The method itself."""
        return self.factory(self.loss, **self.options, **hyper)

    def watched(self, hyper: dict[str, Any], round: Any) -> Method:
        """The method, whose server also notes the replies of the round and whose clients what they enrolled with."""
        return watch_method(self.build(hyper, round), self.reply)

    def refusing(self, hyper: dict[str, Any], round: Any) -> Method:
        """The method whose server can refuse the replies of client 3."""
        return refuse_replies(self.watched(hyper, round), client=3)

    def data(self, i: int, x: Tree = None, y: Tree = None) -> Data:
        """Client i's view of the flat arrays."""
        x, y = self.x if x is None else x, self.y if y is None else y
        return Data(jnp.asarray(x), jnp.asarray(y), np.int32(self.offsets[i]), np.int32(SIZES[i]), max(SIZES))

    def others_poisoned(self, owners: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
        """The flat arrays, where every row that is not of the owners is not a number."""
        theirs = np.isin(np.repeat(np.arange(len(SIZES)), SIZES), list(owners))
        return np.where(theirs[:, None], self.x, np.float32(np.nan)), np.where(theirs, self.y, np.int32(10**6))

    def shapes(self, dtype: Any = np.float32, traced: dict[str, Any] | None = None) -> "Shapes":
        """The shapes of everything that passes through the six functions, from one abstract round."""
        return self._abstract_round(jax.eval_shape, dtype, traced or {})

    def program(self) -> tuple[str, list[np.ndarray]]:
        """(its text, its constants): the six functions as one program, built and traced anew."""
        traced = self._abstract_round(jax.make_jaxpr, np.float32, self.hyper)
        return re.sub("0x[0-9a-f]+", "", str(traced)), [np.asarray(const) for const in traced.consts]

    def _abstract_round(self, look: Callable, dtype: Any, traced: dict[str, Any]) -> Any:
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self.params)
        data = self.data(3, self.x.astype(dtype))

        def round_of_two(params: Params, data: Data, key: Tree, traced: dict[str, Any]) -> Shapes:
            method = self.build(self.hyper | traced, 0)
            server = method.init(params, key)
            message = method.message(server, jnp.int32(3))
            client = method.enroll(params, message, data, key)
            after, reply = method.local(client, message, data, key)
            merged = method.merge(server, tree.stack([reply, reply]), cohort_of((3, 1)), key)
            personal = method.personal(after, message, data, key)
            return Shapes(params, server, merged, client, after, personal, message, reply)

        given = (params, data, jax.random.key(0), traced)
        return jax.eval_shape(round_of_two, *given) if look is jax.eval_shape else look(round_of_two)(*given)

    def run(self, engine: str, schedule: Schedule = FIRST_EVERYBODY, **how: Any) -> Ending:
        """A run by this engine, remembered."""
        name = (engine, schedule, *sorted(how.items()))
        return self.remember(name, lambda: self.rerun(engine, schedule, **how))

    def remember(self, name: Any, make: Callable[[], Any]) -> Any:
        """What was made under this name, or else is made now."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def rerun(
        self,
        engine: str,
        schedule: Schedule = FIRST_EVERYBODY,
        owners: tuple[int, ...] | None = None,
        models: bool = True,
        refusing: bool = False,
        **how: Any,
    ) -> Ending:
        """A run by this engine.

        Args:
            owners: whose rows are numbers. models: whether to make everybody's at the end. refusing: whether the
                server, aside, refuses client 3 from its second merge on. how: see `engine`.
        """
        made = self.engine(engine, schedule, **how)
        if owners is not None:
            self._poison(made, owners)
        run = made.start(self.model.init, SEED, self.hyper)
        if isinstance(run.server, Refusing) and not refusing:
            patient = run.server._replace(patience=jnp.full_like(run.server.patience, len(schedule)))
            run = dataclasses.replace(run, server=made.take_in(patient))
        run = made.advance(run, len(schedule))
        assert not run.refused, "the server refused a reply, because it is not finite"
        used = made.personal(run, np.arange(len(SIZES))) if models else ()
        server, replies = jax.tree.map(np.asarray, run.server.inner if isinstance(run.server, Refusing) else run.server)
        clients, enrolled_with = run.rows
        replies = tree.take(replies, np.arange(POPULATION))  # without the row of those who do not count
        return Ending(server, replies, clients, enrolled_with, used, np.array(sorted(run.fallen), int))

    def engine(
        self,
        engine: str,
        schedule: Schedule,
        stateless: bool = False,
        aside: bool = False,
    ) -> Engine:
        """An engine that plays this schedule; engines that differ in nothing else share their compiled programs.

        `aside`: all that may not matter is otherwise at once, for each program costs a compile: a simulation on one
        device, its clients run in the other way than it would choose; and a server that can refuse replies.
        """
        name = (engine, stateless, aside)
        made = copy.copy(self.remember(name, lambda: self._make(*name)))  # the copy shares the compiled programs
        if isinstance(made, Asynchronous):
            made.arrivals, made._itineraries = Punctual(schedule), {}
        else:
            made.participation = Chosen(schedule=schedule)
        return made

    def _make(self, engine: str, stateless: bool, aside: bool) -> Engine:
        here = (self.refusing if aside else self.watched, self.x, self.y, self.offsets)
        how: dict[str, Any] = dict(population=POPULATION, stateless=stateless)
        if engine == "remote":
            remote = Remote(*here, participation=Chosen(), **how)
            # A client's work is the same in all; whichever is made first, it is that of the method as it is.
            usual = self.remember("remote programs", lambda: compile_programs(self.watched))
            remote._programs = usual._replace(merge=remote._programs.merge) if aside else usual
            return remote
        how |= dict(block=len(FIRST_EVERYBODY) + 1)
        if aside:
            how |= dict(mode="vmap" if jax.devices()[0].platform == "cpu" else "sequential", devices=jax.devices()[:1])
        made: Simulation
        if engine == "asynchronous":
            made = Asynchronous(*here, arrivals=Punctual(), **how)
        elif engine == "vectorized":
            made = Vectorized(*here, participation=Chosen(), **how)
        else:
            raise TypeError(f"say here how the engine '{engine}' is made")
        if not aside:
            # Which model a client uses depends neither on how its state came about nor on whether it will be kept.
            made._personal = self.remember("simulations' models", lambda: made._personal)
            made._small_personal = self.remember("simulations' small models", lambda: made._small_personal)
        return made

    def _poison(self, engine: Engine, owners: tuple[int, ...]) -> None:
        """Make every row that is not of the owners unreadable."""
        if isinstance(engine, Simulation):
            engine.train = engine.examples(*self.others_poisoned(owners), self.offsets)
        elif isinstance(engine, Remote):
            engine.data = {"train": [_padding_poisoned(data) for data in engine.data["train"]]}
        else:  # else its checks would pass whatever it reads
            raise TypeError(f"say here how rows of others are made unreadable for {type(engine).__name__}")


def _padding_poisoned(data: Data) -> Data:
    """A remote client's rows; those beyond its size, which nobody owns, are not numbers."""
    beyond = np.arange(max(SIZES)) >= data.size
    x = np.where(beyond[:, None], np.float32(np.nan), data.x)
    return dataclasses.replace(data, x=x, y=np.where(beyond, np.int32(10**6), data.y))


class Shapes(NamedTuple):
    """The parties' states before and after a round, the initial and the personal model, a message and a reply."""

    params: Params
    server: Server
    merged: Server
    client: Client
    after: Client
    personal: Params
    message: Message
    reply: Reply


def some_start(model: Model, key: Any) -> Params:
    """A start of the model that is nowhere zero: at zero some mistakes do not show."""
    leaves, form = jax.tree.flatten(jax.eval_shape(model.init, key))
    keys = jax.random.split(key, len(leaves))[::-1]
    drawn = [jax.random.normal(k, leaf.shape) / 2 for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(form, drawn)
