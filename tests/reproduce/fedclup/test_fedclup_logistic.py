"""The fedclup-logistic reproduction: its runs against optimality conditions in NumPy, and checks that can fail."""

import jax
import numpy as np
import pytest

from apiece.reproduce.fedclup import logistic as table
from apiece.reproduce.fedclup.logistic_runs import Bench, draw, thresholded

pytestmark = pytest.mark.usefixtures("x64")

CLIENTS = 6


@pytest.fixture(scope="module")
def clients():
    return draw(CLIENTS, 100, 3, 0.5, 0)


@pytest.fixture(scope="module")
def bench(clients):
    with jax.enable_x64(True):
        yield Bench(clients, 0, 3.0)


def slopes(clients, w):
    """[clients, d], the gradients of the mean log losses."""
    p = 1 / (1 + np.exp(-np.einsum("cni,ci->cn", clients.x, w)))
    return np.einsum("cni,cn->ci", clients.x, p - clients.y) / p.shape[1]


def test_fed_clup_ends_where_pull_and_gradient_balance(bench, clients):
    w = bench.fed_clup(clients, 0.1, (80,))[0]
    pull = 0.1 * (w - w.mean(0))
    assert np.abs(pull).max() > 0.01
    np.testing.assert_allclose(slopes(clients, w), -pull, atol=1e-9)


def test_one_bench_serves_other_clients_of_the_same_shape(bench):
    other = draw(CLIENTS, 100, 3, 0.0, 2)
    w = bench.fed_clup(other, 0.05, (1, 60))[1]
    np.testing.assert_allclose(slopes(other, w), -0.05 * (w - w.mean(0)), atol=1e-9)


def test_the_ends_are_the_minima_of_the_own_and_of_the_mean_loss(bench, clients):
    alone, shared = bench.local(clients, (6,))[0], bench.fed_avg(clients, 300)
    np.testing.assert_allclose(slopes(clients, alone), 0, atol=1e-8)
    np.testing.assert_allclose(slopes(clients, np.tile(shared, (CLIENTS, 1))).mean(0), 0, atol=1e-8)


def test_thresholded_labels_have_no_finite_fit(bench, clients):
    early, late = np.linalg.norm(bench.local(thresholded(clients), (1, 6)), axis=-1)
    assert (late > 1.3 * early).all()


def test_smoothness_bounds_every_curvature(clients):
    mu, L, rho2 = table.curvature_and_noise(clients)
    moved = clients.truth + 1e-5 * np.eye(3)[0]
    curvature = (slopes(clients, moved) - slopes(clients, clients.truth))[:, 0] / 1e-5
    assert (mu <= np.sort(curvature)[len(curvature) // 2 :]).all() and (curvature <= L).all()
    assert 0 < rho2 <= (clients.x**2).sum(-1).mean()


LOOKS = (1, 2, 5)


def errors(by_lam, local=9.0, shared=0.1):
    """Three seeds that all but agree: `by_lam` [lam, looks]."""
    jitter = 1 + 1e-6 * np.arange(3.0)
    clup = np.asarray(by_lam, float)[:, None] * jitter[:, None]
    return table.Errors(clup, 10 * jitter, local * jitter, shared * jitter, np.zeros(3))


def test_the_verdicts_follow_the_numbers():
    alike, apart = [[4, 4, 4], [5, 3, 3], [6, 5, 1]], [[1, 1, 1], [5, 2, 2], [6, 5, 4]]
    build = lambda at_zero, alike, apart: {
        (100, 0.0): errors(at_zero), (100, table.ALIKE): errors(alike), (100, table.APART): errors(apart)
    }  # fmt: skip
    held = lambda claims: [claim.holds for claim in claims]
    good = build(alike, alike, apart)
    assert held(table._personalization(good)) == [True] * 6
    assert held(table._rounds(good, LOOKS)) == [True] * 5
    assert table._rule(good).holds
    turned = build(alike[::-1], alike[::-1], apart[::-1])
    assert held(table._personalization(turned)) == [False] * 6
    assert held(table._rounds(turned, LOOKS)) == [False] * 5
    assert not table._rule(turned).holds


def test_an_error_has_settled_when_a_tenth_of_its_fall_is_left():
    some = errors([[5, 1.5, 1], [9, 6, 1], [1, 1, 1]])
    assert table._settled(some, LOOKS).T.tolist() == [[2, 5, 1]] * 3
    assert table._settled(some, LOOKS, by_end=True).T.tolist() == [[5, 5, 1]] * 3
