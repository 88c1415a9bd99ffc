"""Every client's examples under its own model, outcome by outcome: one program for all methods."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece.client.draw import FULL_CHUNK, whole
from apiece.engines.simulation.division import divided, each
from apiece.protocol import Data, Params, Tree

CHUNK_COST = 4  # what a chunk costs beside its examples, in examples


@dataclasses.dataclass(frozen=True)
class Examples:
    """A split: flat arrays, on the devices or on the host (`lent`), and whose rows are where.

    `order`: the row numbers behind these rows, where they are read in another order.
    """

    x: Tree
    y: Tree
    starts: np.ndarray
    sizes: np.ndarray
    lent: bool = False
    order: np.ndarray | None = None

    @property
    def capacity(self) -> int:
        """The size of the largest client."""
        return int(self.sizes.max(initial=1))

    @functools.cached_property
    def chunk(self) -> int:
        """How many of a client's examples are judged at once, when clients are judged one by one.

        As many as the largest has, up to `FULL_CHUNK`, unless most clients are so small that this computes more than
        twice what a smaller chunk would: a chunk is always computed in full, and costs `CHUNK_COST` examples more.

        >>> of = lambda *sizes: Examples((), (), np.zeros(len(sizes), np.int32), np.array(sizes))
        >>> of(20, 30).chunk, of(*[5] * 99, 1000).chunk
        (30, 8)
        """
        largest = min(self.capacity, FULL_CHUNK)
        cost = lambda chunk: int((-(-self.sizes // chunk) * (chunk + CHUNK_COST)).sum())
        best = min((2**k for k in range(largest.bit_length())), key=cost, default=largest)
        return best if 2 * cost(best) < cost(largest) else largest


@functools.partial(jax.jit, static_argnames=("outcomes", "capacity", "chunk", "mesh", "sequential"))
def score_models(
    models: Params,
    x: Tree,
    y: Tree,
    start: Any,
    size: Any,
    *,
    outcomes: Callable,
    capacity: int,
    chunk: int,
    mesh: Any,
    sequential: bool,
) -> tuple[jax.Array, ...]:
    """(loss, error, ...) [clients, capacity, ...] of each client's examples under its model, as `outcomes` gives them.

    The same program for all methods. `chunk` examples are judged at a time.
    """
    places = -(-capacity // chunk) * chunk

    def work(who: tuple, x: Tree, y: Tree) -> tuple:
        def one(c: tuple) -> tuple:
            model, start, size = c
            data = Data(x, y, start, size, capacity)

            def score(k: Any, out: tuple) -> tuple:
                got = outcomes(model, whole(data, k * chunk, chunk))
                put = lambda o, g: lax.dynamic_update_slice_in_dim(o, g.astype(o.dtype), k * chunk, 0)
                return tuple(put(o, g) for o, g in zip(out, got, strict=True))

            one_chunk = jax.eval_shape(lambda: outcomes(model, whole(data, 0, chunk)))
            blank = tuple(jnp.zeros((places, *part.shape[1:]), jnp.float32) for part in one_chunk)
            return lax.fori_loop(0, -(-size // chunk), score, blank)

        return each(one, who, who[2] > 0, sequential)

    return divided(work, mesh, rows=1, whole=2)((models, start, size), x, y)
