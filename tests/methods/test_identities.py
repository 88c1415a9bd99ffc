"""Where methods must meet: the cheapest deep tests. All in float64 on quadratic clients, on the fast engine."""

import numpy as np
import pytest
from golden import (
    B,
    H,
    centre_problem,
    fed_clup,
    local_optima,
    pooled_optimum,
    prox,
    random_problem,
)  # fmt: skip
from quadratic_runs import trace

from apiece.errors import UserError
from apiece.methods import CATALOG
from apiece.methods.fed_clup import theory_steps

pytestmark = pytest.mark.usefixtures("x64")

# Six clients of 30 examples in 4 parameters; every Gram matrix has eigenvalues from 0.2 to 1.
H6, B6 = random_problem(seed=5, clients=6, examples=30, features=4, mu=0.2, smoothness=1.0, radius=1.0)
U6 = np.ones(6) / 6
ERM6 = pooled_optimum(H6, B6, U6)
X6, W6 = centre_problem(H6, B6, U6, 0.5)


def fast(name, h, b, rounds, **options):
    got = trace("vectorized", name, h, b, rounds, every=max(rounds, 1), **options)
    return got.server[-1], got.models[-1]


def gap(a, b):
    return float(np.linalg.norm(np.asarray(a) - np.asarray(b)))


def test_the_random_problem_is_the_known_one():
    np.testing.assert_allclose(np.linalg.eigvalsh(H6)[:, [0, -1]], np.tile([0.2, 1.0], (6, 1)), atol=1e-12)
    x, w = X6, W6
    residual = [H6[i] @ w[i] - B6[i] + 0.5 * (w[i] - x) for i in range(6)]
    assert np.abs(residual).max() < 1e-12
    assert gap(w.mean(0), x) < 1e-12


# FedAvg: the fixed point is the pooled optimum for one step only; drift grows with steps times lr.
DRIFT = [(1, 0.5, 0.0), (20, 0.5, 0.117), (20, 0.05, 0.0375), (20, 0.005, 0.0045)]


@pytest.mark.parametrize(("steps", "lr", "distance"), DRIFT)
def test_fed_avg_drifts_as_far_as_it_should(steps, lr, distance):
    x, _ = fast("fed_avg", H6, B6, 500, steps=steps, lr=lr)
    assert gap(x, ERM6) == pytest.approx(distance, abs=1e-7 if distance == 0 else 0.006 * distance)


def test_fine_tuning_to_convergence_forgets_where_it_started():
    _, models = fast("ftfa", H6, B6, 0, start=ERM6, tune_epochs=None, tune_steps=400, tune_lr=0.8)
    np.testing.assert_allclose(models, local_optima(H6, B6), atol=1e-10)


def test_fine_tuning_with_fewer_examples_than_parameters_projects_the_shared_model():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((3, 2, 5))  # two examples, five parameters
    targets = rng.standard_normal((3, 2))
    h = np.array([x.T @ x / 2 for x in rows])
    b = np.array([x.T @ y / 2 for x, y in zip(rows, targets, strict=True)])
    start = rng.standard_normal(5)
    _, models = fast("ftfa", h, b, 0, start=start, tune_epochs=None, tune_steps=1000, tune_lr=0.2)
    expected = [start + x.T @ np.linalg.solve(x @ x.T, y - x @ start) for x, y in zip(rows, targets, strict=True)]
    np.testing.assert_allclose(models, expected, atol=1e-8)


def test_ridge_tuning_without_a_ridge_is_fine_tuning():
    options = dict(start=ERM6, tune_epochs=None, tune_steps=400, tune_lr=0.8)
    _, ridge = fast("rtfa", H6, B6, 0, lam=1e-10, **options)
    _, plain = fast("ftfa", H6, B6, 0, **options)
    np.testing.assert_allclose(ridge, plain, rtol=0, atol=1e-8)


def test_ridge_tuning_with_a_large_ridge_is_the_shared_model():
    _, models = fast("rtfa", H6, B6, 0, start=ERM6, lam=1e6, tune_epochs=None, tune_steps=100, tune_lr=1e-6)
    np.testing.assert_allclose(models, np.tile(ERM6, (6, 1)), atol=1e-5)


def test_ditto_with_a_converged_centre_is_ridge_tuning():
    x, v = fast("ditto", H6, B6, 300, start=ERM6, lam=0.5, steps=1, lr=0.3)
    assert gap(x, ERM6) < 1e-7
    np.testing.assert_allclose(v, [prox(H6[i], B6[i], 0.5, ERM6) for i in range(6)], atol=1e-7)
    _, ridge = fast("rtfa", H6, B6, 0, start=ERM6, lam=0.5, tune_epochs=None, tune_steps=300, tune_lr=0.3)
    np.testing.assert_allclose(v, ridge, atol=1e-7)


