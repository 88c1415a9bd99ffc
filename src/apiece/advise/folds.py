"""Which of its rows a client holds out, so that models are scored on examples that they have not seen.

A client deals its rows to four folds, by a key of its own and the seed: of every four that lie side by side each goes
to another, so that files sorted by label or by time are dealt evenly, and no two folds differ by more than a row.
A *setting* says which folds are held out.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece.client.draw import whole
from apiece.client.linear import FOLDS, deal_folds
from apiece.protocol import Batch, Data, Question, Tree

Setting = tuple[int, ...]  # the folds that are held out
EVERYTHING: Setting = ()


def settings_of(folds: int) -> tuple[Setting, ...]:
    """All rows; without one fold, for each of so many; and without two, to see how much a smaller part costs.

    >>> settings_of(2), settings_of(4)[5:]
    (((), (0,), (1,), (0, 1)), ((0, 1), (2, 3)))
    """
    halves = ((0, 1), (2, 3)) if folds == FOLDS else ((0, 1),)
    return EVERYTHING, *((fold,) for fold in range(folds)), *halves


def rows_dealt(data: Data, key: Tree, seed: Tree, most: int) -> tuple[Batch, jax.Array]:
    """(the client's rows, padded to so many; the fold of each).

    >>> mine = Data(jnp.arange(9.0), jnp.zeros(9), start=4, size=3, capacity=4)
    >>> batch, fold = rows_dealt(mine, jax.random.key(0), 0, 4)
    >>> batch.x[:3].tolist(), fold.shape
    ([4.0, 5.0, 6.0], (4,))
    """
    dealt = deal_folds(jax.random.fold_in(jax.random.fold_in(key, 0x666F6C64), seed), most)
    return whole(data, 0, most), dealt


def held_out(fold: jax.Array, settings: Sequence[Setting]) -> jax.Array:
    """[settings, rows]: whether a setting holds the row out.

    >>> held_out(jnp.array([0, 1, 2]), [(), (0, 1)]).astype(int).tolist()
    [[0, 0, 0], [1, 1, 0]]
    """
    table = np.array([[each in setting for each in range(FOLDS)] for setting in settings])
    return jnp.asarray(table)[:, fold]


@lru_cache(maxsize=8)
def size_buckets(sizes: tuple[int, ...]) -> tuple[tuple[int, np.ndarray], ...]:
    """Clients in buckets by size: (rows that suffice for the bucket, who is in it), the largest first.

    A program works on as many rows as the largest client of its bucket has: where sizes follow a power law, the small
    ones would otherwise pay for the largest.

    >>> [(rows, who.tolist()) for rows, who in size_buckets((3, 100, 90, 4))]
    [(100, [1, 2]), (6, [0, 3])]
    """
    edges, every = [], np.asarray(sizes)
    edge = int(every.max(initial=1))
    left = np.ones(len(every), bool)
    found = []
    while left.any():
        lower = edge // 4
        here = left & (every > lower) if edge > 8 else left
        if here.any():
            found.append((edge, np.flatnonzero(here)))
        left = left & ~here
        edge = max(lower, 8) if lower > 6 else lower
        edges.append(edge)
    return tuple(found)


def ask_by_size(
    ask: Callable[..., Tree],
    make: Callable[[int], Question],
    sizes: np.ndarray,
    message: Any,
    ids: np.ndarray | None = None,
) -> Tree:
    """What clients answer to a question about their whole data, of so many rows: summed, or a row for each, in order.

    Args:
        ask: `Engine.ask`. make: from a number of rows that suffices to the question. sizes: of all clients that train.
        ids: whom to ask; default: everybody.
    """
    who = np.arange(len(sizes)) if ids is None else np.asarray(ids)
    parts, order = [], []
    for rows, members in size_buckets(tuple(int(size) for size in np.asarray(sizes)[who])):
        question = make(rows)
        parts.append(ask(question, message, who[members].tolist()))
        order.append(members)
    if not question.stacked:
        return jax.tree.map(lambda *leaves: np.sum(leaves, axis=0), *parts)
    place = np.argsort(np.concatenate(order))
    return jax.tree.map(lambda *leaves: _joined(leaves)[place], *parts)


def _joined(leaves: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of several buckets, whose second-to-last lengths may differ: filled up with zeros to the longest."""
    shape = np.max([leaf.shape[1:] for leaf in leaves], axis=0).astype(int)
    filled = [np.pad(leaf, [(0, 0), *((0, int(most) - have) for most, have in zip(shape, leaf.shape[1:], strict=True))])
              for leaf in leaves]  # fmt: skip
    return np.concatenate(filled)
