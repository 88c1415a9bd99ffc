"""How uncertain a client's own model is, and how far clients' models lie apart: one number, per coordinate.

A client's variance: from refits on resampled data (`bootstrap`), from the curvature and the scatter of the examples'
gradients (`sandwich`), or from how the model moves from round to round (`observe`, one model after another).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.descend import full_gradient, gradient
from apiece.client.draw import FULL_CHUNK, rows
from apiece.errors import UserError
from apiece.protocol import Data, Loss, Params, Tree

SANDWICH_MOST = 1000  # parameters: the Hessian has the square of it
FLAT = 1e-3  # a direction whose curvature is below this part of the largest says nothing


class Moments(NamedTuple):
    """Of some models: how many, their mean, and their mean squared distance from it, per coordinate."""

    number: jax.Array
    mean: Params
    variance: jax.Array


def none_yet(model: Params) -> Moments:
    """The moments of no models shaped like `model`.

    >>> none_yet(jnp.ones(2)).mean.tolist()
    [0.0, 0.0]
    """
    nothing = jnp.zeros((), number_type(model))
    return Moments(nothing, tree.zeros(model), nothing)


def observe(seen: Moments, model: Params, squared: bool = True) -> Moments:
    """One model more (Welford's rule): with t the new count, mean' = mean + (x - mean) / t and
    variance' = (t - 1) / t (variance + |mean' - mean|^2) + |x - mean'|^2 / t. Not `squared`: with |mean' - mean|, as
    Self-FL's listing has it, which is no variance.

    >>> two = observe(observe(none_yet(jnp.array(0.0)), jnp.array(1.0)), jnp.array(3.0))
    >>> float(two.mean), float(two.variance)
    (2.0, 1.0)
    """
    count = seen.number + 1
    mean = tree.mix(seen.mean, model, 1 / count)
    moved, away = apart(mean, seen.mean), apart(model, mean)
    if not squared:  # the length in all d coordinates, for a variance that is d times what is kept here
        moved = jnp.sqrt(moved / sum(leaf.size for leaf in jax.tree.leaves(model)))
    return Moments(count, mean, (count - 1) / count * (seen.variance + moved) + away / count)


def moments(stacked: Params, present: jax.Array) -> Moments:
    """The moments of the rows that are present, each counted once.

    >>> got = moments(jnp.array([1.0, jnp.nan, 3.0]), jnp.array([True, False, True]))
    >>> float(got.mean), float(got.variance)
    (2.0, 1.0)
    """
    mean = plain_mean(stacked, present.astype(number_type(stacked)))
    away = jax.vmap(apart, in_axes=(0, None))(stacked, mean)
    count = present.sum().astype(away.dtype)
    return Moments(count, mean, jnp.where(present, away, 0).sum() / jnp.maximum(count, 1))


def pooled(a: Moments, b: Moments) -> Moments:
    """The moments of two collections as one.

    >>> one, three = (observe(none_yet(jnp.array(0.0)), jnp.array(x)) for x in (1.0, 3.0))
    >>> float(pooled(one, three).variance)
    1.0
    """
    count = a.number + b.number
    share = b.number / jnp.maximum(count, 1)
    within = (1 - share) * a.variance + share * b.variance
    return Moments(count, tree.mix(a.mean, b.mean, share), within + share * (1 - share) * apart(a.mean, b.mean))


def bootstrap(
    fit: Callable[[Params, Data, Tree], Params], optimum: Params, data: Data, key: Tree, refits: int
) -> jax.Array:
    """The variance of the fit over `refits` resamples of the data (drawn with replacement), started at the optimum.

    Resamples of a single example are all alike: the variance is then 0, which means that it is unknown.

    >>> data = Data(x=jnp.zeros(4), y=jnp.array([0.0, 0.0, 4.0, 4.0]), start=0, size=4, capacity=4)
    >>> fit = lambda start, data, key: data.y.mean()
    >>> round(float(bootstrap(fit, jnp.array(2.0), data, jax.random.key(0), 200)), 1)  # 4 / 4
    1.0
    """

    def refit(k: jax.Array, seen: Moments) -> Moments:
        draw_key, fit_key = jax.random.split(jax.random.fold_in(key, k))
        return observe(seen, fit(optimum, resampled(data, draw_key), fit_key))

    # One after another: the models of all refits at once would not fit for a large one.
    return lax.fori_loop(0, refits, refit, none_yet(optimum)).variance * refits / max(refits - 1, 1)


def resampled(data: Data, key: Tree) -> Data:
    """As many examples as the client has, drawn from its own with replacement.

    >>> data = Data(x=jnp.arange(10.0), y=jnp.arange(10), start=4, size=3, capacity=3)
    >>> set(resampled(data, jax.random.key(0)).y.tolist()) <= {4, 5, 6}
    True
    """
    most = jax.tree.leaves(data.x)[0].shape[0] if data.capacity is None else data.capacity
    # Each place has a draw of its own, so that the room that an engine leaves (`capacity`) changes nothing.
    drawn = jax.vmap(lambda k: jax.random.randint(jax.random.fold_in(key, k), (), 0, data.size))(jnp.arange(most))
    got = rows(data, drawn, jnp.ones(most, bool))
    return Data(got.x, got.y, jnp.int32(0), data.size, data.capacity)


def sandwich(loss: Loss, optimum: Params, data: Data, key: Tree) -> jax.Array:
    """trace(H^-1 S H^-1) / (d (n - d)), with H the Hessian of the mean loss and S the examples' mean g g'.

    The full matrices, so for models of at most 1,000 parameters; H is inverted on the directions in which it curves.
    Dividing by n - d, not n, makes up for gradients that are small because the fit has followed the examples.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(4), y=jnp.array([0.0, 0.0, 4.0, 4.0]), start=0, size=4, capacity=4)
    >>> round(float(sandwich(loss, jnp.array(2.0), data, jax.random.key(0))), 4)  # 4 / (4 - 1)
    1.3333
    """
    flat, unravel = ravel_pytree(optimum)
    d = flat.size
    if d > SANDWICH_MOST:
        raise UserError(
            f'variance = "sandwich" is for models of at most {SANDWICH_MOST:,} parameters, and this one has {d:,}: '
            'use "bootstrap"'
        )
    most = FULL_CHUNK if data.capacity is None else min(data.capacity, FULL_CHUNK)
    hessian = jax.jacfwd(lambda p: ravel_pytree(full_gradient(loss, unravel(p), data, key))[0])(flat)
    single = lambda k: ravel_pytree(gradient(loss, optimum, rows(data, k[None], (k < data.size)[None]), key))[0]

    def chunk(c: jax.Array, total: jax.Array) -> jax.Array:
        index = c * most + jnp.arange(most)
        g = jnp.where((index < data.size)[:, None], jax.vmap(single)(index), 0)
        return total + g.T @ g

    scatter = lax.fori_loop(0, -(-data.size // most), chunk, jnp.zeros((d, d), flat.dtype)) / data.size
    curvature, basis = jnp.linalg.eigh((hessian + hessian.T) / 2)
    inverse = jnp.where(curvature > FLAT * curvature.max(), 1 / curvature, 0)
    spectrum = jnp.einsum("ij,ik,kj->j", basis, scatter, basis)  # of S, along the axes of H
    return jnp.sum(inverse**2 * spectrum).astype(number_type(optimum)) / (d * jnp.maximum(data.size - d, 1))


def apart(a: Params, b: Params) -> jax.Array:
    """The squared distance of two models, per coordinate.

    >>> float(apart({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([1.0, 4.0])}))
    2.0
    """
    difference = tree.sub(a, b)
    kind = number_type(difference)
    size = sum(leaf.size for leaf in jax.tree.leaves(difference))
    return (
        sum((jnp.sum(jnp.square(leaf.astype(kind))) for leaf in jax.tree.leaves(difference)), jnp.zeros((), kind))
        / size
    )


def number_type(model: Params) -> Any:
    """The type of numbers about this model: its own, but never shorter than float32.

    >>> number_type({"w": jnp.zeros(2, jnp.bfloat16)}).__name__
    'float32'
    """
    return jnp.promote_types(jnp.float32, jnp.result_type(*jax.tree.leaves(model))).type
