"""Runs of method factories on quadratic clients whose model has a shared and a private part, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
from golden_partial import Problem
from kept_engines import ENGINES, engine_of

__all__ = ["ENGINES", "examples", "loss", "run", "start_of"]


def loss(params, batch, key):
    """f of the problem, the mean over examples (P, C, B), (t, r); the parts of the model are theta and w."""
    theta, w = params["theta"], params["w"]
    p, c, b = batch.x
    t, r = batch.y
    quadratic = jnp.einsum("i,nij,j->n", theta, p, theta) / 2 + jnp.einsum("i,nij,j->n", w, b, w) / 2
    value = quadratic + jnp.einsum("i,nij,j->n", theta, c, w) - t @ theta - r @ w
    return (batch.weight * value).sum() / batch.weight.sum()


def examples(f: Problem):
    return (f.P, f.C, f.B), (f.t, f.r)


def start_of(f: Problem, theta=None):
    theta = np.zeros(f.t.shape[1]) if theta is None else theta
    return {"theta": jnp.asarray(theta), "w": jnp.zeros(f.r.shape[1])}


def run(
    factory, f, legs, *, loss=loss, engine="vectorized", theta=None, initial=None, data=None, stateless=False, **options
):
    """[(server, everybody's model)] after each leg of so many rounds; full gradients, one example a client."""
    assert jax.config.jax_enable_x64
    x, y = examples(f) if data is None else data
    count = len(jax.tree.leaves(y)[0])
    offsets = np.arange(count + 1)
    init = lambda key: start_of(f, theta) if initial is None else jnp.asarray(initial)
    how = dict(rounds=min(100, max(legs)), stateless=stateless)
    machine, hyper = engine_of(engine, factory, loss, x, y, offsets, {"batch": 0} | options, **how)
    run, seen = machine.start(init, 0, hyper), []
    for leg in legs:
        run = machine.advance(run, leg)
        seen.append((jax.tree.map(np.asarray, run.server), machine.personal(run, np.arange(count))))
    return seen
