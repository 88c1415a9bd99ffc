"""Does a method keep the contract? `check_method` runs every line of it (`apiece.protocol`), on every engine.

For whoever writes a method: give `check_method` the factory, and it answers with the list of what was checked, or
with an error that names the line of the contract that is broken. The federation it uses is small and ragged: clients
of 1, 3, 7 and 20 examples, and one of 5 that never takes part.

>>> from apiece.methods import fed_avg
>>> len(check_method(fed_avg, engines=("remote",), checks=["message_draws_nothing", "rows_of_others_are_never_read"]))
2
"""

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
from apiece.engines.arrivals import Journal
from apiece.engines.asynchronous import Asynchronous
from apiece.engines.codec import decode
from apiece.engines.cohort import Participation
from apiece.engines.contact import keys
from apiece.engines.remote import Agreement, ClientHalf, ServerHalf, agree
from apiece.engines.remote import run as run_remote
from apiece.engines.vectorized import Vectorized
from apiece.errors import UserError, suggest
from apiece.models import Model, objective, softmax
from apiece.protocol import Client, Cohort, Data, Message, Method, Params, Reply, Server, Tree

ENGINES = ("vectorized", "remote", "asynchronous")
SIZES = (1, 3, 7, 20, 5)
POPULATION = 4  # the last client is known, but never sampled
FEATURES, CLASSES = 3, 3
SEED = 7
ROUNDING = 1e-6
# Set where the factory has them: checks are quick, and fit a model with the parameters w and b.
SMALL = {"batch": 8, "steps": 3, "prox_steps": 2, "tune_epochs": 2, "population": POPULATION, "private": "b"}
SMALL |= {"inner_steps": 2, "tune_steps": 4, "alone_steps": 4, "refits": 2, "l_max": 5, "l_default": 3}
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
        self.model = Model(_some_start, softmax((FEATURES,), CLASSES).apply)
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
        return _watched(self.build(hyper, round), self.reply)

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
            merged = method.merge(server, tree.stack([reply, reply]), _cohort((3, 1)), key)
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
        states, enrolled_with = tree.stack([_state(client) for client in clients[:POPULATION]])
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


class Check(NamedTuple):
    """A line of the contract as a program: `run(case, engine)` raises AssertionError when the method breaks it."""

    line: int
    name: str
    sentence: str
    engines: tuple[str, ...]
    run: Callable[[Case, str], None]


CHECKS: dict[str, Check] = {}


def check_method(
    factory: Callable[..., Method],
    *,
    engines: Sequence[str] = ENGINES,
    options: dict[str, Any] | None = None,
    hyper: dict[str, float] | None = None,
    checks: Iterable[str] | None = None,
) -> list[str]:
    """Check a method against every line of the contract; returns what was checked, raises at the first line broken.

    Args:
        factory: `factory(loss, **options) -> Method`, as in the catalog.
        engines: on which to run it. options: what to give the factory, beside small numbers of steps where it has
            `steps`, `batch` and the like. hyper: the options to be traced and their values; by default those whose
            default in the signature is a float. checks: names from `CHECKS`; by default all.

    >>> from apiece.methods import fed_avg
    >>> check_method(fed_avg, engines=(), checks=["states_keep_their_shapes"])
    ['line 1: A state comes out with the structure, shapes and dtypes it went in with.']
    >>> from apiece.protocol import Method
    >>> def forgetful(loss, *, lr=0.1):
    ...     average = fed_avg(loss, lr=lr)
    ...     return average._replace(merge=lambda x, replies, cohort, key: ())
    >>> check_method(forgetful)
    Traceback (most recent call last):
    AssertionError: line 1 of the contract is broken. A state comes out with the structure, shapes and dtypes it
    went in with. But in float32 the server's state after merge has another structure: ...
    """
    names = list(CHECKS if checks is None else checks)
    for kind, given, known in (("check", names, CHECKS), ("engine", engines, ENGINES)):
        for name in given:
            if name not in known:
                raise UserError(f"unknown {kind} '{name}'; {suggest(name, known)}")
    case, done = Case(factory, options, hyper, engines), []
    for name in names:
        for engine in CHECKS[name].engines:
            if engine == "functions" or engine in engines:
                done.append(run_check(case, CHECKS[name], engine))
    return done


