"""Shared and private parts of a model, by parameter path.

A part is a predicate on a path such as "layers/0/w". Splitting keeps the tree's structure and puts None where a
parameter belongs to the other part, so each part is itself a pytree (JAX sees no leaf in None) and `join` undoes it.
"""

from collections.abc import Callable

import jax

from apiece.errors import UserError
from apiece.protocol import Params

Part = Callable[[str], bool]


def paths(params: Params) -> list[str]:
    """The path of every parameter, in the tree's order.

    >>> paths({"hidden": {"w": 1.0, "b": 0.0}, "out": {"w": 2.0}})
    ['hidden/b', 'hidden/w', 'out/w']
    """
    return [path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]


def under(*prefixes: str) -> Part:
    """The parameters whose path is, or lies under, one of the prefixes.

    >>> under("out")("out/w"), under("out")("output/w")
    (True, False)
    """
    return lambda path: any(path == p or path.startswith(p + "/") for p in prefixes)


def split(params: Params, private: Part) -> tuple[Params, Params]:
    """(shared, private): two trees of the same structure, None where a parameter is in the other.

    >>> shared, own = split({"hidden": {"w": 1.0}, "out": {"w": 2.0}}, under("out"))
    >>> shared, own
    ({'hidden': {'w': 1.0}, 'out': {'w': None}}, {'hidden': {'w': None}, 'out': {'w': 2.0}})
    """
    names = paths(params)
    if not any(private(name) for name in names):
        raise UserError(f"no parameter is private under this rule; the model's parameters are: {', '.join(names)}")
    if all(private(name) for name in names):
        raise UserError("every parameter is private under this rule: nothing is left to share (use method 'local')")
    pick = lambda mine: jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf if private(path_name(path)) == mine else None, params
    )
    return pick(False), pick(True)


def join(shared: Params, private: Params) -> Params:
    """The whole model from its two parts.

    >>> join({"a": 1.0, "b": None}, {"a": None, "b": 2.0})
    {'a': 1.0, 'b': 2.0}
    """
    return jax.tree.map(lambda s, p: p if s is None else s, shared, private, is_leaf=lambda leaf: leaf is None)


def path_name(path: tuple) -> str:
    """A parameter's path in JAX's terms, as text.

    >>> path_name((jax.tree_util.DictKey("out"), jax.tree_util.SequenceKey(0)))
    'out/0'
    """
    return "/".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)
