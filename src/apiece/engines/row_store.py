"""Everybody's states in one file: a record per client that was visited, written while the next round computes.

A record that the last checkpoint names is never written over: the client's next state goes to another place of the
file, and the old place is free again once a later checkpoint is there. So a checkpoint is a list of places, whatever
the states take, and a run that is killed at any moment finds all states as its checkpoint left them.
"""

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece.errors import UserError
from apiece.files import FULL, DiskFull, replace_file
from apiece.protocol import Tree

ALIGN = 8  # bytes: numbers of every kind may begin there
COPIED = 1 << 26  # bytes that are copied at once when a file moves


class Field(NamedTuple):
    """Where a leaf's numbers lie in a record."""

    start: int
    stop: int
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """How many numbers these are; said aloud where there may be no rows, from which it could not be guessed."""
        return math.prod(self.shape)


class RowStore:
    """States of `count` clients, a tree each, in a file of a folder; those never written are zeros and take no room.

    Reads and writes are done in the order in which they are asked for, by one thread: `fetch` and `put` do not wait,
    and `fetch` after `put` sees what was put.

    >>> store = RowStore({"w": jax.ShapeDtypeStruct((2,), np.float32)}, 5, Path(tempfile.gettempdir()))
    >>> store.put(np.array([3, 1]), {"w": np.array([[1, 2], [3, 4]], np.float32)})
    >>> store.fetch(np.array([1, 2]), 3).result()["w"].tolist()
    [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, shapes: Tree, count: int, folder: Path) -> None:
        leaves, self.structure = jax.tree.flatten(shapes)
        self.fields: list[Field] = []
        at = 0
        for leaf in leaves:
            dtype = np.dtype(leaf.dtype)
            size = int(np.prod(leaf.shape, dtype=np.int64)) * dtype.itemsize
            self.fields.append(Field(at, at + size, tuple(leaf.shape), dtype))
            at += -(-size // ALIGN) * ALIGN
        self.width, self.count, self.folder = at, count, folder
        self.at = np.full(count, -1, np.int64)  # the place of each client's record; -1: it has none
        self.kept = np.zeros(0, bool)  # of the places in use or free: whether the last checkpoint names it
        self.free = np.zeros(0, np.int64)
        self.path: Path | None = None  # nameless until a checkpoint is written beside it
        self._close: Callable[[], Any] = lambda: None
        self._use(tempfile.TemporaryFile(prefix="apiece-states-", dir=folder, buffering=0))  # noqa: SIM115 (see there)
        self._thread: ThreadPoolExecutor | None = None
        self._writes: list[Future] = []

    def _use(self, file: Any, path: Path | None = None) -> None:
        """From now on this file; closed when another takes its place or this object is gone."""
        self._close()
        if path is not None:
            self.path, self.folder = path, path.parent
        self.file, self._close = file, weakref.finalize(self, file.close)

    @property
    def leaves(self) -> Tree:
        """The tree of everybody's states, each leaf as an array with a row per client."""
        views = [RowsOnDisk(self, field) for field in self.fields]
        return jax.tree.unflatten(self.structure, views)

    def check_room(self, more: int) -> None:
        """Raise a `UserError` if the states of so many visits may find no room: before anything is written.

        Who has a place that no checkpoint names is written there again, and needs no other.
        """
        self.settle()
        again = int((~self.kept[self.at[self.at >= 0]]).sum())
        more = max(0, min(more, self.count - again) - len(self.free))
        needed, free = more * self.width, shutil.disk_usage(self.folder).free
        if needed > free:
            raise UserError(
                f"the states of {more:,} more clients, {self.width:,} bytes each, take "
                f"{needed / 1e9:,.3g} GB, and the disk of {self.folder} has {free / 1e9:,.3g} GB free; nothing was "
                "written. Make room there, name a folder on a larger disk in the environment variable TMPDIR, or take "
                "fewer clients, fewer rounds or a smaller model"
            )

    # What does not wait, and what waits for it.

    def fetch(self, who: np.ndarray, length: int) -> "Future[Tree]":
        """The states of these clients, filled up to `length` rows with zeros, once all that was put before is there."""
        return self._later(lambda: self.take_apart(self.read(who), length))

    def put(self, who: np.ndarray, states: Tree) -> None:
        """Write these clients' states (rows beyond theirs are not used), soon; they must not change until then."""
        self._raise_failed()
        self._writes.append(self._later(lambda: self.write(who, self.put_together(states, len(who)))))

    def settle(self) -> None:
        """Wait until all that was put is in the file."""
        while self._writes:
            self._writes.pop(0).result()

    def _raise_failed(self) -> None:
        while self._writes and self._writes[0].done():
            self._writes.pop(0).result()

    def _later(self, work: Callable[[], Any]) -> Future:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "apiece-states")
        return self._thread.submit(work)

    # Records and trees.

    def take_apart(self, records: np.ndarray, length: int) -> Tree:
        """The tree of stacked leaves that these records are, filled up with zeros."""
        leaves = []
        for field in self.fields:
            out = np.zeros((length, *field.shape), field.dtype)
            out.reshape(length, field.size)[: len(records)] = records[:, field.start : field.stop].view(field.dtype)
            leaves.append(out)
        return jax.tree.unflatten(self.structure, leaves)

    def put_together(self, states: Tree, count: int) -> np.ndarray:
        """The records of the first `count` rows of a stacked tree."""
        records = np.zeros((count, self.width), np.uint8)
        for field, leaf in zip(self.fields, jax.tree.leaves(states), strict=True):
            mine = records[:, field.start : field.stop].view(field.dtype)
            mine[:] = np.asarray(leaf)[:count].reshape(count, field.size)
        return records

    # The file: in this order, on one thread at a time.

    def read(self, who: np.ndarray) -> np.ndarray:
        """The records of these clients, zeros for who has none."""
        records = np.zeros((len(who), self.width), np.uint8)
        places = self.at[who]
        there = np.flatnonzero(places >= 0)
        order = there[np.argsort(places[there], kind="stable")]
        found = np.empty((len(order), self.width), np.uint8)
        for first, last, place in _runs(places[order]):
            self.file.seek(place * self.width)
            whole = found[first:last].data.cast("B") if self.width else b""
            while len(whole):
                count = self.file.readinto(whole)
                if not count:
                    raise UserError(
                        f"{self.path or self.folder}: the states' file is shorter than it was; it is damaged"
                    )
                whole = whole[count:]
        records[order] = found
        return records

    def write(self, who: np.ndarray, records: np.ndarray) -> None:
        """The records of these clients (each once), at places that no checkpoint names."""
        places = self.at[who]
        moves = places < 0
        moves[~moves] = self.kept[places[~moves]]
        places[moves] = self._new_places(int(moves.sum()))
        order = np.argsort(places, kind="stable")
        sorted_records = records[order]
        try:
            for first, last, place in _runs(places[order]):
                self.file.seek(place * self.width)
                whole = sorted_records[first:last].data.cast("B") if self.width else b""
                while len(whole):
                    whole = whole[self.file.write(whole) :]
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise DiskFull(self.path or self.folder, len(who) * self.width) from error
        self.at[who] = places

    def _new_places(self, count: int) -> np.ndarray:
        again, self.free = self.free[:count], self.free[count:]
        more = count - len(again)
        end = len(self.kept)
        self.kept = np.concatenate([self.kept, np.zeros(more, bool)])
        return np.concatenate([again, np.arange(end, end + more)])

    # Checkpoints.

    def keep_beside(self, path: Path) -> None:
        """All states in a file of this name, on the disk for sure, so that a checkpoint can name their places."""
        self.settle()
        if self.path != path:
            self._move(path)
        os.fsync(self.file.fileno())

    def protect(self) -> None:
        """A checkpoint that names all present places is there: they stay, and what only older ones named is free."""
        self.kept = np.zeros(len(self.kept), bool)
        self.kept[self.at[self.at >= 0]] = True
        self.free = np.flatnonzero(~self.kept)

    def reopen(self, path: Path, who: np.ndarray, places: np.ndarray, width: int) -> None:
        """Go on with the file that a checkpoint named, where it says that these clients' records are."""
        if width != self.width:
            raise UserError(
                f"{path} holds states of {width} bytes, not of {self.width}: it is of another method or model"
            )
        try:
            file = path.open("r+b", buffering=0)
        except OSError as error:
            raise UserError(f"{path} cannot be opened ({error}); it belongs to the checkpoint beside it. Put it back, "
                            "or delete that checkpoint to begin this seed anew") from None  # fmt: skip
        self.settle()
        self._use(file, path)
        self.at[:] = -1
        self.at[who] = places
        size = path.stat().st_size
        if len(places) and (int(places.max()) + 1) * width > size:
            raise UserError(f"{path} is shorter than the checkpoint beside it says; it is damaged")
        self.kept = np.zeros(max(-(-size // max(width, 1)), 0) if width else int(places.max(initial=-1)) + 1, bool)
        self.protect()

    def _move(self, path: Path) -> None:
        who = np.flatnonzero(self.at >= 0)
        step = max(1, COPIED // max(self.width, 1))
        with replace_file(path, len(who) * self.width) as temporary, temporary.open("r+b", buffering=0) as file:
            for first in range(0, len(who), step):
                whole = self.read(who[first : first + step]).data.cast("B") if self.width else b""
                while len(whole):
                    whole = whole[file.write(whole) :]
        self._use(path.open("r+b", buffering=0), path)
        self.at[who] = np.arange(len(who))
        self.kept, self.free = np.zeros(len(who), bool), np.zeros(0, np.int64)


class RowsOnDisk:
    """A leaf of everybody's states in a store, to be read and written as an array with a row per client.

    >>> leaf = RowStore(jax.ShapeDtypeStruct((2,), np.float32), 4, Path(tempfile.gettempdir())).leaves
    >>> leaf[[1, 3]] = np.array([[1, 2], [3, 4]])
    >>> leaf.shape, leaf[3].tolist(), leaf[:2].tolist()
    ((4, 2), [3.0, 4.0], [[0.0, 0.0], [1.0, 2.0]])
    """

    def __init__(self, store: RowStore, field: Field) -> None:
        self.store, self.field = store, field
        self.shape, self.dtype, self.ndim = (store.count, *field.shape), field.dtype, 1 + len(field.shape)
        self.size = store.count * int(np.prod(field.shape, dtype=np.int64))
        self.nbytes = self.size * field.dtype.itemsize

    def __len__(self) -> int:
        return self.store.count

    def __getitem__(self, which: Any) -> np.ndarray:
        one = isinstance(which, int | np.integer)
        who = self._numbers([which] if one else which)
        self.store.settle()
        mine = self.store.read(who)[:, self.field.start : self.field.stop].view(self.dtype)
        rows = np.ascontiguousarray(mine).reshape(len(who), *self.field.shape)
        return rows[0] if one else rows

    def __setitem__(self, which: Any, values: Any) -> None:
        who = self._numbers([which] if isinstance(which, int | np.integer) else which)
        self.store.settle()
        records = self.store.read(who)
        mine = records[:, self.field.start : self.field.stop].view(self.dtype)
        mine[:] = np.broadcast_to(np.asarray(values), (len(who), *self.field.shape)).reshape(len(who), self.field.size)
        self.store.write(who, records)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or self.dtype, copy=False)

    def _numbers(self, which: Any) -> np.ndarray:
        if isinstance(which, slice) or np.asarray(which).dtype == bool:
            return np.arange(self.store.count)[which]
        return np.asarray(which, np.int64)


def _runs(places: np.ndarray) -> list[tuple[int, int, int]]:
    """(first, last, place) of stretches of sorted places that lie side by side.

    >>> _runs(np.array([3, 4, 9]))
    [(0, 2, 3), (2, 3, 9)]
    """
    if not len(places):
        return []
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    firsts, lasts = [0, *cuts.tolist()], [*cuts.tolist(), len(places)]
    return [(first, last, int(places[first])) for first, last in zip(firsts, lasts, strict=True)]
