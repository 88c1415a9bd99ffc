"""Some clients are Byzantine: for simulation only, and the outermost wrapper."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.aggregate import flatten
from apiece.errors import UserError
from apiece.protocol import (
    Client,
    Cohort,
    Data,
    Message,
    Method,
    Params,
    Reply,
    Server,
    Tree,
    merge_replies,
    with_merge,
)
from apiece.wrap.attacks import Attack, Scene
from apiece.wrap.attacks import attack as attack_named
from apiece.wrap.inside import Attacked, check_reply, keep_flags, like_the_model


def attacked(
    method: Method,
    attack: Any,
    *,
    clients: Sequence[int] = (),
    share: float = 0.0,
    population: int = 0,
    seed: int | None = None,
    reply: Callable[[Params], Reply] | None = None,
) -> Method:
    """The method with some clients Byzantine. For simulation only, and the outermost wrapper.

    An attack on data (label flip) happens at the attackers: the message carries a flag that says who is one. An attack
    on replies happens just before `merge`, the one place where an omniscient attacker can see what the honest send. In
    a deployment `merge` runs at the server, which forges nothing: there, `attacked` has no place, and is never shipped.

    Args:
        method: what is attacked, with its defences. attack: an `Attack`, its name, or a table of name and options.
        clients: the attackers' ids. share, population: or that share of the population, drawn from the run's seed, so
            that every run has attackers of its own; seed: from this one instead, the same in all runs.
        reply: for an attack with a memory (mimic), what a reply looks like, from the initial model; by default like it.

    >>> from apiece.methods import fed_avg
    >>> method = attacked(fed_avg(lambda params, batch, key: 0.0), "not_a_number", clients=[2])
    >>> cohort = Cohort(jnp.arange(3), jnp.ones(3), jnp.zeros(3, int), 3)
    >>> server = method.init(jnp.zeros(1), jax.random.key(0))
    >>> method.message(method.merge(server, jnp.ones((3, 1)), cohort, jax.random.key(1)), 0).tolist()
    [nan]
    """
    chosen = _as_attack(attack)
    named = np.asarray(attackers(clients, share, population, seed or 0), np.int32)
    by_run = bool(share) and seed is None
    attacks_now = lambda server, ids: (jnp.asarray(ids)[..., None] == server.who).any(axis=-1)

    def init(params: Params, key: Tree) -> Server:
        own_key, attack_key, who_key = jax.random.split(key, 3)
        inner = method.init(params, own_key)
        drawn = jnp.sort(jax.random.permutation(who_key, population)[: len(named)]) if by_run else named
        who = jnp.asarray(drawn, jnp.int32)
        if chosen.init is None:
            return Attacked(inner, (), who)
        row = flatten(jax.tree.map(lambda leaf: leaf[None], (reply or like_the_model)(params)), 1)[0][0]
        return Attacked(inner, chosen.init(jnp.zeros_like(row), attack_key), who)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        own_key, attack_key = jax.random.split(key)
        memory = server.memory
        if chosen.forge is not None:
            present, attacks = cohort.weight > 0, attacks_now(server, cohort.ids)
            rows, restore = flatten(replies, len(cohort.weight))
            rows = jnp.where(present[:, None], rows, 0)
            scene = Scene(rows, present & ~attacks, present & attacks, cohort.ids, attack_key)
            if chosen.init is not None:
                check_reply(memory, chosen.init(rows[0], attack_key), "attacked")
            forged, memory = chosen.forge(scene, memory)
            forged = jax.vmap(restore)(jnp.broadcast_to(forged, rows.shape).astype(rows.dtype))
            replies = jax.vmap(tree.where)(scene.byzantine, keep_flags(forged, replies), replies)
        inner, counted = merge_replies(method, server.inner, replies, cohort, own_key)
        return Attacked(inner, memory, server.who), counted

    spoil = chosen.data
    if spoil is None:
        return with_merge(method, merge, init=init, message=lambda server, i: method.message(server.inner, i))

    def seen(data: Data, attacks: Tree) -> Data:
        mine = _own_rows(data)
        return jax.tree.map(lambda new, old: old if new is old else jnp.where(attacks, new, old), spoil(mine), mine)

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        return method.enroll(params, message[0], seen(data, message[1]), key)

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        return method.local(client, message[0], seen(data, message[1]), key)

    return with_merge(
        method,
        merge,
        init=init,
        message=lambda server, i: (method.message(server.inner, i), attacks_now(server, i)),
        enroll=enroll,
        local=local,
        personal=lambda client, message, data, key: method.personal(client, message[0], data, key),
    )


def attackers(clients: Sequence[int] = (), share: float = 0.0, population: int = 0, seed: int = 0) -> list[int]:
    """The ids that attack: those given, or floor(share * population) of the population, drawn from the seed.

    Who attacks in a run whose attackers are drawn from its own seed, `attackers_of` its server tells.

    >>> attackers(clients=[7, 3])
    [3, 7]
    >>> len(attackers(share=0.25, population=11))
    2
    """
    if bool(len(clients)) == bool(share):
        raise UserError("say who attacks: either clients = [their ids], or a share (above 0) with the population")
    if len(clients):
        if any(isinstance(i, bool) or i != int(i) or i < 0 for i in clients):
            raise UserError(f"clients that attack are given by their ids, 0 or above, not {list(clients)}")
        return sorted({int(i) for i in clients})
    if not 0 < share <= 1 or population < 1:
        raise UserError(
            f"a share of attackers lies above 0 and at most at 1, of a population; got {share} of {population}"
        )
    number = math.floor(share * population + 1e-9)
    return sorted(np.random.default_rng(seed).choice(population, number, replace=False).tolist())


def attackers_of(server: Server) -> list[int]:
    """Who attacks in a run, from its server's state; nobody, if that is not under attack.

    >>> attackers_of(Attacked("the server", memory=(), who=np.array([3, 7]))), attackers_of("another server")
    ([3, 7], [])
    """
    return [int(i) for i in np.asarray(server.who)] if isinstance(server, Attacked) else []


def _own_rows(data: Data) -> Data:
    """The same view into a copy of the client's own rows: what is done to it costs as much as the client has.

    Spoiling the flat arrays themselves would touch everybody's examples at every visit.
    """
    if data.capacity is None:
        return data
    length = len(jax.tree.leaves(data.y)[0])
    count = min(data.capacity, length)
    first = jnp.clip(jnp.asarray(data.start), 0, length - count)
    cut = lambda leaf: lax.dynamic_slice_in_dim(jnp.asarray(leaf), first, count)
    return dataclasses.replace(data, x=jax.tree.map(cut, data.x), y=jax.tree.map(cut, data.y), start=data.start - first)


def _as_attack(given: Any) -> Attack:
    if isinstance(given, Attack):
        return given
    if isinstance(given, str):
        return attack_named(given)
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return attack_named(**given)
    raise UserError(f"an attack is a name, a table of a name and its options, or an Attack, not {given!r}")
