"""What a model is; linear regression, softmax regression and the multilayer perceptron.

Examples arrive as stored (uint8 images stay uint8 until here) and may have any shape: they are flattened.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece.client.draw import numbers
from apiece.errors import UserError
from apiece.models.layers import dense
from apiece.protocol import Params


class Model(NamedTuple):
    """`init(key) -> params`, `apply(params, x) -> outputs` for a batch of examples.

    `features(params, x)`, of a model that has a last layer, is what that layer sees: what can be computed once and
    kept when all below it stays as it is (`apiece.models.pretrain`).

    >>> constant = Model(init=lambda key: jnp.zeros(()), apply=lambda params, x: params + 0 * x[:, 0], name="constant")
    >>> constant.apply(jnp.array(2.0), jnp.ones((3, 4))).tolist()
    [2.0, 2.0, 2.0]
    """

    init: Callable[[Any], Params]
    apply: Callable[[Params, Any], Any]
    name: str = "model"
    features: Callable[[Params, Any], Any] | None = None


def with_output(init: Callable[[Any], Params], features: Callable[[Params, Any], Any], name: str) -> Model:
    """The model that ends with a dense layer, "out", on its features; a single output is a plain number.

    >>> params = {"out": {"w": jnp.ones((1, 2)), "b": jnp.zeros(1)}}
    >>> model = with_output(lambda key: params, lambda params, x: 2 * x, "twice the sum")
    >>> model.apply(params, jnp.array([[1.0, 2.0]])).tolist()
    [6.0]
    """

    def apply(params: Params, x: Any) -> Any:
        out = dense(params["out"], features(params, x))
        return out[..., 0] if out.shape[-1] == 1 else out

    return Model(init, apply, name, features)


def check_sizes(model: str, shape: Sequence[int], outputs: int, hidden: Sequence[int] = ()) -> int:
    """The number of features of an example, if all sizes of a model are possible; an error that names the wrong one.

    >>> check_sizes("softmax", (8, 8), 10)
    64
    """
    for name, sizes in (("shape", shape), ("outputs", (outputs,)), ("hidden", hidden)):
        if not isinstance(sizes, Sequence) or any(size < 1 for size in sizes):
            wanted = "a number of at least 1" if name == "outputs" else "sizes of at least 1, such as (64,)"
            raise UserError(f"{model}: {name} must be {wanted}, not {outputs if name == 'outputs' else sizes!r}")
    return math.prod(shape)


def check_counts(model: str, **counts: int) -> None:
    """Each is a whole number of at least 1, or an error that names the wrong one.

    >>> try: check_counts("char_lstm", tokens=90, layers=0)
    ... except UserError as error: print(error)
    char_lstm: layers must be a whole number of at least 1, not 0
    """
    for name, count in counts.items():
        if not isinstance(count, int | np.integer) or count < 1:
            raise UserError(f"{model}: {name} must be a whole number of at least 1, not {count!r}")


def linear(shape: Sequence[int], outputs: int = 1) -> Model:
    """A linear map with intercept, started at zero; one output gives a vector of predictions.

    >>> model = linear((3,))
    >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 3))).tolist()
    [0.0, 0.0]
    """
    features = check_sizes("linear", shape, outputs)

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
    features = check_sizes("softmax", shape, classes)
    init = lambda key: _zero_layer(features, classes)
    return Model(init, lambda params, x: dense(params, _flat(x)), f"softmax {features}-{classes}")


def mlp(shape: Sequence[int], outputs: int, hidden: Sequence[int] = (128,)) -> Model:
    """A multilayer perceptron with ReLU; layers are named hidden0, hidden1, ..., out.

    >>> model = mlp((64,), 10, hidden=(32,))
    >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0)))
    {'hidden0': {'b': (32,), 'w': (32, 64)}, 'out': {'b': (10,), 'w': (10, 32)}}
    """
    widths = [check_sizes("mlp", shape, outputs, hidden), *hidden, outputs]
    names = [f"hidden{k}" for k in range(len(hidden))] + ["out"]

    def init(key: Any) -> Params:
        keys = jax.random.split(key, len(names))
        fans = zip(names, keys, widths[:-1], widths[1:], strict=True)
        return {
            name: {"w": jax.random.normal(k, (wide, fan)) * math.sqrt(2 / fan), "b": jnp.zeros(wide)}
            for name, k, fan, wide in fans
        }

    features = lambda params, x: rectified(params, names[:-1], _flat(x))
    return with_output(init, features, "mlp " + "-".join(map(str, widths)))


def rectified(params: Params, names: Sequence[str], h: jax.Array) -> jax.Array:
    """Dense layers by name, one after another, each with a ReLU.

    >>> layer = {"w": jnp.array([[1.0], [-1.0]]), "b": jnp.zeros(2)}
    >>> rectified({"hidden0": layer}, ["hidden0"], jnp.ones((1, 1))).tolist()
    [[1.0, 0.0]]
    """
    for name in names:
        h = jax.nn.relu(dense(params[name], h))
    return h


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
