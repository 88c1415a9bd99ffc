"""The two halves of a method, joined by bytes alone: what a network engine stands on, run here in one process.

`ServerHalf` sees no data and no client state; `ClientHalf` sees its own data, its own state and one message. A run
through bytes is the same run as a vectorized one: same cohorts, same keys, same numbers up to rounding.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.engines.contact import Build, key_of, keys, model_in_use, visit
from apiece.engines.remote.codec import Schema, decode, encode, schema_of
from apiece.engines.world.cohort import Participation
from apiece.engines.world.faults import Faults
from apiece.errors import UserError
from apiece.models.failures import raise_failures
from apiece.protocol import Cohort, Data, Params, Tree

MOST = 2**31 - 1  # rounds, and examples that a client may claim


class Agreement(NamedTuple):
    """What server and clients know before the first message: all of it follows from the spec and the seed."""

    build: Build
    hyper: dict[str, float]
    params: Params
    seed: int
    message: Schema
    reply: Schema
    enter: Callable  # the compiled client programs, shared by the clients of one process
    use: Callable
    merge: Callable  # the server's


def agree(
    build: Build, init: Callable[[Any], Params], example: tuple[Tree, Tree], seed: int, hyper: dict | None = None
) -> Agreement:
    """The common ground of a run. `example` is (x, y) of at least one row: only shapes and dtypes are used."""
    hyper = dict(hyper or {})
    params = init(keys(seed).model)
    method = build(hyper, 0)
    server = jax.eval_shape(method.init, params, keys(seed).server)
    message = jax.eval_shape(method.message, server, jnp.int32(0))
    x, y = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), example)
    data = Data(x, y, 0, 1, 1)

    def first_reply(message: Tree, data: Data, key: Any) -> Tree:
        client = method.enroll(params, message, data, key)
        return method.local(client, message, data, key)[1]

    reply = jax.eval_shape(first_reply, message, data, jax.random.key(0))

    def enter(known: Any, client: Tree, message: Tree, data: Data, key: Any, round: Any) -> tuple:
        return visit(build(hyper, round), params, known, client, message, data, key)

    def use(known: Any, client: Tree, message: Tree, data: Data, key: Any, round: Any, visits: Any) -> Params:
        return model_in_use(build(hyper, round), params, known, client, message, data, key, visits)

    def merge(server: Tree, replies: Tree, cohort: Cohort, key: Any, round: Any) -> Tree:
        return build(hyper, round).merge(server, replies, cohort, key)

    return Agreement(
        build,
        hyper,
        params,
        seed,
        schema_of("message", message),
        schema_of("reply", reply),
        jax.jit(enter),
        jax.jit(use),
        jax.jit(merge),
    )


class ServerHalf:
    """Opens the state, writes messages, merges replies. Knows clients by number only."""

    def __init__(self, terms: Agreement, population: int) -> None:
        self.terms, self.population, self.round = terms, population, 0
        self.server = terms.build(terms.hyper, 0).init(terms.params, keys(terms.seed).server)

    def message(self, i: int) -> bytes:
        """What client i is told now."""
        method = self.terms.build(self.terms.hyper, self.round)
        return encode(self.terms.message, method.message(self.server, jnp.int32(i)), {"round": self.round})

    def merge(self, wires: dict[int, bytes], uniform: bool = False) -> None:
        """One round's replies, merged; a reply to another round is refused. Nobody's replies change nothing."""
        if not wires:
            self.round += 1
            return
        replies, weight = [], []
        for i, wire in wires.items():
            reply, header = decode(self.terms.reply, wire)
            if header.get("round") != self.round:
                raise UserError(f"client {i} answered round {header.get('round')}, but this is round {self.round}")
            replies.append(reply)
            weight.append(1 if uniform else _within(header, "examples", f"reply of client {i}"))
        ids = jnp.array(list(wires), jnp.int32)
        delay = jnp.zeros(len(wires), jnp.int32)
        cohort = Cohort(ids, jnp.array(weight, jnp.float32), delay, jnp.int32(self.population))
        key = jax.random.fold_in(keys(self.terms.seed).server, self.round)
        self.server = self.terms.merge(self.server, tree.stack(replies), cohort, key, np.int32(self.round))
        self.round += 1


class ClientHalf:
    """One client: its number, its data, its memory. `forget()` is legal at any time."""

    def __init__(self, terms: Agreement, i: int, x: Tree, y: Tree, capacity: int | None = None) -> None:
        size = len(jax.tree.leaves(y)[0])
        # Clients of one process padded to one capacity share a compiled program; the padding is never read.
        fill = lambda leaf: np.concatenate([leaf, np.zeros(((capacity or size) - size, *leaf.shape[1:]), leaf.dtype)])
        self.terms, self.i = terms, i
        self.client: Tree | None = None
        self.data = Data(jax.tree.map(fill, x), jax.tree.map(fill, y), np.int32(0), np.int32(size), capacity or size)

    def answer(self, wire: bytes) -> bytes:
        """The reply to a message; the client's own state stays here."""
        message, round = self._read(wire)
        key = key_of(keys(self.terms.seed).client, round, self.i)
        known, client = self._memory(message)
        self.client, reply = jax.block_until_ready(self.terms.enter(known, client, message, self.data, key, round))
        raise_failures()
        return encode(self.terms.reply, reply, {"round": int(round), "examples": int(self.data.size)})

    def personal(self, wire: bytes, visits: int = 1) -> Params:
        """The model this client uses, given the server's current message."""
        message, round = self._read(wire)
        key = key_of(keys(self.terms.seed).personal, round, self.i)
        known, client = self._memory(message)
        model = jax.block_until_ready(self.terms.use(known, client, message, self.data, key, round, visits))
        raise_failures()
        return model

    def forget(self) -> None:
        """Lose all memory; the next message enrolls again."""
        self.client = None

    def _read(self, wire: bytes) -> tuple[Tree, np.int32]:
        message, header = decode(self.terms.message, wire)
        return message, np.int32(_within(header, "round", "message"))

    def _memory(self, message: Tree) -> tuple[bool, Tree]:
        if self.client is not None:
            return True, self.client
        method = self.terms.build(self.terms.hyper, 0)
        shape = jax.eval_shape(method.enroll, self.terms.params, message, self.data, jax.random.key(0))
        return False, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)


def _within(header: dict[str, int], name: str, where: str) -> int:
    """A number of the header, which the other party chose: there, and neither negative nor absurd."""
    value = header.get(name, -1)
    if not 0 <= value <= MOST:
        raise UserError(f"the {where} has {name} = {header.get(name)}; it must lie in 0..{MOST}")
    return value


def run(
    server: ServerHalf,
    clients: list[ClientHalf],
    rounds: int,
    participation: Participation,
    uniform: bool = False,
    faults: Faults | None = None,
) -> None:
    """So many rounds, every message and reply through bytes."""
    for _ in range(rounds):
        seed, round = server.terms.seed, server.round
        cohort = participation.draw(seed, round, server.population)
        fate = (faults or Faults()).draw(seed, round, cohort, server.population)
        replies = {int(i): clients[i].answer(server.message(int(i))) for i in cohort[fate.works]}
        server.merge({int(i): replies[int(i)] for i in cohort[fate.counts]}, uniform)
