"""The last layer of a model: what it sees of an example, how large it is, and whether it tells classes apart."""

from typing import Any

import jax
import jax.numpy as jnp

from apiece.client.draw import numbers
from apiece.errors import UserError
from apiece.protocol import Data, Params, Tree
from apiece.split import layers, part_of, path_name, paths


def see(model: Any, params: Params, x: Tree) -> jax.Array:
    """[batch, features]: what the model's last layer sees of examples, or the examples themselves, if it does not tell.

    >>> from apiece.models import softmax
    >>> see(softmax((2,), 3), (), jnp.array([[1.0, 2.0]])).tolist()
    [[1.0, 2.0]]
    """
    below = getattr(model, "features", None)
    seen = x if below is None else below(params, x)
    return numbers(seen.reshape(len(seen), -1))


def head_size(method: str, params: Params) -> tuple[int, int]:
    """(outputs, features) of the last layer, which is one matrix, with or without a bias.

    >>> head_size("fed_proto", {"hidden": {"w": jnp.zeros((4, 2))}, "out": {"w": jnp.zeros((3, 4)), "b": jnp.zeros(3)}})
    (3, 4)
    """
    names, mine = paths(params), part_of(params, "output")
    last = [leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(params) if mine(path_name(path))]
    matrices = [shape for shape in last if len(shape) == 2]
    if len(matrices) != 1:
        raise UserError(
            f"method '{method}' has to know how many features the model's last layer sees, and that layer is not one "
            f"matrix and a bias: the model's parameters are {', '.join(filter(None, names)) or 'a vector'}. Take "
            "another model or method"
        )
    rows, columns = matrices[0]
    return (columns, rows) if (columns,) in last and (rows,) not in last else (rows, columns)


def check_features(method: str, model: Any, params: Params, data: Data) -> None:
    """A model of several layers tells what its last one sees, as many numbers as that takes.

    >>> from apiece.models import Model
    >>> params, data = {"hidden": {"w": 0.0}, "out": {"w": 0.0}}, Data(jnp.ones((1, 2)), jnp.ones(1), 0, 1)
    >>> try: check_features("fed_proto", Model(None, None, "my network"), params, data)
    ... except UserError as error: print(error)
    method 'fed_proto' works on what a model's last layer sees, which my network does not tell: give it
    model._replace(features=lambda params, x: ...), or take another method
    """
    if getattr(model, "features", None) is None and len(layers(paths(params))) > 1:
        raise UserError(
            f"method '{method}' works on what a model's last layer sees, which {_name(model)} does not tell: give it "
            "model._replace(features=lambda params, x: ...), or take another method"
        )
    seen = jax.eval_shape(lambda x: see(model, params, x), data.x).shape[1]
    if seen != (taken := head_size(method, params)[1]):
        raise UserError(
            f"method '{method}' works on what a model's last layer sees: {_name(model)} tells {seen} features of an "
            f"example, and its last layer takes {taken}"
        )


def check_classes(method: str, model: Any, params: Params, data: Data) -> int:
    """The number of classes, if every example has one class and the model a score for each; else an error.

    >>> from apiece.models import linear
    >>> model = linear((2,))
    >>> try: check_classes("fed_rod", model, model.init(jax.random.key(0)), Data(jnp.ones((3, 2)), jnp.ones(3), 0, 3))
    ... except UserError as error: print(error)
    method 'fed_rod' is for examples of one class each; here labels are float32 of the shape () and linear 2-1 answers
    with (): take a classification, or another method
    """
    given = jax.eval_shape(lambda x: model.apply(params, jax.tree.map(lambda leaf: leaf[:1], x)), data.x)
    outputs, labels = (jax.tree.leaves(side) for side in (given, data.y))
    single = len(outputs) == len(labels) == 1 and labels[0].ndim == 1 and outputs[0].ndim == 2
    if not single or not jnp.issubdtype(labels[0].dtype, jnp.integer):
        told = lambda leaves: " and ".join(str(leaf.shape[1:]) for leaf in leaves)
        raise UserError(
            f"method '{method}' is for examples of one class each; here labels are {labels[0].dtype} of the shape "
            f"{told(labels)} and {_name(model)} answers with {told(outputs)}: take a classification, or another method"
        )
    return outputs[0].shape[1]


def _name(model: Any) -> str:
    return getattr(model, "name", "the model")
