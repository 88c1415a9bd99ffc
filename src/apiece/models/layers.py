"""The small layers that models are made of: dense, embedding, normalization; and how their weights start.

A layer is a function of its parameters, a dict of arrays. Dense weights are stored as [outputs, inputs]: with few
outputs XLA on a CPU is almost twice as fast that way.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece.errors import UserError
from apiece.protocol import Params


def dense_init(key: Any, inputs: int, outputs: int, gain: float = 2.0) -> Params:
    """A weight of variance gain / inputs (He's 2 before a ReLU, 1 before none), and a bias of zero.

    >>> jax.tree.map(jnp.shape, dense_init(jax.random.key(0), 3, 2))
    {'b': (2,), 'w': (2, 3)}
    """
    return {"w": jax.random.normal(key, (outputs, inputs)) * math.sqrt(gain / inputs), "b": jnp.zeros(outputs)}


def dense(layer: Params, x: jax.Array) -> jax.Array:
    """x W' + b, over the last axis.

    >>> dense({"w": jnp.ones((1, 2)), "b": jnp.ones(1)}, jnp.array([[2.0, 3.0]])).tolist()
    [[6.0]]
    """
    return x @ layer["w"].T + layer["b"]


def convolution_init(key: Any, window: tuple[int, ...], inputs: int, outputs: int, bias: bool = True) -> Params:
    """Filters [*window, inputs, outputs] of variance 2 / (inputs in a window); a bias of zero, where there is one.

    >>> jax.tree.map(jnp.shape, convolution_init(jax.random.key(0), (3, 3), 1, 8))
    {'b': (8,), 'w': (3, 3, 1, 8)}
    """
    w = jax.random.normal(key, (*window, inputs, outputs)) * math.sqrt(2 / (math.prod(window) * inputs))
    return {"w": w, "b": jnp.zeros(outputs)} if bias else {"w": w}


def embedding_init(key: Any, tokens: int, width: int, scale: float = 1.0) -> Params:
    """A normal vector for each token.

    >>> embedding_init(jax.random.key(0), 90, 8)["w"].shape
    (90, 8)
    """
    return {"w": scale * jax.random.normal(key, (tokens, width))}


def embedding(layer: Params, tokens: jax.Array) -> jax.Array:
    """The vectors of the tokens; a padding token (negative) has a vector of zeros.

    >>> embedding({"w": jnp.array([[1.0], [2.0]])}, jnp.array([[1, 0, -1]])).ravel().tolist()
    [2.0, 1.0, 0.0]
    """
    tokens = tokens.astype(jnp.int32)
    return jnp.where((tokens >= 0)[..., None], layer["w"][jnp.maximum(tokens, 0)], 0)


def norm_init(channels: int) -> Params:
    """Scale 1 and shift 0, which every normalization starts from.

    >>> sorted(norm_init(4))
    ['b', 'scale']
    """
    return {"scale": jnp.ones(channels), "b": jnp.zeros(channels)}


def layer_norm(layer: Params, x: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """Mean 0 and variance 1 over the last axis, then scaled and shifted.

    >>> layer_norm(norm_init(2), jnp.array([[1.0, 3.0]])).round(2).tolist()
    [[-1.0, 1.0]]
    """
    return _normal(x, -1, epsilon) * layer["scale"] + layer["b"]


def group_norm(layer: Params, x: jax.Array, groups: int, epsilon: float = 1e-5) -> jax.Array:
    """Mean 0 and variance 1 over each example's groups of channels and all its places, then scaled and shifted.

    No statistics are kept, so it means the same at every client.

    >>> float(group_norm(norm_init(4), jnp.arange(16.0).reshape(1, 2, 2, 4), groups=2).std().round(2))
    1.0
    """
    *_, channels = x.shape
    if channels % groups:
        raise UserError(f"{channels} channels do not make {groups} groups; the groups must divide the channels")
    apart = x.reshape(x.shape[0], -1, groups, channels // groups)
    return _normal(apart, (1, 3), epsilon).reshape(x.shape) * layer["scale"] + layer["b"]


def _normal(x: jax.Array, axes: int | tuple[int, ...], epsilon: float) -> jax.Array:
    centred = x - x.mean(axes, keepdims=True)
    return centred * lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + epsilon)
