"""Draw a batch by index inside the compiled program, from the flat array of everybody's examples.

No padding, no data loader, no copy. Every draw is a pure function of (key, step): a run can be continued, and a remote
client draws what a simulated one draws.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
from jax import lax

from apiece.protocol import Batch, Data, Tree

SHUFFLE_ROUNDS = 24  # a position's law is within 2^-24 of uniform, a pair's within about 2^-12
FULL_CHUNK = 256  # rows of a full-batch view that are processed at once

_WRITTEN_OUT = contextvars.ContextVar("_WRITTEN_OUT", default=False)


@contextlib.contextmanager
def write_out_loops() -> Iterator[None]:
    """What is traced inside has the shuffle's rounds one after the other instead of in a loop: the same numbers.

    A loop is faster to run, unless the program is compiled in a hurry: then it is ten times slower.

    >>> order = lambda: shuffler(jax.random.key(0), 7)(3, jnp.arange(7)).tolist()
    >>> with write_out_loops():
    ...     written_out = order()
    >>> written_out == order()
    True
    """
    token = _WRITTEN_OUT.set(True)
    try:
        yield
    finally:
        _WRITTEN_OUT.reset(token)


def shuffler(key: Tree, size: Tree) -> Callable[[Tree, jax.Array], jax.Array]:
    """(order, position) -> where the order-th random permutation of 0..size-1 sends that position.

    The swap-or-not shuffle (Hoang, Morris, Rogaway 2012): in each round x meets its partner (k - x) mod size, and
    the two change places or not by a coin that both see. No permutation is ever made, so a traced size works and
    costs the same for any size. The key is spent once; orders are told apart by hashing, which is cheap in a loop.

    >>> shuffle = shuffler(jax.random.key(0), 7)
    >>> sorted(shuffle(3, jnp.arange(7)).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    seeds = jax.random.bits(key, (2, SHUFFLE_ROUNDS), jnp.uint32)
    size = jnp.asarray(size, jnp.uint32)
    turns = SHUFFLE_ROUNDS if _WRITTEN_OUT.get() else 1
    return lambda order, position: _shuffled(seeds, size, jnp.asarray(order, jnp.uint32), position, turns)


@functools.partial(jax.jit, static_argnums=4)  # traced once for all methods, and written once into each program
def _shuffled(seeds: jax.Array, size: jax.Array, order: jax.Array, position: jax.Array, turns: int) -> jax.Array:
    words = _hash(seeds + order * jnp.uint32(0x9E3779B9))
    offsets, coins = words[0] % size, words[1]

    def meet(x: jax.Array, round: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        offset, coin = round
        partner = offset + size - x
        partner = jnp.where(partner >= size, partner - size, partner)
        return jnp.where(_hash(jnp.maximum(x, partner) ^ coin) >> 31, partner, x), None

    x = position.astype(jnp.uint32)
    return lax.scan(meet, x, (offsets, coins), unroll=turns)[0].astype(jnp.int32)


def _hash(word: jax.Array) -> jax.Array:
    """A bijection of 32-bit words that spreads every bit over all (the finalizer of MurmurHash3, one round less)."""
    word = (word ^ (word >> 16)) * jnp.uint32(0x85EBCA6B)
    return (word ^ (word >> 13)) * jnp.uint32(0xC2B2AE35)


def rows(data: Data, index: jax.Array, present: jax.Array) -> Batch:
    """The client's examples at `index` (below its size where `present`); absent ones get weight 0.

    Absent places read the client's own first row, never a neighbour's.

    >>> data = Data(x=jnp.arange(10.0), y=jnp.arange(10), start=4, size=3)
    >>> rows(data, jnp.array([2, 9]), jnp.array([True, False])).y.tolist()
    [6, 4]
    """
    at = data.start + jnp.where(present, index, 0)
    pick = lambda leaf: leaf.at[at].get(mode="promise_in_bounds")
    return Batch(jax.tree.map(pick, data.x), jax.tree.map(pick, data.y), present.astype(jnp.float32))


def places(data: Data, shuffle: Callable, batch: int, order: Tree = 0, slot: Tree = 0) -> tuple[jax.Array, jax.Array]:
    """(index, present) of the `slot`-th batch of the `order`-th random order; the last one may be smaller.

    A batch holds distinct examples, so a client with fewer than `batch` gives all of them, each once.
    """
    position = slot * batch + jnp.arange(batch)
    present = position < data.size
    return shuffle(order, jnp.where(present, position, 0)), present


def draw(data: Data, shuffle: Callable, batch: int, order: Tree = 0, slot: Tree = 0) -> Batch:
    """That batch itself.

    >>> data = Data(x=jnp.arange(10.0), y=jnp.arange(10), start=4, size=3)
    >>> got = draw(data, shuffler(jax.random.key(0), data.size), batch=5)
    >>> sorted(got.y[got.weight > 0].tolist())
    [4, 5, 6]
    """
    return rows(data, *places(data, shuffle, batch, order, slot))


def whole(data: Data, first: Tree = 0, most: int | None = None) -> Batch:
    """Up to `most` of the client's examples from `first` on, padded to that many with weight 0.

    >>> whole(Data(x=jnp.arange(6.0), y=jnp.arange(6), start=2, size=3, capacity=4)).weight.tolist()
    [1.0, 1.0, 1.0, 0.0]
    """
    index = first + jnp.arange(most or data.capacity)
    return rows(data, index, index < data.size)


def numbers(x: jax.Array) -> jax.Array:
    """Examples as numbers to compute with: uint8 becomes 0..1, other integers float, floats stay.

    >>> numbers(jnp.array([0, 255], jnp.uint8)).tolist()
    [0.0, 1.0]
    """
    if x.dtype == jnp.uint8:
        return x.astype(jnp.float32) * jnp.float32(1 / 255)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
