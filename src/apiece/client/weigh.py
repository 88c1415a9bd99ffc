"""Losses example by example: what each example loses, and the mean loss in which each counts as much as is said."""

import jax
import jax.numpy as jnp
from jax import lax

from apiece.client.draw import FULL_CHUNK, whole
from apiece.errors import UserError
from apiece.protocol import Batch, Data, Loss, Params, Tree


def each_loss(loss: Loss, params: Params, batch: Batch, key: Tree) -> jax.Array:
    """[batch]: the loss of every example alone.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2).sum() / batch.weight.sum()
    >>> each_loss(loss, jnp.array(1.0), Batch(jnp.zeros(2), jnp.array([1.0, 4.0]), jnp.ones(2)), None).tolist()
    [0.0, 9.0]
    """
    single = lambda value: jax.tree.map(lambda leaf: leaf[None], value)
    alone = lambda x, y: loss(params, Batch(single(x), single(y), jnp.ones(1, batch.weight.dtype)), key)
    return jax.vmap(alone)(batch.x, batch.y)


def weighted_loss(loss: Loss, params: Params, batch: Batch, factor: jax.Array, key: Tree) -> jax.Array:
    """The mean over the batch of factor * loss, `factor` being a number of at least 0 for each example.

    So an example of factor 0 does not count, one of factor 2 counts twice, and factors of 1 change no digit.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2).sum() / batch.weight.sum()
    >>> batch = Batch(jnp.zeros(2), jnp.array([1.0, 4.0]), jnp.ones(2))
    >>> float(weighted_loss(loss, jnp.array(1.0), batch, jnp.array([1.0, 0.5]), None))
    2.25
    """
    weight = batch.weight * factor
    share = weight.sum() / jnp.maximum(batch.weight.sum(), 1)
    # A loss may expect that weights sum to the size of the batch: so they do, and their share stands before it.
    weight = jnp.where(share > 0, weight / jnp.where(share > 0, share, 1), batch.weight)
    return share * loss(params, batch._replace(weight=weight), key)


def rows_known(data: Data, method: str) -> int:
    """How many examples a client may have, for a method that keeps a number for each.

    >>> rows_known(Data(x=None, y=None, start=0, size=3, capacity=4), "fed_em")
    4
    """
    if data.capacity is None:
        raise UserError(
            f"method '{method}' has to know how many examples a client may have: give Data its capacity, the size of "
            "the largest client"
        )
    return data.capacity


def map_rows(of_batch: Tree, data: Data, rows: int) -> Tree:
    """What a function of a batch gives for all of a client's examples, a row each, `FULL_CHUNK` of them at a time.

    >>> mine = Data(x=jnp.arange(9.0), y=jnp.zeros(9), start=4, size=3, capacity=4)
    >>> map_rows(lambda batch: 2 * batch.x * batch.weight, mine, 4).tolist()
    [8.0, 10.0, 12.0, 0.0]
    """
    most = min(rows, FULL_CHUNK)
    chunks = lax.map(lambda c: of_batch(whole(data, c * most, most)), jnp.arange(-(-rows // most)))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:rows], chunks)
