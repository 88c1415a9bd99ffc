"""How far clients' true models lie apart, from what each measures at one common model: no client fits anything.

At the shared model x, client m's loss is nearly quadratic, with the Hessian H around its own optimum z: its slope is
g = H (x - z). If z - x has the variance s0 + s_m in each coordinate, s0 because clients differ and s_m because the
client has few examples, then E |g|^2 = (s0 + s_m) tr(H^2), and s_m tr(H^2) = tr(S) / n, S the scatter of the examples'
gradients. All three are measured: |g|^2 and tr(S) from a batch, tr(H) and tr(H^2) from products of H with random signs.
Along flat directions a slope says nothing, and there they count for nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.flatten_util import ravel_pytree

from apiece import tree
from apiece.client.descend import GRADIENT_MARK, gradient
from apiece.client.draw import FULL_CHUNK, draw, shuffler
from apiece.estimate.variance import number_type
from apiece.protocol import Data, Loss, Params, Tree

PROBES = 4  # directions in which curvature and noise are looked at
WEIGHINGS = 8  # of the estimate by itself: each weighs clients by the spread found before


class Slope(NamedTuple):
    """What a client finds at a model: |g|^2 and the squared standard error of g, over a batch; tr(S); tr(H), tr(H^2);
    how many examples it has. All zero: it has told nothing yet.
    """

    square: jax.Array
    error: jax.Array
    noise: jax.Array
    curvature: jax.Array
    curvature_square: jax.Array
    size: jax.Array

    @property
    def known(self) -> jax.Array:
        """Whether it says anything: the loss curves, and there is more than one example."""
        return (self.curvature_square > 0) & (self.noise > 0)

    @property
    def variance(self) -> jax.Array:
        """s_m: the variance of the client's own optimum, per coordinate, where its loss curves; 1 if unknown."""
        return jnp.where(self.known, self.noise, 1) / self._over(self.size)

    def _over(self, count: Tree) -> jax.Array:
        return jnp.where(self.known, self.curvature_square * count, 1)


def measure_slope(loss: Loss, params: Params, data: Data, key: Tree) -> Slope:
    """A client's slope at a model, from at most 256 of its examples, for the price of nine gradients over these.

    With random signs v (Hutchinson), tr(H) and tr(H^2) are the means of v'Hv and |Hv|^2, and tr(S) is that of the
    variance of v'g over examples. In a model of at most four parameters all are exact: v are then the unit vectors.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(4), y=jnp.array([0.0, 1.0, 2.0, 9.0]), start=0, size=3, capacity=4)
    >>> found = jax.jit(lambda w, key: measure_slope(loss, w, data, key))(jnp.array(5.0), jax.random.key(0))
    >>> [round(float(number), 3) for number in found]
    [16.0, 0.333, 1.0, 1.0, 1.0, 3.0]
    """
    draw_key, probe_key, loss_key = jax.random.split(key, 3)
    batch = draw(data, shuffler(draw_key, data.size), min(data.capacity or FULL_CHUNK, FULL_CHUNK))
    count, (flat, unravel) = batch.weight.sum(), ravel_pytree(params)
    few = flat.size <= PROBES
    sloped = lambda p: gradient(loss, p, batch, loss_key)

    def probe(k: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        signs = lambda: jax.random.rademacher(jax.random.fold_in(probe_key, k), flat.shape, flat.dtype)
        way = unravel(jax.nn.one_hot(k, flat.size, dtype=flat.dtype) if few else signs())
        # Backwards twice, not forwards: gradients that are written by hand (convolutions) have no forward mode.
        bent = jax.grad(lambda p: tree.dot(sloped(p), way))(params)
        # The loss is a weighted mean: how its slope along v changes with an example's weight is how far that one's own
        # slope is from the mean.
        slope_by = lambda weight: jax.grad(lambda p: loss(p, batch._replace(weight=weight), loss_key))(params)
        along = lambda weight: tree.dot(slope_by(weight), way)
        apart = count * jax.grad(along)(checkpoint_name(batch.weight, GRADIENT_MARK))
        scatter = jnp.sum(jnp.where(batch.weight > 0, jnp.square(apart), 0)) / jnp.maximum(count - 1, 1)
        return scatter, tree.dot(way, bent), tree.dot(bent, bent)

    probed = lax.map(probe, jnp.arange(flat.size if few else PROBES))
    noise, *curvature = (each.sum() if few else each.mean() for each in probed)
    g = sloped(params)
    found = (tree.dot(g, g), noise / count, noise, *curvature, data.size)
    numbers = jnp.stack([jnp.asarray(number, number_type(params)) for number in found])
    return Slope(*jnp.where(jnp.isfinite(numbers).all(), numbers, 0))


def spread_of(slopes: Slope, common: Tree = 0.0) -> jax.Array:
    """s0, per coordinate, from the slopes of all clients (stacked) at the shared model; never below 0.

    The mean of |g|^2 / tr(H^2) - s_m, clients weighed by 1 / (s0 + s_m)^2 as their likelihood does, around x, which is
    itself their mean. `common`: the part of |g|^2 that all have in common: the way that x has yet to go.

    >>> one = lambda square: Slope(*(jnp.array(each) for each in (square, 1.0, 10.0, 1.0, 1.0, 10.0)))
    >>> float(spread_of(tree.stack([one(5.0), one(9.0), one(4.0)])))
    8.0
    """
    known = slopes.known
    count = jnp.maximum(known.sum(), 2)
    away = slopes.square * (1 - common) / slopes._over(1) * count / (count - 1)
    chance = jnp.where(known, slopes.error, 1) / slopes._over(1)

    def weigh(_: Tree, spread: jax.Array) -> jax.Array:
        weight = jnp.where(known, 1 / jnp.square(jnp.maximum(spread + chance, jnp.finfo(chance.dtype).tiny ** 0.5)), 0)
        weight = weight / jnp.maximum(weight.max(), jnp.finfo(weight.dtype).tiny)
        found = jnp.sum(weight * (away - chance)) / jnp.maximum(weight.sum(), 1)
        return jnp.maximum(jnp.where(known.sum() > 1, found, 0), 0)

    first = jnp.sum(jnp.where(known, away, 0)) / count
    return lax.fori_loop(0, WEIGHINGS, weigh, first)