def run_check(case: Case, check: Check, engine: str) -> str:
    """One check on one engine; what was checked, or an AssertionError that names the line.

    >>> from apiece.methods import fed_avg
    >>> run_check(Case(fed_avg), CHECKS["message_draws_nothing"], "functions")
    'line 3: A message is a view of the state: it draws nothing and changes nothing.'
    """
    where = "" if engine == "functions" else f" on the {engine} engine"
    try:
        check.run(case, engine)
    except Exception as error:
        what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(
            f"line {check.line} of the contract is broken{where}. {check.sentence} But {what}"
        ) from error
    return f"line {check.line}{where}: {check.sentence}"


def _contract(line: int, engines: tuple[str, ...] = ENGINES) -> Callable:
    """Registers a check; its docstring is the sentence that the method must keep."""

    def register(run: Callable[[Case, str], None]) -> Callable[[Case, str], None]:
        sentence = " ".join((run.__doc__ or "").split())
        CHECKS[run.__name__] = Check(line, run.__name__, sentence, engines, run)
        return run

    return register


# First what needs no engine, so that an engine never stumbles over what could have been named.


@_contract(1, ("functions",))
def states_keep_their_shapes(case: Case, engine: str) -> None:
    """A state comes out with the structure, shapes and dtypes it went in with."""
    with jax.enable_x64(False):
        _check_shapes("in float32", case.shapes())
    with jax.enable_x64(True):
        _check_shapes("in float64", case.shapes(np.float64))


@_contract(3, ("functions",))
def message_draws_nothing(case: Case, engine: str) -> None:
    """A message is a view of the state: it draws nothing and changes nothing."""
    method = case.build(case.hyper, 0)
    server = method.init(case.params, jax.random.key(0))
    before = jax.tree.map(np.array, server)
    for i in (0, 3):
        first, second = (method.message(server, jnp.int32(i)) for _ in range(2))
        _check_same(f"the second message to client {i}", second, first)
        _check_same(f"the compiled message to client {i}", jax.jit(method.message)(server, jnp.int32(i)), first)
    _check_same("the server after it wrote messages", server, before)


@_contract(1, ("functions",))
def hyper_parameters_may_be_traced(case: Case, engine: str) -> None:
    """Hyper-parameters may be traced, and their dtype is not the model's."""
    case.shapes(traced=case.hyper)
    with jax.enable_x64(True):
        strong = {name: jnp.asarray(value, np.float64) for name, value in case.hyper.items()}
        _check_shapes("beside float64 hyper-parameters", case.shapes(np.float32, traced=strong))


@_contract(2, ("functions",))
def message_and_reply_are_the_only_channel(case: Case, engine: str) -> None:
    """A server function sees no data and no client state: message and reply are the only channel."""
    replies = jax.tree.map(lambda leaf: jnp.ones((2, *leaf.shape), leaf.dtype), case.reply)

    # In one program: what a method keeps aside of a client's work is then visible, and is not merely a leaked tracer.
    @jax.jit
    def server_after_work(x: jax.Array, y: jax.Array) -> tuple:
        method, key = case.build(case.hyper, 0), jax.random.key(0)
        server = method.init(case.params, key)
        for i in (3, 1):
            message = method.message(server, jnp.int32(i))
            client = method.enroll(case.params, message, case.data(i, x, y), key)
            client, _ = method.local(client, message, case.data(i, x, y), key)
            method.personal(client, message, case.data(i, x, y), key)
        return method.message(server, jnp.int32(3)), method.merge(server, replies, _cohort((3, 1)), key)

    here = server_after_work(case.x, case.y)
    elsewhere = server_after_work(-2 * case.x, (case.y + 1) % CLASSES)
    _check_same("what the server says and merges with other data at the clients", here, elsewhere)


@_contract(1, ("functions",))
def nothing_leaks_out_of_a_trace(case: Case, engine: str) -> None:
    """The six functions are pure: nothing that they compute with is kept outside of them."""
    with jax.checking_leaks():
        case.shapes()


