"""FedCLUP's constants, rates and bounds: the tables to six digits, the corrections, and what was measured."""

import numpy as np
import pytest
from scipy import linalg

from apiece.errors import UserError
from apiece.methods.fed_clup import theory_steps
from apiece.theory import clup

# lam, mu, L | mu_g, L_g, L_w, gamma, lr, K | simple rate, rate | rounds factor
TABLE = np.array(
    [
        (0.02, 0.1, 1, 0.016667, 0.019608, 0.166667, 25.5, 0.980392, 101, 0.787500, 0.697187, 1.176471),
        (0.1, 0.1, 1, 0.050000, 0.090909, 0.500000, 5.5, 0.909091, 66, 0.862500, 0.824687, 1.818182),
        (0.5, 0.1, 1, 0.083333, 0.333333, 0.833333, 1.5, 0.666667, 31, 0.937500, 0.929688, 4.000000),
        (1, 0.1, 1, 0.090909, 0.500000, 0.909091, 1.0, 0.500000, 24, 0.954545, 0.950413, 5.500000),
        (10, 0.1, 1, 0.099010, 0.909091, 0.990099, 0.55, 0.090909, 15, 0.972772, 0.971290, 9.181818),
        (1, 0.5, 2, 0.333333, 0.666667, 0.666667, 0.75, 0.333333, 22, 0.875000, 0.843750, 2.000000),
        (0.5, 0.5, 3, 0.250000, 0.428571, 0.500000, 1.166667, 0.285714, 39, 0.854167, 0.811632, 1.714286),
        (2.5, 0.01, 4, 0.009960, 1.538462, 0.996016, 0.325, 0.153846, 52, 0.998381, 0.998376, 154.461538),
    ]
)
LAM, MU, SMOOTH = TABLE[:, :3].T


def test_the_table_of_constants_and_rates():
    found = [
        *clup.constants(LAM, SMOOTH, MU),
        clup.simple_rate(LAM, SMOOTH, MU),
        clup.rate(LAM, SMOOTH, MU),
        clup.rounds_factor(LAM, SMOOTH, MU),
    ]
    np.testing.assert_allclose(np.transpose(found), TABLE[:, 3:], rtol=0, atol=6e-7)


def test_the_method_takes_the_steps_of_the_theory():
    for lam, mu, smooth in TABLE[:, :3]:
        c = clup.constants(lam, smooth, mu)
        assert theory_steps(float(lam), float(smooth), float(mu)) == pytest.approx((c.gamma, c.lr, int(c.steps)))


