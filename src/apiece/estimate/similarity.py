"""How alike clients are, and what follows: b_ij, the filter Lambda, the mixing matrix W = Lambda Lambda'.

b_ij bounds what client i loses with client j's optimum: f_i(x_j*) - f_i(x_i*) <= b_ij. From it and a precision eps
comes the filter: lambda_ij = 1/N_i for the N_i clients with b_ij <= eps/2, oneself always among them. What is measured
here is measured on data: an estimate of b carries the noise of the very examples that a method then trains on. Whoever
estimates again later must start again from `combine(Lambda, local models)`, or the models keep the old noise.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import stats

from apiece import tree
from apiece.aggregate import mean
from apiece.client.descend import full_gradient, gradient
from apiece.client.draw import FULL_CHUNK, rows, shuffler
from apiece.errors import UserError, suggest
from apiece.protocol import Batch, Data, Loss, Params, Tree
from apiece.theory import formulas

CHUNKS = 8  # of a batch, to see how much their gradients differ
MANNERS = ("unbiased", "plain", "upper")


# The filter and its numbers. All of it may be traced.


def neighbours(b: Any, eps: Any) -> jax.Array:
    """Lambda: row i is 1/N_i on the N_i clients with b_ij <= eps/2; b_ii counts as 0.

    >>> neighbours(jnp.array([[0.0, 0.1, 0.9], [0.1, 0.0, 0.9], [0.9, 0.9, 0.0]]), 0.5).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    b = jnp.asarray(b)
    if b.ndim != 2 or b.shape[0] != b.shape[1]:
        raise UserError(f"b has a row and a column for each client; got shape {b.shape}")
    return formulas.neighbours(b, jnp.asarray(eps), jnp.eye(len(b), dtype=bool))


def bias_of_clusters(labels: Any) -> np.ndarray:
    """The b of known clusters: 0 within one, infinity between two.

    >>> bias_of_clusters([1, 1, 2]).tolist()
    [[0.0, 0.0, inf], [0.0, 0.0, inf], [inf, inf, 0.0]]
    """
    labels = np.asarray(labels)
    return np.where(labels[:, None] == labels[None], 0.0, np.inf)


@partial(jax.jit, static_argnames="steps")
def largest_eigenvalue(filter: Any, steps: int = 64) -> jax.Array:
    """lambda_max(W), at least 1 and up to about N/4, by which step sizes must be divided.

    By the method of Lanczos, two products of Lambda with a vector a step. It starts at ones: W has no negative entry,
    so they meet its eigenvector, and |Lambda' 1|^2 >= N makes the answer at least 1. Rounding apart, it is never above.

    >>> round(float(largest_eigenvalue(neighbours(bias_of_clusters([0, 0, 1]), 1.0))), 6)
    1.0
    """

    def step(carry: tuple, _: Any) -> tuple:
        before, v, length = carry
        ahead = filter @ (v @ filter) - length * before
        along = v @ ahead
        ahead = ahead - along * v
        length = jnp.linalg.norm(ahead)
        # Once the space is exhausted what is left is rounding: zeros then add nothing.
        following = jnp.where(length > 1e-6, ahead / jnp.maximum(length, 1e-6), 0)
        return (v, following, length), (along, length)

    size = len(filter)
    start = jnp.full(size, size**-0.5, filter.dtype)
    first = (jnp.zeros_like(start), start, jnp.zeros((), filter.dtype))
    reduced: tuple[jax.Array, jax.Array] = jax.lax.scan(step, first, length=min(steps, size))[1]
    diagonal, beside = reduced
    small = jnp.diag(diagonal) + jnp.diag(beside[:-1], 1) + jnp.diag(beside[:-1], -1)
    return jnp.linalg.eigvalsh(small)[-1]


def combine(coefficients: Any, stacked: Tree, present: Any = None) -> Tree:
    """sum over rows r of coefficients[..., r] * stacked[r]; rows that are not present never matter.

    >>> combine(jnp.array([[1.0, 0.0], [0.5, 0.5]]), {"w": jnp.array([2.0, 4.0])})["w"].tolist()
    [2.0, 3.0]
    """

    def leaf_sum(leaf: Any) -> jax.Array:
        if present is not None:
            leaf = jnp.where(present.reshape((-1,) + (1,) * (leaf.ndim - 1)), leaf, 0)
        return jnp.tensordot(coefficients, leaf, axes=1).astype(leaf.dtype)

    return jax.tree.map(leaf_sum, stacked)


