"""Distances between replies, ranks among them."""

import jax
import jax.numpy as jnp
from jax import lax


def squared_distances(rows: jax.Array) -> jax.Array:
    """Between all pairs; infinite where one of the two is not finite."""
    # Row by row, and not from inner products: those lose all digits where replies agree, and n x n x P is too much.
    far = lax.map(lambda row: jnp.sum((rows - row) ** 2, axis=1), rows)
    return jnp.where(jnp.isnan(far), jnp.inf, far)


def rank_of(values: jax.Array) -> jax.Array:
    """The place of each value in ascending order along the last axis; equal ones as they stand."""
    return jnp.argsort(jnp.argsort(values, axis=-1, stable=True), axis=-1, stable=True)
