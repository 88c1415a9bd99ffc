"""Everybody's states between rounds: in host memory, or in a file (`row_store`) when they would fill too much of it.

A state is a tree; everybody's is the same tree with a row per client. Rows that nobody wrote cost nothing. How many
rows an engine copies at a time follows from how large they are: many small ones, or a few of a large network.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.engines.row_store import RowsOnDisk, RowStore
from apiece.machine import memory
from apiece.protocol import Tree

Rows = np.ndarray | RowsOnDisk  # a leaf of everybody's states
PLACES = ("auto", "memory", "disk")
SMALL = 1 << 24  # bytes of a leaf: NumPy's own zeros will do
SHARE_OF_MEMORY = 4  # states may take one part in so many; the rest is for data, copies at work and other programs
AT_ONCE = 1 << 28  # bytes of states that are copied for one call of a compiled program


def blank_rows(shapes: Tree, count: int, where: str = "auto") -> Tree:
    """Zeros for `count` clients' states, which claim memory or disk only where they are written.

    `where`: in "memory", on "disk", or "auto": on disk when they would fill too much of the memory.

    >>> blank_rows({"w": jax.ShapeDtypeStruct((2,), np.float32)}, 3)["w"].tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    whole = lambda leaf: ((count, *leaf.shape), np.dtype(leaf.dtype))
    if lie_on_disk(sum(_bytes(*whole(leaf)) for leaf in jax.tree.leaves(shapes)), where):
        return RowStore(shapes, count, Path(disk())).leaves
    return jax.tree.map(lambda leaf: _in_memory(*whole(leaf)), shapes)


def lie_on_disk(size: int, where: str = "auto") -> bool:
    """Whether states of so many bytes lie on disk.

    >>> lie_on_disk(10), lie_on_disk(10, "disk"), lie_on_disk(0, "disk")
    (False, True, False)
    """
    return size > 0 and (where == "disk" or (where == "auto" and size > memory() // SHARE_OF_MEMORY))


def store_of(rows: Tree) -> RowStore | None:
    """Where these states lie, if on disk."""
    first = next(iter(jax.tree.leaves(rows)), None)
    return first.store if isinstance(first, RowsOnDisk) else None


def bytes_of_a_row(rows: Tree) -> int:
    """How large one client's state, or model, is.

    >>> bytes_of_a_row({"w": np.zeros((5, 2, 3), np.float32), "b": np.zeros(5, np.float32)})
    28
    """
    return sum(_bytes(leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in jax.tree.leaves(rows))


def how_many(size: int, most: int) -> int:
    """How many things of so many bytes are copied at once: `most`, or fewer of large ones; at least one.

    >>> how_many(1000, most=64), how_many(45 << 20, most=64)
    (64, 5)
    """
    return max(1, min(most, AT_ONCE // max(size, 1)))


def lend_rows(leaf: Rows, touched: np.ndarray, count: int) -> np.ndarray:
    """The touched rows, filled up to `count`, and one spare row at the end."""
    out = np.zeros((count + 1, *leaf.shape[1:]), leaf.dtype)
    if count:
        _copy(leaf, touched, out[: len(touched)])
    return out


def look_up_rows(
    leaf: Rows, who: np.ndarray, inside: np.ndarray | None = None, length: int | None = None
) -> np.ndarray:
    """The rows of `who`, zeros for those not `inside`, filled up to `length`."""
    out = np.zeros((length or len(who), *leaf.shape[1:]), leaf.dtype)
    if inside is None or inside.all():
        _copy(leaf, who, out[: len(who)])
    else:
        out[: len(who)][inside] = leaf[who[inside]]
    return out


def row_parts(leaf: Rows, count: int) -> Iterator[slice]:
    """`count` rows of a leaf, as many at a time as are copied at once.

    >>> list(row_parts(np.zeros((5, 2)), 5))
    [slice(0, 5, None)]
    """
    step = how_many(bytes_of_a_row(leaf), max(count, 1))
    return (slice(first, min(first + step, count)) for first in range(0, count, step))


def commit_rows(leaf: Rows, touched: np.ndarray, new: Any) -> None:
    """The touched rows as they are now."""
    leaf[touched] = np.asarray(new)[: len(touched)]


def lend_states(rows: Tree, touched: np.ndarray, count: int) -> Tree:
    """The touched rows of every leaf, filled up to `count`, and one spare row at the end."""
    if (store := store_of(rows)) is not None:
        return store.fetch(touched if count else touched[:0], count + 1).result()
    return jax.tree.map(lambda leaf: lend_rows(leaf, touched, count), rows)


def look_up_states(rows: Tree, who: np.ndarray, inside: np.ndarray, length: int) -> Tree:
    """The rows of `who` of every leaf, zeros for those not `inside`, filled up to `length`."""
    if (store := store_of(rows)) is None:
        return jax.tree.map(lambda leaf: look_up_rows(leaf, who, inside, length), rows)
    found = store.fetch(who[inside], int(inside.sum())).result()
    out = jax.tree.map(lambda leaf: np.zeros((length, *leaf.shape[1:]), leaf.dtype), found)
    jax.tree.map(lambda into, mine: into[: len(who)].__setitem__(inside, mine), out, found)
    return out


def commit_states(rows: Tree, touched: np.ndarray, new: Tree) -> None:
    """The touched rows of every leaf as they are now; on disk they are soon."""
    if (store := store_of(rows)) is not None:
        store.put(touched, new)
    else:
        jax.tree.map(lambda leaf, mine: commit_rows(leaf, touched, mine), rows, new)


def restore_places(path: Path, rows: Tree, who: np.ndarray, places: np.ndarray, width: int, mine: np.ndarray) -> None:
    """States that lie beside a checkpoint: used from there, or copied where these are in memory or not all `mine`."""
    store = store_of(rows)
    if store is not None and mine.any() and mine.all() and (store.at < 0).all():
        return store.reopen(path, who, places, width)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), rows)
    other = RowStore(shapes, len(jax.tree.leaves(rows)[0]), path.parent)
    other.reopen(path, who, places, width)
    own = who[mine]
    for leaf, source in zip(jax.tree.leaves(rows), jax.tree.leaves(other.leaves), strict=True):
        for some in row_parts(leaf, len(own)):
            commit_rows(leaf, own[some], source[own[some]])


def disk() -> str:
    """A folder for large files that are soon gone: TMPDIR, or /var/tmp, since /tmp is often memory."""
    chosen = os.environ.get("TMPDIR") or "/var/tmp"
    return chosen if os.access(chosen, os.W_OK) else tempfile.gettempdir()


def _bytes(shape: tuple[int, ...], dtype: np.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


def _in_memory(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    size = _bytes(shape, dtype)
    if size < SMALL:
        return np.zeros(shape, dtype)
    # NumPy asks for huge pages, and then one client's few bytes claim, and clear, two megabytes.
    return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)


def _copy(leaf: Rows, who: np.ndarray, out: np.ndarray) -> None:
    if isinstance(leaf, RowsOnDisk):
        out[:] = leaf[who]
    else:
        np.take(leaf, who, axis=0, out=out, mode="clip")  # "raise" would make a second copy first
