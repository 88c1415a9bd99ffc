"""The two halves of a method, joined by bytes alone: what a network engine stands on, run here in one process.

`ServerHalf` sees no data and no client state; `ClientHalf` sees its own data, its own state and one message. A run
through bytes is the same run as a vectorized one: same cohorts, same keys, same numbers up to rounding.

A client does not know whether its reply arrived in time and was accepted. So it keeps two states, the committed one and
the pending one of its last work; every message says which of its replies was the last that counted (`heard`, a round),
and with that the client settles the matter before it goes on.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.engines.contact import Build, Visit, key_of, keys, model_in_use, remembered, settle, visit
from apiece.engines.remote.codec import Schema, decode, encode, schema_of
from apiece.errors import UserError
from apiece.models.failures import raise_failures
from apiece.protocol import Cohort, Data, Params, Personal, Tree, merge_replies

MOST = 2**31 - 1  # rounds, and examples that a client may claim
NEVER = -1  # the round of a reply that never was
_key_of = jax.jit(key_of)  # one call of a program for four operations: they took a third of a small client's visit


class Programs(NamedTuple):
    """The compiled programs of both parties, each called with (hyper, params) first: one compile for all settings."""

    enter: Callable
    use: Callable
    settle: Callable
    merge: Callable


def compile_programs(build: Build) -> Programs:
    """The programs of a method."""

    def enter(hyper: dict, params: Params, round: Any, *given: Any) -> Visit:
        return visit(build(hyper, round), params, *given)

    def use(hyper: dict, params: Params, round: Any, *given: Any) -> Personal:
        return model_in_use(build(hyper, round), params, *given)

    def settled(hyper: dict, params: Params, *given: Any) -> tuple[Tree, Any]:
        return settle(build(hyper, 0), *given)

    def merge(hyper: dict, params: Params, round: Any, *given: Any) -> tuple[Tree, Any]:
        return merge_replies(build(hyper, round), *given)

    return Programs(jax.jit(enter), jax.jit(use), jax.jit(settled), jax.jit(merge))


class Agreement(NamedTuple):
    """What server and clients know before the first message: all of it follows from the spec and the seed."""

    build: Build
    hyper: dict[str, float]
    params: Params
    seed: int
    message: Schema
    reply: Schema
    client: Tree  # the shapes of a client's state
    programs: Programs  # shared by the clients of one process


def agree(
    build: Build, init: Callable[[Any], Params], example: tuple[Tree, Tree], seed: int, hyper: dict | None = None
) -> Agreement:
    """The common ground of a run. `example` is (x, y) of at least one row: only shapes and dtypes are used."""
    return agree_from(build, init(keys(seed).model), example, seed, dict(hyper or {}), compile_programs(build))


def agree_from(
    build: Build, params: Params, example: tuple[Tree, Tree], seed: int, hyper: dict, programs: Programs
) -> Agreement:
    """The same from the initial model itself, with programs at hand."""
    method = build(hyper, 0)
    server = jax.eval_shape(method.init, params, keys(seed).server)
    message = jax.eval_shape(method.message, server, jnp.int32(0))
    x, y = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), example)
    data = Data(x, y, 0, 1, 1)

    def first_visit(message: Tree, data: Data, key: Any) -> tuple:
        client = method.enroll(params, message, data, key)
        return remembered(method, params, message, data, key), method.local(client, message, data, key)[1]

    client, reply = jax.eval_shape(first_visit, message, data, jax.random.key(0))
    schemas = schema_of("message", message), schema_of("reply", reply)
    return Agreement(build, hyper, params, seed, *schemas, client, programs)


class Refusal(NamedTuple):
    """A reply that did not count, and why."""

    client: int
    round: int
    why: str


class ServerHalf:
    """Opens the state, writes messages, merges replies. Knows clients by number only.

    `heard` says of each client which round its last reply was to that counted; `refusals` what was refused, and why.
    """

    def __init__(self, terms: Agreement, population: int) -> None:
        self.terms, self.population, self.round = terms, population, 0
        self.server = terms.build(terms.hyper, 0).init(terms.params, keys(terms.seed).server)
        self.heard: dict[int, int] = {}
        self.refusals: list[Refusal] = []

    def message(self, i: int) -> bytes:
        """What client i is told now, and which of its replies was the last that counted."""
        method = self.terms.build(self.terms.hyper, self.round)
        header = {"round": self.round, "heard": self.heard.get(i, NEVER)}
        return encode(self.terms.message, method.message(self.server, jnp.int32(i)), header)

    def merge(
        self,
        wires: dict[int, bytes],
        weights: Mapping[int, float] | None = None,
        sent: Mapping[int, int] | None = None,
    ) -> None:
        """One round's replies, merged; one that is malformed, of another round or not finite is refused and noted, and
        does not end the round. Nobody's replies change nothing.

        `weights`: how much each client's reply counts; by default its number of examples. `sent`: the rounds whose
        messages they answer, where nobody waits; by default all answer this one.
        """
        asked = {i: self.round for i in wires} if sent is None else sent
        read = {i: reply for i, wire in wires.items() if (reply := self._read(i, wire, weights, asked[i])) is not None}
        if read:
            ids, weight = list(read), [examples for _, examples in read.values()]
            delay = jnp.array([self.round - asked[i] for i in ids], jnp.int32)
            population = jnp.int32(self.population)
            cohort = Cohort(jnp.array(ids, jnp.int32), jnp.array(weight, jnp.float32), delay, population)
            key = jax.random.fold_in(keys(self.terms.seed).server, self.round)
            replies = tree.stack([reply for reply, _ in read.values()])
            self.server, counted = self.terms.programs.merge(
                self.terms.hyper, self.terms.params, np.int32(self.round), self.server, replies, cohort, key
            )
            self.heard |= {i: asked[i] for i, told in zip(ids, np.asarray(counted), strict=True) if told}
        self.round += 1

    def merge_mean(self, mean: Tree, weight: float, ids: list[int]) -> None:
        """One round's replies, of which the weighted mean is all that is known, and who sent them: each of them stands
        for the mean. `weight` is theirs together."""
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(mean)):
            raise UserError(f"the mean reply of round {self.round} holds numbers that are not finite")
        count = len(ids)
        shares = jnp.full(count, weight / count, jnp.float32)
        cohort = Cohort(jnp.array(ids, jnp.int32), shares, jnp.zeros(count, jnp.int32), jnp.int32(self.population))
        key = jax.random.fold_in(keys(self.terms.seed).server, self.round)
        self.server, counted = self.terms.programs.merge(
            self.terms.hyper,
            self.terms.params,
            np.int32(self.round),
            self.server,
            tree.stack([mean] * count),
            cohort,
            key,
        )
        self.heard |= {i: self.round for i, told in zip(ids, np.asarray(counted), strict=True) if told}
        self.round += 1

    def check(self, i: int, wire: bytes, sent: int | None = None) -> Refusal | None:
        """Why a reply to the message of round `sent` (default: this one) cannot count; None: it can."""
        before = len(self.refusals)
        self._read(i, wire, None, self.round if sent is None else sent)
        return self.refusals.pop() if len(self.refusals) > before else None

    def _read(self, i: int, wire: bytes, weights: Mapping[int, float] | None, asked: int) -> tuple[Tree, float] | None:
        """(reply, its weight) of client i, or None if it cannot count."""
        try:
            reply, header = decode(self.terms.reply, wire)
            if header.get("round") != asked:
                raise UserError(f"client {i} answered round {header.get('round')}, but this is round {asked}")
            examples = _within(header, "examples", f"reply of client {i}")
            if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(reply)):
                raise UserError(f"the reply of client {i} holds numbers that are not finite")
        except UserError as error:
            self.refusals.append(Refusal(i, self.round, str(error)))
            return None
        return reply, examples if weights is None else weights[i]


@dataclasses.dataclass
class Memory:
    """What a client remembers: its committed state, if it has one, and work whose fate it does not know yet."""

    client: Tree | None = None
    before: Tree = ()  # what the work began with: the committed state, or zeros
    pending: Visit | None = None
    round: int = NEVER  # of the pending work


class ClientHalf:
    """One client: its number, its data, its memory. `forget()` is legal at any time."""

    def __init__(self, terms: Agreement, i: int, data: Data, memory: Memory | None = None) -> None:
        self.terms, self.i, self.data = terms, i, data
        self.memory = memory or Memory()
        self._ground = terms.hyper, terms.params

    @property
    def client(self) -> Tree | None:
        """The committed state; None without memory."""
        return self.memory.client

    def answer(self, wire: bytes) -> bytes:
        """The reply to a message; the client's own state stays here, and is committed when the reply has counted."""
        message, round = self._read(wire)
        key = _key_of(keys(self.terms.seed).client, round, self.i)
        known, client = self._committed()
        enter = self.terms.programs.enter
        work = jax.block_until_ready(enter(*self._ground, round, known, client, message, self.data, key))
        raise_failures()
        self.memory = Memory(self.memory.client, client, work._replace(reply=()), int(round))
        return encode(self.terms.reply, work.reply, {"round": int(round), "examples": int(self.data.size)})

    def personal(self, wire: bytes, visits: int = 1, data: Data | None = None) -> Personal:
        """The model this client uses, given the server's current message (`data`: made from other data)."""
        message, round = self._read(wire)
        key = _key_of(keys(self.terms.seed).personal, round, self.i)
        known, client = self._committed()
        given = known, client, message, data or self.data, key, visits
        model = jax.block_until_ready(self.terms.programs.use(*self._ground, round, *given))
        raise_failures()
        return model

    def forget(self) -> None:
        """Lose all memory; the next message enrolls again."""
        self.memory = Memory()

    def _read(self, wire: bytes) -> tuple[Tree, np.int32]:
        """The message and its round; what the server has heard settles what was pending."""
        message, header = decode(self.terms.message, wire)
        round = _within(header, "round", "message")
        self.settle(header.get("heard", NEVER))
        return message, np.int32(round)

    def settle(self, heard: int) -> None:
        """Commit the pending work if the reply to that round counted; else keep what the method lets it keep."""
        memory = self.memory
        if memory.pending is None:
            return
        known = memory.client is not None
        settled = self.terms.programs.settle
        client, knows = settled(*self._ground, heard == memory.round, known, memory.before, memory.pending)
        self.memory = Memory(client if knows else None)

    def _committed(self) -> tuple[bool, Tree]:
        if self.memory.client is not None:
            return True, self.memory.client
        return False, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.terms.client)


def data_of(x: Tree, y: Tree, capacity: int | None = None) -> Data:
    """A client's own rows as `Data`. Clients of one process padded to one capacity share a compiled program; the
    padding is never read."""
    size = len(jax.tree.leaves(y)[0])
    fill = lambda leaf: np.concatenate([leaf, np.zeros(((capacity or size) - size, *leaf.shape[1:]), leaf.dtype)])
    return Data(jax.tree.map(fill, x), jax.tree.map(fill, y), np.int32(0), np.int32(size), capacity or size)


def _within(header: dict[str, int], name: str, where: str) -> int:
    """A number of the header, which the other party chose: there, and neither negative nor absurd."""
    value = header.get(name, -1)
    if not 0 <= value <= MOST:
        raise UserError(f"the {where} has {name} = {header.get(name)}; it must lie in 0..{MOST}")
    return value
