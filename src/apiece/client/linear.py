"""Models that are linear in their parameters, solved on a client's own rows: how smooth they are, the way from a shared
model to one's own, and the folds that are held out on the way."""

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.draw import numbers
from apiece.client.solve import accelerated
from apiece.protocol import Batch, Loss, Params, Tree

POWER = 10  # products of a power iteration
FOLDS = 4


def with_intercept(x: Tree) -> jax.Array:
    """Rows as a linear model sees them, with a 1 for the intercept.

    >>> with_intercept(jnp.array([[2.0], [3.0]])).tolist()
    [[2.0, 1.0], [3.0, 1.0]]
    """
    flat = numbers(x.reshape(len(x), -1))
    return jnp.concatenate([flat, jnp.ones((len(flat), 1), flat.dtype)], axis=1)


def smoothness_of(batch: Batch, classes: bool) -> jax.Array:
    """The largest curvature of a linear model's mean loss over these rows: of X'X/n, halved for classes.

    By power iteration, and a little more: a bound in practice.

    >>> rows = Batch(jnp.array([[0.0], [0.0]]), jnp.zeros(2), jnp.ones(2))
    >>> round(float(smoothness_of(rows, classes=False)), 2)  # the intercept alone
    1.05
    """
    rows, weight = with_intercept(batch.x), batch.weight
    n = jnp.maximum(weight.sum(), 1)
    product = lambda v: rows.T @ (weight * (rows @ v)) / n

    def again(_: Tree, v: jax.Array) -> jax.Array:
        v = product(v)
        return v / jnp.maximum(jnp.linalg.norm(v), 1e-12)

    v = lax.fori_loop(0, POWER, again, jnp.full(rows.shape[1], rows.shape[1] ** -0.5, rows.dtype))
    return (0.5 if classes else 1.0) * (1.05 * jnp.linalg.norm(product(v)) + 1e-6)


def solve_pulled(
    loss: Loss, start: Params, center: Params, batch: Batch, lam: Tree, *, smoothness: Tree, steps: int
) -> Params:
    """min L(p) + lam/2 |p - center|^2 over these rows, by accelerated steps from `start`; without rows, the centre.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> rows = Batch(jnp.zeros(2), jnp.array([1.0, 3.0]), jnp.ones(2))
    >>> float(solve_pulled(loss, jnp.array(0.0), jnp.array(0.0), rows, 1.0, smoothness=1.0, steps=30).round(4))
    1.0
    """
    slope = jax.grad(lambda p: loss(p, batch, None))
    pulled = lambda p: tree.step(slope(p), lam, tree.sub(p, center))
    found = accelerated(pulled, start, smoothness=smoothness + lam, convexity=lam, steps=steps)
    return tree.where(batch.weight.sum() > 0, found, center)


def deal_folds(key: Tree, rows: int) -> jax.Array:
    """The fold of each row: of every four that lie side by side each goes to another one.

    So files that are sorted by label or by time are dealt evenly, and no two folds differ by more than a row.

    >>> fold = deal_folds(jax.random.key(0), 10).tolist()
    >>> sorted(fold[:4]), sorted(fold[4:8]), len(set(fold[8:]))
    ([0, 1, 2, 3], [0, 1, 2, 3], 2)
    """
    turn = jax.random.bits(key, (-(-rows // FOLDS),), jnp.uint8) % FOLDS
    return ((jnp.arange(FOLDS) + turn[:, None]) % FOLDS).reshape(-1)[:rows].astype(jnp.int32)
