"""A client whose model is no number uses the shared one, or the initial one, and is named; others are as they were."""

import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.fallback import are_numbers
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.methods import fed_avg, ftfa, local

OFFSETS = np.array([0, 2, 4, 6])
Y = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0], np.float32)
X = np.array([1.0, 1.0, 1.0, 1.0, 40.0, 40.0], np.float32)  # the third client's curvature is 1,600


def loss(w, batch, key):
    return (batch.weight * batch.x**2 * jnp.square(w - batch.y)).sum() / batch.weight.sum() / 2


def outcomes(w, batch):
    each = jnp.square(w - batch.y)
    return each / 2, each


def trained(kind, method, rounds=5):
    held = {"test": (X, Y, OFFSETS)}
    engine = kind(lambda hyper, round: method, X, Y, OFFSETS, held_out=held)
    start = lambda key: jnp.asarray(0.25)
    return engine, engine.advance(engine.start(start, seed=0), rounds)


@pytest.mark.parametrize("kind", [Vectorized, Remote])
def test_of_clients_alone_the_one_that_diverged_has_the_initial_model(kind):
    engine, run = trained(kind, local(loss, lr=0.5, batch=0))
    models = engine.personal(run, np.arange(3))
    np.testing.assert_allclose(models, [1.0, 2.0, 0.25], atol=1e-3)
    assert run.fallen == {2}
    run.fallen.clear()
    error = engine.outcomes(run, np.arange(3), outcomes, ("test",))["test"][1]
    np.testing.assert_allclose(error, [0, 0, 0, 0, 2.75**2, 2.75**2], atol=1e-3)
    assert run.fallen == {2}


@pytest.mark.parametrize("kind", [Vectorized, Remote])
def test_whoever_fine_tunes_itself_astray_has_the_shared_model(kind):
    engine, run = trained(kind, ftfa(loss, lr=1e-4, batch=0, tune_lr=0.5, tune_epochs=40))
    shared = float(run.server)
    models = engine.personal(run, np.arange(3))
    np.testing.assert_allclose(models[:2], [1.0, 2.0], atol=1e-3)
    assert models[2] == pytest.approx(shared) and run.fallen == {2}
    newcomer = engine.onboard(run, X[4:], Y[4:])
    assert float(newcomer) == pytest.approx(shared)


def test_a_model_that_is_more_than_parameters_falls_back_to_what_one_enrolls_with():
    alone = local(loss, lr=0.5, batch=0)
    beside = lambda own, message, data, key: {"w": alone.personal(own, message, data, key), "memory": data.size}
    engine, run = trained(Vectorized, alone._replace(personal=beside))
    models = engine.personal(run, np.arange(3))
    np.testing.assert_allclose(models["w"], [1.0, 2.0, 0.25], atol=1e-3)
    assert models["memory"].tolist() == [2, 2, 2] and run.fallen == {2}


def test_a_model_on_its_way_to_infinity_is_no_number_either():
    assert are_numbers({"w": np.array([[1e12], [1e3]]), "count": np.array([10**12, 1])}).tolist() == [False, True]


def test_if_nobody_has_a_number_the_method_has_diverged_and_nothing_is_mended():
    engine, run = trained(Vectorized, fed_avg(loss, lr=1e30, batch=0))  # nobody's reply is a number
    assert not are_numbers(engine.personal(run, np.arange(3))).any()
    assert not are_numbers(engine.personal(run, np.array([1]))).any()
    assert run.fallen == {0, 1, 2}
