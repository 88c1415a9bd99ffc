"""A method that is watched, and one whose server refuses: around the method under test, so that a run shows all."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.protocol import Client, Cohort, Data, Message, Method, Reply, Server, Tree, merge_replies, with_merge
from apiece.testing.clients import POPULATION


class Refusing(NamedTuple):
    """The server of `refuse_replies`: the method's own, how often it has merged, and from which merge on it refuses."""

    inner: Server
    merges: Tree
    patience: Tree


def refuse_replies(method: Method, client: int) -> Method:
    """The method whose server refuses every reply of one client from its second merge on."""

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        refused = (cohort.ids == client) & (server.merges >= server.patience)
        cohort = cohort._replace(weight=jnp.where(refused, 0, cohort.weight))
        inner, counted = merge_replies(method, server.inner, replies, cohort, key)
        return Refusing(inner, server.merges + 1, server.patience), counted

    return with_merge(
        method,
        merge,
        refuses=True,
        init=lambda params, key: Refusing(method.init(params, key), jnp.int32(0), jnp.int32(1)),
        message=lambda server, i: method.message(server.inner, i),
    )


def watch_method(method: Method, reply: Reply) -> Method:
    """The method, whose server also notes the replies of the round and whose clients what they enrolled with."""
    blank = jax.tree.map(lambda leaf: np.zeros((POPULATION + 1, *leaf.shape), leaf.dtype), reply)  # made in no time

    def merge(state: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        place = jnp.where(cohort.weight > 0, cohort.ids, POPULATION)  # the last row is for those who do not count
        server, counted = merge_replies(method, state[0], replies, cohort, key)
        noted = tree.put(jax.tree.map(jnp.asarray, blank), place, replies)
        return (server, noted), counted

    def local(client: Client, message: Message, data: Data, key: Tree) -> tuple[Client, Reply]:
        inner, reply = method.local(client[0], message, data, key)
        return (inner, client[1]), reply

    keep = method.keep
    return with_merge(
        method,
        merge,
        init=lambda params, key: (method.init(params, key), blank),
        message=lambda state, i: method.message(state[0], i),
        enroll=lambda params, message, data, key: (method.enroll(params, message, data, key), params),
        local=local,
        personal=lambda client, message, data, key: method.personal(client[0], message, data, key),
        keep=keep and (lambda before, after: (keep(before[0], after[0]), after[1])),
        forgets=False,  # what they enrolled with is to be seen
    )
