"""Method -> Method: Byzantine clients, and two defences against them.

    attacked(guarded(robust(method, rule)), attack, clients=[3, 8])

From the outside in: replies reach `attacked` first, which forges those of the attackers; then `guarded`, which rejects
what no honest client sends; then `robust`, which puts one robust answer in the place of all replies; then the method's
own merge. `robust` and `guarded` act on what any server receives, and can be deployed. `attacked` is for simulation
only: see there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.aggregate import as_rule, flatten, median
from apiece.attack import Attack, Scene
from apiece.attack import attack as attack_named
from apiece.errors import UserError, suggest
from apiece.protocol import Client, Cohort, Data, Message, Method, Params, Reply, Server, Tree


class Robust(NamedTuple):
    """The server of `robust`: the method's own, and the last aggregate of a rule that reads it (else nothing).

    >>> Robust("the method's server", last=()).inner
    "the method's server"
    """

    inner: Server
    last: Tree


class Attacked(NamedTuple):
    """The server of `attacked`: the one under attack, and what the attackers remember.

    >>> Attacked("the server", memory=()).inner
    'the server'
    """

    inner: Server
    memory: Tree


class Rejections(NamedTuple):
    """How many replies were rejected so far, and why.

    >>> Rejections(not_finite=2, too_large=1)
    Rejections(not_finite=2, too_large=1)
    """

    not_finite: Tree
    too_large: Tree


class Guarded(NamedTuple):
    """The server of `guarded`: the method's own, and what was rejected.

    >>> Guarded("the server", Rejections(0, 0)).rejected.too_large
    0
    """

    inner: Server
    rejected: Rejections


def robust(method: Method, rule: Any, *, reply: Callable[[Params], Reply] | None = None) -> Method:
    """The aggregate of the present replies under `rule` stands in the place of each of them, and each has weight 1.

    So every method whose merge averages replies becomes robust without knowing it. It is not meant for methods whose
    merge treats clients one by one (a model for each on the server): they would all be handed the same reply.
    Replies are brought into the order of the clients' ids first, so that the order of a cohort breaks no tie.

    Args:
        method: whose replies are aggregated. rule: a `Rule`, its name, a table of name and options, or a function of
            (stacked, weight). reply: for a rule that reads its last answer (centered clipping), what a reply looks
            like, from the initial model; by default like the model itself.

    >>> from apiece.methods import fed_avg
    >>> method = robust(fed_avg(lambda params, batch, key: 0.0), "median")
    >>> x, updates = jnp.zeros(1), jnp.array([[1.0], [2.0], [1e9]])
    >>> cohort = Cohort(jnp.arange(3), jnp.ones(3), jnp.zeros(3, int), 3)
    >>> server = method.merge(method.init(x, jax.random.key(0)), updates, cohort, jax.random.key(1))
    >>> method.message(server, 0).tolist()
    [2.0]
    """
    chosen = as_rule(rule)

    def init(params: Params, key: Tree) -> Server:
        last = tree.zeros((reply or _like_the_model)(params)) if chosen.remembers else ()
        return Robust(_not_attacked(method.init(params, key), "robust"), last)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        own_key, rule_key = jax.random.split(key)
        present = cohort.weight > 0
        order = jnp.lexsort((cohort.ids, ~present))
        if chosen.remembers:
            _check_reply(server.last, tree.take(replies, 0), "robust")
        before = server.last if chosen.remembers else None
        answer = chosen(tree.take(replies, order), cohort.weight[order], rule_key, before)
        everybodys = jax.tree.map(lambda leaf, one: jnp.broadcast_to(one, leaf.shape), replies, answer)
        once = cohort._replace(weight=present.astype(cohort.weight.dtype))
        inner = method.merge(server.inner, everybodys, once, own_key)
        return Robust(inner, tree.where(present.any(), answer, server.last) if chosen.remembers else ())

    return method._replace(init=init, message=lambda server, i: method.message(server.inner, i), merge=merge)


def guarded(method: Method, *, most: Tree = 10.0) -> Method:
    """Rejects replies that are not finite, or longer than `most` times the median length of the finite ones.

    A rejected reply gets weight 0, and is counted (`rejections`). The length is the norm over the whole tree. With
    `most` infinite, only what is not finite is rejected.

    >>> from apiece.methods import fed_avg
    >>> method = guarded(fed_avg(lambda params, batch, key: 0.0), most=3.0)
    >>> updates = jnp.array([[1.0], [2.0], [1e9], [jnp.nan]])
    >>> cohort = Cohort(jnp.arange(4), jnp.ones(4), jnp.zeros(4, int), 4)
    >>> server = method.merge(method.init(jnp.zeros(1), jax.random.key(0)), updates, cohort, jax.random.key(1))
    >>> method.message(server, 0).tolist(), rejections(server)
    ([1.5], {'not_finite': 1, 'too_large': 1})
    """

    def init(params: Params, key: Tree) -> Server:
        return Guarded(_not_attacked(method.init(params, key), "guarded"), Rejections(jnp.int32(0), jnp.int32(0)))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        rows, _ = flatten(replies, len(cohort.weight))
        present = cohort.weight > 0
        finite = present & jnp.isfinite(rows).all(axis=1)
        length = jnp.linalg.norm(jnp.where(finite[:, None], rows, 0), axis=1)
        usual = median()(length, finite.astype(jnp.float32))
        accepted = finite & (length <= most * usual)
        count = lambda rejected: rejected.sum(dtype=jnp.int32)
        before = server.rejected
        rejected = Rejections(
            before.not_finite + count(present & ~finite), before.too_large + count(finite & ~accepted)
        )
        heard = cohort._replace(weight=jnp.where(accepted, cohort.weight, 0))
        return Guarded(method.merge(server.inner, replies, heard, key), rejected)

    return method._replace(init=init, message=lambda server, i: method.message(server.inner, i), merge=merge)


BREAKAGES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "not_a_number": lambda rows: jnp.full_like(rows, jnp.nan),
    "infinite": lambda rows: jnp.full_like(rows, jnp.inf),
    "too_long": lambda rows: 1e6 * rows,
}


def corrupted(method: Method, *, share: Tree = 0.05, kind: str = "not_a_number") -> Method:
    """Each reply arrives broken with probability `share`, whoever sent it: a fault, not an attack. For simulation.

    Which replies are broken follows from the round and the client alone. Put it outside of `guarded`, which finds them.

    Args:
        method: whose replies are broken. share: how many. kind: "not_a_number", "infinite" or "too_long" (a million
            times too long).

    >>> from apiece.methods import fed_avg
    >>> method = corrupted(guarded(fed_avg(lambda params, batch, key: 0.0)), share=0.5)
    >>> cohort = Cohort(jnp.arange(8), jnp.ones(8), jnp.zeros(8, int), 8)
    >>> server = method.merge(method.init(jnp.zeros(1), jax.random.key(0)), jnp.ones((8, 1)), cohort, jax.random.key(1))
    >>> method.message(server, 0).tolist(), rejections(server)
    ([1.0], {'not_finite': 6, 'too_large': 0})
    """
    if kind not in BREAKAGES:
        raise UserError(f"replies cannot be broken by '{kind}': {suggest(kind, BREAKAGES)}")

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        own_key, fault_key = jax.random.split(key)
        chance = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(fault_key, i)))(cohort.ids)
        rows, restore = flatten(replies, len(cohort.weight))
        broken = jax.vmap(restore)(BREAKAGES[kind](rows))
        return method.merge(server, jax.vmap(tree.where)(chance < share, broken, replies), cohort, own_key)

    return method._replace(merge=merge)


def rejections(server: Server) -> dict[str, int]:
    """What `guarded` has rejected so far, by reason; also when it is inside another of these wrappers.

    >>> rejections(Attacked(Guarded("the method's server", Rejections(2, 0)), memory=()))
    {'not_finite': 2, 'too_large': 0}
    """
    guard = guard_of(server)
    if guard is None:
        raise UserError("this server counts no rejections: wrap the method in guarded(...) before it is run")
    return {reason: int(number) for reason, number in guard.rejected._asdict().items()}


def guard_of(server: Server) -> Guarded | None:
    """The state of `guarded`, if there is one among these wrappers.

    >>> guard_of(Robust("the method's server", last=()))
    """
    while isinstance(server, Robust | Attacked):
        server = server.inner
    return server if isinstance(server, Guarded) else None


def attacked(
    method: Method,
    attack: Any,
    *,
    clients: Sequence[int] = (),
    share: float = 0.0,
    population: int = 0,
    seed: int = 0,
    reply: Callable[[Params], Reply] | None = None,
) -> Method:
    """The method with some clients Byzantine. For simulation only, and the outermost of these wrappers.

    An attack on data (label flip) happens at the attackers: the message carries a flag that says who is one. An attack
    on replies happens just before `merge`, the one place where an omniscient attacker can see what the honest send. In
    a deployment `merge` runs at the server, which forges nothing: there, `attacked` has no place, and is never shipped.

    Args:
        method: what is attacked, with its defences. attack: an `Attack`, its name, or a table of name and options.
        clients: the attackers' ids. share, population, seed: or that share of the population, drawn from the seed.
        reply: for an attack with a memory (mimic), what a reply looks like, from the initial model; by default like it.

    >>> from apiece.methods import fed_avg
    >>> method = attacked(fed_avg(lambda params, batch, key: 0.0), "not_a_number", clients=[2])
    >>> cohort = Cohort(jnp.arange(3), jnp.ones(3), jnp.zeros(3, int), 3)
    >>> server = method.init(jnp.zeros(1), jax.random.key(0))
    >>> method.message(method.merge(server, jnp.ones((3, 1)), cohort, jax.random.key(1)), 0).tolist()
    [nan]
    """
    chosen = _as_attack(attack)
    byzantine = np.asarray(attackers(clients, share, population, seed), np.int32)
    attacks_now = lambda ids: (jnp.asarray(ids)[..., None] == byzantine).any(axis=-1)

    def init(params: Params, key: Tree) -> Server:
        own_key, attack_key = jax.random.split(key)
        inner = method.init(params, own_key)
        if chosen.init is None:
            return Attacked(inner, ())
        row = flatten(jax.tree.map(lambda leaf: leaf[None], (reply or _like_the_model)(params)), 1)[0][0]
        return Attacked(inner, chosen.init(jnp.zeros_like(row), attack_key))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        own_key, attack_key = jax.random.split(key)
        memory = server.memory
        if chosen.forge is not None:
            present, attacks = cohort.weight > 0, attacks_now(cohort.ids)
            rows, restore = flatten(replies, len(cohort.weight))
            rows = jnp.where(present[:, None], rows, 0)
            scene = Scene(rows, present & ~attacks, present & attacks, cohort.ids, attack_key)
            if chosen.init is not None:
                _check_reply(memory, chosen.init(rows[0], attack_key), "attacked")
            forged, memory = chosen.forge(scene, memory)
            forged = jax.vmap(restore)(jnp.broadcast_to(forged, rows.shape).astype(rows.dtype))
            replies = jax.vmap(tree.where)(scene.byzantine, forged, replies)
        return Attacked(method.merge(server.inner, replies, cohort, own_key), memory)

    spoil = chosen.data
    if spoil is None:
        return method._replace(init=init, message=lambda server, i: method.message(server.inner, i), merge=merge)

    def seen(data: Data, attacks: Tree) -> Data:
        spoiled = spoil(data)
        # What the attack left alone is not copied: these are everybody's examples.
        return jax.tree.map(lambda new, old: old if new is old else jnp.where(attacks, new, old), spoiled, data)

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        return method.enroll(params, message[0], seen(data, message[1]), key)

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        return method.local(client, message[0], seen(data, message[1]), key)

    return Method(
        init=init,
        message=lambda server, i: (method.message(server.inner, i), attacks_now(i)),
        merge=merge,
        enroll=enroll,
        local=local,
        personal=lambda client, message, data, key: method.personal(client, message[0], data, key),
    )


def attackers(clients: Sequence[int] = (), share: float = 0.0, population: int = 0, seed: int = 0) -> list[int]:
    """The ids that attack: those given, or floor(share * population) of the population, drawn from the seed.

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


def _as_attack(given: Any) -> Attack:
    if isinstance(given, Attack):
        return given
    if isinstance(given, str):
        return attack_named(given)
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return attack_named(**given)
    raise UserError(f"an attack is a name, a table of a name and its options, or an Attack, not {given!r}")


def _not_attacked(server: Server, wrapper: str) -> Server:
    if isinstance(server, Attacked):
        raise UserError(
            f"{wrapper}(attacked(...)) would forge what the defence has already answered: "
            f"write attacked({wrapper}(...), ...), so that the attack comes first"
        )
    return server


def _like_the_model(params: Params) -> Reply:
    return params


def _check_reply(kept: Tree, expected: Tree, wrapper: str) -> None:
    shapes = lambda given: (jax.tree.structure(given), [jnp.shape(leaf) for leaf in jax.tree.leaves(given)])
    if shapes(kept) != shapes(expected):
        raise UserError(
            f"this method's replies do not look like its model: give {wrapper}(..., reply=lambda params: ...) "
            "a tree that looks like one reply"
        )
