"""What a model is; linear regression, softmax regression and the multilayer perceptron.

Examples arrive as stored (uint8 images stay uint8 until here) and may have any shape: they are flattened.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from apiece.models.layers import dense, numbers
from apiece.protocol import Params


class Model(NamedTuple):
    """`init(key) -> params`, `apply(params, x) -> outputs` for a batch of examples.

    >>> constant = Model(init=lambda key: jnp.zeros(()), apply=lambda params, x: params + 0 * x[:, 0], name="constant")
    >>> constant.apply(jnp.array(2.0), jnp.ones((3, 4))).tolist()
    [2.0, 2.0, 2.0]
    """

    init: Callable[[Any], Params]
    apply: Callable[[Params, Any], Any]
    name: str = "model"


def linear(shape: Sequence[int], outputs: int = 1) -> Model:
    """A linear map with intercept, started at zero; one output gives a vector of predictions.

    >>> model = linear((3,))
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 3))).tolist()
    [0.0, 0.0]
    """
    features = math.prod(shape)

    def apply(params: Params, x: jax.Array) -> jax.Array:
        out = dense(params, _flat(x))
        return out[:, 0] if outputs == 1 else out

    return Model(lambda key: _zero_layer(features, outputs), apply, f"linear {features}-{outputs}")


def softmax(shape: Sequence[int], classes: int) -> Model:
    """Softmax (multinomial logistic) regression, started at zero.

    >>> model = softmax((8, 8), 10)
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 8, 8), jnp.uint8)).shape
    (2, 10)
    """
    features = math.prod(shape)
    init = lambda key: _zero_layer(features, classes)
    return Model(init, lambda params, x: dense(params, _flat(x)), f"softmax {features}-{classes}")


def mlp(shape: Sequence[int], outputs: int, hidden: Sequence[int] = (128,)) -> Model:
    """A multilayer perceptron with ReLU; layers are named hidden0, hidden1, ..., out.

    >>> model = mlp((64,), 10, hidden=(32,))
    >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0)))
    {'hidden0': {'b': (32,), 'w': (32, 64)}, 'out': {'b': (10,), 'w': (10, 32)}}
    """
    widths = [math.prod(shape), *hidden, outputs]
    names = [f"hidden{k}" for k in range(len(hidden))] + ["out"]

    def init(key: Any) -> Params:
        keys = jax.random.split(key, len(names))
        fans = zip(names, keys, widths[:-1], widths[1:], strict=True)
        return {
            name: {"w": jax.random.normal(k, (wide, fan)) * math.sqrt(2 / fan), "b": jnp.zeros(wide)}
            for name, k, fan, wide in fans
        }

    def apply(params: Params, x: jax.Array) -> jax.Array:
        h = _flat(x)
        for name in names[:-1]:
            h = jax.nn.relu(dense(params[name], h))
        out = dense(params["out"], h)
        return out[:, 0] if outputs == 1 else out

    return Model(init, apply, "mlp " + "-".join(map(str, widths)))


def quadratic(features: int) -> Model:
    """The vector w itself, started at zero, for clients whose loss is w'Hw/2 - b'w (an "example" is H, its label b).

    >>> model = quadratic(2)
    >>> w, bowl = model.apply(jnp.array([1.0, 2.0]), jnp.eye(2)[None])
    >>> bowl.tolist()
    [2.5]
    """
    apply = lambda w, x: (w, jnp.einsum("i,nij,j->n", w, x, w) / 2)
    return Model(lambda key: jnp.zeros(features), apply, f"quadratic {features}")


def _zero_layer(features: int, outputs: int) -> Params:
    return {"w": jnp.zeros((outputs, features)), "b": jnp.zeros(outputs)}


def _flat(x: jax.Array) -> jax.Array:
    return numbers(x.reshape(x.shape[0], -1))
