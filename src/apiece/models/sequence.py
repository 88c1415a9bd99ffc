"""Models of sequences of tokens [batch, length]: LSTMs, and a small causal transformer.

With `every=True` a model gives logits at all places [batch, length, outputs], for targets [batch, length] (the next
token at each place, -1 where there is none); else one row an example. Negative tokens are padding, at the end.
"""

from typing import Any

import jax
import jax.numpy as jnp

from apiece.errors import UserError
from apiece.models.attention import attention
from apiece.models.layers import dense, dense_init, embedding, embedding_init, layer_norm, norm_init
from apiece.models.model import Model, check_counts, with_output
from apiece.models.recurrent import lstm, lstm_init
from apiece.protocol import Params


def char_lstm(
    tokens: int, outputs: int | None = None, embed: int = 8, width: int = 256, layers: int = 2, every: bool = True
) -> Model:
    """The next character: an embedding, LSTM layers, and the outputs (as many as there are tokens) at every place.

    >>> model = char_lstm(90, width=16)
    >>> jax.jit(model.apply)(jax.jit(model.init)(jax.random.key(0)), jnp.zeros((2, 5), jnp.uint8)).shape
    (2, 5, 90)
    """
    outputs = tokens if outputs is None else outputs
    name = "char_lstm" if every else "text_lstm"
    check_counts(name, tokens=tokens, outputs=outputs, embed=embed, width=width, layers=layers)

    def init(key: Any) -> Params:
        keys = jax.random.split(key, layers + 2)
        fans = [embed] + [width] * (layers - 1)
        params = {"embed": embedding_init(keys[0], tokens, embed)}
        params |= {f"lstm{k}": lstm_init(keys[k + 1], fan, width) for k, fan in enumerate(fans)}
        return params | {"out": dense_init(keys[-1], width, outputs, gain=1.0)}

    def features(params: Params, x: jax.Array) -> jax.Array:
        h = embedding(params["embed"], x)
        for k in range(layers):
            h = lstm(params[f"lstm{k}"], h)
        return h if every else last_place(h, x)

    return with_output(init, features, f"lstm {tokens}-{embed}-{'-'.join([str(width)] * layers)}-{outputs}")


def text_lstm(tokens: int, outputs: int = 2, embed: int = 100, width: int = 256, layers: int = 2) -> Model:
    """The kind of a text (its sentiment): as `char_lstm`, judged at the text's last token.

    >>> model = text_lstm(50, embed=4, width=8)
    >>> jax.jit(model.apply)(jax.jit(model.init)(jax.random.key(0)), jnp.zeros((3, 25), jnp.int32)).shape
    (3, 2)
    """
    return char_lstm(tokens, outputs, embed, width, layers, every=False)


def transformer(
    tokens: int,
    outputs: int | None = None,
    length: int = 128,
    width: int = 256,
    inner: int = 1024,
    heads: int = 4,
    blocks: int = 4,
    every: bool = True,
) -> Model:
    """The next token: embeddings of token and place, causal blocks (norm first), a last norm, and the outputs.

    A block is x + attention(norm(x)), then x + dense(gelu(dense(norm(x)))).

    >>> model = transformer(90, length=20, width=16, inner=32)
    >>> jax.jit(model.apply)(jax.jit(model.init)(jax.random.key(0)), jnp.zeros((2, 5), jnp.int32)).shape
    (2, 5, 90)
    """
    outputs = tokens if outputs is None else outputs
    check_counts("transformer", tokens=tokens, outputs=outputs, length=length, width=width, inner=inner, heads=heads,
                 blocks=blocks)  # fmt: skip
    if width % heads:
        raise UserError(f"a width of {width} does not make {heads} heads; the heads must divide the width")

    def init(key: Any) -> Params:
        keys = iter(jax.random.split(key, 3 + 4 * blocks))
        params = {"embed": embedding_init(next(keys), tokens, width, 0.02)}
        params |= {"embed_place": embedding_init(next(keys), length, width, 0.02)}
        for k in range(blocks):
            mixed, out = (dense_init(next(keys), width, wide, gain=1.0) for wide in (3 * width, width))
            params[f"block{k}"] = {
                "norm0": norm_init(width),
                "attention": {**mixed, "out": out["w"], "out_b": out["b"]},
                "norm1": norm_init(width),
                "dense0": dense_init(next(keys), width, inner),
                "dense1": dense_init(next(keys), inner, width, gain=1.0),
            }
        return params | {"norm": norm_init(width), "out": dense_init(next(keys), width, outputs, gain=1.0)}

    def features(params: Params, x: jax.Array) -> jax.Array:
        if x.shape[1] > length:
            raise UserError(f"sequences of {x.shape[1]} tokens are longer than the transformer's length = {length}")
        h = embedding(params["embed"], x) + params["embed_place"]["w"][: x.shape[1]]
        for k in range(blocks):
            block = params[f"block{k}"]
            h = h + attention(block["attention"], layer_norm(block["norm0"], h), heads)
            inside = jax.nn.gelu(dense(block["dense0"], layer_norm(block["norm1"], h)))
            h = h + dense(block["dense1"], inside)
        h = layer_norm(params["norm"], h)
        return h if every else last_place(h, x)

    return with_output(init, features, f"transformer {blocks} x {width}/{inner}, {tokens}-{outputs}")


def last_place(h: jax.Array, tokens: jax.Array) -> jax.Array:
    """The state [batch, width] at each sequence's last token.

    >>> last_place(jnp.arange(6.0).reshape(2, 3, 1), jnp.array([[4, 4, 4], [4, -1, -1]])).ravel().tolist()
    [2.0, 3.0]
    """
    if not jnp.issubdtype(tokens.dtype, jnp.signedinteger):
        return h[:, -1]
    last = jnp.maximum((tokens >= 0).sum(1) - 1, 0)
    return jnp.take_along_axis(h, last[:, None, None], axis=1)[:, 0]
