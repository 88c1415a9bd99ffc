"""Runs of method factories on the clients and the linear network of `golden_classes`, in float64, on either engine."""

import golden_classes as golden
import jax
import jax.numpy as jnp
import numpy as np
from kept_engines import ENGINES, engine_of

from apiece.engines.world.cohort import Participation
from apiece.models import Model, objective

__all__ = ["ENGINES", "EVERYBODY", "LOSS", "NETWORK", "run", "start"]
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
    given = (factory, loss, golden.X, y, golden.OFFSETS, {"batch": 0} | options)
    machine, hyper = engine_of(engine, *given, rounds=rounds, participation=Participation(size=size))
    state = machine.advance(machine.start(start, 0, hyper), rounds)
    return state.server, machine.personal(state, EVERYBODY), state.rows