# What b is, from what is known or can be measured.


def excess(cost: Any) -> jax.Array:
    """b_ij from cost_ij = f_i(x_j): what i pays for j's model beyond its own, never below 0.

    >>> excess(jnp.array([[1.0, 3.0], [2.0, 1.5]])).tolist()
    [[0.0, 2.0], [0.5, 0.0]]
    """
    cost = jnp.asarray(cost)
    return jnp.maximum(cost - jnp.diag(cost)[:, None], 0)


def symmetric(b: Any) -> jax.Array:
    """The larger of b_ij and b_ji, and 0 on the diagonal: what every estimate is given.

    >>> symmetric(jnp.array([[9.0, 2.0], [0.5, 0.0]])).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    b = jnp.maximum(b, jnp.asarray(b).T)
    return jnp.where(jnp.eye(len(b), dtype=bool), 0, b)


def oracle(risks: Callable[[Params], Any], optima: Params) -> jax.Array:
    """The true b: `risks` gives everybody's risk of one model; `optima` are everybody's best models, stacked.

    >>> best = jnp.array([0.0, 1.0])
    >>> oracle(lambda x: (x - best) ** 2 / 2, best).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    return excess(jax.vmap(risks)(optima).T)


def cross_evaluation(
    loss: Loss, models: Params, train: Batch, held: Batch, key: Any = None, raw: bool = False
) -> jax.Array:
    """b from each client's own model tried on every other client's held-out half, the noise of the models taken out.

    b_ij = mean over i's held-out half of [l(x_j) - l(x_i)] + tr(H_i C_i)/2 - tr(H_i C_j)/2, then at least 0 and
    symmetric. x_j minimizes the mean loss over j's training half; H_i is the Hessian over i's held-out half at x_i; and
    C_j = H^-1 J H^-1 / (n - d), over j's training half, is the covariance of x_j (J: mean of g g' over examples).
    `models`, `train` and `held` are stacked by client. For small models: H has d^2 entries. `raw` leaves out the last
    step, which puts a single estimate on the safe side: without it, the mean over repetitions is b.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> half = Batch(jnp.zeros((2, 4)), jnp.array([[0.0, 1.0, 0.0, 1.0], [4.0, 5.0, 4.0, 5.0]]), jnp.ones((2, 4)))
    >>> jax.jit(partial(cross_evaluation, loss))(jnp.array([0.5, 4.5]), half, half)[0].round(4).tolist()
    [0.0, 8.0]
    """
    unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], models))[1]
    flat = jax.vmap(lambda model: ravel_pytree(model)[0])(models)
    risk = lambda w, batch: loss(unravel(w), batch, key)

    def single(w: jax.Array, batch: Batch) -> jax.Array:
        def slope(x: Tree, y: Tree) -> jax.Array:
            x, y = jax.tree.map(lambda leaf: leaf[None], (x, y))
            return jax.grad(risk)(w, Batch(x, y, jnp.ones(1)))

        return jax.vmap(slope)(batch.x, batch.y)

    def covariance(w: jax.Array, batch: Batch) -> jax.Array:
        slopes, count = single(w, batch), batch.weight.sum()
        inner = jnp.einsum("n,na,nb->ab", batch.weight, slopes, slopes) / count
        inverse = jnp.linalg.inv(jax.hessian(risk)(w, batch))
        return inverse @ inner @ inverse / jnp.maximum(count - len(w), 1)

    cost = jax.vmap(lambda batch: jax.vmap(lambda w: risk(w, batch))(flat))(held)
    noise = jnp.einsum("iab,jba->ij", jax.vmap(jax.hessian(risk))(flat, held), jax.vmap(covariance)(flat, train)) / 2
    gap = cost - noise
    gap = gap - jnp.diag(gap)[:, None]
    return gap if raw else symmetric(jnp.maximum(gap, 0))


