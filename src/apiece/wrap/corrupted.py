"""Replies arrive broken now and then: a fault, for simulation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from apiece import tree
from apiece.aggregate import flatten
from apiece.errors import UserError, suggest
from apiece.protocol import Cohort, Method, Reply, Server, Tree, merge_replies, with_merge
from apiece.wrap.inside import keep_flags

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
    >>> from apiece.wrap import guarded, rejections
    >>> method = corrupted(guarded(fed_avg(lambda params, batch, key: 0.0)), share=0.5)
    >>> cohort = Cohort(jnp.arange(8), jnp.ones(8), jnp.zeros(8, int), 8)
    >>> server = method.merge(method.init(jnp.zeros(1), jax.random.key(0)), jnp.ones((8, 1)), cohort, jax.random.key(1))
    >>> method.message(server, 0).tolist(), rejections(server)
    ([1.0], {'not_finite': 6, 'too_large': 0})
    """
    if kind not in BREAKAGES:
        raise UserError(f"replies cannot be broken by '{kind}': {suggest(kind, BREAKAGES)}")
    if isinstance(share, int | float) and not 0 <= share <= 1:
        raise UserError(f"the share of broken replies lies in 0 to 1, not at {share}")

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        own_key, fault_key = jax.random.split(key)
        chance = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(fault_key, i)))(cohort.ids)
        rows, restore = flatten(replies, len(cohort.weight))
        broken = keep_flags(jax.vmap(restore)(BREAKAGES[kind](rows)), replies)
        return merge_replies(method, server, jax.vmap(tree.where)(chance < share, broken, replies), cohort, own_key)

    return with_merge(method, merge)
