"""What robust rules compare replies by: squared distances between rows, and ranks."""

import jax
import jax.numpy as jnp
from jax import lax


def distances_of_rows(rows: jax.Array) -> jax.Array:
    """Squared, between all pairs; infinite where one of the two is not finite.

    >>> distances_of_rows(jnp.array([[0.0, 0.0], [3.0, 4.0], [0.0, jnp.inf]]))[0].tolist()
    [0.0, 25.0, inf]
    """
    # Row by row, and not from inner products: those lose all digits where replies agree, and n x n x P is too much.
    far = lax.map(lambda row: jnp.sum((rows - row) ** 2, axis=1), rows)
    return jnp.where(jnp.isnan(far), jnp.inf, far)


def rank_of(values: jax.Array) -> jax.Array:
    """The place of each value in ascending order along the last axis; equal ones as they stand.

    >>> rank_of(jnp.array([3.0, 1.0, 3.0])).tolist()
    [1, 0, 2]
    """
    return jnp.argsort(jnp.argsort(values, axis=-1, stable=True), axis=-1, stable=True)