@_contract(5, ("functions",))
def replies_of_weight_zero_never_matter(case: Case, engine: str) -> None:
    """Replies of weight 0 never matter, whatever they hold."""
    method = case.build(case.hyper, 0)
    server = method.init(case.params, jax.random.key(0))
    replies = _some_replies(case)
    cohort = _cohort((3, 1, 0, 2))._replace(weight=jnp.array([20.0, 3.0, 0.0, 0.0], jnp.float32))
    merge = jax.jit(method.merge)
    clean = merge(server, replies, cohort, jax.random.key(0))
    _check_finite("the server", clean)
    for poison in (jnp.nan, jnp.inf, 1e30, 0):
        spoil = lambda leaf, poison=poison: leaf.at[2:].set(jnp.asarray(poison).astype(leaf.dtype))
        spoiled = merge(server, jax.tree.map(spoil, replies), cohort, jax.random.key(0))
        _check_same(f"the server after replies of weight 0 that hold {poison}", spoiled, clean)


@_contract(4, ("functions",))
def replies_may_be_late(case: Case, engine: str) -> None:
    """A reply still means something when it is late: a server that has moved on can merge it."""
    method = case.build(case.hyper, 0)
    key = jax.random.key(0)
    server = method.init(case.params, key)
    replies, cohort = _some_replies(case), _cohort((3, 1, 0, 2))
    for delay in (0, 3):
        late = cohort._replace(delay=jnp.full(4, delay, jnp.int32))
        server = jax.jit(method.merge)(server, replies, late, key)
    _check_finite("the server after late replies", server)


# Then the same method as the engines run it.


@_contract(1)
def engines_return_states_as_they_were(case: Case, engine: str) -> None:
    """A whole run keeps the structure, shapes and dtypes of server and clients, and every number finite."""
    shapes, outcome = case.shapes(), case.run(engine)
    _check_like("the server's state", outcome.server, shapes.server)
    _check_like("a client's state", tree.take(outcome.clients, 0), shapes.client)
    _check_like("a personal model", tree.take(outcome.models, 0), shapes.params)
    _check_finite("the server", outcome.server)
    _check_finite("a client's state", outcome.clients)
    _check_finite("a personal model", tree.take(outcome.models, np.arange(POPULATION)))


@_contract(1)
def the_same_run_twice_is_the_same(case: Case, engine: str) -> None:
    """The six functions are pure: the same run gives the same numbers, bit for bit, also when traced anew."""
    first = case.run(engine)
    _check_same("a second run", case.rerun(engine), first)
    anew = case.rerun(engine, fresh=1, models=False)  # without models, as below: each costs a compile
    _check_same("a run of a method that was built and traced anew", anew, first._replace(models=()))


@_contract(5)
def rows_of_others_are_never_read(case: Case, engine: str) -> None:
    """Rows beyond a client's size are never read: they may hold what is not a number."""
    for i in range(POPULATION):
        clean, spoiled = (case.run(engine, ((i,), (i,)), owners=owners) for owners in (None, (i,)))
        _check_finite(f"the reply of client {i} of size {SIZES[i]}", tree.take(spoiled.replies, i))
        _check_same("the server", spoiled.server, clean.server)
        for part in ("replies", "clients", "models"):
            here, now = (tree.take(getattr(outcome, part), i) for outcome in (clean, spoiled))
            _check_same(f"of {part}, that of client {i} of size {SIZES[i]}", now, here)


@_contract(2)
def who_does_not_take_part_is_not_seen(case: Case, engine: str) -> None:
    """Nothing depends on the data of clients that do not take part."""
    schedule = ((3, 1), (3,))
    clean = case.run(engine, schedule)
    spoiled = case.run(engine, schedule, owners=(3, 1))
    _check_same("the server", spoiled.server, clean.server)
    for i in (3, 1):
        _check_same(f"client {i}'s state", tree.take(spoiled.clients, i), tree.take(clean.clients, i))
        _check_same(f"client {i}'s model", tree.take(spoiled.models, i), tree.take(clean.models, i))


