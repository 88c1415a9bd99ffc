"""What a method costs, read off its traced functions: bytes from shapes, gradient evaluations from the program."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece import tree
from apiece.client.descend import GRADIENT_MARK
from apiece.protocol import Data, Method, Params, Tree


class Costs(NamedTuple):
    """Per visit of one client: bytes down and up, gradient evaluations; what a client keeps; and the final use."""

    bytes_down: int
    bytes_up: int
    bytes_kept: int
    gradients: float
    gradients_personal: float


def costs(method: Method, params: Params, example: tuple, size: int) -> Costs:
    """The costs of a visit to a client with `size` examples; `example` is (x, y) of one or more rows, for shapes.

    A gradient evaluation is one gradient of the loss over one batch. NaN if the number is only known at run time.

    >>> import jax.numpy as jnp
    >>> from apiece.methods import ditto
    >>> loss = lambda w, batch, key: (w * batch.weight).sum()
    >>> costs(ditto(loss, steps=5), jnp.zeros(()), (jnp.zeros((1, 2)), jnp.zeros(1)), size=40)
    Costs(bytes_down=4, bytes_up=4, bytes_kept=4, gradients=10, gradients_personal=0)
    """
    return _costs(method, *_shapes(method, params, example, size), size)


def visit_costs(method: Method, params: Params, example: tuple, sizes: np.ndarray) -> dict[int, Costs]:
    """The costs of a visit by client size; sizes between two that cost the same cost that, too."""
    every = np.unique(sizes)
    shapes = _shapes(method, params, example, int(every[0]))  # all clients' states lie in one array: of one shape
    of = functools.cache(lambda at: _costs(method, *shapes, int(every[at])))
    found: dict[int, Costs] = {}

    def fill(first: int, last: int) -> None:
        if of(first) == of(last) or last - first < 2:
            for at in range(first, last + 1):
                found[int(every[at])] = of(at if at == last else first)
        else:
            fill(first, (first + last) // 2)
            fill((first + last) // 2, last)

    fill(0, len(every) - 1)
    return found


def _shapes(method: Method, params: Params, example: tuple, size: int) -> tuple[Tree, Tree, tuple]:
    """The shapes of a client's state, of a message and of the examples."""
    example = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), example)
    key = jax.random.key(0)
    server = jax.eval_shape(method.init, params, key)
    message = jax.eval_shape(method.message, server, np.int32(0))
    enroll = lambda m, x, y: method.enroll(params, m, Data(x, y, 0, size, size), key)
    return jax.eval_shape(enroll, message, *example), message, example


def _costs(method: Method, client: Tree, message: Tree, example: tuple, size: int) -> Costs:
    key = jax.random.key(0)
    # The size is a plain number here, so that loops over the client's data have a known length.
    local = lambda c, m, x, y: method.local(c, m, Data(x, y, 0, size, size), key)
    personal = lambda c, m, x, y: method.personal(c, m, Data(x, y, 0, size, size), key)
    work, (_, reply) = jax.make_jaxpr(local, return_shape=True)(client, message, *example)
    return Costs(
        tree.size_in_bytes(message),
        tree.size_in_bytes(reply),
        tree.size_in_bytes(client),
        gradients_in(work.jaxpr),
        gradients_in(jax.make_jaxpr(personal)(client, message, *example).jaxpr),
    )


def gradients_in(program: Any) -> float:
    """How many marked gradients a traced program takes, loops multiplied out; NaN inside a loop of unknown length."""
    total: float = 0
    for equation in program.eqns:
        if equation.primitive.name == "name":
            total += equation.params["name"] == GRADIENT_MARK
            continue
        inner = sum(gradients_in(getattr(p, "jaxpr", p)) for p in _programs(equation.params))
        if equation.primitive.name == "scan":
            inner *= equation.params["length"]
        elif equation.primitive.name == "while" and inner:
            inner = float("nan")
        total += inner
    return total


def _programs(params: dict) -> list:
    nested = [value for value in params.values() if hasattr(value, "eqns") or hasattr(value, "jaxpr")]
    branches = params.get("branches", ())
    # Of a branch, the dearest: costs are what a client must be ready to pay.
    return nested + ([max(branches, key=lambda b: gradients_in(b.jaxpr))] if branches else [])
