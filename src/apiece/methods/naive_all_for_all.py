"""All-for-one for everybody at once: what all-for-all is measured by."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from apiece import tree
from apiece.client.solve import slopes
from apiece.errors import UserError
from apiece.estimate.similarity import combine, neighbours
from apiece.methods.given_bias import given_bias
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Reply, Server, Tree
from apiece.registry import FromZero, StepSize, Tolerance


def naive_all_for_all(
    loss: Loss,
    *,
    population: FromZero = 0,
    lr: StepSize = 0.1,
    bias: Any = (),
    clusters: Any = (),
    eps: Tolerance = 1.0,
    batch: FromZero = 0,
) -> Method:
    """All-for-one for everybody at once: the reference that all-for-all spares N gradients a client.

    x_i <- x_i - lr (N/|S|) sum over j in S of lambda_ij G_j(x_i): every client takes its gradient at all N models.

    >>> naive_all_for_all(lambda params, batch, key: 0.0, clusters=[0, 0, 1]).enroll(None, None, None, None)
    ()
    """
    given = given_bias("naive_all_for_all", population, bias, clusters)
    clients = population or len(given)
    if not given.size:
        raise UserError("naive_all_for_all: give 'bias' or 'clusters'")

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        return client, jax.vmap(partial(slopes(data, key, batch=batch), 0, loss))(message[0])

    def merge(x: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        heard = (cohort.weight > 0) & (cohort.ids < clients)
        columns = neighbours(given, eps).T.at[cohort.ids].get(mode="fill", fill_value=0).T
        by_model = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), replies)
        g = jax.vmap(lambda share, answers: combine(share, answers, heard))(columns, by_model)
        return tree.step(x, -lr * cohort.population / jnp.maximum((cohort.weight > 0).sum(), 1), g)

    def message(x: Server, i: Tree) -> Message:
        middle = jax.tree.map(lambda leaf: leaf.mean(axis=0), x)
        return x, tree.where(i < clients, tree.take(x, jnp.minimum(i, clients - 1)), middle)

    return Method(
        init=lambda params, key: tree.copies(params, clients),
        message=message,
        merge=merge,
        enroll=lambda params, message, data, key: (),
        local=local,
        personal=lambda client, message, data, key: message[1],
    )
