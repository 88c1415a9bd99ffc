"""User-level differential privacy: what the clients send is clipped, summed and noised before anybody sees it."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
from apiece.wrap.accountant import split_noise

PLACES = ("server", "clients")  # who adds the noise
NOISE = 0x6E6F6973  # no number into which a method, whose work has the same key, may split it


class Private(NamedTuple):
    """The server of `private`: the method's own, and how long a reply may be.

    >>> Private("the method's server", clip=1.0).inner
    "the method's server"
    """

    inner: Server
    clip: Tree


def private(
    method: Method,
    *,
    noise: float,
    expected: float,
    clip: float = 1.0,
    at: str = "server",
    quantile: float | None = None,
    rate: float = 0.2,
    secret: bool = False,
) -> Method:
    """Clients' replies as one noised mean, which stands in the place of each of them: the merge sees nothing else.

    With replies r_i over all their arrays together, S clients there, C the clip, z the noise and m `expected`:

        s = ( sum_{i in S} r_i min(1, C / |r_i|) + z C N(0, I) ) / m,

    and the merge is given s from m clients of weight 1, whoever and however many they were. So all that the server
    publishes is a function of noised sums, for every method; one that merges an average loses nothing by it but by
    clip and noise. Everybody counts once, whatever its number of examples, and m is fixed: a mean by sizes has no bound
    on what one client moves. What a method does not send is not noised, and needs none.

    With a `quantile` q the clip follows the replies: C <- C exp(-rate (share of replies within C - q)), the share
    noised as well (Andrew et al. 2021); the noise of both is chosen so that a round spends what z alone would.

    Args:
        method: one whose merge averages its replies (`averages_replies`). noise: z, of the sum, in clips. expected: m,
            how many clients a round has on average. clip: C, or where it begins. at: who adds the noise: "server",
            which sees single replies; or "clients", each of them N(0, z^2 C^2 / m) on its own reply, so that the sum
            has it; the server adds what those who did not answer did not. quantile, rate: of the clip that follows.
            secret: noise from the operating system's randomness; else from the run's seed, which whoever
            knows can subtract.

    >>> from apiece.methods import fed_avg
    >>> method = private(fed_avg(lambda params, batch, key: 0.0), noise=1e-6, expected=2, clip=5.0)
    >>> cohort = Cohort(jnp.arange(2), jnp.array([9.0, 1.0]), jnp.zeros(2, int), 2)
    >>> server = method.init(jnp.zeros(2), jax.random.key(0))
    >>> server = method.merge(server, jnp.array([[30.0, 40.0], [0.0, 1.0]]), cohort, jax.random.key(1))
    >>> [round(float(value), 3) for value in method.message(server, 0)]  # (3, 4) and (0, 1)
    [1.5, 2.5]
    """
    _check(noise, expected, clip, at, quantile, rate)
    of_sum, of_count = (noise, 0.0) if quantile is None else split_noise(noise, expected)
    count = max(1, round(expected))

    def init(params: Params, key: Tree) -> Server:
        return Private(method.init(params, key), jnp.float32(clip))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        own_key, noise_key = jax.random.split(key)
        sum_key, count_key = jax.random.split(_fresh(noise_key, secret))
        within: Tree
        sent, within = replies if at == "clients" else (replies, ())
        check_numbers(sent)
        places, present = len(cohort.weight), cohort.weight > 0
        rows, restore = flatten(sent, places)
        sound = present & jnp.isfinite(rows).all(axis=1)
        rows = jnp.where(sound[:, None], rows, 0)
        # What noise is missing, as a share of its variance: all or, where clients added theirs, that of the absent.
        missing: Any = 1.0
        if at == "clients":
            missing = jnp.maximum(0, 1 - sound.sum() / count)  # a broken reply has lost its noise, too
        else:
            rows, within = jax.vmap(clip_row, in_axes=(0, None))(rows, server.clip)
        deviation = of_sum * server.clip * jnp.sqrt(missing)
        total = rows.sum(axis=0) + deviation * jax.random.normal(sum_key, rows.shape[1:], rows.dtype)
        answer = restore((total / expected).astype(rows.dtype))
        # A cohort that says nothing about who came, and how many: the merge is a function of the noised sum alone.
        same = Cohort(
            jnp.arange(count, dtype=cohort.ids.dtype),
            jnp.ones(count, cohort.weight.dtype),
            jnp.zeros(count, cohort.delay.dtype),
            cohort.population,
        )
        everybodys = jax.tree.map(lambda one: jnp.broadcast_to(one, (count, *one.shape)), answer)
        inner = merge_replies(method, server.inner, everybodys, same, own_key)[0]
        after = Private(inner, server.clip)
        if quantile is not None and rows.shape[1]:
            bits = jnp.where(sound, within, 0.0).sum() + of_count * jnp.sqrt(missing) * jax.random.normal(count_key)
            share = 0.5 + bits / expected
            follows = server.clip * jnp.exp(-rate * (share - quantile))
            after = after._replace(clip=follows.astype(server.clip.dtype))
        return tree.where(present.any(), after, server), present

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        after, reply = method.local(client, message[0], data, key)
        check_numbers(reply)
        row, restore = _row_of(reply)
        row, within = clip_row(jnp.where(jnp.isfinite(row).all(), row, 0), message[1])
        sum_key, count_key = jax.random.split(_fresh(jax.random.fold_in(key, NOISE), secret))
        own = of_sum / math.sqrt(count)
        noised = restore(row + (own * message[1] * jax.random.normal(sum_key, row.shape, row.dtype)).astype(row.dtype))
        if quantile is None or not row.size:
            return after, (noised, ())
        return after, (noised, within + of_count / math.sqrt(count) * jax.random.normal(count_key))

    def report(server: Server) -> dict[str, Any]:
        told = {} if method.report is None else method.report(server.inner)
        return {**told, "clip": server.clip} if quantile is not None else told

    others: dict[str, Any] = dict(init=init, message=lambda server, i: method.message(server.inner, i))
    if at == "clients":
        others = dict(
            init=init,
            message=lambda server, i: (method.message(server.inner, i), server.clip),
            enroll=lambda params, message, data, key: method.enroll(params, message[0], data, key),
            local=local,
            personal=lambda client, message, data, key: method.personal(client, message[0], data, key),
        )
    if method.report is not None or quantile is not None:
        others["report"] = report
    return with_merge(method, merge, **others)


def averages_replies(
    method: Method, params: Params, reply: Reply, population: int, weights: Sequence[float] = (1.0, 1.0, 1.0)
) -> bool:
    """Whether a merge is a function of the mean of the replies, by these weights, whoever sent them: tried on random
    ones.

    Where it is not (a model for each client on the server, groups, replies chosen or weighed by what they say), the
    mean in the place of every reply is another method. `reply` and `params` are what these look like.

    >>> from apiece.methods import fed_avg, ifca
    >>> loss, x = lambda params, batch, key: 0.0, jnp.zeros(3)
    >>> averages_replies(fed_avg(loss), x, x, 4)
    True
    >>> averages_replies(ifca(loss, groups=2), x, (jnp.zeros(2), x), 4)
    False
    """
    few, key, counts = len(weights), jax.random.key(7), jnp.asarray(weights, jnp.float32)
    blank = lambda leaf: jnp.zeros((few, *leaf.shape), leaf.dtype)
    rows, restore = flatten(jax.tree.map(blank, reply), few)

    @jax.jit
    def three_ways(params: Params) -> list[Server]:
        drawn = jax.random.normal(key, rows.shape, rows.dtype)
        alike = jnp.broadcast_to(((counts / counts.sum()).astype(rows.dtype) @ drawn), rows.shape)
        even = jnp.full(few, counts.mean())
        first = jnp.arange(few, dtype=jnp.int32)
        last = jnp.maximum(population - 1 - first, 0)
        server = method.init(params, key)
        found = []
        for given, ids, weight in ((drawn, first, counts), (alike, first, even), (alike, last, even)):
            cohort = Cohort(ids, weight, jnp.zeros(few, jnp.int32), jnp.int32(population))
            found.append(merge_replies(method, server, jax.vmap(restore)(given), cohort, key)[0])
        return found

    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)
    found = [jax.tree.leaves(one) for one in jax.device_get(three_ways(start))]
    same = lambda a, b: bool(np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True))
    return all(same(one, two) and same(one, three) for one, two, three in zip(*found, strict=True))


def check_numbers(reply: Reply) -> None:
    """Every array of a reply can be noised, or an error: a count or a truth value that went as it is would tell."""
    wrong = [leaf.dtype for leaf in jax.tree.leaves(reply) if not jnp.issubdtype(leaf.dtype, jnp.floating)]
    if wrong:
        raise UserError(
            f"a reply of this method has {wrong[0]} in it beside real numbers, which cannot be noised and would be "
            "sent as it is; take a method whose replies are an update alone"
        )


def clip_row(row: jax.Array, clip: Tree) -> tuple[jax.Array, jax.Array]:
    """(the row, no longer than `clip`; 1/2 where it was no longer, else -1/2)."""
    length = jnp.linalg.norm(row)
    # A hair less, so that rounding makes no reply longer than the accountant was told.
    shrunk = row * jnp.minimum(1, (1 - 1e-6) * clip / jnp.maximum(length, jnp.finfo(row.dtype).tiny)).astype(row.dtype)
    return shrunk, jnp.where(length <= clip, 0.5, -0.5)


def _row_of(reply: Reply) -> tuple[jax.Array, Callable[[jax.Array], Reply]]:
    rows, restore = flatten(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], reply), 1)
    return rows[0], restore


def _fresh(key: Tree, secret: bool) -> Tree:
    """The key itself or, where noise is secret, one that nobody else can make."""
    if not secret:
        return key
    # The key is handed over so that no compiler takes two rounds' draws for one.
    bits = jax.random.key_data(key)
    draw = lambda given: np.frombuffer(os.urandom(given.nbytes), np.uint32).reshape(given.shape)
    fresh = jax.pure_callback(draw, jax.ShapeDtypeStruct(bits.shape, bits.dtype), bits, vmap_method="sequential")
    return jax.random.wrap_key_data(fresh)


def _check(noise: Any, expected: Any, clip: Any, at: str, quantile: float | None, rate: Any) -> None:
    for name, value in (("noise", noise), ("expected", expected), ("clip", clip), ("rate", rate)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise UserError(f"private: {name} is a number above 0, not {value!r}")
    if at not in PLACES:
        raise UserError(f"private: noise is added at 'server' or at 'clients', not at {at!r}")
    if quantile is not None and not 0 < quantile < 1:
        raise UserError(f"private: the quantile that a clip follows lies between 0 and 1, not at {quantile}")
