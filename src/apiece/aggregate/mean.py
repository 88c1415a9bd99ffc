"""The means: (stacked replies, weight) -> one tree. Rows of weight 0 never matter, whatever they hold."""

import jax
import jax.numpy as jnp

from apiece.errors import UserError
from apiece.protocol import Tree


def check_rows(leaf: Tree, count: int) -> None:
    """A reply for each weight, or an error that says how many there are."""
    if leaf.ndim < 1 or len(leaf) != count:
        raise UserError(f"replies of shape {leaf.shape} are not stacked for {count} weights: axis 0 is the clients")


def mean(stacked: Tree, weight: jax.Array) -> Tree:
    """The weighted mean over axis 0; zero when nobody has weight.

    >>> mean({"w": jnp.array([1.0, 4.0, jnp.nan])}, jnp.array([2.0, 1.0, 0.0]))["w"].item()
    2.0
    """

    def leaf_mean(leaf: jax.Array) -> jax.Array:
        check_rows(leaf, len(weight))
        exact = weight.astype(jnp.promote_types(weight.dtype, leaf.dtype))  # float64 models get float64 shares
        share = exact / jnp.maximum(exact.sum(), jnp.finfo(exact.dtype).tiny)
        present = (weight > 0).reshape((-1,) + (1,) * (leaf.ndim - 1))
        return jnp.tensordot(share, jnp.where(present, leaf, 0), axes=1).astype(leaf.dtype)

    return jax.tree.map(leaf_mean, stacked)


def plain_mean(stacked: Tree, weight: jax.Array) -> Tree:
    """The mean that counts every present client once, whatever its weight.

    >>> plain_mean({"w": jnp.array([1.0, 4.0, jnp.nan])}, jnp.array([2.0, 1.0, 0.0]))["w"].item()
    2.5
    """
    return mean(stacked, (weight > 0).astype(weight.dtype))
