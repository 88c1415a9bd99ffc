"""Shorter replies: in half the bits, or of each reply only what is largest, the rest remembered by the client."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece.aggregate import flatten
from apiece.errors import UserError, suggest
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

KINDS = ("bfloat16", "top_k")


@partial(jax.tree_util.register_dataclass, data_fields=["leaves"], meta_fields=["plan"])
@dataclasses.dataclass(frozen=True)
class Halved:
    """A reply on its way, its real numbers in 16 bits; `plan` (static) has the structure and types that it had."""

    leaves: Any
    plan: tuple


@partial(jax.tree_util.register_dataclass, data_fields=["values", "where", "others"], meta_fields=["plan"])
@dataclasses.dataclass(frozen=True)
class Largest:
    """Of a reply on its way the largest real numbers, where they stand, and what is no real number as it is."""

    values: Any
    where: Any
    others: Any
    plan: tuple


def compressed(method: Method, kind: str = "bfloat16", *, share: float = 0.05) -> Method:
    """The same method, whose replies are shorter on their way; what the merge sees is what came through.

    bfloat16: every real number in 16 bits, of which 8 are its digits. top_k: of a reply r and what was left of earlier
    ones, u = r + e, the k = `share` of all numbers that are largest, and where they stand; e <- u minus these (error
    feedback: Stich, Cordonnier and Jaggi 2018). e is the client's memory, and is committed when the reply counted.
    For methods whose replies are updates. Put it outside of what looks at replies: `private`, `guarded`, `robust`.

    >>> from apiece.methods import fed_avg
    >>> loss = lambda w, batch, key: (w * jnp.array([3.0, 1.0, 0.5, 0.25])).sum()
    >>> method = compressed(fed_avg(loss, steps=1, lr=1.0), "top_k", share=0.25)
    >>> x, data = jnp.zeros(4), Data(jnp.zeros(1), jnp.zeros(1), 0, 1, 1)
    >>> client = method.enroll(x, x, data, jax.random.key(0))
    >>> (_, left), reply = method.local(client, x, data, jax.random.key(0))
    >>> reply.values.tolist(), reply.where.tolist(), left.tolist()
    ([-3.0], [0], [0.0, -1.0, -0.5, -0.25])
    """
    if kind not in KINDS:
        raise UserError(f"replies cannot be compressed by '{kind}': {suggest(kind, KINDS)}")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise UserError(f"the share of a reply that is sent lies above 0 and at most at 1, not at {share!r}")

    if kind == "bfloat16":

        def halved(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
            after, reply = method.local(client, message, data, key)
            leaves, form = jax.tree.flatten(reply)
            sent = [leaf.astype(jnp.bfloat16) if _is_real(leaf) else leaf for leaf in leaves]
            return after, Halved(sent, (form, tuple(leaf.dtype for leaf in leaves)))

        return with_merge(method, _merge_of(method, _whole), local=halved)

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        client = method.enroll(params, message, data, key)
        reply = jax.eval_shape(lambda: method.local(client, message, data, key)[1])
        real = [leaf for leaf in jax.tree.leaves(reply) if _is_real(leaf)]
        dtype = jnp.result_type(jnp.float32, *(leaf.dtype for leaf in real))
        return client, jnp.zeros(sum(leaf.size for leaf in real), dtype)

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        after, reply = method.local(client[0], message, data, key)
        leaves, form = jax.tree.flatten(reply)
        real, others = ([leaf for leaf in leaves if _is_real(leaf) is kind] for kind in (True, False))
        whole = flatten([leaf[None] for leaf in real], 1)[0][0] + client[1]
        where = lax.top_k(jnp.abs(whole), max(1, round(share * len(whole))) if len(whole) else 0)[1]
        plan = (form, tuple((leaf.shape, leaf.dtype) for leaf in leaves))
        return (after, whole.at[where].set(0)), Largest(whole[where], where.astype(jnp.int32), others, plan)

    keep = method.keep
    # What was not sent of a reply that did not count is made again with the next one.
    kept = None if keep is None else lambda before, after: (keep(before[0], after[0]), before[1])
    personal = lambda client, message, data, key: method.personal(client[0], message, data, key)
    others: dict[str, Any] = dict(enroll=enroll, local=local, personal=personal, keep=kept, forgets=False)
    return with_merge(method, _merge_of(method, _filled), **others)


def _merge_of(method: Method, unpack: Callable[[Reply], Reply]) -> Callable[..., tuple[Server, Tree]]:
    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        return merge_replies(method, server, jax.vmap(unpack)(replies), cohort, key)

    return merge


def _whole(reply: Halved) -> Reply:
    form, dtypes = reply.plan
    return form.unflatten([leaf.astype(dtype) for leaf, dtype in zip(reply.leaves, dtypes, strict=True)])


def _filled(reply: Largest) -> Reply:
    """Zeros, but for what was sent."""
    form, looks = reply.plan
    real = [(shape, dtype) for shape, dtype in looks if _is_real(jax.ShapeDtypeStruct(shape, dtype))]
    rows, restore = flatten([jnp.zeros((1, *shape), dtype) for shape, dtype in real], 1)
    parts = iter(restore(rows[0].at[reply.where].set(reply.values.astype(rows.dtype), mode="drop")))
    others = iter(reply.others)
    pick = lambda look: next(parts if _is_real(jax.ShapeDtypeStruct(*look)) else others)
    return form.unflatten([pick(look) for look in looks])


def _is_real(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))
