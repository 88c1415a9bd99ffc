"""(stacked replies, weight) -> one tree. Rows of weight 0 never matter, whatever they hold.

Two families. `mean` and `plain_mean` are functions of (stacked, weight). The robust rules, which bear a few replies
that are anything at all, are made by factories (`median()`, `krum(byzantine=2)`, `bucketing(krum(byzantine=2))`). Such
a `Rule` is called with (stacked, weight, key, last), the same for all: `key` is spent by `bucketing` alone, and `last`,
the rule's previous answer, is read by `centered_clipping` alone. A robust rule counts every present reply (weight > 0)
once, whatever its weight: who claims many examples is not heard more loudly. Distances are over the whole tree.

A present entry that is not a number counts as +infinity: to a rule that bears f wild replies, it is one of them.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece.errors import UserError, suggest
from apiece.protocol import Tree

Aggregate = Callable[[Tree, jax.Array], Tree]
Combine = Callable[[jax.Array, jax.Array, Tree, jax.Array], jax.Array]


def mean(stacked: Tree, weight: jax.Array) -> Tree:
    """The weighted mean over axis 0; zero when nobody has weight.

    >>> mean({"w": jnp.array([1.0, 4.0, jnp.nan])}, jnp.array([2.0, 1.0, 0.0]))["w"].item()
    2.0
    """

    def leaf_mean(leaf: jax.Array) -> jax.Array:
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


@dataclasses.dataclass(frozen=True)
class Rule:
    """An aggregation rule: called with (stacked, weight, key, last), it gives one tree.

    `combine` works on the replies as rows of one matrix, those of weight 0 being zeros. `remembers`: it reads `last`.

    >>> median()({"w": jnp.array([1.0, 2.0, 90.0, jnp.nan])}, jnp.array([1.0, 1.0, 1.0, 0.0]))["w"].item()
    2.0
    """

    combine: Combine
    remembers: bool = False

    def __call__(self, stacked: Tree, weight: jax.Array, key: Tree = None, last: Tree = None) -> Tree:
        """One tree from many; zeros (or `last`, for a rule that remembers) when nobody has weight."""
        rows, restore = flatten(stacked, len(weight))
        rows = jnp.where((weight > 0)[:, None], rows, 0)
        before = jnp.zeros_like(rows[0]) if last is None else flatten(_one_row(last), 1)[0][0].astype(rows.dtype)
        return restore(self.combine(rows, weight, key, before))


def flatten(stacked: Tree, count: int) -> tuple[jax.Array, Callable[[jax.Array], Tree]]:
    """(rows [count, P], restore): a stacked tree as one matrix of its widest float dtype, and a row as a tree again.

    >>> rows, restore = flatten({"a": jnp.ones((2, 3)), "b": jnp.zeros(2)}, 2)
    >>> rows.shape, restore(rows[0])["a"].tolist()
    ((2, 4), [1.0, 1.0, 1.0])
    """
    leaves, structure = jax.tree.flatten(stacked)
    dtype = jnp.result_type(jnp.float32, *leaves)
    blocks = [jnp.reshape(leaf, (count, -1)).astype(dtype) for leaf in leaves]
    ends = [sum(block.shape[1] for block in blocks[: k + 1]) for k in range(len(blocks))]

    def restore(row: jax.Array) -> Tree:
        parts = jnp.split(row, ends[:-1]) if leaves else []
        like = lambda part, leaf: part.reshape(leaf.shape[1:]).astype(leaf.dtype)
        return jax.tree.unflatten(structure, [like(part, leaf) for part, leaf in zip(parts, leaves, strict=True)])

    return jnp.concatenate([jnp.zeros((count, 0), dtype), *blocks], axis=1), restore


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
    _count("trimmed_mean", "trim", trim, 0)

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
    _count("krum", "byzantine", byzantine, 0)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        return rows[jnp.argmin(_krum_scores(rows, weight > 0, byzantine))]

    return Rule(combine)


def multi_krum(*, byzantine: int = 1, keep: int = 0) -> Rule:
    """The mean of the `keep` replies of least Krum score; 0 keeps n - `byzantine` (Blanchard et al. 2017).

    >>> multi_krum(byzantine=1, keep=2)(jnp.array([1.0, 1.1, 1.3, 50.0]), jnp.ones(4)).item().__round__(4)
    1.05
    """
    _count("multi_krum", "byzantine", byzantine, 0)
    _count("multi_krum", "keep", keep, 0)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        present = weight > 0
        rank = _rank(_krum_scores(rows, present, byzantine))
        most = keep if keep else jnp.maximum(present.sum() - byzantine, 1)
        return mean(rows, (present & (rank < most)).astype(rows.dtype))

    return Rule(combine)


def geometric_median(*, steps: int = 8, smoothing: Tree = 1e-6) -> Rule:
    """The point of least total distance to the replies, by smoothed Weiszfeld steps (RFA: Pillutla et al. 2022).

    z <- sum_i w_i x_i / sum_i w_i with w_i = 1 / max(smoothing, |x_i - z|), `steps` times from the mean. A reply that
    is not finite has weight 0: it is infinitely far away.

    >>> geometric_median(steps=100)(jnp.array([1.0, 2.0, 90.0]), jnp.ones(3)).item().__round__(3)
    2.0
    """
    _count("geometric_median", "steps", steps, 1)
    _above_zero("geometric_median", "smoothing", smoothing)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        counts = (weight > 0) & jnp.isfinite(rows).all(axis=1)
        rows = jnp.where(counts[:, None], rows, 0)

        def weiszfeld(_: Tree, z: jax.Array) -> jax.Array:
            near = jnp.where(counts, 1 / jnp.maximum(smoothing, jnp.linalg.norm(rows - z, axis=1)), 0)
            return mean(rows, near.astype(rows.dtype))

        return lax.fori_loop(0, steps, weiszfeld, mean(rows, counts.astype(rows.dtype)))

    return Rule(combine)


def centered_clipping(*, radius: Tree = 10.0, steps: int = 3) -> Rule:
    """The previous answer, moved by the mean of the replies' clipped differences from it (Karimireddy et al. 2021).

    v <- v + mean_i (x_i - v) min(1, radius / |x_i - v|), `steps` times from v = the previous answer (zero at first).
    A reply that is not finite pulls nowhere.

    >>> centered_clipping(radius=1.0, steps=1)(jnp.array([[0.5], [90.0]]), jnp.ones(2), None, jnp.zeros(1)).tolist()
    [0.75]
    """
    _count("centered_clipping", "steps", steps, 1)
    _above_zero("centered_clipping", "radius", radius)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        present = weight > 0
        finite = present & jnp.isfinite(rows).all(axis=1)

        def clip(_: Tree, v: jax.Array) -> jax.Array:
            apart = jnp.where(finite[:, None], rows - v, 0)
            factor = jnp.minimum(1, radius / jnp.maximum(jnp.linalg.norm(apart, axis=1), jnp.finfo(rows.dtype).tiny))
            return v + mean(apart * factor[:, None].astype(rows.dtype), present.astype(rows.dtype))

        return lax.fori_loop(0, steps, clip, last)

    return Rule(combine, remembers=True)


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
    _count("bucketing", "size", size, 1)

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
    _count("nearest_neighbour_mixing", "byzantine", byzantine, 0)

    def combine(rows: jax.Array, weight: jax.Array, key: Tree, last: jax.Array) -> jax.Array:
        present = weight > 0
        far = jnp.where(present, _squared_distances(rows), jnp.inf)
        far = jnp.where(jnp.eye(len(rows), dtype=bool), -1, far)  # itself before its copies
        near = _rank(far) < jnp.maximum(present.sum() - byzantine, 1)
        members = near & present & present[:, None]
        return inner.combine(_averages(members, rows), present.astype(rows.dtype), key, last)

    return Rule(combine, inner.remembers)


RULES: dict[str, Callable[..., Rule]] = {
    "mean": lambda: as_rule(mean),
    "plain_mean": lambda: as_rule(plain_mean),
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "multi_krum": multi_krum,
    "geometric_median": geometric_median,
    "centered_clipping": centered_clipping,
    "bucketing": bucketing,
    "nearest_neighbour_mixing": nearest_neighbour_mixing,
}


def rule(name: str, **options: Any) -> Rule:
    """The rule of this name, as a spec writes it; a rule within a rule is a name, or a table of name and options.

    >>> within = {"name": "krum", "byzantine": 1}
    >>> rule("bucketing", size=2, rule=within)(jnp.ones((5, 3)), jnp.ones(5), jax.random.key(0)).tolist()
    [1.0, 1.0, 1.0]
    >>> try: rule("krum", byzantin=1)
    ... except UserError as error: print(error)
    the rule 'krum' has no option 'byzantin': did you mean 'byzantine'?
    """
    return made("rule", RULES, name, options)


def made(kind: str, registry: Mapping[str, Callable[..., Any]], name: str, options: Mapping[str, Any]) -> Any:
    """What the factory of this name makes; unknown names and options are errors that suggest the nearest.

    >>> try: made("rule", RULES, "crum", {})
    ... except UserError as error: print(error)
    unknown rule 'crum': did you mean 'krum'?
    """
    if name not in registry:
        raise UserError(f"unknown {kind} '{name}': {suggest(name, registry)}")
    parameters = inspect.signature(registry[name]).parameters
    for option in options:
        if option not in parameters:
            known = suggest(option, parameters) if parameters else "it has none"
            raise UserError(f"the {kind} '{name}' has no option '{option}': {known}")
    needed = [p.name for p in parameters.values() if p.default is inspect.Parameter.empty and p.name not in options]
    if needed:
        raise UserError(f"the {kind} '{name}' needs the option '{needed[0]}'")
    return registry[name](**options)


def as_rule(given: Any) -> Rule:
    """A Rule from a Rule, a name, a table of name and options, or a function of (stacked, weight).

    >>> as_rule(plain_mean)(jnp.array([1.0, 4.0]), jnp.array([2.0, 1.0])).item()
    2.5
    """
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        return rule(given)
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return rule(**given)
    if callable(given):
        return Rule(lambda rows, weight, key, last: given(rows, weight))
    raise UserError(f"a rule is a name, a table of a name and its options, or a Rule, not {given!r}")


def _sorted(rows: jax.Array, present: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Every coordinate in ascending order, absent ones last; and how many are present."""
    wild = jnp.isnan(rows) | ~present[:, None]
    return jnp.sort(jnp.where(wild, jnp.inf, rows), axis=0), present.sum()


