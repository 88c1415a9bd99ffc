"""FedAdam: FedAvg whose server steps by Adam."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from apiece import tree
from apiece.methods.fed_avg import fed_avg
from apiece.protocol import Loss, Method, Params, Tree
from apiece.registry import FromZero, Passes, Positive, StepSize
from apiece.wrap import server_optimized


def fed_adam(
    loss: Loss,
    *,
    steps: int = 20,
    epochs: Passes | None = None,
    lr: StepSize = 0.1,
    batch: FromZero = 32,
    server_lr: Positive = 0.01,
    beta1: Tree = 0.9,
    beta2: Tree = 0.99,
    tau: Tree = 1e-3,
) -> Method:
    """FedAvg's update as Adam's gradient, on the server.

    Clients as FedAvg; D = sum_i p_i (y_i - x); m <- beta1 m + (1 - beta1) D; v <- beta2 v + (1 - beta2) D^2;
    x <- x + server_lr m / (sqrt(v) + tau), without bias correction.

    Solves: min sum_i p_i L_i(x).
    Sent: x down, y - x up.
    Kept: nothing by the client; m and v by the server.
    Forgetting: the same; nothing is kept.
    Guarantee: synchronous, smooth losses.
    Reference: Reddi et al. 2021.

    Args:
        steps, epochs, lr, batch: FedAvg's. server_lr: step of the server. beta1, beta2: memories of the mean and of
        the square. tau: how adaptive, smaller is more.

    >>> fed_adam(lambda params, batch, key: 0.0).message(("the model", "memory"), 3)
    'the model'
    """
    base = fed_avg(loss, steps=steps, epochs=epochs, lr=lr, batch=batch)
    return server_optimized(base, adam_uncorrected(server_lr, beta1, beta2, tau))


class Moments(NamedTuple):
    """Adam's running mean and square."""

    mean: Params
    square: Params


def adam_uncorrected(lr: Tree, beta1: Tree, beta2: Tree, tau: Tree) -> optax.GradientTransformation:
    """Adam without bias correction, as federated learning uses it (optax's own always corrects).

    >>> rule = adam_uncorrected(0.01, 0.9, 0.99, 1e-3)
    >>> round(float(rule.update(jnp.array(-0.1), rule.init(jnp.array(0.0)))[0]), 6)
    0.009091
    """

    def update(gradient: Params, memory: Moments, params: Params | None = None) -> tuple[Params, Moments]:
        square = jax.tree.map(lambda g: g * g, gradient)
        memory = Moments(tree.mix(memory.mean, gradient, 1 - beta1), tree.mix(memory.square, square, 1 - beta2))
        move = lambda m, v: (-lr * m / (jnp.sqrt(v) + tau)).astype(m.dtype)
        return jax.tree.map(move, memory.mean, memory.square), memory

    return optax.GradientTransformation(lambda params: Moments(tree.zeros(params), tree.zeros(params)), update)
