"""AL2SGD+: L2GD, accelerated and with its noise removed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.aggregate import plain_mean
from apiece.client.descend import full_gradient
from apiece.errors import UserError
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.registry import Positive, Pull, StepSize


class Means(NamedTuple):
    """The server's state: the means of the clients' x, z and w, the coming coins, and what was done."""

    x: Params
    z: Params
    w: Params
    coins: jax.Array  # is it a pull? is w renewed?
    pulled: jax.Array  # the last coin; -1 before the first
    iterations: jax.Array
    communications: jax.Array


class Points(NamedTuple):
    """A client's three points, and its gradient at w."""

    y: Params
    z: Params
    w: Params
    slope: Params


def al2sgd(
    loss: Loss,
    *,
    lam: Pull = 0.5,
    lr: StepSize = 0.1,
    convexity: Positive = 0.01,
    smoothness: Positive | None = None,
    coins: Tree = (),
) -> Method:
    """L2GD with variance reduction and acceleration: linear convergence to the solution itself (Hanzely et al. 2020).

    With L = 1/lr, p = lam/(lam + L), eta = 1/(4 (lam + L)), t1 = min(1/2, sqrt(eta mu/(2 p (1 - p)))) and
    gamma = 1/max(2 mu, 4 t1/eta), client i: x = t1 z + w/2 + (1/2 - t1) y; then by everybody's coin
    local (1 - p): g = (G_i(x) - G_i(w))/(1 - p) + G_i(w) + lam (w - wbar);
    pull (p):      g = lam/p (x - xbar) - lam (1/p - 1) (w - wbar) + G_i(w), lam/p = lam + L, lam (1/p - 1) = L;
    y <- x - eta g;  z <- (1 - gamma mu) z + gamma mu x - gamma g;  and with probability p (1 - p) also w <- y.
    Server: the means of y, z and w by the same linear rules, from the mean of g. A round is an iteration; most of
    them could do without communication, and the server counts those that could not: a pull after a local step
    (for xbar) and a new w (for wbar).

    Solves: min (1/M) sum_i [L_i(x_i) + lam/2 |x_i - xbar|^2] exactly; the same problem as FedCLUP.
    Sent: xbar, wbar and two coins down, g up.
    Kept: y, z, w and G_i(w) by the client, y is the personal model; the means of x, z and w by the server.
    Forgetting: accelerated, variance-reduced gradient descent on one shared model.
    Guarantee: synchronous, everybody taking part, L-smooth and mu-strongly convex clients, full gradients: linear.
      None known for late replies or partial participation (the cohort's mean of g then stands for everybody's).
    Reference: Hanzely, Hanzely, Horvath and Richtarik 2020 (Lower bounds and optimal algorithms for personalized
      federated learning).

    Args:
        lam: strength of the pull. lr: 1/L, the step that plain gradient descent would take. convexity: mu.
        smoothness: L; given, it stands for lr. coins: two recorded rows of zeros and ones, for each iteration whether
        it is a pull and whether w is renewed, to be played before any coin is drawn.

    >>> al2sgd(lambda params, batch, key: 0.0, coins=[[0, 1], [1, 0]]).init(jnp.zeros(2), jax.random.key(0)).coins
    Array([0, 1], dtype=int32)
    """
    plan = np.asarray(coins if np.size(coins) else np.zeros((2, 0)), float).T
    if plan.ndim != 2 or plan.shape[1] != 2 or not np.isin(plan, (0, 1)).all():
        raise UserError(
            "option 'coins' of method 'al2sgd' is two equally long lists of zeros and ones: pulls, renewals"
        )
    mu, L = convexity, 1 / lr if smoothness is None else smoothness
    p, eta = lam / (lam + L), 1 / (4 * (lam + L))
    t1 = jnp.minimum(0.5, jnp.sqrt(jnp.divide(eta * mu, 2 * p * (1 - p))))
    gamma = 1 / jnp.maximum(2 * mu, 4 * t1 / eta)

    def between(y: Params, z: Params, w: Params) -> Params:
        return tree.step(tree.step(tree.scale(0.5 - t1, y), t1, z), 0.5, w)

    def moved(x: Params, z: Params, g: Params) -> tuple[Params, Params]:
        return tree.step(x, -eta, g), tree.step(tree.mix(z, x, gamma * mu), -gamma, g)

    def coming(number: Tree, key: Tree) -> jax.Array:
        drawn = (jax.random.uniform(key, (2,)) < jnp.stack([p, p * (1 - p)])).astype(jnp.int32)
        if len(plan):
            known = jnp.asarray(plan, jnp.int32)[jnp.minimum(number, len(plan) - 1)]
            drawn = jnp.where(number < len(plan), known, drawn)
        return drawn

    def init(params: Params, key: Tree) -> Server:
        zero = jnp.zeros((), jnp.int32)
        return Means(params, params, params, coming(zero, key), zero - 1, zero, zero)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        pull, renew = server.coins
        y, z = moved(server.x, server.z, plain_mean(replies, cohort.weight))
        w = tree.where(renew, y, server.w)
        done = server.iterations + 1
        asked = server.communications + pull * (server.pulled == 0) + renew
        return Means(between(y, z, w), z, w, coming(done, key), pull, done, asked.astype(jnp.int32))

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        xbar, wbar, _ = message
        start = tree.mix(wbar, xbar, 2.0)  # so that the point between, half of it and half of wbar, is xbar
        return Points(start, start, wbar, full_gradient(loss, wbar, data, key))

    def local(own: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        xbar, wbar, (pull, renew) = message
        slope_key, renewed_key = jax.random.split(key)
        x = between(own.y, own.z, own.w)

        def pulling() -> Params:
            return tree.step(tree.scale(lam + L, tree.sub(x, xbar)), -L, tree.sub(own.w, wbar))

        def learning() -> Params:
            gap = tree.sub(full_gradient(loss, x, data, slope_key), own.slope)
            return tree.step(tree.scale(lam, tree.sub(own.w, wbar)), (lam + L) / L, gap)

        g = tree.add(lax.cond(pull, pulling, learning), own.slope)
        y, z = moved(x, own.z, g)
        slope = lax.cond(renew, lambda: full_gradient(loss, y, data, renewed_key), lambda: own.slope)
        return Points(y, z, tree.where(renew, y, own.w), slope), g

    return Method(
        init=init,
        message=lambda server, i: (server.x, server.w, server.coins),
        merge=merge,
        enroll=enroll,
        local=local,
        personal=lambda own, message, data, key: own.y,
    )
