"""Arithmetic on pytrees of arrays, rows of stacked trees, and what a tree weighs in bytes."""

import math

import jax
import jax.numpy as jnp

from apiece.protocol import Tree

__all__ = [
    "add",
    "sub",
    "scale",
    "step",
    "mix",
    "zeros",
    "dot",
    "norm",
    "where",
    "stack",
    "take",
    "put",
    "size_in_bytes",
]


def add(a: Tree, b: Tree) -> Tree:
    """a + b, leaf by leaf.

    >>> add({"w": 1.0}, {"w": 2.0})
    {'w': 3.0}
    """
    return jax.tree.map(lambda p, q: p + q, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """a - b, leaf by leaf.

    >>> sub({"w": 1.0}, {"w": 2.0})
    {'w': -1.0}
    """
    return jax.tree.map(lambda p, q: p - q, a, b)


def scale(factor: Tree, a: Tree) -> Tree:
    """factor * a for a number, in the dtype of `a`.

    >>> scale(2.0, {"w": 3.0})
    {'w': 6.0}
    """
    return jax.tree.map(lambda p: _like(factor * p, p), a)


def step(a: Tree, size: Tree, direction: Tree) -> Tree:
    """a + size * direction, in the dtype of `a`: the one update that every method makes.

    >>> step({"w": 1.0}, -0.5, {"w": 4.0})
    {'w': -1.0}
    """
    return jax.tree.map(lambda p, d: _like(p + size * d, p), a, direction)


def mix(a: Tree, b: Tree, share: Tree) -> Tree:
    """(1 - share) * a + share * b.

    >>> mix({"w": 0.0}, {"w": 4.0}, 0.25)
    {'w': 1.0}
    """
    return jax.tree.map(lambda p, q: _like(p + share * (q - p), p), a, b)


def zeros(a: Tree) -> Tree:
    """A tree of zeros shaped like `a`.

    >>> zeros({"w": jnp.ones(2)})
    {'w': Array([0., 0.], dtype=float32)}
    """
    return jax.tree.map(jnp.zeros_like, a)


def dot(a: Tree, b: Tree) -> jax.Array:
    """The inner product over all leaves.

    >>> float(dot({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, 4.0])}))
    11.0
    """
    return sum((jnp.vdot(p, q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)), jnp.zeros(()))


def norm(a: Tree) -> jax.Array:
    """The Euclidean norm over all leaves.

    >>> float(norm({"w": jnp.array([3.0, 4.0])}))
    5.0
    """
    return jnp.sqrt(dot(a, a))


def where(condition: Tree, a: Tree, b: Tree) -> Tree:
    """`a` where the scalar condition holds, else `b`.

    >>> where(True, {"w": jnp.array(1.0)}, {"w": jnp.array(2.0)})["w"].item()
    1.0
    """
    return jax.tree.map(lambda p, q: jnp.where(condition, p, q), a, b)


def stack(trees: list) -> Tree:
    """Trees of one structure, stacked along a new axis 0.

    >>> stack([{"w": 1.0}, {"w": 2.0}])["w"].tolist()
    [1.0, 2.0]
    """
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def copies(a: Tree, count: int) -> Tree:
    """A tree with a new first axis, along which `a` stands `count` times.

    >>> copies(jnp.array([1.0, 2.0]), 2).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), a)


def take(rows: Tree, i: Tree) -> Tree:
    """Row `i` (a number or an array of numbers) of a stacked tree.

    >>> take({"w": jnp.array([1.0, 2.0])}, 1)["w"].item()
    2.0
    """
    return jax.tree.map(lambda leaf: leaf[i], rows)


def put(rows: Tree, i: Tree, values: Tree) -> Tree:
    """The stacked tree with row(s) `i` replaced.

    >>> put({"w": jnp.zeros(3)}, 1, {"w": 5.0})["w"].tolist()
    [0.0, 5.0, 0.0]
    """
    return jax.tree.map(lambda leaf, value: leaf.at[i].set(value), rows, values)


def size_in_bytes(a: Tree) -> int:
    """What sending the tree costs; shapes suffice (`jax.eval_shape`).

    >>> size_in_bytes({"w": jnp.zeros((10, 2)), "b": jnp.zeros(2)})
    88
    """
    return sum(math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(a))


def _like(value: Tree, model: Tree) -> Tree:
    """A traced hyper-parameter must not promote the parameters' dtype."""
    return value.astype(model.dtype) if hasattr(model, "dtype") else value
