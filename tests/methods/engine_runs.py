"""A method's factory on the vectorized engine in float64: on quadratic clients, or on any."""

import jax
import jax.numpy as jnp
import kept_engines
import numpy as np
from quadratic_runs import Trace, bowl

from apiece.engines.simulation.vectorized import Vectorized


def half_squared_error(w, batch, key):
    """Linear regression without intercept: the parameters are one vector."""
    return (batch.weight * (batch.x @ w - batch.y) ** 2).sum() / (2 * batch.weight.sum())


def on_quadratics(factory, h, b, legs, counts=None, **options):
    """`legs`: rounds between two looks."""
    assert jax.config.jax_enable_x64
    counts = np.ones(len(b), int) if counts is None else np.asarray(counts)
    x, y = np.repeat(h, counts, axis=0), np.repeat(b, counts, axis=0)
    given = (factory, bowl(b.shape[1])[1], x, y, np.concatenate([[0], np.cumsum(counts)]), options)
    engine, hyper = kept_engines.engine_of("vectorized", *given, rounds=max(*legs, 1))
    return follow(engine, jnp.zeros(b.shape[1]), legs, hyper=hyper)


def engine_of(factory, loss, x, y, sizes, block, options, **how):
    assert jax.config.jax_enable_x64
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return Vectorized(lambda hyper, round: factory(loss, **options), x, y, offsets, block=block, **how)


def follow(engine, start, legs, seed=0, hyper=None):
    run, servers, models = engine.start(lambda key: start, seed, hyper), [], []
    for leg in legs:
        run = engine.advance(run, leg)
        servers.append(jax.tree.map(np.asarray, run.server))
        models.append(engine.personal(run, np.arange(len(engine.train.sizes))))
    return Trace(servers, np.array(models))
