"""Closed forms of linear regression: stationary, consistent with one another, and where the methods end."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.methods import CATALOG
from apiece.theory import linear

LAM, ALPHA = 0.3, 0.05


def federation(seed, sizes, features):
    rng = np.random.default_rng(seed)
    spread = np.sqrt(np.linspace(0.5, 2, features))
    xs = [rng.standard_normal((n, features)) * spread for n in sizes]
    center = rng.standard_normal(features)
    ys = [x @ (center + rng.standard_normal(features) / 2) + 0.4 * rng.standard_normal(len(x)) for x in xs]
    return xs, ys, rng.dirichlet(np.ones(len(sizes)))


WIDE = federation(0, (5, 4, 6, 5, 3, 5, 7), 12)  # fewer examples than parameters
TALL = federation(1, (30, 20, 41, 25), 6)
BOTH = pytest.mark.parametrize(("xs", "ys", "p"), [pytest.param(*WIDE, id="wide"), pytest.param(*TALL, id="tall")])


def slope(x, y, w):
    return x.T @ (x @ w - y) / len(y)


def gram(x):
    return x.T @ x / len(x)


@BOTH
def test_gradients_vanish_at_the_closed_forms(xs, ys, p):
    clients = list(zip(xs, ys, p, strict=True))
    w = linear.fed_avg(xs, ys, p)
    assert np.abs(sum(share * slope(x, y, w) for x, y, share in clients)).max() < 1e-10

    eye = np.eye(len(w))
    ahead = lambda x, y, w: slope(x, y, w - ALPHA * slope(x, y, w))
    w = linear.maml(xs, ys, ALPHA, p)
    exact = sum(share * (eye - ALPHA * gram(x)) @ ahead(x, y, w) for x, y, share in clients)
    assert np.abs(exact).max() < 1e-10
    w = linear.maml(xs, ys, ALPHA, p, first_order=True)
    assert np.abs(sum(share * ahead(x, y, w) for x, y, share in clients)).max() < 1e-10

    shared, own = linear.centre(xs, ys, LAM, p)
    assert max(np.abs(slope(x, y, v) + LAM * (v - shared)).max() for x, y, v in zip(xs, ys, own, strict=True)) < 1e-10
    assert np.abs(shared - p @ own).max() < 1e-10

    pooled = linear.fed_avg(xs, ys, p)
    tuned = linear.rtfa(xs, ys, LAM, p)
    assert max(np.abs(slope(x, y, v) + LAM * (v - pooled)).max() for x, y, v in zip(xs, ys, tuned, strict=True)) < 1e-10
    ridge = linear.local_ridge(xs, ys, LAM)
    assert max(np.abs(slope(x, y, v) + LAM * v).max() for x, y, v in zip(xs, ys, ridge, strict=True)) < 1e-10


@BOTH
def test_small_and_large_systems_have_the_same_solution(xs, ys, p):
    start = np.random.default_rng(2).standard_normal(xs[0].shape[1])
    for x, y in zip(xs, ys, strict=True):
        n, d = x.shape
        wide = start + x.T @ np.linalg.solve(x @ x.T + n * LAM * np.eye(n), y - x @ start)
        tall = np.linalg.solve(gram(x) + LAM * np.eye(d), LAM * start + x.T @ y / n)
        for form in (wide, tall):
            np.testing.assert_allclose(linear.ridge_tuned(x, y, start, LAM), form, atol=1e-12)


def test_fine_tuning_projects_when_there_are_few_examples():
    xs, ys, p = WIDE
    start = linear.fed_avg(xs, ys, p)
    for x, y, w in zip(xs, ys, linear.ftfa(xs, ys, p), strict=True):
        np.testing.assert_allclose(w, start + x.T @ np.linalg.solve(x @ x.T, y - x @ start), atol=1e-11)
        np.testing.assert_allclose(x @ w, y, atol=1e-11)
    for x, y, w in zip(xs, ys, linear.local(xs, ys), strict=True):
        np.testing.assert_allclose(w, np.linalg.pinv(x) @ y, atol=1e-11)


def test_fine_tuning_forgets_its_start_when_there_are_many():
    xs, ys, p = TALL
    np.testing.assert_allclose(linear.ftfa(xs, ys, p), linear.local(xs, ys), atol=1e-12)


@BOTH
def test_limits_in_lam(xs, ys, p):
    pooled = linear.fed_avg(xs, ys, p)
    np.testing.assert_allclose(linear.rtfa(xs, ys, 1e-10, p), linear.ftfa(xs, ys, p), atol=1e-8)
    np.testing.assert_allclose(linear.rtfa(xs, ys, 1e9, p), np.tile(pooled, (len(p), 1)), atol=1e-8)
    np.testing.assert_allclose(linear.local_ridge(xs, ys, 1e-10), linear.local(xs, ys), atol=1e-7)
    away = [np.linalg.norm(linear.centre(xs, ys, lam, p)[0] - pooled) for lam in (1e2, 1e4, 1e6)]
    assert 1e-3 < away[0] < 1
    np.testing.assert_allclose(np.divide(away[:-1], away[1:]), 100, rtol=0.1)  # falls like 1/lam
    np.testing.assert_allclose(linear.maml(xs, ys, 0.0, p), pooled, atol=1e-12)


def test_the_distance_to_the_pooled_optimum_falls_as_published():
    """1.5e-2, 1.6e-4 and 1.6e-6 at lam = 1e2, 1e4 and 1e6 on the published federation."""
    rng = np.random.default_rng(0)
    center = rng.standard_normal(12)
    center *= 1.5 / np.linalg.norm(center)
    xs, ys = [], []
    for _ in range(7):
        u = rng.standard_normal(12)
        u -= (u @ center) / (center @ center) * center
        w = center + u / np.linalg.norm(u)
        xs.append(rng.standard_normal((5, 12)) * np.sqrt(np.linspace(0.5, 2, 12)))
        ys.append(xs[-1] @ w + 0.4 * rng.standard_normal(5))
    p = rng.dirichlet(np.ones(7))
    away = [np.linalg.norm(linear.centre(xs, ys, lam, p)[0] - linear.fed_avg(xs, ys, p)) for lam in (1e2, 1e4, 1e6)]
    np.testing.assert_allclose(away, (1.5e-2, 1.6e-4, 1.6e-6), rtol=0.04)


def test_first_order_maml_stops_elsewhere():
    xs, ys, p = TALL
    exact, first = linear.maml(xs, ys, 0.3, p), linear.maml(xs, ys, 0.3, p, first_order=True)
    assert np.linalg.norm(exact - first) > 1e-3


def test_weights_default_to_sizes_and_are_checked():
    xs, ys, _ = TALL
    sizes = [len(y) for y in ys]
    np.testing.assert_allclose(linear.fed_avg(xs, ys), linear.fed_avg(xs, ys, sizes), atol=1e-12)
    pooled = np.linalg.lstsq(np.concatenate(xs), np.concatenate(ys))[0]
    np.testing.assert_allclose(linear.fed_avg(xs, ys), pooled, atol=1e-12)
    for wrong in ([1.0], [-1.0, 1, 1, 1], [0.0] * 4):
        with pytest.raises(UserError, match="one weight"):
            linear.fed_avg(xs, ys, wrong)


def test_a_ridge_needs_a_lam_above_zero():
    xs, ys, p = WIDE
    for make in (linear.rtfa, linear.centre):
        with pytest.raises(UserError, match="lam must be above 0"):
            make(xs, ys, 0.0, p)
    with pytest.raises(UserError, match="lam must be above 0"):
        linear.local_ridge(xs, ys, -1.0)


# The methods of the catalog, run to convergence, end at the closed forms.

SMALL = federation(3, (12, 8, 15, 9), 3)[:2]
UNIFORM = np.ones(4) / 4
EVEN = dict(weights="uniform")


def half_squared_error(w, batch, key):
    return (batch.weight * (batch.x @ w - batch.y) ** 2).sum() / (2 * batch.weight.sum())


def ends(name, rounds, how=None, **options):
    """The server's state and everybody's model after so many rounds, in float64."""
    xs, ys = SMALL
    build = lambda hyper, round: CATALOG[name](half_squared_error, batch=0, **options)
    offsets = np.concatenate([[0], np.cumsum([len(y) for y in ys])])
    engine = Vectorized(build, np.concatenate(xs), np.concatenate(ys), offsets, block=rounds, **(how or {}))
    run = engine.advance(engine.start(lambda key: jnp.zeros(3), 0), rounds)
    return jax.tree.map(np.asarray, run.server), engine.personal(run, np.arange(len(ys)))


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_fed_avg_with_one_step_ends_at_the_pooled_optimum():
    close(ends("fed_avg", 400, steps=1, lr=0.3)[0], linear.fed_avg(*SMALL))
    close(ends("fed_avg", 400, how=EVEN, steps=1, lr=0.3)[0], linear.fed_avg(*SMALL, UNIFORM))


@pytest.mark.usefixtures("x64")
def test_ridge_tuning_and_ditto_end_at_the_ridge_about_the_pooled_optimum():
    tuned = dict(tune_epochs=None, tune_steps=400, tune_lr=0.25)
    close(ends("rtfa", 400, steps=1, lr=0.3, lam=0.5, **tuned)[1], linear.rtfa(*SMALL, 0.5))
    close(ends("ditto", 400, steps=1, lr=0.25, lam=0.5)[1], linear.rtfa(*SMALL, 0.5))


@pytest.mark.usefixtures("x64")
def test_fed_clup_and_pfedme_with_one_local_step_end_at_the_centre():
    shared, own = linear.centre(*SMALL, 0.5, UNIFORM)
    got = ends("fed_clup", 300, lam=0.5, steps=3, lr=0.25)
    close(got[0], shared)
    close(got[1], own)
    shared, own = linear.centre(*SMALL, 0.5)
    got = ends("pfedme", 300, lam=0.5, steps=1, lr=1.0, prox_steps=100, prox_lr=0.25)
    close(got[0], shared)
    close(got[1], own)


@pytest.mark.usefixtures("x64")
def test_maml_ends_at_its_stationary_points():
    options = dict(steps=1, lr=0.3, tune_lr=0.1, tune_epochs=None)
    close(ends("maml_fl", 500, order="exact", **options)[0], linear.maml(*SMALL, 0.1))
    close(ends("maml_fl", 500, order="first", **options)[0], linear.maml(*SMALL, 0.1, first_order=True))
