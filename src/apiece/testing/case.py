"""A method on a small, ragged federation: clients of 1, 3, 7 and 20 examples, and one of 5 that never takes part."""

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.engines.contact import keys
from apiece.engines.remote.codec import decode
from apiece.engines.remote.halves import Agreement, ClientHalf, ServerHalf, agree
from apiece.engines.remote.halves import run as run_remote
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Journal
from apiece.engines.world.cohort import Participation
from apiece.models import Model, objective, softmax
from apiece.protocol import Client, Cohort, Data, Message, Method, Params, Reply, Server, Tree

ENGINES = ("vectorized", "remote", "asynchronous")
SIZES = (1, 3, 7, 20, 5)
POPULATION = 4  # the last client is known, but never sampled
FEATURES, CLASSES = 3, 3
SEED = 7
# Set where the factory has them: checks are quick, and fit a model with the parameters w and b.
SMALL = {"batch": 8, "steps": 3, "prox_steps": 2, "tune_epochs": 2, "population": POPULATION, "private": "b"}
FIRST_EVERYBODY = ((0, 1, 2, 3), (1, 3), (0, 2, 3))
Schedule = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Chosen(Participation):
    """A round's clients as written down, in the order written down.

    >>> Chosen(schedule=((3, 1), (0,))).draw(seed=0, round=0, population=4).tolist()
    [3, 1]
    """

    schedule: Schedule = ()

    def places(self, population: int) -> int:
        """Room for everybody, so that one compiled program serves every schedule."""
        return population

    def draw(self, seed: int, round: int, population: int) -> np.ndarray:
        """The clients written down for this round."""
        return np.array(self.schedule[round])


@dataclasses.dataclass(frozen=True)
class Punctual:
    """Arrivals without delay: a round's clients as written down start together and arrive together.

    >>> Punctual(((3, 1), (0,))).journal(seed=0, population=4, merges=2).merge.tolist()
    [0, 0, 1]
    """

    schedule: Schedule = ()
    buffer: int = POPULATION

    def in_flight(self) -> int:
        """Room for everybody, so that one compiled program serves every schedule."""
        return POPULATION

    def journal(self, seed: int, population: int, merges: int) -> Journal:
        """The clients written down, round after round."""
        round = np.repeat(np.arange(len(self.schedule)), [len(cohort) for cohort in self.schedule])
        client = np.array([i for cohort in self.schedule for i in cohort])
        return Journal(client, round, round, np.arange(1.0, len(self.schedule) + 1))


class Outcome(NamedTuple):
    """What a run left: the server, the last round's replies, each client's state, what it enrolled with, its model."""

    server: Server
    replies: Reply
    clients: Client
    enrolled_with: Params
    models: Params


