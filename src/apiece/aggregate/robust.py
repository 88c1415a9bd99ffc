"""Rules that bear a few replies that are anything at all. Distances are over the whole tree."""

import jax
import jax.numpy as jnp
from jax import lax

from apiece.aggregate.distances import distances_of_rows, rank_of
from apiece.aggregate.mean import mean
from apiece.aggregate.rule import Rule, check_above_zero, check_count
from apiece.protocol import Tree

MOST_STEPS = 1000  # of a geometric median: far more than it takes while fewer than half of the replies are wild


def median() -> Rule:
    """The median of every coordinate; of an even number, the mean of the two middle values (Yin et al. 2018).

    >>> median()(jnp.array([1.0, 2.0, 4.0, 99.0]), jnp.ones(4)).item()
    3.0
    """

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        ordered, n = _sorted(rows, weight > 0)
        middle = (ordered[jnp.maximum(n - 1, 0) // 2] + ordered[jnp.minimum(n // 2, len(rows) - 1)]) / 2
        return jnp.where(n > 0, middle, 0)

    return Rule(combine)


def trimmed_mean(*, trim: int = 1) -> Rule:
    """Of every coordinate, the mean without the `trim` largest and the `trim` smallest values (Yin et al. 2018).

    With too few present to drop so many, it drops as many as leave one or two: the median.

    >>> trimmed_mean(trim=1)(jnp.array([1.0, 2.0, 4.0, 99.0]), jnp.ones(4)).item()
    3.0
    """
    check_count("trimmed_mean", "trim", trim, 0)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        ordered, n = _sorted(rows, weight > 0)
        dropped = jnp.clip(trim, 0, jnp.maximum(n - 1, 0) // 2)
        place = jnp.arange(len(rows))
        kept = (place >= dropped) & (place < n - dropped)
        return mean(ordered, kept.astype(rows.dtype))

    return Rule(combine)


def krum(*, byzantine: int = 1) -> Rule:
    """The one reply that is closest to its n - `byzantine` - 2 nearest others (Blanchard et al. 2017).

    score_i = the sum of the squared distances to those (at least one); the least wins, at ties the first in the cohort.

    >>> krum(byzantine=1)(jnp.array([[1.0], [1.1], [1.3], [50.0]]), jnp.ones(4)).tolist()
    [1.0]
    """
    check_count("krum", "byzantine", byzantine, 0)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        return rows[jnp.argmin(_krum_scores(rows, weight > 0, byzantine))]

    return Rule(combine)


def multi_krum(*, byzantine: int = 1, keep: int = 0) -> Rule:
    """The mean of the `keep` replies of least Krum score; 0 keeps n - `byzantine` (Blanchard et al. 2017).

    >>> multi_krum(byzantine=1, keep=2)(jnp.array([1.0, 1.1, 1.3, 50.0]), jnp.ones(4)).item().__round__(4)
    1.05
    """
    check_count("multi_krum", "byzantine", byzantine, 0)
    check_count("multi_krum", "keep", keep, 0)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        present = weight > 0
        rank = rank_of(_krum_scores(rows, present, byzantine))
        most = keep if keep else jnp.maximum(present.sum() - byzantine, 1)
        return mean(rows, (present & (rank < most)).astype(rows.dtype))

    return Rule(combine)


def geometric_median(*, tolerance: Tree = 1e-6, steps: int | None = None, smoothing: Tree = 1e-6) -> Rule:
    """The point of least total distance to the replies, by smoothed Weiszfeld steps (RFA: Pillutla et al. 2022).

    z <- sum_i w_i x_i / sum_i w_i with w_i = 1 / max(smoothing, |x_i - z|), from the median of every coordinate until
    |sum_i w_i (x_i - z)| <= tolerance n, a sum of n directions, so that no scale matters; or for `MOST_STEPS` steps. It
    bears any replies of fewer than half of the clients. With `steps`: that many from the mean, as RFA has it; few of
    them leave an error that grows with how far away a wild reply is. A reply that is not finite has weight 0.

    >>> geometric_median()(jnp.array([1.0, 2.0, 9e9]), jnp.ones(3)).item().__round__(3)
    2.0
    >>> geometric_median(steps=8)(jnp.array([1.0, 2.0, 9e9]), jnp.ones(3)).item() > 1e6
    True
    """
    if steps is not None:
        check_count("geometric_median", "steps", steps, 1)
    check_above_zero("geometric_median", "tolerance", tolerance)
    check_above_zero("geometric_median", "smoothing", smoothing)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        counts = (weight > 0) & jnp.isfinite(rows).all(axis=1)
        rows = jnp.where(counts[:, None], rows, 0)

        def nearness(z: jax.Array, rows: jax.Array) -> jax.Array:
            near = 1 / jnp.maximum(smoothing, jnp.linalg.norm(rows - z, axis=1))
            return jnp.where(counts, near, 0).astype(rows.dtype)

        if steps is not None:
            weiszfeld = lambda _, z: mean(rows, nearness(z, rows))
            return lax.fori_loop(0, steps, weiszfeld, mean(rows, counts.astype(rows.dtype)))

        # Around the start, so that what replies have in common costs no digits of where they differ.
        start = median()(rows, counts.astype(rows.dtype))
        around = jnp.where(counts[:, None], rows - start, 0)

        def pull_at(z: jax.Array) -> tuple[jax.Array, jax.Array]:
            near = nearness(z, around)
            return near @ (around - z), near.sum()

        def unfinished(state: tuple) -> jax.Array:
            _, pull, _, taken = state
            return (taken < MOST_STEPS) & (jnp.linalg.norm(pull) > tolerance * counts.sum())

        def move(state: tuple) -> tuple:
            z, pull, near, taken = state
            z = z + pull / jnp.maximum(near, jnp.finfo(near.dtype).tiny)
            return z, *pull_at(z), taken + 1

        here = jnp.zeros_like(start)
        return start + lax.while_loop(unfinished, move, (here, *pull_at(here), 0))[0]

    return Rule(combine)


def centered_clipping(*, radius: Tree = 10.0, steps: int = 3) -> Rule:
    """The previous answer, moved by the mean of the replies' clipped differences from it (Karimireddy et al. 2021).

    v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), `steps` times from v = the previous answer (zero at first).
    A reply that is not finite pulls nowhere.

    >>> centered_clipping(radius=1.0, steps=1)(jnp.array([[0.5], [90.0]]), jnp.ones(2), None, jnp.zeros(1)).tolist()
    [0.75]
    """
    check_count("centered_clipping", "steps", steps, 1)
    check_above_zero("centered_clipping", "radius", radius)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        present = weight > 0
        finite = present & jnp.isfinite(rows).all(axis=1)

        def clip(_: Tree, v: jax.Array) -> jax.Array:
            apart = jnp.where(finite[:, None], rows - v, 0)
            factor = jnp.minimum(1, radius / jnp.maximum(jnp.linalg.norm(apart, axis=1), jnp.finfo(rows.dtype).tiny))
            return v + mean(apart * factor[:, None].astype(rows.dtype), present.astype(rows.dtype))

        return lax.fori_loop(0, steps, clip, last)

    return Rule(combine, remembers=True)


def _sorted(rows: jax.Array, present: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Every coordinate in ascending order, absent ones last; and how many are present."""
    wild = jnp.isnan(rows) | ~present[:, None]
    return jnp.sort(jnp.where(wild, jnp.inf, rows), axis=0), present.sum()


def _krum_scores(rows: jax.Array, present: jax.Array, byzantine: int) -> jax.Array:
    n = present.sum()
    others = present & ~jnp.eye(len(rows), dtype=bool)
    far = jnp.sort(jnp.where(others, distances_of_rows(rows), jnp.inf), axis=1)
    count = jnp.clip(n - byzantine - 2, 1, jnp.maximum(n - 1, 0))
    score = jnp.where(jnp.arange(len(rows)) < count, far, 0).sum(axis=1)
    return jnp.where(present, jnp.minimum(score, jnp.finfo(rows.dtype).max), jnp.inf)  # the absent come last of all
