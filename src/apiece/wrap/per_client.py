"""One method in which an option has a value of its own for every client."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from apiece.protocol import Client, Data, Message, Method, Params, Personal, Reply, Tree


def per_client(make: Callable[[Tree], Method], values: Any) -> Method:
    """The method that every client runs with its own of the values, one for each client; the server with their mean.

    The message tells a client its value; a client that is new has the mean. A state must not depend on the value in
    its shapes.

    Args:
        make: a value, which may be traced -> the method. values: a number for each client that trains.

    >>> import jax
    >>> from apiece.methods import ditto
    >>> method = per_client(lambda lam: ditto(lambda params, batch, key: 0.0, lam=lam), [0.5, 2.0])
    >>> server = method.init(jnp.zeros(1), jax.random.key(0))
    >>> [float(method.message(server, i)[1]) for i in (0, 1, 2)]
    [0.5, 2.0, 1.25]
    """
    each = jnp.asarray(values, float)
    base = make(each.mean())

    def message(server: Tree, i: Tree) -> Message:
        own = jnp.where(i < len(each), each[jnp.minimum(i, len(each) - 1)], each.mean())
        return base.message(server, i), own

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        return make(message[1]).enroll(params, message[0], data, key)

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        return make(message[1]).local(client, message[0], data, key)

    def personal(client: Client, message: Message, data: Data, key: Tree) -> Personal:
        return make(message[1]).personal(client, message[0], data, key)

    return base._replace(message=message, enroll=enroll, local=local, personal=personal)
