"""Clients as rows of a compiled program: filled up to its shapes, mixed, and who is at which row."""

import jax
import numpy as np

from apiece.engines.contact import mix_rows
from apiece.protocol import Tree


def round_up(count: int, multiple: int) -> int:
    """The least multiple that is at least `count`.

    >>> round_up(5, 4)
    8
    """
    return -(-count // multiple) * multiple


def padded(columns: Tree, length: int) -> Tree:
    """Columns of one length, filled up with zeros (a client of size 0 is not run)."""
    fill = lambda leaf: np.concatenate([leaf, np.zeros((length - len(leaf), *leaf.shape[1:]), leaf.dtype)])
    return jax.tree.map(fill, columns)


def mixed(offsets: np.ndarray, who: np.ndarray) -> np.ndarray:
    """Row numbers in their order, but for the rows of these clients, which are mixed, each client's among themselves.

    >>> mixed(np.array([0, 2, 6]), np.array([1])).tolist()
    [0, 1, 3, 4, 2, 5]
    """
    order = np.arange(offsets[-1])
    for i in who:
        order[offsets[i] : offsets[i + 1]] = offsets[i] + mix_rows(int(i), int(offsets[i + 1] - offsets[i]))
    return order


def touched_rows(ids: np.ndarray, everybody: bool) -> tuple[np.ndarray, np.ndarray]:
    """(whose rows a block needs, and at which of them each id is); `everybody`: all, each at its own number.

    >>> [part.tolist() for part in touched_rows(np.array([[7, 3], [3, 9]]), False)]
    [[3, 7, 9], [[1, 0], [0, 2]]]
    """
    if everybody:
        return np.arange(ids.max() + 1), ids
    touched, at = np.unique(ids, return_inverse=True)
    return touched, at.reshape(ids.shape)
