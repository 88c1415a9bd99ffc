"""Examples that stay on the host, or on its disk: a program is lent the rows of those clients that it is about.

On the devices, everybody's examples are there once per device, and nothing has to be copied round by round; so it is
done wherever they fit. Beyond that, and where several processes share the clients, only the rows of a cohort are read.
"""

from typing import Any

import jax
import numpy as np

from apiece.engines.simulation.crew import crew_here
from apiece.engines.simulation.score import Examples
from apiece.machine import memory
from apiece.protocol import Tree

KEPT = ("auto", "devices", "host")
SHARE_OF_MEMORY = 4  # examples on all devices together may take one part in so many
LEAST = 64  # rows that are lent, so that small cohorts of different sizes share one program


def stay_on_host(examples: Tree, where: str = "auto") -> bool:
    """Whether these examples are too large for the devices of a CPU, or are shared with other processes.

    >>> stay_on_host(np.zeros(5)), stay_on_host(np.zeros(5), "host")
    (False, True)
    """
    if where != "auto":
        return where == "host"
    if crew_here() is not None:
        return True
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(examples))
    here = [device for device in jax.local_devices() if device.platform == "cpu"]
    return size * len(here) > memory() // SHARE_OF_MEMORY


def lend_examples(split: Examples, who: np.ndarray) -> tuple[Tree, Tree, np.ndarray]:
    """(x, y, where each of these clients' rows begin): the rows of theirs alone, each client's once.

    They are filled up to a power of two, so that the programs for cohorts of all sizes are few.

    >>> split = Examples(np.arange(9), np.arange(9), np.array([0, 2, 5]), np.array([2, 3, 4]))
    >>> x, _, starts = lend_examples(split, np.array([2, 0, 2]))
    >>> x[:6].tolist(), len(x), starts.tolist()
    ([0, 1, 5, 6, 7, 8], 64, [2, 0, 2])
    """
    some, at = np.unique(who, return_inverse=True)
    sizes = split.sizes[some].astype(np.int64)
    begin = np.cumsum(sizes) - sizes
    rows = np.repeat(split.starts[some] - begin, sizes) + np.arange(sizes.sum())
    rows = rows if split.order is None else split.order[rows]
    room = max(LEAST, 1 << int(len(rows) - 1).bit_length()) if len(rows) else LEAST

    def lent(leaf: Any) -> np.ndarray:
        out = np.zeros((room, *leaf.shape[1:]), leaf.dtype)
        out[: len(rows)] = leaf[rows]
        return out

    return jax.tree.map(lent, split.x), jax.tree.map(lent, split.y), begin[at].astype(np.int32)
