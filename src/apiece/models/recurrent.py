"""The LSTM, with a gradient of its own: the weight's is one product over all times, not a sum of small ones."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece.models.layers import dense
from apiece.protocol import Params


def lstm_init(key: Any, inputs: int, width: int) -> Params:
    """Weights of the inputs `w` [4 width, inputs] and of the state `u` [4 width, width], uniform up to 1 / sqrt(width).

    The four gates stand in the order input, forget, candidate, output; the forget gate starts open (bias 1).

    >>> jax.tree.map(jnp.shape, lstm_init(jax.random.key(0), 8, 16))
    {'b': (64,), 'u': (64, 16), 'w': (64, 8)}
    """
    w, u = jax.random.split(key)
    most = 1 / math.sqrt(width)
    draw = lambda key, columns: jax.random.uniform(key, (4 * width, columns), minval=-most, maxval=most)
    return {"w": draw(w, inputs), "u": draw(u, width), "b": jnp.zeros(4 * width).at[width : 2 * width].set(1.0)}


def lstm(layer: Params, x: jax.Array) -> jax.Array:
    """The states [batch, length, width] along the sequences [batch, length, inputs], from a state of zeros.

    With z = w x_t + u h_{t-1} + b in four parts: c_t = s(z_f) c_{t-1} + s(z_i) tanh(z_g), h_t = s(z_o) tanh(c_t).

    >>> lstm(lstm_init(jax.random.key(0), 8, 16), jnp.ones((2, 5, 8))).shape
    (2, 5, 16)
    """
    return _recur(dense(layer, x.swapaxes(0, 1)), layer["u"]).swapaxes(0, 1)


@jax.custom_vjp
def _recur(z: jax.Array, u: jax.Array) -> jax.Array:
    return _run(z, u)[0]


def _run(z: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array, tuple]:
    """(h, c, gates) at all times; z [length, batch, 4 width] is what the inputs say."""
    turned = lax.optimization_barrier(u.T)

    def step(state: tuple, z: jax.Array) -> tuple:
        h, c = state
        i, f, g, o = gates = _gates(z + h @ turned)
        c = f * c + i * g
        h = o * jnp.tanh(c)
        return (h, c), (h, c, gates)  # apart: putting them together and taking them apart again costs a quarter

    start = jnp.zeros((z.shape[1], u.shape[1]), z.dtype)
    return lax.scan(step, (start, start), z)[1]


def _gates(z: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    i, f, g, o = jnp.split(z, 4, axis=-1)
    s = lambda v: 0.5 * jnp.tanh(0.5 * v) + 0.5  # the logistic function, at the price of one tanh
    return s(i), s(f), jnp.tanh(g), s(o)


def _forward(z: jax.Array, u: jax.Array) -> tuple[jax.Array, Any]:
    h, c, gates = _run(z, u)
    return h, (u, h, c, gates)


def _backward(kept: tuple, dh: jax.Array) -> tuple[jax.Array, jax.Array]:
    u, h, c, gates = kept
    before = lambda states: jnp.concatenate([jnp.zeros_like(states[:1]), states[:-1]])

    def step(carry: tuple, now: tuple) -> tuple:
        dh_next, dc = carry
        dh, c, c_before, gates = now
        i, f, g, o = gates
        dh, t = dh + dh_next, jnp.tanh(c)
        dc = dc + dh * o * (1 - t * t)
        dz = jnp.concatenate(
            [dc * g * i * (1 - i), dc * c_before * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o)], axis=-1
        )
        return (dz @ u, dc * f), dz

    start = jnp.zeros_like(dh[0])
    dz: jax.Array = lax.scan(step, (start, start), (dh, c, before(c), gates), reverse=True)[1]
    flat = lambda v: v.reshape(-1, v.shape[-1])
    return dz, flat(dz).T @ flat(before(h))


_recur.defvjp(_forward, _backward)