def test_the_steps_satisfy_both_conditions_of_the_rate():
    c = clup.constants(LAM, SMOOTH, MU)
    given = (LAM, SMOOTH, MU)
    assert clup.steps_suffice(*given, c.gamma, c.lr, c.steps).all()
    assert not clup.steps_suffice(*given, c.gamma, c.lr, c.steps // 3).any()  # too few local steps
    assert not clup.steps_suffice(*given, 1 / c.l_g, c.lr, c.steps).any()  # gamma = 1/L_g is outside the proof
    # The condition that is missing in print: nearly equal curvatures, and many steps.
    assert not clup.steps_suffice(1.0, 1.0, 0.99, 1.9 * clup.constants(1.0, 1.0, 0.99).gamma, 0.5, 10_000)


def test_rounds_increase_with_the_pull_and_with_the_condition_number():
    """Printed once as kappa (lam + L)/(lam + mu), which would decrease with lam."""
    lams = np.geomspace(0.01, 100, 30)
    assert (np.diff(clup.rounds_factor(lams, 1.0, 0.1)) > 0).all()
    assert (np.diff(clup.rounds_factor(1.0, 1.0, 1 / np.array([5.0, 20.0, 80.0]))) > 0).all()
    assert (np.diff(10 * (lams + 1.0) / (lams + 0.1)) < 0).all()
    assert (clup.rate(lams, 1.0, 0.1) <= clup.simple_rate(lams, 1.0, 0.1)).all()


# lam, mu, L, rho2, n, N, R^2 | b1, b2 | as printed in the paper
BOUNDS = [
    (100.0, 0.5, 1.0, 3.0, 40, 800, 0.0004, 0.853422, 1089.52, 0.801347, 369.52),
    (1000.0, 0.5, 1.0, 3.0, 40, 800, 0.0004, 0.801775, 22404.4, 0.798147, 15204.4),
    (0.1, 0.5, 1.0, 3.0, 40, 800, 0.25, np.inf, 2.44, np.inf, 1.72),
    (1.0, 0.5, 1.0, 3.0, 40, 800, 0.25, np.inf, 20.8, np.inf, 13.6),
]


def test_the_statistical_bounds():
    lam, mu, smooth, rho2, n, total, r2, b1, b2, b1_printed, b2_printed = np.transpose(BOUNDS)
    found = clup.statistical_bounds(lam, smooth, mu, rho2, n, total, np.sqrt(r2))
    np.testing.assert_allclose(found[0], b1, rtol=0, atol=6e-7)
    np.testing.assert_allclose(found[1], b2, rtol=2e-6)
    # The printed linear coefficient is 4 rho2/(mu^3 n): a quarter of what its own proof gives.
    np.testing.assert_allclose(b2 - b2_printed, 12 * rho2 / (mu**3 * n) * lam, rtol=1e-4)
    # Printed with rho2/n^2 in two places, where its proof has rho2/n.
    big = slice(2)
    near = mu + lam
    g = 4 / mu * (1 / near + smooth / near**2)
    f = g / (1 - 4 * smooth**2 * g)
    lost = (48 * smooth**2 / near**2 + 3) * f * 2 * rho2 * (1 / n - 1 / n**2)
    np.testing.assert_allclose(b1[big] - b1_printed[big], lost[big], rtol=1e-4)


def test_the_first_bound_holds_from_the_lam_on_that_the_proof_needs():
    """g(lam) <= 1/(8 L^2); printed once as 1/(8 L)^2, eight times as much lam."""
    lams = np.linspace(1, 200, 2000)
    b1, _ = clup.statistical_bounds(lams, 1.0, 0.5, 3.0, 40, 800, 0.02)
    g = 8 * (1 / (0.5 + lams) + 1 / (0.5 + lams) ** 2)
    assert ((g <= 1 / 8) == np.isfinite(b1)).all()
    assert 60 < lams[np.isfinite(b1)].min() < 70
    assert (np.diff(b1[np.isfinite(b1)]) < 0).all()  # the closer to one shared model, the larger lam


def solved(seed, lam, clients=20, examples=40, features=5, radius=0.02, mu=0.5, smooth=1.0):
    """The mean squared distance of the problem's solution to the true models; every Gram matrix in [mu, L]."""
    rng = np.random.default_rng(seed)
    away = rng.standard_normal((clients, features))
    away -= away.mean(0)
    away *= radius / np.linalg.norm(away, axis=1).max()
    h, b = [], []
    for w in away:
        q, _ = np.linalg.qr(rng.standard_normal((examples, features)))
        v, _ = np.linalg.qr(rng.standard_normal((features, features)))
        x = np.sqrt(examples) * q @ np.diag(np.sqrt(np.geomspace(mu, smooth, features))) @ v.T
        h.append(x.T @ x / examples)
        b.append(x.T @ (x @ w + rng.standard_normal(examples)) / examples)
    inverse = np.linalg.inv(np.array(h) + lam * np.eye(features))
    center = np.linalg.solve((inverse @ h).mean(0), np.einsum("ijk,ik->ij", inverse, b).mean(0))
    return np.mean(np.sum((np.einsum("ijk,ik->ij", inverse, b + lam * center) - away) ** 2, axis=1))


@pytest.mark.parametrize("radius", [0.02, 0.5])
def test_measured_errors_stay_below_the_bounds(radius):
    rho2 = np.geomspace(0.5, 1.0, 5).sum()  # noise of variance 1: E|x e|^2 is the trace of the Gram matrix
    for lam in (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0):
        error = np.mean([solved(seed, lam, radius=radius) for seed in range(10)])
        assert error <= min(clup.statistical_bounds(lam, 1.0, 0.5, rho2, 40, 800, radius))


def test_the_rule_for_lam_and_its_constants():
    rule = clup.lam_by_corollary(1, 0.5, 4, 100, 1000, [0.05, 0.5])
    np.testing.assert_allclose(rule.lam, [255.5, 0.32], rtol=1e-12)
    assert rule.at_least.tolist() == [True, False]
    far = clup.lam_by_corollary(1, 0.1, 1, 50, 5000, 0.01)
    assert float(far.lam) == pytest.approx(6399.9) and bool(far.at_least)
    np.testing.assert_allclose(clup.corollary_constants(1, 0.5, 4), (512, 128, 3072, 9015.6), rtol=5e-6)
    np.testing.assert_allclose(clup.corollary_constants(1, 0.1, 1), (3200, 3200, 19200, 1.30323e6), rtol=5e-6)


def test_identical_clients_and_clients_of_one_example_have_a_rule():
    assert np.isfinite(clup.lam_by_corollary(1, 0.5, 4, 1, 10, [0.0, 1.0, 2.0]).lam).all()


def test_the_rule_for_a_large_lam_is_far_from_tight():
    rho2 = np.geomspace(0.5, 1.0, 5).sum()
    rule = clup.lam_by_corollary(1.0, 0.5, rho2, 40, 800, 0.02)
    assert rule.at_least and rule.lam > 250
    measured = {lam: np.mean([solved(seed, lam) for seed in range(20)]) for lam in (0.1, 10.0, float(rule.lam))}
    assert measured[10.0] < 1.15 * measured[float(rule.lam)] < 0.5 * measured[0.1]


def test_the_noise_ball_is_never_larger_than_its_simple_bound():
    """Printed constants are 8 to 8 kappa times smaller."""
    lams = np.geomspace(0.001, 1000, 40)
    lr, ball = clup.noise_ball(lams, 3.0, 0.5, 2.0, 10, 5)
    assert (ball <= 8 * 2.0 / (0.5**2 * 10 * 5)).all()
    assert (lr <= 1 / (lams + 3.0)).all()


@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0])
def test_the_noise_ball_contains_what_noise_does_in_one_dimension(mu):
    """One client, loss mu w^2/2 (L = 1), gradients with noise of variance 1: the stationary law of (w, x) exactly."""
    ratios = []
    for lam in (1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0):
        c = clup.constants(lam, 1.0, mu)
        lr, ball = clup.noise_ball(lam, 1.0, mu, 1.0, 1, 1)
        stay = 1 - lr * (mu + lam)
        kept = stay ** np.ceil(2 + np.log(1056 / mu**2) / (lr * (lam + mu)))
        to_x, pull = (1 - kept) * lam / (mu + lam), c.gamma * lam
        moves = np.array([[kept, to_x], [pull * kept, 1 - pull + pull * to_x]])
        noise = lr**2 * (1 - kept**2) / (1 - stay**2) * np.outer([1, pull], [1, pull])
        ratios.append(linalg.solve_discrete_lyapunov(moves, noise).diagonal().max() / ball)
    assert max(ratios) < 1
    if mu < 1:
        assert max(ratios) > mu / 8  # a constant 8 kappa times smaller would be too small