class Case:
    """A method on the small federation, with its compiled programs and its runs, which the checks share.

    Args:
        factory: `factory(loss, **options) -> Method`.
        options: what to give it, beside small numbers of steps. hyper: the options that are traced; by default those
            whose default value in the factory's signature is a float. engines: which must agree with one another.

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
    ) -> None:
        named = inspect.signature(factory).parameters
        given = dict(options or {})
        self.options = {name: value for name, value in SMALL.items() if name in named} | given
        floats = {name: p.default for name, p in named.items() if isinstance(p.default, float) and name not in given}
        self.hyper = floats if hyper is None else dict(hyper)
        self.factory, self.engines = factory, tuple(engines)
        self.model = Model(some_start, softmax((FEATURES,), CLASSES).apply)
        self.loss = objective(self.model, "classification").loss
        self.params = self.model.init(keys(SEED).model)
        self.offsets = np.concatenate([[0], np.cumsum(SIZES)])
        rng = np.random.default_rng(SEED)
        self.x = rng.normal(size=(sum(SIZES), FEATURES)).astype(np.float32)
        self.y = rng.integers(0, CLASSES, sum(SIZES)).astype(np.int32)
        self._kept: dict[Any, Any] = {}

    @functools.cached_property
    def reply(self) -> Reply:
        """The shapes of a reply."""
        return self.shapes().reply

    def build(self, hyper: dict[str, Any], round: Any) -> Method:
        """The method itself."""
        return self.factory(self.loss, **self.options, **hyper)

    def watched(self, hyper: dict[str, Any], round: Any) -> Method:
        """The method, whose server also notes the replies of the round and whose clients what they enrolled with."""
        return watch_method(self.build(hyper, round), self.reply)

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
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self.params)
        data = self.data(3, self.x.astype(dtype))

        def round_of_two(params: Params, data: Data, key: Tree, traced: dict[str, Any]) -> Shapes:
            method = self.build(self.hyper | traced, 0)
            server = method.init(params, key)
            message = method.message(server, jnp.int32(3))
            client = method.enroll(params, message, data, key)
            after, reply = method.local(client, message, data, key)
            merged = method.merge(server, tree.stack([reply, reply]), cohort_of((3, 1)), key)
            return Shapes(params, server, merged, client, after, method.personal(after, message, data, key), reply)

        return jax.eval_shape(round_of_two, params, data, jax.random.key(0), traced or {})

    def run(self, engine: str, schedule: Schedule = FIRST_EVERYBODY, **how: Any) -> Outcome:
        """A run by this engine, remembered."""
        name = (engine, schedule, *sorted(how.items()))
        if name not in self._kept:
            self._kept[name] = self.rerun(engine, schedule, **how)
        return self._kept[name]

    def rerun(self, engine: str, schedule: Schedule = FIRST_EVERYBODY, **how: Any) -> Outcome:
        """A run by this engine."""
        return (self._by_remote if engine == "remote" else partial(self._by_simulation, engine))(schedule, **how)

    def _by_simulation(
        self,
        engine: str,
        schedule: Schedule,
        owners: tuple[int, ...] | None = None,
        stateless: bool = False,
        fresh: int = 0,
        mode: str = "auto",
        devices: int | None = None,
        models: bool = True,
    ) -> Outcome:
        name = (engine, stateless, fresh, mode, devices)
        if name not in self._kept:
            how: dict[str, Any] = dict(population=POPULATION, stateless=stateless, mode=mode)
            how |= dict(block=len(FIRST_EVERYBODY) + 1, devices=jax.devices()[:devices])
            here = (self.watched, self.x, self.y, self.offsets)
            vectorized = engine == "vectorized"
            self._kept[name] = (
                Vectorized(*here, participation=Chosen(), **how)
                if vectorized
                else Asynchronous(*here, arrivals=Punctual(), **how)
            )
        simulation = copy.copy(self._kept[name])  # the copy shares the compiled programs
        if isinstance(simulation, Vectorized):
            simulation.participation = Chosen(schedule=schedule)
        else:
            simulation.arrivals, simulation._itineraries = Punctual(schedule), {}
        return self._outcome(simulation, len(schedule), owners, models)

    def _outcome(
        self, engine: Vectorized | Asynchronous, rounds: int, owners: tuple[int, ...] | None, models: bool
    ) -> Outcome:
        if owners is not None:
            engine.train = engine.examples(*self.others_poisoned(owners), self.offsets)
        run = engine.start(self.model.init, SEED, self.hyper)
        run = engine.advance(run, rounds)
        used = engine.personal(run, np.arange(len(SIZES))) if models else ()
        server, replies = jax.tree.map(np.asarray, run.server)
        clients, enrolled_with = run.rows
        replies = tree.take(replies, np.arange(POPULATION))  # without the row of those who do not count
        return Outcome(server, replies, clients, enrolled_with, used)

    def terms(self, fresh: int = 0) -> Agreement:
        """What the remote server and clients agree on."""
        name = ("terms", fresh)
        if name not in self._kept:
            self._kept[name] = agree(self.watched, self.model.init, (self.x, self.y), SEED, self.hyper)
        return self._kept[name]

    def client(self, terms: Agreement, i: int, poisoned: bool = False) -> ClientHalf:
        """Remote client i; `poisoned` fills the rows beyond its size with what is not a number."""
        mine = slice(self.offsets[i], self.offsets[i + 1])
        half = ClientHalf(terms, i, self.x[mine], self.y[mine], max(SIZES))
        if poisoned:
            beyond = np.arange(max(SIZES)) >= SIZES[i]
            x = np.where(beyond[:, None], np.float32(np.nan), half.data.x)
            half.data = dataclasses.replace(half.data, x=x, y=np.where(beyond, np.int32(10**6), half.data.y))
        return half

    def _by_remote(
        self,
        schedule: Schedule,
        owners: tuple[int, ...] | None = None,
        stateless: bool = False,
        fresh: int = 0,
        models: bool = True,
    ) -> Outcome:
        terms = self.terms(fresh)
        server = ServerHalf(terms, POPULATION)
        clients = [self.client(terms, i, poisoned=owners is not None) for i in range(len(SIZES))]
        for _ in schedule:
            run_remote(server, clients, 1, Chosen(schedule=schedule))
            for client in clients if stateless else ():
                client.forget()
        visits = max(1, len(schedule))
        used = tree.stack([client.personal(server.message(client.i), visits) for client in clients]) if models else ()
        states, enrolled_with = tree.stack([state_of(client) for client in clients[:POPULATION]])
        inner, replies = server.server[0], tree.take(server.server[1], np.arange(POPULATION))
        return jax.tree.map(np.asarray, Outcome(inner, replies, states, enrolled_with, used))


class Shapes(NamedTuple):
    """The parties' states before and after a round, the initial and the personal model, and a reply."""

    params: Params
    server: Server
    merged: Server
    client: Client
    after: Client
    personal: Params
    reply: Reply


