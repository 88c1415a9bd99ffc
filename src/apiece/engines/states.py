"""Everybody's states between rounds: in host memory, or in a nameless file when they would fill too much of it.

A state is a tree; everybody's is the same tree with a row per client. Rows that nobody wrote cost nothing. How many
rows an engine copies at a time follows from how large they are: many small ones, or a few of a large network.
"""

import math
import mmap
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from apiece.machine import memory
from apiece.protocol import Tree

SMALL = 1 << 24  # bytes of a leaf: NumPy's own zeros will do
SHARE_OF_MEMORY = 4  # states may take one part in so many; the rest is for data, copies at work and other programs
AT_ONCE = 1 << 28  # bytes of states that are copied for one call of a compiled program


def blank_rows(shapes: Tree, count: int) -> Tree:
    """Zeros for `count` clients' states, which claim memory only where they are written; on disk when they are large.

    >>> blank_rows({"w": jax.ShapeDtypeStruct((2,), np.float32)}, 3)["w"].tolist()
    [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    whole = lambda leaf: ((count, *leaf.shape), np.dtype(leaf.dtype))
    size = sum(_bytes(*whole(leaf)) for leaf in jax.tree.leaves(shapes))
    if size <= memory() // SHARE_OF_MEMORY:
        return jax.tree.map(lambda leaf: _in_memory(*whole(leaf)), shapes)
    folder = disk()
    free = shutil.disk_usage(folder).free
    if size > free:
        # Those who are never visited take no room, so this may go well; if not, the system ends the process.
        warnings.warn(
            f"the states of {count:,} clients can grow to {size / 1e9:.0f} GB, and {folder} has {free / 1e9:.0f} GB "
            "left; name a larger disk in the environment variable TMPDIR",
            UserWarning,
            stacklevel=2,
        )
    return jax.tree.map(lambda leaf: _on_disk(*whole(leaf), folder), shapes)


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


def lend_rows(leaf: np.ndarray, touched: np.ndarray, count: int) -> np.ndarray:
    """The touched rows, filled up to `count`, and one spare row at the end."""
    out = np.zeros((count + 1, *leaf.shape[1:]), leaf.dtype)
    if count:
        _copy(leaf, touched, out[: len(touched)])
    return out


def look_up_rows(
    leaf: np.ndarray, who: np.ndarray, inside: np.ndarray | None = None, length: int | None = None
) -> np.ndarray:
    """The rows of `who`, zeros for those not `inside`, filled up to `length`."""
    out = np.zeros((length or len(who), *leaf.shape[1:]), leaf.dtype)
    if inside is None or inside.all():
        _copy(leaf, who, out[: len(who)])
    else:
        out[: len(who)][inside] = leaf[who[inside]]
        _let_go(leaf)
    return out


def row_parts(leaf: np.ndarray, count: int) -> Iterator[slice]:
    """`count` rows of a leaf, as many at a time as are copied at once.

    >>> list(row_parts(np.zeros((5, 2)), 5))
    [slice(0, 5, None)]
    """
    step = how_many(bytes_of_a_row(leaf), max(count, 1))
    return (slice(first, min(first + step, count)) for first in range(0, count, step))


def commit_rows(leaf: np.ndarray, touched: np.ndarray, new: Any) -> None:
    """The touched rows as they are now."""
    leaf[touched] = np.asarray(new)[: len(touched)]
    _let_go(leaf)


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


def _on_disk(shape: tuple[int, ...], dtype: np.dtype, folder: str) -> np.ndarray:
    if not math.prod(shape):
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="apiece-states-", dir=folder) as file:  # nameless: gone when the array is
        return np.memmap(file, dtype, "w+", shape=shape)


def _copy(leaf: np.ndarray, who: np.ndarray, out: np.ndarray) -> None:
    np.take(leaf, who, axis=0, out=out, mode="clip")  # "raise" would make a second copy first
    _let_go(leaf)


def _let_go(leaf: np.ndarray) -> None:
    """Rows on disk stay in the system's cache if it has room, but are no longer this process's memory."""
    if isinstance(leaf, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        leaf._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]  # where NumPy keeps the mapping