def quadratics(seed, clients, features, mu, smooth):
    rng = np.random.default_rng(seed)
    bases = np.linalg.qr(rng.standard_normal((clients, features, features)))[0]
    h = np.einsum("cij,j,ckj->cik", bases, np.geomspace(mu, smooth, features), bases)
    return h, rng.standard_normal((clients, features))


def iterates(h, best, lam, smooth, mu, x, w, rounds):
    """FedCLUP on 1/2 (w - best)'h(w - best): the squared distances to the solution of x and (mean) of the w."""
    gamma, lr, steps = theory_steps(lam, smooth, mu)
    eye = np.eye(h.shape[-1])
    inverse = np.linalg.inv(h + lam * eye)
    x_end = np.linalg.solve((inverse @ h).mean(0), np.einsum("cij,cj->ci", inverse @ h, best).mean(0))
    w_end = np.einsum("cij,cj->ci", inverse, np.einsum("cij,cj->ci", h, best) + lam * x_end)
    w, seen = w_end.copy() if w is None else w, []
    for _ in range(rounds):
        seen.append((np.sum((x - x_end) ** 2), np.mean(np.sum((w - w_end) ** 2, axis=-1))))
        for _ in range(steps):
            w = w - lr * (np.einsum("cij,cj->ci", h, w - best) + lam * (w - x))
        x = x - gamma * lam * (x - w.mean(0))
    return np.array(seen)


