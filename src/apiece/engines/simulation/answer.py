"""Every client's answer to a question that is put to it beside the method: one program for all methods."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from apiece import tree
from apiece.engines.simulation.division import divided, each
from apiece.engines.simulation.score import Examples
from apiece.protocol import Data, Message, Tree

MORE = 1024  # clients, at most, if what a call makes is small
SMALL = 16 << 20  # bytes of it


@functools.partial(jax.jit, static_argnames=("answer", "capacity", "mesh", "sequential"))
def answer_all(
    who: dict, message: Message, x: Tree, y: Tree, *, answer: Callable, capacity: int, mesh: Any, sequential: bool
) -> Tree:
    """The answers of these clients (`ids`, and where their rows are: `starts`, `sizes`), a row each."""

    def work(who: dict, message: Message, x: Tree, y: Tree) -> Tree:
        def one(c: dict) -> Tree:
            data = Data(x, y, c["starts"], c["sizes"], capacity)
            return answer(message, data, jax.random.fold_in(jax.random.key(0), c["ids"]))

        return each(one, who, who["sizes"] > 0, sequential)

    return divided(work, mesh, rows=1, whole=3)(who, message, x, y)


def answer_shapes(answer: Callable, message: Message, split: Examples) -> Tree:
    """The shapes of one client's answer."""
    shape = lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), jax.dtypes.canonicalize_dtype(np.asarray(leaf).dtype))
    x, y = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (split.x, split.y))
    client = Data(x, y, np.int32(0), np.int32(1), split.capacity)
    return jax.eval_shape(answer, jax.tree.map(shape, message), client, jax.random.key(0))


def asked_at_once(answer: Callable, message: Message, split: Examples) -> int:
    """How many clients one call asks: one by one, more take no more memory, and a call has a price of its own."""
    return min(MORE, SMALL // max(tree.size_in_bytes(answer_shapes(answer, message, split)), 1))
