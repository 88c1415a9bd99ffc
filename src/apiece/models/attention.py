"""Causal attention: every place of a sequence looks at those before it and at itself."""

import math

import jax
import jax.numpy as jnp

from apiece.protocol import Params


def attention(layer: Params, x: jax.Array, heads: int) -> jax.Array:
    """In each head softmax(q k' / sqrt(width)) v over earlier places; x is [batch, length, width].

    `layer` has "w" [3 width, width] for queries, keys and values side by side and "out" [width, width], with biases
    "b" and "out_b".

    >>> layer = {"w": jnp.ones((6, 2)), "b": jnp.zeros(6), "out": jnp.eye(2), "out_b": jnp.zeros(2)}
    >>> attention(layer, jnp.array([[[1.0, 0.0], [0.0, 3.0]]]), heads=1)[0, 0].tolist()  # the first sees itself alone
    [1.0, 1.0]
    """
    batch, length, width = x.shape
    apart = (x @ layer["w"].T + layer["b"]).reshape(batch, length, 3, heads, width // heads)
    q, k, v = (apart[:, :, part].swapaxes(1, 2) for part in range(3))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(width // heads)
    past = jnp.tril(jnp.ones((length, length), bool))
    shares = jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-1)
    together = (shares @ v).swapaxes(1, 2).reshape(batch, length, width)
    return together @ layer["out"].T + layer["out_b"]