def test_ditto_without_a_pull_is_local():
    _, free = fast("ditto", H6, B6, 5, lam=0.0, steps=3, lr=0.3)
    _, alone = fast("local", H6, B6, 5, steps=3, lr=0.3)
    np.testing.assert_allclose(free, alone, atol=1e-12)


SAME_CENTRE = [
    pytest.param("fed_prox", 200, dict(steps=100, lr=1 / 1.5), id="fed_prox-solved-exactly"),
    pytest.param("pfedme", 300, dict(steps=1, lr=1.0, prox_steps=80, prox_lr=1 / 1.5), id="pfedme-one-step-exact-prox"),
    pytest.param("fed_clup", 400, dict(steps=1, lr=1 / 1.5), id="fed_clup-1-step"),
    pytest.param("fed_clup", 400, dict(steps=2, lr=1 / 1.5), id="fed_clup-2-steps"),
    pytest.param("fed_clup", 400, dict(steps=5, lr=1 / 1.5), id="fed_clup-5-steps"),
    pytest.param("fed_clup", 300, dict(smoothness=1.0, convexity=0.2), id="fed_clup-by-theory"),
]


@pytest.mark.parametrize(("name", "rounds", "options"), SAME_CENTRE)
def test_the_regularized_problem_has_one_solution(name, rounds, options):
    x, models = fast(name, H6, B6, rounds, lam=0.5, **options)
    np.testing.assert_allclose(x, X6, rtol=0, atol=1e-7)
    np.testing.assert_allclose(models, W6, rtol=0, atol=1e-7)


def test_fed_prox_restarted_with_five_steps_is_biased():
    x, _ = fast("fed_prox", H6, B6, 400, lam=0.5, steps=5, lr=1 / 1.5)
    assert gap(x, X6) == pytest.approx(5e-3, rel=0.2)


@pytest.mark.parametrize(("lr", "distance"), [(0.2, 0.027), (1.0, 0.083)])
def test_pfedme_with_twenty_local_rounds_drifts(lr, distance):
    x, _ = fast("pfedme", H6, B6, 200, lam=0.5, steps=20, lr=lr, prox_steps=60, prox_lr=1 / 1.5)
    assert gap(x, X6) == pytest.approx(distance, rel=0.02)


@pytest.mark.parametrize("lam", [1e2, 1e4, 1e6])
def test_pfedme_with_a_strong_pull_finds_the_pooled_optimum(lam):
    # One local step moves by the envelope's gradient over lam, so beta = lam / 2 is a step of 1/2 along it.
    options = dict(steps=1, lr=1 / lam, prox_steps=8, prox_lr=1 / (lam + 1), beta=lam / 2)
    x, _ = fast("pfedme", H6, B6, 200, lam=lam, **options)
    exact, _ = centre_problem(H6, B6, U6, lam)
    assert gap(x, exact) < 1e-7
    assert gap(x, ERM6) < 2 / lam


def test_fed_clup_with_a_strong_pull_is_the_pooled_optimum():
    gamma, lr, _ = theory_steps(1e4, 3.0, 0.5)
    x, models = fast("fed_clup", H, B, 300, lam=1e4, steps=4, lr=lr, gamma=gamma)
    erm = pooled_optimum(H, B, np.ones(3) / 3)
    np.testing.assert_allclose(x, erm, atol=1e-4)
    np.testing.assert_allclose(models, np.tile(erm, (3, 1)), atol=5e-4)


def test_fed_clup_with_a_weak_pull_is_local():
    _, models = fast("fed_clup", H, B, 30, lam=1e-4, steps=50, lr=1 / 3)
    np.testing.assert_allclose(models, local_optima(H, B), atol=1e-3)


# lam, mu, L -> gamma, lr, K
THEORY = [
    (0.02, 0.1, 1, 25.5, 0.980392, 101),
    (0.1, 0.1, 1, 5.5, 0.909091, 66),
    (0.5, 0.1, 1, 1.5, 0.666667, 31),
    (1, 0.1, 1, 1.0, 0.5, 24),
    (10, 0.1, 1, 0.55, 0.090909, 15),
    (1, 0.5, 2, 0.75, 0.333333, 22),
    (0.5, 0.5, 3, 1.166667, 0.285714, 39),
    (2.5, 0.01, 4, 0.325, 0.153846, 52),
]


@pytest.mark.parametrize(("lam", "mu", "smoothness", "gamma", "lr", "steps"), THEORY)
def test_the_step_sizes_of_the_theory(lam, mu, smoothness, gamma, lr, steps):
    got = theory_steps(lam, smoothness, mu)
    np.testing.assert_allclose(got[:2], (gamma, lr), rtol=0, atol=5e-7)
    assert got[2] == steps


