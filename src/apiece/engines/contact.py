"""One client's part of a run, as pure functions: what every engine calls, wherever the client is."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax

from apiece.protocol import Client, Data, Message, Method, Params, Reply, Tree

Build = Callable[[dict[str, Any], Any], Method]  # (hyper-parameters, round) -> the method of that round; may be traced


class Keys(NamedTuple):
    """The streams of randomness of a run, told apart so that none is spent twice."""

    model: Tree
    server: Tree
    client: Tree
    personal: Tree


@functools.lru_cache(maxsize=64)
def keys(seed: int) -> Keys:
    """The four streams of a seed.

    >>> len(keys(0))
    4
    """
    root = jax.random.key(seed)
    return Keys(*(jax.random.fold_in(root, stream) for stream in range(4)))


def key_of(stream: Tree, round: Tree, i: Tree) -> Tree:
    """A client's key: from when and who, never from the order in which clients are run.

    >>> bool((key_of(jax.random.key(0), 1, 2) == key_of(jax.random.key(0), 2, 1)).all())
    False
    """
    return jax.random.fold_in(jax.random.fold_in(stream, round), i)


def visit(
    method: Method, params: Params, known: Tree, client: Client, message: Message, data: Data, key: Tree
) -> tuple[Client, Reply]:
    """A round at one client: enroll if it has no memory (`known` is False), then work."""
    enroll_key, work_key = jax.random.split(key)
    client = lax.cond(known, lambda: client, lambda: method.enroll(params, message, data, enroll_key))
    return method.local(client, message, data, work_key)


def model_in_use(
    method: Method,
    params: Params,
    known: Tree,
    client: Client,
    message: Message,
    data: Data,
    key: Tree,
    visits: Tree,
) -> Params:
    """The model a client uses. One that never took part first works alone with the server as it stands now:
    it enrolls and makes `visits` visits whose replies nobody hears, so that it is not judged on an untrained state.
    """
    enroll_key, visit_key, personal_key = jax.random.split(key, 3)

    def settle() -> Client:
        work = lambda v, c: method.local(c, message, data, jax.random.fold_in(visit_key, v))[0]
        return lax.fori_loop(0, visits, work, method.enroll(params, message, data, enroll_key))

    client = lax.cond(known, lambda: client, settle)
    return method.personal(client, message, data, personal_key)
