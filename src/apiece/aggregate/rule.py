"""What an aggregation rule is, the rules by name, and what their options have to be."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from apiece.aggregate.mean import check_rows
from apiece.errors import UserError
from apiece.protocol import Tree
from apiece.registry import Registry

Combine = Callable[[jax.Array, jax.Array, Tree, jax.Array], jax.Array]


@dataclasses.dataclass(frozen=True)
class Rule:
    """An aggregation rule: called with (stacked, weight, key, last), it gives one tree.

    `combine` works on the replies as rows of one matrix, those of weight 0 being zeros. `remembers`: it reads `last`.

    >>> from apiece.aggregate import median
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
    for leaf in leaves:
        check_rows(leaf, count)
    dtype = jnp.result_type(jnp.float32, *leaves)
    blocks = [jnp.reshape(leaf, (count, -1)).astype(dtype) for leaf in leaves]
    ends = [sum(block.shape[1] for block in blocks[: k + 1]) for k in range(len(blocks))]

    def restore(row: jax.Array) -> Tree:
        parts = jnp.split(row, ends[:-1]) if leaves else []
        like = lambda part, leaf: part.reshape(leaf.shape[1:]).astype(leaf.dtype)
        return jax.tree.unflatten(structure, [like(part, leaf) for part, leaf in zip(parts, leaves, strict=True)])

    return jnp.concatenate([jnp.zeros((count, 0), dtype), *blocks], axis=1), restore


RULES = Registry("rule", group="apiece.rules", values="factory")  # filled by the package


def rule(name: str, **options: Any) -> Rule:
    """The rule of this name, as a spec writes it; a rule within a rule is a name, or a table of name and options.

    >>> within = {"name": "krum", "byzantine": 1}
    >>> rule("bucketing", size=2, rule=within)(jnp.ones((5, 3)), jnp.ones(5), jax.random.key(0)).tolist()
    [1.0, 1.0, 1.0]
    >>> try: rule("krum", byzantin=1)
    ... except UserError as error: print(error)
    rule 'krum' has no option 'byzantin': did you mean 'byzantine'?
    """
    return RULES.make(name, options)


def as_rule(given: Any) -> Rule:
    """A Rule from a Rule, a name, a table of name and options, or a function of (stacked, weight).

    >>> from apiece.aggregate import plain_mean
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


def check_count(rule: str, option: str, value: Any, least: int) -> None:
    """An option that is a whole number of at least so much, or an error."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"option '{option}' of '{rule}' is a whole number of at least {least}, not {value!r}")


def check_above_zero(rule: str, option: str, value: Any) -> None:
    """An option that is a number above 0 (or traced), or an error."""
    if isinstance(value, str | bool) or (isinstance(value, int | float) and not value > 0):
        raise UserError(f"option '{option}' of '{rule}' is a number above 0, not {value!r}")


def _one_row(tree: Tree) -> Tree:
    return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], tree)
