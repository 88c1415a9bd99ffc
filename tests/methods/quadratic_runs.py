"""Runs of catalog methods on clients with quadratic losses, in float64, on either engine."""

from typing import NamedTuple

import jax
import numpy as np

from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.methods import CATALOG
from apiece.models import objective, quadratic

ENGINES = ("vectorized", "remote")


class Trace(NamedTuple):
    """After each round: the server's state, and everybody's model."""

    server: list
    models: np.ndarray


def trace(engine, name, h, b, rounds, *, counts=None, start=None, participation=None, every=1, seed=0, **options):
    """`name`: of the catalog, or a factory. `counts`: how often each client's one example is repeated, which makes its
    weight; default once each.

    `every`: how many rounds between two entries of the trace. `start`: the initial model; default zero.
    """
    assert jax.config.jax_enable_x64
    counts = np.ones(len(b), int) if counts is None else np.asarray(counts)
    x, y = np.repeat(h, counts, axis=0), np.repeat(b, counts, axis=0)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    model = quadratic(b.shape[1])
    init = model.init if start is None else lambda key: jax.numpy.asarray(start)
    loss = objective(model, "custom").loss
    build = lambda hyper, round: CATALOG.find(name)(loss, batch=0, **options)
    participation = participation or Participation()
    legs = [min(every, rounds - k) for k in range(0, rounds, every)] or [0]
    if engine == "remote":
        machine = Remote(build, x, y, offsets, participation=participation)
    else:
        machine = Vectorized(build, x, y, offsets, participation=participation, block=max(*legs, 1))
    run, servers, models = machine.start(init, seed), [], []
    for leg in legs:
        run = machine.advance(run, leg)
        servers.append(jax.tree.map(np.asarray, run.server))
        models.append(machine.personal(run, np.arange(len(offsets) - 1)))
    return Trace(servers, np.array(models))
