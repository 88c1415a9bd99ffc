"""Before a rule: replies averaged in random groups, or with their nearest."""

from typing import Any

import jax
import jax.numpy as jnp

from apiece.aggregate.distances import distances_of_rows, rank_of
from apiece.aggregate.rule import Rule, as_rule, check_count
from apiece.errors import UserError
from apiece.protocol import Tree


def bucketing(rule: Any = "median", *, size: int = 2) -> Rule:
    """`rule` over the means of random groups of `size` replies (Karimireddy et al. 2022).

    The groups are drawn anew each time, from the key; the last may be smaller. f wild replies make up to f wild groups:
    give the rule the same `byzantine`, although there are fewer groups than replies. `rule` is a Rule, a name, or a
    table of a name and options.

    >>> x, key = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]), jax.random.key(0)
    >>> bucketing("mean", size=5)(x, jnp.ones(5), key).item()
    3.0
    """
    inner = as_rule(rule)
    check_count("bucketing", "size", size, 1)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        if key is None:
            raise UserError("bucketing draws its groups at random: call the rule with a key")
        order_key, inner_key = jax.random.split(key)
        present = weight > 0
        # A draw for each reply by its number among the present ones, so that absent rows change nothing.
        number = jnp.cumsum(present) - 1
        draw = jax.vmap(lambda k: jax.random.bits(jax.random.fold_in(order_key, k)))(number)
        order = jnp.lexsort((draw, ~present))
        place = jnp.zeros_like(order).at[order].set(jnp.arange(len(rows)))
        groups = jnp.arange(-(-len(rows) // size))
        members = present & (place // size == groups[:, None])
        return inner.combine(_averages(members, rows), members.any(axis=1).astype(rows.dtype), inner_key, last)

    return Rule(combine, inner.remembers)


def nearest_neighbour_mixing(rule: Any = "median", *, byzantine: int = 1) -> Rule:
    """`rule` after each reply became the mean of its n - `byzantine` nearest, itself included (Allouah et al. 2023).

    >>> x = jnp.array([1.0, 2.0, 3.0, 99.0])
    >>> nearest_neighbour_mixing("median", byzantine=1)(x, jnp.ones(4)).item()
    2.0
    """
    inner = as_rule(rule)
    check_count("nearest_neighbour_mixing", "byzantine", byzantine, 0)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        present = weight > 0
        far = jnp.where(present, distances_of_rows(rows), jnp.inf)
        far = jnp.where(jnp.eye(len(rows), dtype=bool), -1, far)  # itself before its copies
        near = rank_of(far) < jnp.maximum(present.sum() - byzantine, 1)
        members = near & present & present[:, None]
        return inner.combine(_averages(members, rows), present.astype(rows.dtype), key, last)

    return Rule(combine, inner.remembers)


def _averages(members: jax.Array, rows: jax.Array) -> jax.Array:
    """The mean of each group of rows; infinite where a member is not finite."""
    # Apart, because 0 times infinity would spoil the groups that it is not in.
    share = members / jnp.maximum(members.sum(axis=1, keepdims=True), 1)
    wild = ~jnp.isfinite(rows)
    product = lambda values: jnp.matmul(share.astype(rows.dtype), values, precision="highest")
    return jnp.where(product(wild.astype(rows.dtype)) > 0, jnp.inf, product(jnp.where(wild, 0, rows)))
