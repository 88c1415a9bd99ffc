"""Method -> Method: variations by composition."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from apiece import tree
from apiece.local import descend, toward
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree
from apiece.split import Part, divide, given, join, path_name, split, under


def fine_tuned(
    method: Method,
    loss: Loss,
    *,
    steps: Tree = 20,
    epochs: Tree | None = 10,
    lr: Tree = 0.1,
    batch: int = 32,
    lam: Tree = 0.0,
    part: str | Part = "",
) -> Method:
    """The same training; each client then fine-tunes the model it would have used, on its own training data.

    With `lam` > 0 the fine-tuning minimizes L_i(p) + lam/2 |p - p_0|^2 (ridge): p_0 is the model it starts from.
    With a `part` (words or a predicate, see `apiece.split`) only that part of the model is tuned.
    Nothing is sent and nothing is kept beyond what `method` sends and keeps.

    >>> from apiece.methods import fed_avg
    >>> loss = lambda params, batch, key: 0.0
    >>> fine_tuned(fed_avg(loss), loss, epochs=5, lam=0.1).personal.__name__
    'personal'
    """
    tune = partial(descend, steps=steps, epochs=epochs, lr=lr, batch=batch)

    def personal(client: Client, message: Message, data: Data, key: Tree) -> Params:
        start = method.personal(client, message, data, key)
        if not part:
            return tune(loss, start, data, key, shift=toward(start, lam))
        held, own = split(start, part)
        return join(held, tune(given(loss, held), own, data, key, shift=toward(own, lam)))

    return method._replace(personal=personal)


def server_optimized(method: Method, optimizer: optax.GradientTransformation, model: str | Part = "") -> Method:
    """The same clients; the server takes the step it would have taken as (minus) a gradient for any optax optimizer.

    `optax.sgd(1.0)` is the method itself. Where the server's state is more than a model, `model` says which of it
    is one: its path(s) in the state, or a predicate on paths (Scaffold: "0"); by default everything that is not a
    whole number. The rest is merged as ever. What the optimizer remembers is kept by the server, and not sent.

    >>> from apiece.methods import fed_avg
    >>> wrapped = server_optimized(fed_avg(lambda params, batch, key: 0.0), optax.sgd(1.0))
    >>> wrapped.message(("model", "memory"), 0)
    'model'
    """
    chosen = under(*(word.strip() for word in model.split(","))) if isinstance(model, str) and model else model

    def parts(server: Server) -> tuple[Server, Params]:
        flat = jax.tree_util.tree_leaves_with_path(server)
        real = {path_name(path) for path, leaf in flat if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)}
        return divide(server, lambda path: path in real and (not callable(chosen) or chosen(path)))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        state, memory = server
        x = parts(state)[1]
        rest, target = parts(method.merge(state, replies, cohort, key))
        move, memory = optimizer.update(tree.sub(x, target), memory, x)
        return join(rest, optax.apply_updates(x, move)), memory

    def init(params: Params, key: Tree) -> Server:
        state = method.init(params, key)
        return state, optimizer.init(parts(state)[1])

    return method._replace(init=init, message=lambda server, i: method.message(server[0], i), merge=merge)


def discounted(method: Method, *, power: Tree = 0.5, scale: Tree = 1.0) -> Method:
    """The same method; a reply that comes d server versions late counts `scale` (1 + d)^-power of its length.

    For asynchronous runs, and for methods whose replies are updates. Where each reply is merged at once, `scale` is the
    part of a reply that the server takes over (FedAsync: Xie, Koyejo and Gupta 2019).

    >>> from apiece.methods import fed_avg
    >>> method = discounted(fed_avg(lambda params, batch, key: 0.0), power=1.0)
    >>> cohort = Cohort(jnp.arange(2), jnp.ones(2), delay=jnp.array([0, 3]), population=2)
    >>> float(method.merge(jnp.array(0.0), jnp.array([4.0, 4.0]), cohort, None))  # (4 + 4/4) / 2
    2.5
    """

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        part = scale * (1.0 + cohort.delay) ** -power
        return method.merge(server, jax.vmap(tree.scale)(part, replies), cohort, key)

    return method._replace(merge=merge)


def _itself(server: Server) -> Params:
    return server


def pipeline(
    loss: Loss,
    first: Method,
    second: Method,
    *,
    rounds: Tree,
    private: str | Part,
    carry: Callable[[Server], Params] = _itself,
    steps: Tree = 20,
    epochs: Tree | None = 5,
    lr: Tree = 0.1,
    batch: int = 32,
) -> Method:
    """Three stages: shared training, partial personalization, and fine-tuning of the private part alone.

    `first` for `rounds` rounds (FedAvg, FedAdam: all of the model); then `second` from the model found (FFGG, Local
    FFGG, a partial method); then each client tunes its `private` part with the shared part held. This is `staged` and
    `fine_tuned`, with their options; a `second` that fine-tunes by itself (as FFGG does) needs `staged` alone.

    >>> from apiece.methods import ditto, fed_avg
    >>> loss = lambda params, batch, key: 0.0
    >>> three = pipeline(loss, fed_avg(loss), ditto(loss), rounds=100, private="output")
    >>> int(three.init({"w": jnp.zeros(2)}, jax.random.key(0))[0])
    0
    """
    method = staged(first, second, rounds, carry)
    return fine_tuned(method, loss, steps=steps, epochs=epochs, lr=lr, batch=batch, part=private)


def staged(first: Method, second: Method, rounds: Tree, carry: Callable[[Server], Params] = _itself) -> Method:
    """The first method for so many rounds, then the second, from the shared model that the first has found.

    At the switch the server opens the second method's state with `second.init(carry(state of the first), key)`;
    `carry` finds the model in that state (by default the state is the model; FedAdam: `lambda server: server[0]`).
    A client enrolls in the second method at its first visit after the switch, with the initial model: what is private
    starts afresh. Replies of the first stage that arrive in the second do not count.

    Costs. Shapes never change, so a message (and a reply) has room for the larger of the two: arrays of one shape and
    dtype share a place, and only what finds no partner is sent in addition (FedAvg then FFGG: the size of FedAvg's).
    A client keeps both states and the initial model; where clients run all at once (vmap), both stages are computed.

    >>> from apiece.methods import fed_avg, scaffold
    >>> loss = lambda params, batch, key: 0.0
    >>> both = staged(fed_avg(loss), scaffold(loss), rounds=10)
    >>> tree.size_in_bytes(both.message(both.init(jnp.zeros(5), jax.random.key(0)), 0))  # x, c and which stage
    41
    """

    def init(params: Params, key: Tree) -> Server:
        return jnp.zeros((), jnp.int32), first.init(params, key), second.init(params, key)

    def message(server: Server, i: Tree) -> Message:
        round, one, two = server
        return _pack(round >= rounds, first.message(one, i), second.message(two, i))

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> Server:
        round, one, two = server
        later = round >= rounds
        cohort = cohort._replace(weight=jnp.where(replies.later == later, cohort.weight, 0))
        of_one, of_two = _unpack(replies)
        one = lax.cond(later, lambda: one, lambda: first.merge(one, of_one, cohort, key))
        two = lax.cond(later, lambda: second.merge(two, of_two, cohort, key), lambda: two)
        two = lax.cond(round + 1 == rounds, lambda: second.init(carry(one), key), lambda: two)
        return round + 1, one, two

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        in_one, in_two = _unpack(message)
        one = _if(~message.later, lambda: first.enroll(params, in_one, data, key))
        two = _if(message.later, lambda: second.enroll(params, in_two, data, key))
        return message.later, params, one, two

    def entered(client: Client, message: Message, data: Data, key: Tree) -> Client:
        known, params, one, two = client
        enter = lambda: second.enroll(params, _unpack(message)[1], data, jax.random.fold_in(key, 0))
        return message.later, params, one, lax.cond(message.later & ~known, enter, lambda: two)

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        later, params, one, two = entered(client, message, data, key)
        in_one, in_two = _unpack(message)
        new_one, of_one = _if(~later, lambda: first.local(one, in_one, data, key))
        new_two, of_two = _if(later, lambda: second.local(two, in_two, data, key))
        client = later, params, tree.where(later, one, new_one), tree.where(later, new_two, two)
        return client, _pack(later, of_one, of_two)

    def personal(client: Client, message: Message, data: Data, key: Tree) -> Params:
        later, _, one, two = entered(client, message, data, key)
        in_one, in_two = _unpack(message)
        use_two = lambda: second.personal(two, in_two, data, key)
        return lax.cond(later, use_two, lambda: first.personal(one, in_one, data, key))

    return Method(init, message, merge, enroll, local, personal)


@partial(jax.tree_util.register_dataclass, data_fields=["later", "places"], meta_fields=["plan"])
@dataclasses.dataclass(frozen=True)
class Packet:
    """One of two trees, in places that both share; `plan` (static) says how each lies in them."""

    later: Any
    places: list
    plan: tuple


def _pack(later: Tree, one: Tree, two: Tree) -> Packet:
    """The second tree where `later`, else the first."""
    leaves, form_one = jax.tree.flatten(one)
    others, form_two = jax.tree.flatten(two)
    places, free, at = list(leaves), list(range(len(leaves))), []
    for other in others:
        k = next((k for k in free if (leaves[k].shape, leaves[k].dtype) == (other.shape, other.dtype)), len(places))
        if k in free:
            free.remove(k)
            places[k] = jnp.where(later, other, leaves[k])
        else:
            places.append(other)
        at.append(k)
    return Packet(later, places, (form_one, form_two, tuple(at)))


def _unpack(packet: Packet) -> tuple[Tree, Tree]:
    """Both trees; the one that was not packed holds what happens to lie there."""
    form_one, form_two, at = packet.plan
    one = form_one.unflatten(packet.places[: form_one.num_leaves])
    return one, form_two.unflatten([packet.places[k] for k in at])


def _if(condition: Tree, work: Callable[[], Tree]) -> Tree:
    """What the work gives where the condition holds, else zeros of the same shapes."""
    shapes = jax.eval_shape(work)
    return lax.cond(condition, work, lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))
