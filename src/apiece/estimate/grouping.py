"""Groups from what clients pay for one another's models: average linkage, cut at its widest gap. All may be traced."""

import jax
import jax.numpy as jnp
from jax import lax

from apiece.protocol import Tree


def linkage(apart: Tree) -> tuple[jax.Array, jax.Array]:
    """Average linkage: (labels before each of N-1 merges and after the last, the mean distance at which each was made).

    `apart` is a symmetric matrix of distances, which may be below 0; NaN where a distance is not known. Two groups are
    as far apart as the known pairs between them on average; at infinity where none is known, and then they stay apart.

    >>> labels, heights = linkage(jnp.array([[0.0, 1.0, 5.0], [1.0, 0.0, 7.0], [5.0, 7.0, 0.0]]))
    >>> labels.tolist(), heights.tolist()
    ([[0, 1, 2], [0, 0, 2], [0, 0, 0]], [1.0, 6.0])
    """
    count = len(apart)
    known = ~jnp.isnan(apart) & ~jnp.eye(count, dtype=bool)
    upper = jnp.triu(jnp.ones((count, count), bool), 1)

    def merge(carry: tuple, _: Tree) -> tuple:
        label, total, pairs = carry
        far = jnp.where(upper & (pairs > 0), total / jnp.maximum(pairs, 1), jnp.inf)
        a, b = jnp.unravel_index(jnp.argmin(far), far.shape)
        height = far[a, b]
        join = jnp.isfinite(height)
        moved = lambda sums: sums.at[a].add(sums[b]).at[b].set(0)
        both = lambda sums: jnp.where(join, moved(moved(sums).T).T, sums)
        return (jnp.where(join & (label == b), a, label), both(total), both(pairs)), (label, height)

    start = jnp.arange(count), jnp.where(known, apart, 0.0), known.astype(jnp.asarray(apart).dtype)
    ended: tuple[tuple, tuple[jax.Array, jax.Array]] = lax.scan(merge, start, length=max(count - 1, 0))
    (last, _, _), (before, heights) = ended
    return jnp.concatenate([before, last[None]]) if count > 1 else last[None], heights


def widest_gap(labels: Tree, heights: Tree) -> jax.Array:
    """The labels before the merge that is farthest beyond the one before it, of those that leave 2 to N/2 + 1 groups.

    >>> labels, heights = linkage(jnp.abs(jnp.array([0.0, 1.0, 9.0, 10.5])[:, None] - jnp.array([0.0, 1.0, 9.0, 10.5])))
    >>> widest_gap(labels, heights).tolist()
    [0, 0, 2, 2]
    """
    if len(heights) < 2:
        return jnp.arange(len(heights) + 1)
    made = jnp.isfinite(heights).sum()  # all merges that can be made come first
    at = jnp.arange(1, len(heights))
    gap = jnp.where((at < made) & (made + 1 - at <= (made + 1) // 2 + 1), heights[1:] - heights[:-1], -jnp.inf)
    return labels[jnp.where(made > 1, 1 + jnp.argmax(gap), 0)]


def group_by_cost(excess: Tree) -> jax.Array:
    """A label for each client, from excess[i, j]: what i pays for j's model beyond a fixed sum of i's (NaN: not known).

    The mean of both directions is the distance; where one is known, that one.

    >>> group_by_cost(jnp.array([[0.0, 0.1, 3.0], [0.2, 0.0, 4.0], [3.0, jnp.nan, 0.0]])).tolist()
    [0, 0, 2]
    """
    both = jnp.stack([excess, excess.T])
    known = ~jnp.isnan(both)
    mean = jnp.where(known, both, 0).sum(axis=0) / known.sum(axis=0)  # 0 / 0 is NaN: not known
    return widest_gap(*linkage(mean))
