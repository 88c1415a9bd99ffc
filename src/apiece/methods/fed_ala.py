"""FedALA: a client begins between its own model and the shared one, where in between it learns number by number."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.client.descend import descend
from apiece.client.solve import slopes
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Client, Data, Loss, Method, Params, Reply, Tree, keep_work
from apiece.registry import FromZero, NotNegative, Passes, Positive, Share, StepSize
from apiece.split import divide, join, part_of


class Own(NamedTuple):
    """What a client keeps: its own numbers of the adaptive part, and how much of the shared ones it takes, 0 to 1."""

    v: Params
    w: Params


def fed_ala(
    loss: Loss,
    *,
    adaptive: str = "output",
    ala_steps: int = 5,
    ala_lr: NotNegative = 1.0,
    ala_share: Share = 0.8,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 1.0,
) -> Method:
    """FedAvg whose clients begin between their own model and the shared one: each number where it suits them.

    Client, with the v it kept, its own numbers of the adaptive part of the model (the upper layers), and a w of their
    form: s = v + (x - v) w there, number by number, and s = x in all other layers;
    w <- w - ala_lr dL_i/dw(s), held within 0 and 1, `ala_steps` times from where it stopped, on some of its examples;
    then y <- y - lr G_i(y), `steps` times from y = s, and v is that part of y. At first v = x and w = 1.
    Server: x <- x + server_lr sum_i p_i (y_i - x). A client uses the y that it makes of the latest x.

    Solves: FedAvg's problem for x, up to what clients hold back of it; then min L_i from s, stopped early.
    Sent: x down, y - x up.
    Kept: v and w by the client.
    Forgetting: v = x each visit, so that there is nothing between them: FedAvg, fine-tuned.
    Guarantee: none known.
    Reference: Zhang et al. 2023 (FedALA: adaptive local aggregation for personalized federated learning).

    Args:
        adaptive: in which part of the model w is learned, see `apiece.split`. ala_steps, ala_lr: steps on w a round,
        and their size; with a size of 0 it is FTFA. ala_share: the share of the examples, the first ones, that they are
        taken on. steps, epochs, lr, batch, server_lr: FedAvg's.

    >>> loss = lambda p, batch, key: 0.0 * batch.weight.sum()
    >>> mine, own = Data(x=jnp.zeros(1), y=jnp.zeros(1), start=0, size=1, capacity=1), {"a": None, "b": jnp.array(4.0)}
    >>> method, half = fed_ala(loss, adaptive="b"), {"a": None, "b": jnp.array(0.5)}
    >>> x = {"a": jnp.array(7.0), "b": jnp.array(0.0)}
    >>> jax.tree.map(float, method.personal(Own(own, half), x, mine, jax.random.key(0)))
    {'a': 7.0, 'b': 2.0}
    """
    train = partial(descend, loss, steps=steps, epochs=epochs, lr=lr, batch=batch)
    upper = lambda params: divide(params, part_of(params, adaptive, "adaptive"))

    def enroll(params: Params, x: Params, data: Data, key: Tree) -> Client:
        v = upper(x)[1]
        return Own(v, jax.tree.map(jnp.ones_like, v))

    def work(own: Client, x: Params, data: Data, key: Tree) -> tuple[Params, Params]:
        below, shared = upper(x)
        apart = tree.sub(own.v, shared)

        def between(w: Params) -> Params:
            # Counted from x: then a w of 1 gives x, to the last digit.
            return join(below, jax.tree.map(lambda x, a, w: x + a * (1 - w), shared, apart, w))

        size = jnp.maximum(jnp.ceil(ala_share * data.size), 1).astype(jnp.int32)
        # Not FedAvg's key, which the training spends.
        slope = slopes(dataclasses.replace(data, size=size), jax.random.fold_in(key, 1), batch=batch)

        def step(k: Tree, w: Params) -> Params:
            g = slope(k, lambda w, some, key: loss(between(w), some, key), w)
            return jax.tree.map(lambda w: jnp.clip(w, 0, 1), tree.step(w, -ala_lr, g))

        w = lax.fori_loop(0, ala_steps, step, own.w)
        return train(between(w), data, key), w

    def local(own: Client, x: Params, data: Data, key: Tree) -> tuple[Client, Reply]:
        y, w = work(own, x, data, key)
        return Own(upper(y)[1], w), tree.sub(y, x)

    return fed_avg(loss, server_lr=server_lr)._replace(
        enroll=enroll,
        local=local,
        personal=lambda own, x, data, key: work(own, x, data, key)[0],
        keep=keep_work,
    )
