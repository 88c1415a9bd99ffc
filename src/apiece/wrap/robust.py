"""A robust rule in place of the mean, for any method whose merge averages replies. Can be deployed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from apiece import tree
from apiece.aggregate import as_rule
from apiece.protocol import Cohort, Method, Params, Reply, Server, Tree, merge_replies, with_merge
from apiece.wrap.inside import Robust, check_reply, keep_flags, like_the_model, refuse_attacked


def robust(method: Method, rule: Any, *, reply: Callable[[Params], Reply] | None = None) -> Method:
    """The aggregate of the present replies under `rule` stands in the place of each of them, and each has weight 1.

    So every method whose merge averages replies becomes robust without knowing it. It is not meant for methods whose
    merge treats clients one by one (a model for each on the server): they would all be handed the same reply.
    Replies are brought into the order of the clients' ids first, so that the order of a cohort breaks no tie.

    Args:
        method: whose replies are aggregated. rule: a `Rule`, its name, a table of name and options, or a function of
            (stacked, weight). reply: for a rule that reads its last answer (centered clipping), what a reply looks
            like, from the initial model; by default like the model itself.

    >>> from apiece.methods import fed_avg
    >>> method = robust(fed_avg(lambda params, batch, key: 0.0), "median")
    >>> x, updates = jnp.zeros(1), jnp.array([[1.0], [2.0], [1e9]])
    >>> cohort = Cohort(jnp.arange(3), jnp.ones(3), jnp.zeros(3, int), 3)
    >>> server = method.merge(method.init(x, jax.random.key(0)), updates, cohort, jax.random.key(1))
    >>> method.message(server, 0).tolist()
    [2.0]
    """
    chosen = as_rule(rule)

    def init(params: Params, key: Tree) -> Server:
        last = tree.zeros((reply or like_the_model)(params)) if chosen.remembers else ()
        return Robust(refuse_attacked(method.init(params, key), "robust"), last)

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        own_key, rule_key = jax.random.split(key)
        present = cohort.weight > 0
        order = jnp.lexsort((cohort.ids, ~present))
        if chosen.remembers:
            check_reply(server.last, tree.take(replies, 0), "robust")
        before = server.last if chosen.remembers else None
        answer = chosen(tree.take(replies, order), cohort.weight[order], rule_key, before)
        everybodys = jax.tree.map(lambda leaf, one: jnp.broadcast_to(one, leaf.shape), replies, answer)
        everybodys = keep_flags(everybodys, replies)
        once = cohort._replace(weight=present.astype(cohort.weight.dtype))
        inner, counted = merge_replies(method, server.inner, everybodys, once, own_key)
        return Robust(inner, tree.where(present.any(), answer, server.last) if chosen.remembers else ()), counted

    return with_merge(method, merge, init=init, message=lambda server, i: method.message(server.inner, i))
