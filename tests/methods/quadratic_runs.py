"""Runs of catalog methods on clients with quadratic losses, in float64, on either engine."""

from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np
from kept_engines import ENGINES, engine_of

from apiece.engines.world.cohort import Participation
from apiece.models import objective, quadratic

__all__ = ["ENGINES", "Trace", "bowl", "trace"]


class Trace(NamedTuple):
    """After each round: the server's state, and everybody's model."""

    server: list
    models: np.ndarray


@lru_cache
def bowl(size):
    """(model, loss) of clients with quadratic losses: the same objects again, for which programs are compiled."""
    model = quadratic(size)
    return model, objective(model, "custom").loss


def trace(engine, name, h, b, rounds, *, counts=None, start=None, participation=None, every=1, seed=0, **options):
    """`name`: of the catalog, or a factory. `counts`: how often each client's one example is repeated, which makes its
    weight; default once each.

    `every`: how many rounds between two entries of the trace. `start`: the initial model; default zero.
    """
    assert jax.config.jax_enable_x64
    counts = np.ones(len(b), int) if counts is None else np.asarray(counts)
    x, y = np.repeat(h, counts, axis=0), np.repeat(b, counts, axis=0)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    model, loss = bowl(b.shape[1])
    init = model.init if start is None else lambda key: jax.numpy.asarray(start)
    legs = [min(every, rounds - k) for k in range(0, rounds, every)] or [0]
    how = dict(rounds=max(legs), participation=participation or Participation())
    machine, hyper = engine_of(engine, name, loss, x, y, offsets, {"batch": 0, **options}, **how)
    run, servers, models = machine.start(init, seed, hyper), [], []
    for leg in legs:
        run = machine.advance(run, leg)
        servers.append(jax.tree.map(np.asarray, run.server))
        models.append(machine.personal(run, np.arange(len(offsets) - 1)))
    return Trace(servers, np.array(models))
