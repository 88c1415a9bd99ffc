"""One client's part of a run, as pure functions: what every engine calls, wherever the client is."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.protocol import Client, Data, Message, Method, Params, Personal, Reply, Tree

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


class Visit(NamedTuple):
    """What a visit leaves at the client, and what it sends.

    `after` is the client's state once its reply counted, `kept` what it keeps if it does not (where the method says
    so; else nothing: the client is then as it was before). `sound`: whether the reply is all numbers, where a
    simulation asks.
    """

    after: Client
    kept: Client
    reply: Reply
    sound: Tree = ()


def mix_rows(i: int, count: int) -> np.ndarray:
    """A client's row numbers in a random order of its own: where only some of its examples are to count, which ones.

    >>> mix_rows(1, 4).tolist()
    [1, 2, 0, 3]
    """
    order = np.arange(count)
    np.random.default_rng([0x6E6577, i]).shuffle(order)
    return order


def remembered(method: Method, params: Params, message: Message, data: Data, key: Tree) -> Client:
    """What a client that enrolls keeps: its state, or nothing where that follows from the initial model.

    >>> from apiece.methods import scaffold
    >>> method, w = scaffold(lambda w, batch, key: 0.0), np.ones(2)
    >>> given = (w, (w, w), Data(w, w, 0, 2), jax.random.key(0))
    >>> [np.size(remembered(each, *given)) for each in (method, method._replace(forgets=True))]
    [2, 0]
    """
    return () if method.forgets else method.enroll(params, message, data, key)


def visit(
    method: Method, params: Params, known: Tree, client: Client, message: Message, data: Data, key: Tree
) -> Visit:
    """A round at one client: enroll if it has no memory (`known` is False), then work."""
    enroll_key, work_key = jax.random.split(key)
    if method.forgets:
        again = method.enroll(params, message, data, enroll_key)
        return Visit((), (), method.local(again, message, data, work_key)[1])
    before = lax.cond(known, lambda: client, lambda: method.enroll(params, message, data, enroll_key))
    after, reply = method.local(before, message, data, work_key)
    return Visit(after, () if method.keep is None else method.keep(before, after), reply)


def is_finite(reply: Reply) -> Any:
    """Whether a reply is all numbers: one that is not does not count, and leaves its client as it was before.

    >>> bool(is_finite({"w": np.ones(2), "visits": np.int32(3)})), bool(is_finite(np.array([1.0, np.nan])))
    (True, False)
    """
    found = jnp.bool_(True)
    for leaf in jax.tree.leaves(reply):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            found &= jnp.isfinite(leaf).all()
    return found


def weigh_sound(weight: Any, sound: Any) -> tuple[Any, Any]:
    """(weights without the replies that are not finite, how many these are), of stacked replies.

    Where none is finite they stay: then no client is to blame, and a method that diverges is seen to.

    >>> [part.tolist() for part in weigh_sound(jnp.array([2.0, 1.0, 0.0]), jnp.array([True, False, False]))]
    [[2.0, 0.0, 0.0], 1]
    """
    heard = jnp.where(sound, weight, 0)
    some = (heard > 0).any()
    refused = jnp.where(some, ((weight > 0) & ~sound).sum(dtype=jnp.int32), 0)
    return jnp.where(some, heard, weight), refused


def settle(method: Method, counted: Tree, known: Tree, client: Client, work: Visit) -> tuple[Client, Tree]:
    """(state, known) of a client once it is clear whether the reply of its last visit counted.

    >>> import jax.numpy as jnp
    >>> never = Method(*[None] * 6)
    >>> [settle(never, told, True, jnp.array(1.0), Visit(jnp.array(2.0), (), ()))[0].item() for told in (True, False)]
    [2.0, 1.0]
    """
    if method.keep is None:
        return tree.where(counted, work.after, client), counted | known
    return tree.where(counted, work.after, work.kept), counted | True


def model_in_use(
    method: Method,
    params: Params,
    known: Tree,
    client: Client,
    message: Message,
    data: Data,
    key: Tree,
    visits: Tree,
) -> Personal:
    """The model a client uses. One that never took part first works alone with the server as it stands now:
    it enrolls and makes `visits` visits whose replies nobody hears, so that it is not judged on an untrained state.
    """
    enroll_key, visit_key, personal_key = jax.random.split(key, 3)
    if method.forgets:
        return method.personal(method.enroll(params, message, data, enroll_key), message, data, personal_key)

    def catch_up() -> Client:
        work = lambda v, c: method.local(c, message, data, jax.random.fold_in(visit_key, v))[0]
        return lax.fori_loop(0, visits, work, method.enroll(params, message, data, enroll_key))

    client = lax.cond(known, lambda: client, catch_up)
    return method.personal(client, message, data, personal_key)


def visit_shapes(method: Method, params: Params, example: tuple[Tree, Tree], capacity: int) -> tuple[Client, Reply]:
    """The shapes of one client's state and of its reply; `example` is (x, y) of a row or more, for shapes.

    >>> import jax.numpy as jnp
    >>> from apiece.methods import ffgg
    >>> params, loss = {"w": jnp.zeros(3), "out": jnp.zeros(2)}, lambda p, batch, key: p["w"].sum() * p["out"].sum()
    >>> visit_shapes(ffgg(loss, private="out"), params, (jnp.zeros((1, 2)), jnp.zeros(1)), 5)[1]["w"].shape
    (3,)
    """

    def made(params: Params, x: Tree, y: Tree, key: Tree) -> tuple[Client, Reply]:
        data = Data(x, y, 0, 1, capacity)
        message = method.message(method.init(params, key), 0)
        client = method.enroll(params, message, data, key)
        return client, method.local(client, message, data, key)[1]

    return _shapes_of(made, params, example)


def newcomer_model(
    method: Method, params: Params, server: Tree, x: Tree, y: Tree, *, seed: int, round: int, i: int, visits: int
) -> Personal:
    """A model for a client that nobody has seen, from its own examples and the server's state; `i` is its number.

    >>> import jax.numpy as jnp
    >>> from apiece.methods import fed_avg
    >>> method, x = fed_avg(lambda p, batch, key: 0.0, steps=1), jnp.ones(3)
    >>> run = dict(seed=0, round=5, i=9, visits=1)
    >>> newcomer_model(method, jnp.zeros(3), x, jnp.zeros((2, 1)), jnp.zeros(2), **run).tolist()
    [1.0, 1.0, 1.0]
    """
    data = Data(x, y, 0, len(y), len(y))
    key, message = key_of(keys(seed).personal, round, i), method.message(server, i)
    state = jax.eval_shape(lambda params, message: method.enroll(params, message, data, key), params, message)
    nothing = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), state)
    enter = jax.jit(functools.partial(model_in_use, method))
    return enter(params, False, nothing, message, data, key, visits)


def model_shapes(method: Method, params: Params, example: tuple[Tree, Tree], capacity: int) -> Personal:
    """The shapes of one client's personal model; `example` is (x, y) of a row or more, for shapes.

    >>> import jax.numpy as jnp
    >>> from apiece.methods import fed_avg
    >>> model_shapes(fed_avg(lambda p, batch, key: 0.0), jnp.zeros(3), (jnp.zeros((1, 2)), jnp.zeros(1)), 5).shape
    (3,)
    """

    def made(params: Params, x: Tree, y: Tree, key: Tree) -> Personal:
        data = Data(x, y, 0, 1, capacity)
        message = method.message(method.init(params, key), 0)
        return method.personal(method.enroll(params, message, data, key), message, data, key)

    return _shapes_of(made, params, example)


def _shapes_of(made: Callable[..., Tree], params: Params, example: tuple[Tree, Tree]) -> Tree:
    x, y = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), example)
    return jax.eval_shape(made, params, x, y, jax.random.key(0))
