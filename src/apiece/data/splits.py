"""A split: every client's examples in one flat array, with offsets.

Client i owns the rows `offsets[i]:offsets[i + 1]`, so nothing is padded, client sizes may follow any law, and a million
clients cost three arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from apiece.errors import UserError

SPLITS = ("train", "validation", "test")
Listed = Sequence[Any] | np.ndarray  # one entry per row, or per client


@dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split: client i owns the rows from `offsets[i]` up to `offsets[i + 1]`.

    `x` is [rows, ...] (uint8 stays uint8; may be memory-mapped); `y` is [rows] int32 class indexes, or float targets.

    >>> split = Split(x=np.eye(3), y=np.array([0, 1, 1], np.int32), offsets=np.array([0, 1, 3]))
    >>> split.clients, split.rows, split.sizes.tolist()
    (2, 3, [1, 2])
    >>> split.client(1)[1].tolist()
    [1, 1]
    """

    x: np.ndarray
    y: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", np.asarray(self.offsets, np.int64))
        if self.offsets.ndim != 1 or len(self.offsets) < 2:
            raise UserError("offsets must be one-dimensional with one more entry than there are clients")
        if self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any():
            raise UserError("offsets must start at 0 and never decrease")
        if not self.offsets[-1] == len(self.x) == len(self.y):
            raise UserError(f"x has {len(self.x)} rows, y has {len(self.y)}, but the offsets end at {self.offsets[-1]}")

    @property
    def sizes(self) -> np.ndarray:
        """The number of examples of each client."""
        return np.diff(self.offsets)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.offsets) - 1

    @property
    def rows(self) -> int:
        """The number of examples of all clients together."""
        return int(self.offsets[-1])

    @property
    def owner(self) -> np.ndarray:
        """The client index of every row."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def client(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Views of client i's x and y."""
        if not isinstance(i, int | np.integer) or not 0 <= i < self.clients:
            raise UserError(f"there is no client number {i!r}; clients are numbered from 0 to {self.clients - 1}, and "
                            "Federation.index_of finds the number of an id")  # fmt: skip
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.x[rows], self.y[rows]

    def take(self, clients: np.ndarray) -> "Split":
        """The split of the given client indexes only, in that order (a copy)."""
        sizes = self.sizes[clients]
        offsets = offsets_of(sizes)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][clients] - offsets[:-1], sizes)
        return Split(self.x[rows], self.y[rows], offsets)


def offsets_of(sizes: Listed) -> np.ndarray:
    """Where each client's rows begin, and at the end their number.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
