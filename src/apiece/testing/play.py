"""Two rounds of two clients, played by hand: what is said and used, and what a change somewhere does to it."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece.protocol import Client, Data, Params, Reply, Server, Tree
from apiece.testing.case import Case
from apiece.testing.clients import SIZES, cohort_of

PLAYERS = (3, 1)
ROUNDS = 2


class Played(NamedTuple):
    """The replies, stacked by round and client, the models used at the end, the clients' states before and after."""

    replies: Reply
    models: Params
    enrolled: Client
    clients: Client


def play(case: Case, origin: float = 0.0, nudge: float = 0.0) -> Played:
    """Two rounds of two clients on the model with two layers; one compiled program for every origin and nudge.

    Args:
        origin: how much larger all parameters are, meaning what they meant before. nudge: what is added to every
            number that a client keeps, whenever it begins to work, or to use its model.

    >>> from apiece.methods import fed_avg
    >>> case = Case(fed_avg)
    >>> here, there = play(case).models["out"]["b"], play(case, origin=1.0).models["out"]["b"]
    >>> (there - here).round(4)[0].tolist()
    [1.0, 1.0, 1.0]
    """
    program = case.remember("played by hand", lambda: jax.jit(functools.partial(_play, case.layered)))
    return case.remember(
        ("played", origin, nudge), lambda: program(case.hyper, jnp.float32(origin), jnp.float32(nudge))
    )


def _play(case: Case, hyper: dict[str, Any], origin: Tree, nudge: Tree) -> Played:
    case = case.moved(origin)
    method, ids = case.build(hyper, 0), jnp.array(PLAYERS, jnp.int32)
    first, enroll_key, work_key, use_key = jax.random.split(jax.random.key(0), 4)
    message, mine = method.message, functools.partial(_mine, case)

    def enroll(i: Tree) -> Client:
        return method.enroll(case.params, message(server, i), mine(i), jax.random.fold_in(enroll_key, i))

    def play_round(carry: tuple[Server, Client], key: Tree) -> tuple[tuple[Server, Client], Reply]:
        server, clients = carry

        def work(i: Tree, client: Client) -> tuple[Client, Reply]:
            return method.local(_nudged(client, nudge), message(server, i), mine(i), jax.random.fold_in(key, i))

        clients, replies = lax.map(lambda given: work(*given), (ids, clients))
        merged = method.merge(server, replies, cohort_of(PLAYERS), jax.random.fold_in(key, len(SIZES)))
        return (merged, clients), replies

    server = method.init(case.params, first)
    enrolled = lax.map(enroll, ids)
    (server, clients), replies = lax.scan(play_round, (server, enrolled), jax.random.split(work_key, ROUNDS))

    def use(i: Tree, client: Client) -> Params:
        key = jax.random.fold_in(use_key, i)
        return method.personal(_nudged(client, nudge), message(server, i), mine(i), key)

    return Played(replies, lax.map(lambda given: use(*given), (ids, clients)), enrolled, clients)


def _mine(case: Case, i: Tree) -> Data:
    start, size = (jnp.asarray(numbers, jnp.int32)[i] for numbers in (case.offsets, SIZES))
    return Data(jnp.asarray(case.x), jnp.asarray(case.y), start, size, max(SIZES))


def _nudged(client: Client, nudge: Tree) -> Client:
    """With every number changed, whole ones by a whole one, and every yes made a no; keys are left as they are."""

    def change(leaf: jax.Array) -> jax.Array:
        if leaf.dtype == bool:
            return leaf ^ (nudge > 0)
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return leaf + jnp.ceil(nudge).astype(leaf.dtype)
        return leaf + nudge.astype(leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(change, client)
