"""What the reproduction on images asks of a trained Self-FL."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.data import digits
from apiece.engines.simulation.vectorized import Vectorized
from apiece.experiment.build import arena, model_of
from apiece.experiment.contest import Result
from apiece.experiment.spec_tables import ModelSpec
from apiece.methods import self_fl
from apiece.protocol import Batch
from apiece.reproduce.self_fl.accuracies import above
from apiece.reproduce.self_fl.images import steps_of
from apiece.reproduce.self_fl.state import shared_accuracy, shared_model


@pytest.fixture(scope="module")
def place():
    federation = digits(clients=6).hold_out_clients(0.2)
    return arena(federation, model_of(ModelSpec(), federation))


def test_the_histogram_holds_the_steps_that_clients_take():
    """With a constant gradient of 1 and step size 1/64, the model itself counts the steps."""
    lr, variances, sizes = 1 / 64, np.array([2e-3, 0.01, 0.05, 0.2]), np.array([3, 9, 5, 7])
    falling = lambda params, batch, key: params.sum()
    how = dict(lr=lr, batch=1, variances=variances, spread=0.3, adapt_init=False, rule="paper", l_max=40)
    x, offsets = np.zeros((sizes.sum(), 1), np.float32), np.concatenate([[0], np.cumsum(sizes)])
    engine = Vectorized(lambda hyper, round: self_fl(falling, **how), x, x[:, 0], offsets)
    run = engine.advance(engine.start(lambda key: jnp.zeros(8), 0), 1)
    taken = np.rint(-engine.personal(run, np.arange(4))[:, 0] / lr).astype(int)
    told = Result({}, [], {}, {}, [(90.0, run.server.steps)], [])
    assert steps_of(told).tolist() == taken.tolist() and len(set(taken.tolist())) > 1
    assert shared_model(run) is run.server.x


def test_the_shared_model_is_judged_on_every_test_example(place):
    params = place.model.init(jax.random.key(0))
    params["w"] = jax.random.normal(jax.random.key(1), params["w"].shape)
    x, y, offsets = place.splits["test"]
    x, y = (values[: offsets[place.population]] for values in (x, y))  # new clients come last, and do not count
    errors = place.objective.outcomes(params, Batch(x, y, jnp.ones(len(y))))[1]
    assert shared_accuracy(place)(params) == pytest.approx(1 - float(errors.mean()), abs=1e-6)


def test_above_needs_the_whole_interval_above_zero():
    a = np.array([90.0, 91.0, 92.0])
    assert above("x", "above 0", a, a - np.array([1.0, 1.1, 0.9])).holds
    assert not above("x", "above 0", a, a - np.array([3.0, -1.0, 1.0])).holds, "a mean of 1, but nobody knows"
    assert not above("x", "above 0", a, a).holds