@pytest.mark.parametrize("lam", [0.1, 1.0, 10.0])
def test_no_more_rounds_are_needed_than_predicted(lam):
    h, best = quadratics(0, 8, 5, 0.1, 1.0)
    proved = int(clup.rounds_to(1e-8, lam, 1.0, 0.1))
    exact = int(clup.rounds_to(1e-8, lam, 1.0, 0.1, exact_prox=True))
    seen = iterates(h, best, lam, 1.0, 0.1, np.full(5, 3.0), None, proved + 1)
    assert seen[proved, 0] <= 1e-8 * seen[0, 0]
    assert seen[exact, 0] <= 2e-8 * seen[0, 0]  # K local steps come close to the exact solution
    assert exact < proved


def test_personal_models_that_start_at_their_solution_leave_it():
    """A printed bound has their own first distance on the right: 0 here, while the distance does not stay 0."""
    h, best = quadratics(1, 8, 5, 0.1, 1.0)
    seen = iterates(h, best, 1.0, 1.0, 0.1, np.full(5, 5.0), None, 40)
    assert seen[0, 1] == 0 and seen[1, 1] > 1
    factor = clup.simple_rate(1.0, 1.0, 0.1)
    assert (seen[:, 1] <= seen[0, 0] * factor ** np.arange(40) * 2).all()  # the server's distance belongs there


def test_the_rate_without_its_factor_four_would_be_over_in_a_round():
    """Printed once as 1 - (lam + L)/(kappa (lam + mu)): 0 for a vanishing lam, where one round is not enough."""
    lam, smooth, mu = 1e-3, 1.0, 0.1
    assert 1 - 1 / clup.rounds_factor(lam, smooth, mu) < 0.01
    h, best = quadratics(2, 8, 5, mu, smooth)
    seen = iterates(h, best, lam, smooth, mu, np.full(5, 5.0), None, 2)
    assert 0.1 < seen[1, 0] / seen[0, 0] < clup.rate(lam, smooth, mu)


def test_a_product_of_averages_is_not_an_average_of_products():
    """A printed step bounds mean <e_i, e_i> by <mean e_i, mean e_i>: two clients with errors +1 and -1."""
    errors = np.array([1.0, -1.0])
    assert np.mean(errors) * np.mean(errors) == 0 < np.mean(errors * errors)
    # In the method: opposite errors cancel at the server, and stay with the clients.
    h = np.ones((2, 1, 1))
    gamma, lr, steps = theory_steps(1.0, 1.0, 1.0)
    x, w = np.zeros(1), errors[:, None]
    shrink = (1 - 2 * lr) ** steps
    for _ in range(steps):
        w = w - lr * ((h @ w[..., None])[..., 0] + w - x)
    assert np.allclose(x - gamma * (x - w.mean(0)), 0)
    np.testing.assert_allclose(np.mean(w**2), shrink**2, atol=1e-12)


def test_rounds_increase_with_lam_and_condition_and_the_condition_counts_more_for_a_large_lam():
    lams = np.geomspace(0.01, 100, 40)
    for exact in (False, True):
        assert (np.diff(clup.rounds_to(1e-10, lams, 1.0, 0.1, exact)) >= 0).all()
        kappas = clup.rounds_to(1e-10, np.array([0.1, 1.0, 10.0])[:, None], 1.0, 1 / np.array([5.0, 20.0, 80.0]), exact)
        assert (np.diff(kappas, axis=1) > 0).all()
        assert (np.diff(kappas[:, 2] / kappas[:, 0]) > 0).all()
    measured = [18, 24, 39, 49, 67, 74]  # to 1e-10, kappa = 10
    assert (measured <= clup.rounds_to(1e-10, np.array([0.01, 0.1, 0.5, 1, 5, 50]), 1.0, 0.1)).all()