@pytest.mark.parametrize("lam", [0.1, 1.0])
def test_fed_clup_contracts_as_fast_as_was_proved(lam):
    """The Lyapunov function |x - x*|^2 + c mean |w_i - prox_i(x)|^2 shrinks by at least r every round."""
    mu, smoothness, rounds = 0.1, 1.0, 12
    h, b = random_problem(seed=0, clients=6, examples=30, features=5, mu=mu, smoothness=smoothness, radius=0.5)
    solution, _ = centre_problem(h, b, np.ones(6) / 6, lam)
    gamma, lr, steps = theory_steps(lam, smoothness, mu)
    mu_g, l_g, l_w = lam * mu / (lam + mu), lam * smoothness / (lam + smoothness), lam / (lam + mu)
    slack = mu_g / 2 * (1 - gamma * mu_g)
    q = (2 + 4 * l_w**2 * gamma**2 * lam**2) * (1 - lr * (mu + lam)) ** steps
    c = 2 * lam**2 * (gamma / slack + gamma**2 * (2 + 1 / (1 - gamma * l_g))) / (1 - gamma * mu_g + gamma * slack - q)
    rate = 1 - gamma * mu_g / 2 - (gamma * mu_g) ** 2 / 2

    got = trace(
        "vectorized", "fed_clup", h, b, rounds, lam=lam, smoothness=smoothness, convexity=mu, start=np.full(5, 3.0)
    )
    centres = [np.full(5, 3.0), *got.server]
    value = []
    for x, w in zip(centres, got.models, strict=False):  # the w of a round stand beside the x they were made from
        away = [np.sum((w[i] - prox(h[i], b[i], lam, x)) ** 2) for i in range(6)]
        value.append(np.sum((x - solution) ** 2) + c * np.mean(away))
    ratios = np.array(value[1:]) / value[:-1]
    assert len(ratios) == rounds - 1
    assert ratios.max() <= rate
    assert value[-1] < 1e-2 * value[0]


def test_fed_clup_needs_more_rounds_for_a_stronger_pull():
    h, b = random_problem(seed=0, clients=10, examples=60, features=8, mu=0.1, smoothness=1.0, radius=0.5)
    needed = []
    for lam in (0.1, 1.0):
        solution, _ = centre_problem(h, b, np.ones(10) / 10, lam)
        options = dict(lam=lam, smoothness=1.0, convexity=0.1)
        centres = trace("vectorized", "fed_clup", h, b, 60, **options).server
        away = np.array([np.sum((x - solution) ** 2) for x in centres])
        needed.append(int(np.argmax(away < 1e-10 * np.sum(solution**2))) + 1)
        gamma, lr, steps = theory_steps(lam, 1.0, 0.1)
        plain, _ = fed_clup(h, b, 60, steps, lr, lam, gamma)
        np.testing.assert_allclose(centres, plain, atol=1e-6)
    assert needed == [24, 49]


def test_fed_clup_wants_both_constants_of_theory_or_neither():
    with pytest.raises(UserError, match="both 'smoothness' and 'convexity'"):
        CATALOG["fed_clup"](lambda params, batch, key: 0.0, smoothness=1.0)


COLD = {0.01: (1.80, 1.33, 1.32, 1.32), 0.2: (6.90, 0.969, 0.142, 0.140), 10.0: (14.8, 4.78, 0.123, 0.0381)}


@pytest.mark.parametrize("lam", COLD)
def test_from_a_cold_start_a_small_pull_is_soon_better_and_a_large_one_in_the_end(lam):
    """Alike clients, all models zero at first; the error in rounds 1, 5, 20 and 150, to the printed digits."""
    shape = dict(clients=20, examples=60, features=8, mu=0.02, smoothness=1.0, radius=0.1)
    h, b = random_problem(seed=3, **shape)
    rng = np.random.default_rng(3)  # the same draws once more, for the true models
    center, away = rng.standard_normal(8), rng.standard_normal((20, 8))
    away -= away.mean(0)
    truth = center + away * 0.1 / np.linalg.norm(away, axis=1).max()
    gamma, lr, steps = theory_steps(lam, 1.0, 0.02)
    models = trace("vectorized", "fed_clup", h, b, 150, every=5, lam=lam, gamma=gamma, lr=lr,
                   steps=min(steps, 200)).models  # fmt: skip
    first = trace("vectorized", "fed_clup", h, b, 1, lam=lam, gamma=gamma, lr=lr, steps=min(steps, 200)).models
    found = [np.mean(np.sum((w - truth) ** 2, axis=1)) for w in (first[0], models[0], models[3], models[29])]
    np.testing.assert_allclose(found, COLD[lam], rtol=5e-3)
