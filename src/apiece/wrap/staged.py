"""One method for some rounds, then another from the model found; and, as the third stage, fine-tuning."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece import tree
from apiece.errors import UserError
from apiece.protocol import Client, Cohort, Data, Loss, Message, Method, Params, Reply, Server, Tree, merge_replies
from apiece.split import Part
from apiece.wrap.tuned import fine_tuned

ENTRY = 0x656E7465  # no number into which the second method, whose work has the same key, may split it


def _itself(server: Server) -> Params:
    return server


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

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        round, one, two = server
        later = round >= rounds
        cohort = cohort._replace(weight=jnp.where(replies.later == later, cohort.weight, 0))
        of_one, of_two = _unpack(replies)
        nobody = jnp.zeros(cohort.weight.shape, bool)
        one, heard = lax.cond(later, lambda: (one, nobody), lambda: merge_replies(first, one, of_one, cohort, key))
        two, heard_later = lax.cond(
            later, lambda: merge_replies(second, two, of_two, cohort, key), lambda: (two, nobody)
        )
        two = lax.cond(round + 1 == rounds, lambda: second.init(carry(one), key), lambda: two)
        return (round + 1, one, two), heard | heard_later

    def enroll(params: Params, message: Message, data: Data, key: Tree) -> Client:
        in_one, in_two = _unpack(message)
        one = _if(~message.later, lambda: first.enroll(params, in_one, data, key))
        two = _if(message.later, lambda: second.enroll(params, in_two, data, key))
        return message.later, params, one, two

    def entered(client: Client, message: Message, data: Data, key: Tree) -> Client:
        known, params, one, two = client
        enter = lambda: second.enroll(params, _unpack(message)[1], data, jax.random.fold_in(key, ENTRY))
        return message.later, params, one, lax.cond(message.later & ~known, enter, lambda: two)

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        later, params, one, two = entered(client, message, data, key)
        in_one, in_two = _unpack(message)
        work_one, work_two = lambda: first.local(one, in_one, data, key), lambda: second.local(two, in_two, data, key)
        # One branch or the other, and not each or nothing: so it is seen that nobody does both.
        (new_one, of_one), (new_two, of_two) = lax.cond(
            later, lambda: ((one, _blank(work_one)[1]), work_two()), lambda: (work_one(), (two, _blank(work_two)[1]))
        )
        return (later, params, new_one, new_two), _pack(later, of_one, of_two)

    def personal(client: Client, message: Message, data: Data, key: Tree) -> Params:
        later, _, one, two = entered(client, message, data, key)
        in_one, in_two = _unpack(message)
        use_two = lambda: second.personal(two, in_two, data, key)
        return lax.cond(later, use_two, lambda: first.personal(one, in_one, data, key))

    def keep(before: Client, after: Client) -> Client:
        later, params, one, two = before
        now, _, new_one, new_two = after
        one = first.keep(one, new_one) if first.keep is not None else one
        if second.keep is None:
            return later, params, one, two
        return now, params, one, tree.where(now & ~later, new_two, second.keep(two, new_two))

    if first.predict is not second.predict:
        raise UserError(
            "staged: the two methods predict in different ways, and a client's model cannot change its kind midway; "
            "take two that share `predict`, or run one after the other"
        )
    kept = None if first.keep is None and second.keep is None else keep
    base = Method(init, message, lambda *given: merge(*given)[0], enroll, local, personal, first.predict, kept)
    return base._replace(merge_counted=merge)  # replies of the other stage do not count


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
    return lax.cond(condition, work, lambda: _blank(work))


def _blank(work: Callable[[], Tree]) -> Tree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(work))