def test_gradients_depend_little_on_lam():
    lams = np.geomspace(0.01, 100, 40)
    gradients, rounds = clup.gradients_to(1e-10, lams, 1.0, 0.1), clup.rounds_to(1e-10, lams, 1.0, 0.1)
    assert gradients.max() / gradients.min() < 2.1 and rounds.max() / rounds.min() > 10


def test_the_frontier_has_no_dominated_point():
    found = clup.frontier(np.geomspace(0.001, 1e4, 60), 1.0, 0.5, 3.0, 40, 800, 0.02, start=100.0)
    points = list(zip(found.error, found.rounds, found.pareto, strict=True))
    assert 2 < found.pareto.sum() < 60
    for error, rounds, kept in points:
        dominated = any((e <= error and r < rounds) or (e < error and r <= rounds) for e, r, _ in points)
        assert kept != dominated
    # Along the frontier accuracy costs rounds.
    order = np.argsort(found.error[found.pareto])
    assert (np.diff(found.rounds[found.pareto][order]) <= 0).all()
    b1, b2 = clup.statistical_bounds(np.geomspace(0.001, 1e4, 60), 1.0, 0.5, 3.0, 40, 800, 0.02)
    np.testing.assert_array_equal(found.error, np.minimum(b1, b2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: clup.constants(0.0, 1.0, 0.1), "lam must be above 0"),
        (lambda: clup.rate(1.0, 1.0, 2.0), "mu is never above"),
        (lambda: clup.rounds_factor(1.0, 1.0, 0.0), "convexity must be above 0"),
        (lambda: clup.rounds_to(2.0, 1.0, 1.0, 0.1), "at most 1"),
        (lambda: clup.statistical_bounds(1.0, 1.0, 0.5, -1.0, 40, 800, 0.1), "rho2 must be at least 0"),
        (lambda: clup.lam_by_corollary(1.0, 0.5, 1.0, 800, 40, 0.1), "n is never above N"),
        (lambda: clup.corollary_constants(1.0, 0.5, -1.0), "rho2"),
        (lambda: clup.noise_ball(1.0, 1.0, 0.5, -1.0, 1, 1), "variance"),
        (lambda: clup.frontier([1.0], 1.0, 0.5, 1.0, 40, 800, 0.1, start=0.0), "start"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_the_error_of_equal_curvatures_is_what_a_simulation_finds_and_least_where_it_says():
    m, n, mu, rho, radius = 10, 20, 0.5, 2.0, 0.6
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((20_000, m, 3))
    truth -= truth.mean(axis=1, keepdims=True)
    truth *= radius / np.sqrt((truth**2).sum(-1).mean())
    own = truth + rho / (mu * np.sqrt(n * 3)) * rng.standard_normal(truth.shape)  # optima of the clients' losses
    for lam in (0.05, 0.5, 5.0):
        a = lam / (lam + mu)
        solution = (1 - a) * own + a * own.mean(axis=1, keepdims=True)
        measured = ((solution - truth) ** 2).sum(-1).mean()
        assert clup.error_if_alike(lam, mu, rho**2, n, m * n, radius) == pytest.approx(measured, rel=0.01)
    best = (1 - 1 / m) * rho**2 / (mu * n * radius**2)
    at = clup.error_if_alike(best, mu, rho**2, n, m * n, radius)
    v = rho**2 / (mu**2 * n)
    assert at == pytest.approx(v / m + (1 - 1 / m) * v * radius**2 / (radius**2 + (1 - 1 / m) * v))
    assert (clup.error_if_alike(best * np.array([0.8, 1.2]), mu, rho**2, n, m * n, radius) > at).all()


@pytest.mark.parametrize("lam", [0.02, 0.5, 10.0])
def test_the_steps_for_noisy_gradients_are_the_fewest_that_theorem_3_allows(lam):
    L, mu = 1.0, 0.1
    gamma, lr, steps = theory_steps(lam, L, mu, noisy=True)
    assert lr == pytest.approx(clup.noise_ball(lam, L, mu, 1.0, 10, 5)[0])
    enough = lambda count: (2 + 64 * (lam / mu) ** 2) * (1 - lr * (lam + mu)) ** count <= 1 / 16
    assert enough(steps) and not enough(steps - 1)
    assert clup.steps_suffice(lam, L, mu, gamma, lr, steps)