def squared_distances(stacked: Tree) -> jax.Array:
    """|row_i - row_j|^2 over all leaves, for every pair.

    >>> squared_distances({"w": jnp.array([[0.0, 0.0], [3.0, 4.0]])}).tolist()
    [[0.0, 25.0], [25.0, 0.0]]
    """

    def gram(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf)
        centred = (leaf - leaf.mean(axis=0)).reshape(len(leaf), -1)  # distances as small as rounding otherwise drown
        return centred @ centred.T

    products = sum(jax.tree.leaves(jax.tree.map(gram, stacked)))
    lengths = jnp.diag(products)
    return jnp.maximum(lengths[:, None] + lengths[None] - 2 * products, 0)


def separation(squared: Any, errors: Any, how: str = "unbiased") -> jax.Array:
    """Squared distances between true vectors, from those between noisy ones and each one's squared standard error.

    "unbiased": d^2 - e_i - e_j, at least 0. "plain": d^2. "upper": (d + sqrt(e_i + e_j))^2, one standard error up.

    >>> separation(jnp.array([[0.0, 4.0], [4.0, 0.0]]), jnp.array([1.0, 0.5])).tolist()
    [[0.0, 2.5], [2.5, 0.0]]
    """
    if how not in MANNERS:
        raise UserError(f"a separation is not {how!r}: {suggest(how, MANNERS)}")
    squared, errors = jnp.asarray(squared), jnp.asarray(errors)
    noise = errors[:, None] + errors[None]
    if how == "plain":
        return symmetric(squared)
    if how == "upper":
        return symmetric((jnp.sqrt(squared) + jnp.sqrt(noise)) ** 2)
    return symmetric(jnp.maximum(squared - noise, 0))


def gradient_bias(gradients: Tree, errors: Any, convexity: Any = 1.0, how: str = "unbiased") -> jax.Array:
    """b_ij = |g_i - g_j|^2 / (2 mu), freed of noise, from everybody's gradient at one common model.

    `errors` are their squared standard errors, tr(S_i)/n_i. The bound is over all models: take the largest over a few.
    Estimating means is the case mu = 1 with means in place of gradients (`mean_and_error` of each client's sample).

    >>> samples = [np.array([0.0, 2.0]), np.array([5.0, 7.0])]
    >>> means, errors = (np.array(column) for column in zip(*map(mean_and_error, samples)))
    >>> gradient_bias(means, errors)[0].tolist()
    [0.0, 11.5]
    """
    return separation(squared_distances(gradients), errors, how) / (2 * convexity)


def mean_and_error(sample: Any) -> tuple[Any, Any]:
    """The mean of a sample and its squared standard error (summed over coordinates).

    >>> mean, error = mean_and_error(np.array([0.0, 2.0]))
    >>> float(mean), error
    (1.0, 1.0)
    """
    sample = np.asarray(sample, float)
    if len(sample) < 2:
        raise UserError("a sample of one example does not tell how sure its mean is; give at least two")
    return sample.mean(axis=0), float(np.sum(sample.var(axis=0, ddof=1)) / len(sample))