def _squared_distances(rows: jax.Array) -> jax.Array:
    """Between all pairs; infinite where one of the two is not finite."""
    # Row by row, and not from inner products: those lose all digits where replies agree, and n x n x P is too much.
    far = lax.map(lambda row: jnp.sum((rows - row) ** 2, axis=1), rows)
    return jnp.where(jnp.isnan(far), jnp.inf, far)


def _krum_scores(rows: jax.Array, present: jax.Array, byzantine: int) -> jax.Array:
    n = present.sum()
    others = present & ~jnp.eye(len(rows), dtype=bool)
    far = jnp.sort(jnp.where(others, _squared_distances(rows), jnp.inf), axis=1)
    count = jnp.clip(n - byzantine - 2, 1, jnp.maximum(n - 1, 0))
    score = jnp.where(jnp.arange(len(rows)) < count, far, 0).sum(axis=1)
    return jnp.where(present, jnp.minimum(score, jnp.finfo(rows.dtype).max), jnp.inf)  # the absent come last of all


def _rank(values: jax.Array) -> jax.Array:
    """The place of each value in ascending order along the last axis; equal ones as they stand."""
    return jnp.argsort(jnp.argsort(values, axis=-1, stable=True), axis=-1, stable=True)


def _averages(members: jax.Array, rows: jax.Array) -> jax.Array:
    """The mean of each group of rows; infinite where a member is not finite."""
    # Apart, because 0 times infinity would spoil the groups that it is not in.
    share = members / jnp.maximum(members.sum(axis=1, keepdims=True), 1)
    wild = ~jnp.isfinite(rows)
    product = lambda values: jnp.matmul(share.astype(rows.dtype), values, precision="highest")
    return jnp.where(product(wild.astype(rows.dtype)) > 0, jnp.inf, product(jnp.where(wild, 0, rows)))


def _one_row(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)


def _count(rule: str, option: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"option '{option}' of '{rule}' is a whole number of at least {least}, not {value!r}")


def _above_zero(rule: str, option: str, value: Any) -> None:
    if isinstance(value, str | bool) or (isinstance(value, int | float) and not value > 0):
        raise UserError(f"option '{option}' of '{rule}' is a number above 0, not {value!r}")
