"""MAML-FL in its three orders, and FedAdam's server, to 1e-6 in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import B, H, P
from quadratic_runs import ENGINES, trace

from apiece.errors import UserError
from apiece.methods import maml_fl
from apiece.methods.fed_adam import adam_uncorrected

TWICE = (2, 1, 1)  # client 0 has its example twice: the weights P
ALPHA = ETA = 0.1


def close(actual, expected, tolerance=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def maml(rounds, order, x=(0.0, 0.0), steps=2):
    """MAML-FL's server after each round, by explicit loops over clients and steps."""
    x, seen = np.array(x), []
    for _ in range(rounds):
        ends = []
        for h, b in zip(H, B, strict=True):
            y = x
            for _ in range(steps):
                ahead = y - ALPHA * (h @ y - b)
                g = h @ ahead - b
                y = y - ETA * (g if order == "first" else g - ALPHA * h @ g)
            ends.append(y)
        x = P @ np.array(ends)
        seen.append(x)
    return seen


EXACT = [(0.078463, 0.165386), (0.139187, 0.299448), (0.186093, 0.408162)]
PRINTED = {"exact": EXACT, "free": EXACT, "first": [(0.102580, 0.201466), (0.177724, 0.356463), (0.232635, 0.475778)]}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", PRINTED)
def test_maml_follows_its_trace(engine, order):
    got = trace(engine, "maml_fl", H, B, 3, counts=TWICE, order=order, steps=2, lr=ETA, tune_lr=ALPHA)
    close(got.server, maml(3, order))
    close(got.server, PRINTED[order], 1.5e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_the_width_of_hessian_free_maml_may_be_given_and_is_no_matter_for_quadratics(delta):
    got = trace(
        "vectorized", "maml_fl", H, B, 3, counts=TWICE, order="free", delta=delta, steps=2, lr=ETA, tune_lr=ALPHA
    )
    close(got.server, maml(3, "free"), 1e-9)


def test_a_width_is_for_hessian_free_maml_only():
    with pytest.raises(UserError, match="'delta' of method 'maml_fl' is for order 'free', not 'exact'"):
        maml_fl(lambda params, batch, key: 0.0, order="exact", delta=1e-3)


@pytest.mark.usefixtures("x64")
def test_maml_with_one_exact_step_ends_at_the_stationary_point():
    got = trace(
        "vectorized", "maml_fl", H, B, 800, counts=TWICE, order="exact", steps=1, lr=0.3, tune_lr=ALPHA, every=800
    )
    close(got.server[-1], (0.344969, 0.878070), 1.5e-6)


@pytest.mark.usefixtures("x64")
def test_maml_without_an_inner_step_is_fed_avg():
    ours = trace("vectorized", "maml_fl", H, B, 3, counts=TWICE, order="exact", steps=2, lr=ETA, tune_lr=0.0)
    theirs = trace("vectorized", "fed_avg", H, B, 3, counts=TWICE, steps=2, lr=ETA)
    close(ours.server, theirs.server, 1e-12)


@pytest.mark.usefixtures("x64")
def test_fed_adam_follows_its_trace():
    rule, x = adam_uncorrected(0.01, 0.9, 0.99, 1e-3), jnp.zeros(2)
    memory, mean, square, expected = rule.init(x), np.zeros(2), np.zeros(2), np.zeros(2)
    printed = [(0.009091, -0.009524), (0.020627, -0.012962), (0.022260, -0.016070)]
    for delta, digits in zip([(0.1, -0.2), (0.05, 0.1), (-0.1, 0.0)], printed, strict=True):
        delta = np.array(delta)
        mean, square = 0.9 * mean + 0.1 * delta, 0.99 * square + 0.01 * delta**2
        expected = expected + 0.01 * mean / (np.sqrt(square) + 1e-3)
        move, memory = rule.update(jnp.asarray(-delta), memory)
        x = x + move
        close(x, expected)
        close(x, digits, 1.5e-6)


@pytest.mark.usefixtures("x64")
def test_fed_adam_steps_along_fed_avgs_update():
    got = trace("vectorized", "fed_adam", H, B, 3, counts=TWICE, steps=2, lr=0.1, server_lr=0.01)
    x, mean, square = np.zeros(2), np.zeros(2), np.zeros(2)
    for k in range(3):
        step = (
            jax.device_get(trace("vectorized", "fed_avg", H, B, 1, counts=TWICE, steps=2, lr=0.1, start=x).server[0])
            - x
        )
        mean, square = 0.9 * mean + 0.1 * step, 0.99 * square + 0.01 * step**2
        x = x + 0.01 * mean / (np.sqrt(square) + 1e-3)
        close(got.server[k][0], x, 1e-9)
