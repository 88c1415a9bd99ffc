"""The same clients; the server merges in another way: by an optimizer, or with late replies discounted."""

import jax
import jax.numpy as jnp
import optax

from apiece import tree
from apiece.protocol import Cohort, Method, Params, Reply, Server, Tree, merge_replies, with_merge
from apiece.split import Part, divide, join, path_name, under


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

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        state, memory = server
        x = parts(state)[1]
        merged, counted = merge_replies(method, state, replies, cohort, key)
        rest, target = parts(merged)
        move, memory = optimizer.update(tree.sub(x, target), memory, x)
        return (join(rest, optax.apply_updates(x, move)), memory), counted

    def init(params: Params, key: Tree) -> Server:
        state = method.init(params, key)
        return state, optimizer.init(parts(state)[1])

    return with_merge(method, merge, init=init, message=lambda server, i: method.message(server[0], i))


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

    def merge(server: Server, replies: Reply, cohort: Cohort, key: Tree) -> tuple[Server, Tree]:
        part = scale * (1.0 + cohort.delay) ** -power
        return merge_replies(method, server, jax.vmap(tree.scale)(part, replies), cohort, key)

    return with_merge(method, merge)