def gradient_and_error(loss: Loss, params: Params, data: Data, key: Any, batch: int) -> tuple[Params, jax.Array]:
    """A client's gradient over a batch (0: over all its examples) and its squared standard error, tr(S)/n.

    The examples are dealt in random order into eight chunks; with chunk means g_c of n_c examples around their mean g,
    tr(S) = sum_c n_c |g_c - g|^2 / (chunks - 1) is unbiased, and together they cost one gradient. Of many examples
    (more than 256 at one client), a sample tells S. One example alone says nothing: all of it then counts as noise.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    >>> data = Data(x=jnp.zeros(4), y=jnp.array([0.0, 1.0, 2.0, 9.0]), start=0, size=3, capacity=4)
    >>> g, error = jax.jit(partial(gradient_and_error, loss, batch=0))(jnp.array(5.0), data, jax.random.key(0))
    >>> round(float(g), 5), round(float(error), 5)
    (4.0, 0.33333)
    """
    batch_key, loss_key, full_key = jax.random.split(key, 3)
    most = batch or min(data.capacity or FULL_CHUNK, FULL_CHUNK)
    position = jnp.arange(-(-most // CHUNKS) * CHUNKS).reshape(-1, CHUNKS).T
    present = position < jnp.minimum(data.size, most)
    dealt = rows(data, shuffler(batch_key, data.size)(0, jnp.where(present, position, 0)), present)
    count = dealt.weight.sum(axis=1)
    # An empty chunk is given one example, so that no loss divides by nothing; it counts for nothing.
    dealt = dealt._replace(weight=dealt.weight.at[:, 0].set(1))
    chunks = jax.vmap(partial(gradient, loss, params))(dealt, jax.random.split(loss_key, CHUNKS))
    g = mean(chunks, count)
    away = jax.vmap(lambda chunk: tree.dot(tree.sub(chunk, g), tree.sub(chunk, g)))(chunks)
    spread = (count * away).sum() / jnp.maximum((count > 0).sum() - 1, 1)
    whole = batch or (data.capacity is not None and data.capacity <= most)
    error = spread / (count.sum() if whole else data.size)
    if not whole:
        g = full_gradient(loss, params, data, full_key)
    return g, jnp.where(data.size > 1, error, tree.dot(g, g)).astype(away.dtype)


# Distances between two samples, and b from them.


def mean_distance(a: Any, b: Any) -> float:
    """The distance between the means of two samples: what matters when losses are affine in the example.

    >>> mean_distance([0.0, 1.0], [1.0, 3.0])
    1.5
    """
    return float(np.linalg.norm(np.mean(np.asarray(a, float), axis=0) - np.mean(np.asarray(b, float), axis=0)))


def wasserstein(a: Any, b: Any) -> float:
    """The Wasserstein-1 distance between two samples [n] or [n, features], for losses 1-Lipschitz in the example.

    In one dimension, and of one size, mean |sorted a - sorted b|; in more, by optimal transport (POT).

    >>> wasserstein([0.0, 1.0], [3.0, 1.0])
    1.5
    """
    a, b = (np.asarray(sample, float).reshape(len(sample), -1) for sample in (a, b))
    if a.shape[1] != b.shape[1]:
        raise UserError(f"two samples of {a.shape[1]} and {b.shape[1]} features have no distance")
    if a.shape[1] == 1:
        if len(a) == len(b):
            return float(np.abs(np.sort(a[:, 0]) - np.sort(b[:, 0])).mean())
        return float(stats.wasserstein_distance(a[:, 0], b[:, 0]))
    try:
        import ot
    except ImportError:
        raise UserError(
            "Wasserstein distances in more than one dimension need POT: pip install apiece[transport]"
        ) from None
    share = lambda sample: np.full(len(sample), 1 / len(sample))
    return float(ot.emd2(share(a), share(b), ot.dist(a, b, metric="euclidean")))


def total_variation(a: Any, b: Any) -> float:
    """The total variation distance between two samples of a few values (rows count as one value).

    >>> total_variation([0, 0, 1, 1], [0, 1, 1, 1])
    0.25
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.shape[1:] != b.shape[1:] or not len(a) or not len(b):
        raise UserError(f"two samples of the same features, at least a row each: got {a.shape}, {b.shape}")
    both = np.concatenate([a, b])
    values, which = np.unique(both, axis=0, return_inverse=True)
    share = lambda part: np.bincount(part, minlength=len(values)) / len(part)
    which = which.reshape(-1)
    return float(np.abs(share(which[: len(a)]) - share(which[len(a) :])).sum() / 2)


def bias_from_distance(distance: Any, *, diameter: float | None = None, convexity: float | None = None) -> Any:
    """b from the distance d between the clients' distributions, d = sup over h of |E_i h - E_j h|.

    D d, where models are never more than `diameter` D from one another's optimum; or d^2 / (2 mu), where losses are
    `convexity`-strongly convex. Gradients then differ by at most d: their squared distance, over all models, is d^2.

    >>> bias_from_distance(0.4, diameter=2.0), round(bias_from_distance(0.4, convexity=1.0), 9)
    (0.8, 0.08)
    """
    if (diameter is None) == (convexity is None):
        raise UserError("b comes from a distance by the 'diameter' or by the 'convexity': give one of the two")
    return distance * diameter if diameter is not None else distance**2 / (2 * convexity)  # type: ignore[operator]