@_contract(6)
def the_order_of_a_cohort_is_rounding(case: Case, engine: str) -> None:
    """Permuting the cohort changes nothing but rounding."""
    turned = tuple(cohort[::-1] for cohort in FIRST_EVERYBODY)
    mixed = ((2, 0, 3, 1), (3, 1), (3, 0, 2))
    for schedule in (turned, mixed):
        _check_outcomes("when the cohort is permuted", case.run(engine, schedule), case.run(engine))


@_contract(3)
def a_reply_depends_on_who_and_when_alone(case: Case, engine: str) -> None:
    """A client's randomness comes from who and when: not from who else takes part, nor from its place among them."""
    everybody = case.run(engine, ((0, 1, 2, 3),))
    for others in (((2, 3, 1),), ((3,),)):
        there = case.run(engine, others)
        for part in ("replies", "clients", "enrolled_with"):
            here, now = (tree.take(getattr(outcome, part), 3) for outcome in (everybody, there))
            _check_same(f"of {part}, client 3's among clients {others[0]}", now, here, ROUNDING)


@_contract(7)
def forgetting_is_legal(case: Case, engine: str) -> None:
    """Forgetting is legal: a run whose clients enroll anew each round works, and is the same on every engine."""
    forgot, once = case.run(engine, stateless=True), ((0, 1, 2, 3),)
    _check_finite("the server", forgot.server)
    _check_finite("a reply", forgot.replies)
    _check_finite("a personal model", forgot.models)
    first, usual = case.run(engine, once, stateless=True), case.run(engine, once)
    _check_same(
        "the server after a first round, before anything can be forgotten,", first.server, usual.server, ROUNDING
    )
    for other in case.engines:
        there = case.run(other, stateless=True)
        for part in ("server", "replies", "models"):
            _check_same(
                f"of {part}, what it is on the {other} engine", getattr(there, part), getattr(forgot, part), ROUNDING
            )


@_contract(7)
def a_newcomer_has_a_model(case: Case, engine: str) -> None:
    """A client that never took part can enroll at any time and has a model."""
    for schedule in (FIRST_EVERYBODY, ((1,), (1,))):
        models = case.run(engine, schedule).models
        _check_finite("the model of a client that never took part", models)


@_contract(8)
def enroll_is_given_the_initial_model(case: Case, engine: str) -> None:
    """`params` in `enroll` is the initial model, whenever a client enrolls; it is never sent."""
    late = case.run(engine, ((1,), (3, 1), (0, 2)))
    for i in range(POPULATION):
        _check_same(f"what client {i} enrolled with", tree.take(late.enrolled_with, i), case.params)


@_contract(5)
def one_client_is_enough(case: Case, engine: str) -> None:
    """A round with a single client works: the other places have weight 0."""
    for i in (0, 3):
        _check_finite(f"the server after a round with client {i} alone", case.run(engine, ((i,), (i,))).server)


@_contract(3)
def engines_agree(case: Case, engine: str) -> None:
    """A vectorized, a remote and an asynchronous run without delays are the same run."""
    for other in case.engines:
        for schedule in (FIRST_EVERYBODY, ((1,), (3, 0))):
            _check_outcomes(f"on the {other} engine", case.run(other, schedule), case.run(engine, schedule))


@_contract(6, ("vectorized",))
def how_clients_are_run_is_rounding(case: Case, engine: str) -> None:
    """Divided over the devices or all on one, one by one or all at once (vmap): nothing changes but rounding."""
    other = "vmap" if jax.devices()[0].platform == "cpu" else "sequential"  # than the engine's own choice
    there = case.run(engine, mode=other, devices=1, models=False)  # both at once: each costs a compile
    _check_outcomes(f"on one device in the mode {other}", there, case.run(engine)._replace(models=()))


