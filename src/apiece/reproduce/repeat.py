"""Many small runs of one method in one compiled program: repetitions side by side, for means and intervals.

The engines run one large federation at a time. Here every repetition has a small federation of its own, and `vmap`
lays them side by side: two hundred repetitions cost little more than one.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.engines.contact import Build, key_of, keys, remembered, visit
from apiece.protocol import Cohort, Data, Params, Tree

Look = Callable[[Tree, Params, Tree], Tree]  # (server, everybody's models, what the repetition was given) -> numbers


def repeated(
    build: Build,
    params: Params,
    x: Tree,
    y: Tree,
    look: Look,
    *,
    rounds: int,
    sizes: Any = None,
    present: Any = None,
    weight: Any = None,
    given: Tree = (),
    hyper: dict[str, Any] | None = None,
    every: int = 1,
    seed: int = 0,
) -> Tree:
    """What `look` sees after every `every`-th round of every repetition: leaves [repetitions, rounds // every, ...].

    A client that has not taken part yet is seen as it enrolls.

    Args:
        build: (hyper, round) -> Method, as for every engine.
        params: the initial model, the same for all.
        x, y: leaves [repetitions, clients, examples, ...].
        sizes: [repetitions, clients], how many of the examples are there; default: all.
        present: [repetitions, rounds, clients], who takes part; default: everybody, always.
        weight: [repetitions, clients], how much a reply counts; default: equally.
        given: leaves [repetitions, ...], which `look` gets to compare with.
        hyper: hyper-parameters, numbers or [repetitions].
        seed: of the first repetition; the next ones follow.
    """
    count, clients, examples = jax.tree.leaves(y)[0].shape[:3]
    sizes = np.full((count, clients), examples, np.int32) if sizes is None else np.asarray(sizes, np.int32)
    present = np.ones((count, rounds, clients), bool) if present is None else np.asarray(present)
    weight = np.ones((count, clients)) if weight is None else np.asarray(weight, float)
    hyper = {name: np.broadcast_to(value, (count,)) for name, value in (hyper or {}).items()}
    streams = jax.tree.map(lambda *rows: jnp.stack(rows), *(keys(seed + r) for r in range(count)))
    play = jax.vmap(lambda *columns: _one(build, params, look, rounds, every, *columns))
    return jax.tree.map(np.asarray, jax.jit(play)(x, y, sizes, present, weight, given, hyper, streams))


def _one(
    build: Build,
    params: Params,
    look: Look,
    rounds: int,
    every: int,
    x: Tree,
    y: Tree,
    sizes: Any,
    present: Any,
    weight: Any,
    given: Tree,
    hyper: dict[str, Any],
    streams: Any,
) -> Tree:
    """One repetition, every client at once; the keys are those of the engines."""
    clients, examples = jax.tree.leaves(y)[0].shape[:2]
    ids = jnp.arange(clients)
    flat = lambda values: jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), values)
    xs, ys, starts = flat(x), flat(y), (ids * examples).astype(jnp.int32)
    data = lambda i: Data(xs, ys, starts[i], sizes[i], examples)
    method = build(hyper, 0)
    server = method.init(params, streams.server)
    shape = jax.eval_shape(lambda: remembered(method, params, method.message(server, 0), data(0), jax.random.key(0)))
    rows = jax.tree.map(lambda leaf: jnp.zeros((clients, *leaf.shape), leaf.dtype), shape)

    def round_of(state: tuple, now: tuple) -> tuple:
        (server, rows, known), (r, here) = state, now
        method = build(hyper, r)
        work = lambda i, row, known: visit(
            method, params, known, row, method.message(server, i), data(i), key_of(streams.client, r, i)
        )
        done = jax.vmap(work)(ids, rows, known)
        kept = jax.vmap(tree.where)(here, done.after, rows)
        cohort = Cohort(ids, jnp.where(here, weight, 0.0), jnp.zeros(clients, jnp.int32), jnp.int32(clients))
        merged = method.merge(server, done.reply, cohort, jax.random.fold_in(streams.server, r))
        return (tree.where(here.any(), merged, server), kept, known | here), None

    def models(server: Tree, rows: Tree, known: Any, r: Any) -> Params:
        method = build(hyper, r)

        def use(i: Any, row: Tree, known: Any) -> Params:
            message, (enroll_key, key) = method.message(server, i), jax.random.split(key_of(streams.personal, r, i))
            fresh = method.enroll(params, message, data(i), enroll_key)
            return method.personal(fresh if method.forgets else tree.where(known, row, fresh), message, data(i), key)

        return jax.vmap(use)(ids, rows, known)

    def stretch(state: tuple, plan: tuple) -> tuple:
        (server, rows, known), _ = lax.scan(round_of, state, plan)
        return (server, rows, known), look(server, models(server, rows, known, plan[0][-1] + 1), given)

    plan = (jnp.arange(rounds, dtype=jnp.int32), present)
    plan = jax.tree.map(lambda leaf: leaf.reshape(rounds // every, every, *leaf.shape[1:]), plan)
    return lax.scan(stretch, (server, rows, jnp.zeros(clients, bool)), plan)[1]
