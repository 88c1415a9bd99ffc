"""What explains that clients differ: labels are differently frequent, inputs lie elsewhere, or neither does.

The shared model of each fold is given an intercept of the client's own, once by how often the client has each class (or
by its mean), once so that its mean input counts as everybody's; both are judged on rows that are held out. What
neither explains is that the same input means something else.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece.advise import questions as q
from apiece.advise.folds import Setting, held_out, rows_dealt
from apiece.client.linear import with_intercept
from apiece.protocol import Batch, Data, Message, Params, Question, Tree


def own_inputs(shared: Params, mine: Batch, mean: jax.Array) -> Params:
    """The shared model for inputs whose mean is moved to everybody's; few rows move it less.

    >>> rows = Batch(jnp.full((30, 1), 4.0), jnp.zeros(30), jnp.ones(30))
    >>> moved = own_inputs({"w": jnp.ones((1, 1)), "b": jnp.zeros(1)}, rows, jnp.zeros(1))
    >>> moved["b"].tolist()
    [-3.0]
    """
    n = mine.weight.sum()
    away = (mine.weight @ with_intercept(mine.x)[:, :-1] - n * mean) / (n + q.PSEUDO)
    return {**shared, "b": shared["b"] - shared["w"] @ away}


@lru_cache(maxsize=64)
def shift_question(of: q.Linear, settings: tuple[Setting, ...], most: int) -> Question:
    """(held-out losses of shared, with own frequencies, with own inputs; how many), each a client's mean: summed."""

    def answer(message: Message, data: Data, key: Tree) -> tuple:
        models, mean, seed = message
        batch, fold = rows_dealt(data, key, seed, most)

        def one(shared: Params, out: jax.Array) -> tuple[jax.Array, jax.Array]:
            mine = batch._replace(weight=jnp.where(out, 0, batch.weight))
            judged = jnp.where(out, batch.weight, 0)
            some = (judged.sum() > 0).astype(jnp.float32)
            tried = [shared, q.own_frequencies(of, shared, mine), own_inputs(shared, mine, mean)]
            losses = jnp.stack([q.weighted(of.loss, params, batch, judged) for params in tried])
            return some * losses / jnp.maximum(judged.sum(), 1), some

        losses, some = jax.vmap(one)(models, held_out(fold, settings))
        return losses.sum(axis=0), some.sum()

    return Question(answer)


def measure_shift(seen: Any, of: q.Linear, models: Params, settings: tuple[Setting, ...], rows: Any, seed: int) -> Any:
    """[3] mean held-out losses: of the shared models without these folds, with own frequencies, with own inputs."""
    mean = np.float32(rows["x_sum"] / max(float(rows["rows"]), 1))
    losses, some = seen.ask(lambda most: shift_question(of, settings, most), (models, mean, np.int32(seed)), 1)
    return np.asarray(losses, np.float64) / max(float(some), 1)
