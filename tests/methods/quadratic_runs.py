"""Runs of catalog methods on clients with quadratic losses, in float64, on either engine."""

from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from apiece.engines.remote.halves import ClientHalf, ServerHalf, agree
from apiece.engines.remote.halves import run as run_remote
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
    go = _vectorized if engine == "vectorized" else _remote
    return go(build, x, y, offsets, init, legs, participation, seed)


def _vectorized(build, x, y, offsets, init, legs, participation, seed):
    engine = Vectorized(build, x, y, offsets, participation=participation, block=max(*legs, 1))
    run, servers, models = engine.start(init, seed), [], []
    for leg in legs:
        run = engine.advance(run, leg)
        servers.append(jax.tree.map(np.asarray, run.server))
        models.append(engine.personal(run, np.arange(len(offsets) - 1)))
    return Trace(servers, np.array(models))


def _remote(build, x, y, offsets, init, legs, participation, seed):
    terms = agree(build, init, (x, y), seed)
    most = int(np.diff(offsets).max())
    clients = [ClientHalf(terms, i, x[a:z], y[a:z], most) for i, (a, z) in enumerate(pairwise(offsets))]
    server, servers, models = ServerHalf(terms, len(clients)), [], []
    for leg in legs:
        run_remote(server, clients, leg, participation)
        servers.append(jax.tree.map(np.asarray, server.server))
        models.append([np.asarray(client.personal(server.message(client.i))) for client in clients])
    return Trace(servers, np.array(models))