@jax.jit
def some_start(key: Any) -> Params:
    """A start that is not zero: at zero some mistakes do not show."""
    w, b = jax.random.split(key)
    return {"w": jax.random.normal(w, (CLASSES, FEATURES)) / 2, "b": jax.random.normal(b, (CLASSES,)) / 2}


def cohort_of(ids: tuple[int, ...]) -> Cohort:
    """These clients, none of them late, weighted by their examples."""
    weight = jnp.array([SIZES[i] for i in ids], jnp.float32)
    return Cohort(jnp.array(ids, jnp.int32), weight, jnp.zeros(len(ids), jnp.int32), jnp.int32(POPULATION))


def watch_method(method: Method, reply: Reply) -> Method:
    """The method, whose server also notes the replies of the round and whose clients what they enrolled with."""
    blank = jax.tree.map(lambda leaf: np.zeros((POPULATION + 1, *leaf.shape), leaf.dtype), reply)  # made in no time

    def merge(state: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        place = jnp.where(cohort.weight > 0, cohort.ids, POPULATION)  # the last row is for those who do not count
        return method.merge(state[0], replies, cohort, key), tree.put(jax.tree.map(jnp.asarray, blank), place, replies)

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        inner, reply = method.local(client[0], message, data, key)
        return (inner, client[1]), reply

    return Method(
        init=lambda params, key: (method.init(params, key), blank),
        message=lambda state, i: method.message(state[0], i),
        merge=merge,
        enroll=lambda params, message, data, key: (method.enroll(params, message, data, key), params),
        local=local,
        personal=lambda client, message, data, key: method.personal(client[0], message, data, key),
    )


def state_of(half: ClientHalf) -> Client:
    """A remote client's memory; zeros when it has none, as in a row nobody wrote."""
    if half.client is not None:
        return half.client
    message, _ = decode(half.terms.message, ServerHalf(half.terms, POPULATION).message(half.i))
    return half._memory(message)[1]
