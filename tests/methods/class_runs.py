"""Runs of method factories on the clients and the linear network of `golden_classes`, in float64, on either engine."""

import golden_classes as golden
import jax
import jax.numpy as jnp
import numpy as np

from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.models import Model, objective

ENGINES = ("vectorized", "remote")
EVERYBODY = np.arange(len(golden.SIZES))


def _features(params, x):
    return x @ params["hidden"]["w"].T


def start(key=None):
    return {"hidden": {"w": jnp.array(golden.A)}, "out": {"w": jnp.array(golden.W)}}


NETWORK = Model(start, lambda params, x: _features(params, x) @ params["out"]["w"].T, "two layers", _features)
LOSS = objective(NETWORK, "classification").loss


def run(engine, factory, rounds, size=None, loss=LOSS, y=golden.Y, **options):
    """(The server, everybody's model, everybody's state) after so many rounds of full gradients."""
    assert jax.config.jax_enable_x64
    build = lambda hyper, round: factory(loss, **({"batch": 0} | options))
    make, how = (Remote, {}) if engine == "remote" else (Vectorized, {"block": rounds})
    machine = make(build, golden.X, y, golden.OFFSETS, participation=Participation(size=size), **how)
    state = machine.advance(machine.start(start, 0), rounds)
    return state.server, machine.personal(state, EVERYBODY), state.rows