@_contract(1, ("functions",))
def a_grid_runs_in_one_compile(case: Case, engine: str) -> None:
    """Hyper-parameters may be traced: a grid of them runs under vmap, and gives what each gives alone."""
    if not case.hyper:
        return

    def work(hyper: dict[str, Any], params: Params, data: Data, key: Tree) -> tuple:
        method = case.build(hyper, 0)
        message = method.message(method.init(params, key), jnp.int32(3))
        return method.local(method.enroll(params, message, data, key), message, data, key)

    given = (case.params, case.data(3), jax.random.key(1))  # not constants of the program: XLA would fold them
    halved = {name: value / 2 for name, value in case.hyper.items()}
    grid = {name: jnp.array([value, halved[name]]) for name, value in case.hyper.items()}
    together = jax.jit(jax.vmap(work, in_axes=(0, None, None, None)))(grid, *given)
    alone = jax.jit(functools.partial(work, halved))(*given)
    _check_same("a client's work as one of a grid", tree.take(together, 1), alone, ROUNDING)


def _some_start(key: Any) -> Params:
    w, b = jax.random.split(key)
    return {"w": jax.random.normal(w, (CLASSES, FEATURES)) / 2, "b": jax.random.normal(b, (CLASSES,)) / 2}


def _some_replies(case: Case) -> Reply:
    """Four replies that are not all alike."""
    ramp = lambda leaf: (jnp.arange(4 * leaf.size) / (4 * leaf.size)).reshape((4, *leaf.shape)).astype(leaf.dtype)
    return jax.tree.map(ramp, case.reply)


def _cohort(ids: tuple[int, ...]) -> Cohort:
    weight = jnp.array([SIZES[i] for i in ids], jnp.float32)
    return Cohort(jnp.array(ids, jnp.int32), weight, jnp.zeros(len(ids), jnp.int32), jnp.int32(POPULATION))


def _watched(method: Method, reply: Reply) -> Method:
    blank = jax.tree.map(lambda leaf: jnp.zeros((POPULATION + 1, *leaf.shape), leaf.dtype), reply)

    def merge(state: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        place = jnp.where(cohort.weight > 0, cohort.ids, POPULATION)  # the last row is for those who do not count
        return method.merge(state[0], replies, cohort, key), tree.put(blank, place, replies)

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


def _state(half: ClientHalf) -> Client:
    """A remote client's memory; zeros when it has none, as in a row nobody wrote."""
    if half.client is not None:
        return half.client
    message, _ = decode(half.terms.message, ServerHalf(half.terms, POPULATION).message(half.i))
    return half._memory(message)[1]


def _check_shapes(when: str, shapes: Shapes) -> None:
    _check_like(f"{when} the server's state after merge", shapes.merged, shapes.server)
    _check_like(f"{when} a client's state after local", shapes.after, shapes.client)
    _check_like(f"{when} the model of personal", shapes.personal, shapes.params)


def _check_like(what: str, actual: Tree, expected: Tree) -> None:
    found, wanted = str(jax.tree.structure(actual)), str(jax.tree.structure(expected))
    assert found == wanted, f"{what} has another structure: {found}, not {wanted}"
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        there = jax.tree_util.keystr(path)
        assert a.shape == b.shape, f"{what} has the shape {a.shape}{there}, not {b.shape}"
        assert a.dtype == b.dtype, f"{what} has the dtype {a.dtype}{there}, not {b.dtype}"


def _check_finite(what: str, values: Tree) -> None:
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(values)), f"{what} is not finite"


def _check_same(what: str, actual: Tree, expected: Tree, tolerance: float = 0.0) -> None:
    """Bit for bit, or up to a tolerance relative to 1 + |expected|; what is not a number equals only itself."""
    _check_like(what, actual, expected)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            continue
        gap = np.abs(a.astype(float) - b.astype(float)) / (1 + np.abs(b.astype(float)))
        worst = np.inf if np.isnan(gap).any() else gap.max()
        assert worst <= tolerance, f"{what} differs by {worst:.1e}{jax.tree_util.keystr(path)}"


def _check_outcomes(what: str, actual: Outcome, expected: Outcome) -> None:
    names = ("the server", "a reply", "a client's state", "the model at enrollment", "a personal model")
    for name, a, b in zip(names, actual, expected, strict=True):
        _check_same(f"{what} {name}", a, b, ROUNDING)
