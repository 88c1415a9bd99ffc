"""What a method costs, read off its traced functions: bytes from shapes, gradient evaluations from the program."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece import tree
from apiece.client.descend import GRADIENT_MARK
from apiece.engines.contact import Build
from apiece.protocol import Client, Data, Message, Method, Params, Tree


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
    return _costs(lambda hyper: method, {}, params, example, size)


def _costs(
    build: Callable[[dict[str, Any]], Method], hyper: dict[str, float], params: Params, example: tuple, size: int
) -> Costs:
    """The same with the options traced, as an engine traces them: what comes out holds for all of their values."""
    shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    x, y = jax.tree.map(shape, example)
    # The size is a plain number here, so that loops over the client's data have a known length.
    data = lambda x, y: Data(x, y, 0, size, size)
    key = jax.random.key(0)

    def arrive(hyper: dict[str, Any], params: Params, x: Tree, y: Tree) -> tuple[Message, Client]:
        method = build(hyper)
        message = method.message(method.init(params, key), np.int32(0))
        return message, method.enroll(params, message, data(x, y), key)

    local = lambda hyper, client, message, x, y: build(hyper).local(client, message, data(x, y), key)
    personal = lambda hyper, client, message, x, y: build(hyper).personal(client, message, data(x, y), key)
    message, client = jax.eval_shape(arrive, hyper, params, x, y)
    keeps = () if build(hyper).forgets else client
    working, (_, reply) = jax.make_jaxpr(local, return_shape=True)(hyper, client, message, x, y)
    using = jax.make_jaxpr(personal)(hyper, client, message, x, y)
    down, up, kept = (tree.size_in_bytes(each) for each in (message, reply, keeps))
    return Costs(down, up, kept, gradients_in(working.jaxpr), gradients_in(using.jaxpr))


def visit_costs(
    build: Build, hyper: dict[str, float], params: Params, example: tuple, sizes: np.ndarray, known: dict[tuple, Costs]
) -> dict[int, Costs]:
    """The costs of a visit by client size; sizes between two that cost the same cost that, too.

    `known`: what was found before, for the same method on examples of the same shapes; it is added to.
    """
    every = np.unique(sizes)

    def of(at: int) -> Costs:
        size = int(every[at])
        found = _found(known, (size,), lambda hyper: build(hyper, 0), hyper, params, example, size)
        if not math.isnan(found.gradients + found.gradients_personal):
            return found
        # A number of steps may be made from the options: then it is known for their values alone, or not even for them.
        values = (size, *sorted(hyper.items()))
        return _found(known, values, lambda none: build(hyper, 0), {}, params, example, size)

    found: dict[int, Costs] = {}

    def fill(first: int, last: int) -> None:
        if repr(of(first)) == repr(of(last)) or last - first < 2:  # as text: not a number is then like itself
            for at in range(first, last + 1):
                found[int(every[at])] = of(at if at == last else first)
        else:
            fill(first, (first + last) // 2)
            fill((first + last) // 2, last)

    fill(0, len(every) - 1)
    return found


def _found(known: dict[tuple, Costs], key: tuple, *what: Any) -> Costs:
    if key not in known:
        known[key] = _costs(*what)
    return known[key]


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
