"""FFGG's constants: the published numbers where they are right, the corrected ones where they are not."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.theory import ffgg
from apiece.theory.ffgg import (
    byzantine_rate,
    byzantine_share,
    byzantine_step,
    gradient_bound,
    inexact_step,
    inner_steps,
    late_step,
    quadratic_smoothness,
)


def test_late_replies_need_the_known_steps():
    np.testing.assert_allclose(late_step([1.0, 2.5], [8, 32], [10, 50]), [0.039528, 0.003536], atol=5e-7)
    assert late_step(1.0, 8, 95) == pytest.approx(0.0128, abs=5e-5)


def test_inner_steps_are_the_known_ones():
    assert inner_steps(2.0, 5.0, 0.5, 5.0, rounds=1000) == pytest.approx(170.3439, abs=5e-5)
    assert inner_steps(2.0, 5.0, 0.5, 5.0, rounds=2000) > inner_steps(2.0, 5.0, 0.5, 5.0, rounds=1000)


# mu, L, similarity, rho, honest, share; largest share, its printed value, step
BYZANTINE = [
    (0.5, 1.5, 1.5, 1.0, 16, 0.2, 0.039062, 0.15625, 0.116822),
    (0.5, 1.5, 0.3, 1.0, 16, 0.2, 0.195312, 0.78125, 0.153563),
    (0.5, 1.5, 0.3, 1.2, 16, 0.1, 0.091912, 0.367647, 0.150739),
]


@pytest.mark.parametrize("row", BYZANTINE)
def test_the_byzantine_conditions(row):
    mu, smoothness, similarity, growth, honest, share, largest, printed, step = row
    got = byzantine_share(mu, smoothness, similarity, honest, growth=growth)
    assert got == pytest.approx(largest, abs=1e-6)
    assert 4 * got == pytest.approx(printed, abs=1e-6)  # the printed one has 2c in the place of 8c
    assert byzantine_step(smoothness, similarity, honest, share, growth=growth) == pytest.approx(step, abs=1e-6)


def test_gradient_descent_on_a_shared_optimum_keeps_the_bound():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 4, 4))
    h = np.einsum("ijk,ilk->ijl", root, root)
    smoothness = np.linalg.eigvalsh(h).max()
    theta, best = rng.normal(size=4), rng.normal(size=4)
    start, seen = np.linalg.norm(theta - best), []
    for _ in range(50):
        pull = h.mean(0) @ (theta - best)
        seen.append(pull @ pull)
        theta = theta - pull / smoothness
    assert min(seen) <= gradient_bound(smoothness, start, 50)


def test_the_smoothness_of_the_quadratic_example():
    """The example's federation in small: features uniform on [0, 1] over their number."""
    rng = np.random.default_rng(0)
    h, a, b = (rng.random((4, 200, d)) / d for d in (10, 10, 5))
    hessian = np.swapaxes(h, 1, 2) @ h
    exact, bound = quadratic_smoothness(a, b, hessian)
    assert exact.shape == bound.shape == (4,)
    assert (exact <= bound).all() and bound.max() > 1.5 * exact.max()
    # min_w f along a direction, numerically: its curvature is at most L, and L along the worst one.
    for k in range(4):
        least = lambda theta, k=k: theta @ hessian[k] @ theta / 2 + np.linalg.lstsq(b[k], -a[k] @ theta)[1][0] / 2
        directions = rng.standard_normal((20, 10))
        curvature = [2 * least(u / np.linalg.norm(u)) for u in directions]
        assert max(curvature) <= exact[k] * (1 + 1e-9)
        own = a[k] - b[k] @ np.linalg.pinv(b[k]) @ a[k]
        worst = np.linalg.eigh(hessian[k] + own.T @ own)[1][:, -1]
        assert 2 * least(worst) == pytest.approx(exact[k], rel=1e-9)


def test_the_smoothness_of_the_scalar_trace():
    """h = (1, 2), a = (1,2), (2,-1), b = (1,1), (1,0): what w explains is no longer curved."""
    first = quadratic_smoothness([[1.0], [2.0]], [[1.0], [1.0]], [[1.0]]).exact
    second = quadratic_smoothness([[2.0], [-1.0]], [[1.0], [0.0]], [[2.0]]).exact
    assert (first, second) == pytest.approx((1.5, 3.0))
    # The trace of that problem at step .2 from 0, F(0) = (-.5, 1): F = L (theta - optimum) for each client.
    theta, seen = 0.0, []
    for _ in range(3):
        theta -= 0.2 * ((first * theta - 0.5) + (second * theta + 1.0)) / 2
        seen.append(theta)
    np.testing.assert_allclose(seen, (-0.05, -0.0775, -0.092625), atol=1e-9)


def test_half_the_step_for_inexact_solves():
    """1/L is printed. No instance is known where 1/L fails: it is the proof that needs the half."""
    assert inexact_step([1.0, 2.0]).tolist() == [0.5, 0.25]
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))
    smoothness = quadratic_smoothness(a, b, 0.2 * np.eye(3)).exact
    l_ww, mu_w = np.linalg.eigvalsh(b.T @ b)[[1, 0]]
    coupling = np.linalg.norm(a.T @ b, ord=2)
    rounds = 50
    start = rng.normal(size=3)
    distance = np.linalg.norm(start)
    # phi = .1 |theta|^2, y = 0: theta* = 0 and w*(theta) = -B^+ A theta, so that from w = 0 it is A |theta| away.
    growth = np.linalg.norm(np.linalg.pinv(b) @ a, ord=2)
    count = inner_steps(smoothness, l_ww, mu_w, coupling, growth=growth, offset=1e-6, rounds=rounds, distance=distance)
    for step in (inexact_step(smoothness), 1 / smoothness):
        theta, least = start, np.inf
        for _ in range(rounds):
            w = np.zeros(2)
            for _ in range(int(np.ceil(count))):
                w = w - b.T @ (a @ theta + b @ w) / l_ww
            pull = 0.2 * theta + a.T @ (a @ theta + b @ w)
            exact = 0.2 * theta + a.T @ (a @ theta - b @ np.linalg.pinv(b) @ a @ theta)
            least = min(least, exact @ exact)
            theta = theta - step * pull
        assert least <= gradient_bound(smoothness, distance, rounds, step)


def test_young_needs_twice_over_mu_and_not_half():
    """2 |<a, b>| <= mu |a|^2 / 2 + (2/mu) |b|^2; with the printed 1/(2 mu) it fails at mu = 1, a = 1, b = -2."""
    mu, a, b = 1.0, 1.0, -2.0
    assert 2 * abs(a * b) == 4 > mu * a**2 / 2 + b**2 / (2 * mu) == 2.5
    rng = np.random.default_rng(0)
    a, b, mu = rng.normal(size=1000), rng.normal(size=1000), rng.uniform(0.1, 10, 1000)
    assert (2 * abs(a * b) <= mu * a**2 / 2 + 2 / mu * b**2 + 1e-12).all()


def test_a_larger_share_of_forgers_makes_smaller_steps_and_slower_progress():
    steps = byzantine_step(1.5, 0.3, 16, np.array([0.0, 0.1, 0.3]))
    assert steps[0] == pytest.approx(1 / 6) and (np.diff(steps) < 0).all()
    rates = byzantine_rate(0.5, 1.5, steps)
    assert (np.diff(rates) > 0).all() and rates[0] == pytest.approx(1 - 0.5 / 12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: late_step(0.0, 8, 10), "smoothness must be above 0"),
        (lambda: gradient_bound(2.0, 1.0, 10, step=1.0), "at most at 1/L"),
        (lambda: byzantine_share(0.5, 1.5, 1.5, 1), "two honest"),
        (lambda: byzantine_share(2.0, 1.5, 1.5, 16), "never above"),
        (lambda: byzantine_step(1.5, 1.5, 16, 0.5), "below 1/2"),
        (lambda: byzantine_step(1.5, 1.5, 16, -0.1), "below 1/2"),
        (lambda: byzantine_rate(0.5, 1.5, 1.0), "never above 1/\\(4 L\\)"),
        (lambda: inexact_step(-1.0), "smoothness must be above 0"),
        (lambda: inner_steps(1.0, 1.0, 2.0, 1.0), "never above"),
        (lambda: gradient_bound(2.0, -1.0, 10), "distance must be at least 0"),
        (lambda: quadratic_smoothness([[1.0]], [[1.0], [2.0]], [[1.0]]), "a row for each target"),
        (lambda: byzantine_step(1.5, 1.5, 16, 0.2, growth=0.5), "at least 1"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_a_map_in_front_makes_a_loss_steeper_by_its_square():
    """min_w of phi + psi(A theta + B w - y) for quadratics: never above L_phi + L_psi |A|^2, and reached without B."""
    rng = np.random.default_rng(0)
    a, root = rng.standard_normal((4, 6, 3)), rng.standard_normal((4, 3, 3))
    phi = root @ np.swapaxes(root, -1, -2)
    steepest = np.linalg.eigvalsh(phi)[:, -1]
    bound = ffgg.composed_smoothness(steepest, 1.0, a)
    for b in (rng.standard_normal((4, 6, 2)), np.zeros((4, 6, 1))):
        assert (ffgg.quadratic_smoothness(a, b, phi).exact <= bound + 1e-9).all()
    alone = ffgg.quadratic_smoothness(a, np.zeros((4, 6, 1)), 0 * phi).exact
    np.testing.assert_allclose(alone, ffgg.composed_smoothness(0.0, 1.0, a))


def test_coupled_clients_are_as_monotone_as_example_2_says():
    """f = mu/2 theta^2 + c theta w + w^2/2: w* = -c theta, C1 = C2 = c, and F' = mu - c^2."""
    assert ffgg.coupled_convexity(2.0, 0.7, 0.7) == pytest.approx(2 - 0.49)
    with pytest.raises(UserError, match="too strongly"):
        ffgg.coupled_convexity(1.0, 0.8, 0.8)


def test_late_replies_keep_the_bound_by_plain_numpy():
    """Clients of one optimum, drawn uniformly, replies late at random: the mean of |F_m|^2 over all versions."""
    rng, clients, active, rounds = np.random.default_rng(3), 6, 3, 200
    root = rng.normal(size=(clients, 4, 2))
    j = root @ np.swapaxes(root, 1, 2)
    smoothness = np.linalg.eigvalsh(j)[:, -1].max()
    over = []
    for _ in range(30):
        best, delay, plans = rng.normal(size=4), 0, []
        # Who arrives when does not depend on the values: first the plan, whose longest delay sets the step.
        work = [(int(rng.integers(clients)), 0, rng.exponential()) for _ in range(active)]
        for r in range(rounds):
            m, since, at = work.pop(int(np.argmin([job[2] for job in work])))
            delay = max(delay, r - since)
            plans.append((m, since))
            work.append((int(rng.integers(clients)), r + 1, at + rng.exponential()))
        step = late_step(smoothness, active, max(delay, 1))
        thetas, squares = [np.zeros(4)], []
        for m, since in plans:
            squares.append((np.einsum("mij,j->mi", j, thetas[-1] - best) ** 2).sum(-1).mean())
            thetas.append(thetas[-1] - step * j[m] @ (thetas[since] - best))
        over.append(np.mean(squares) / ffgg.late_bound(smoothness, np.linalg.norm(best), rounds, active, max(delay, 1)))
    assert 0.01 < np.mean(over) < 1


def test_the_late_bound_is_the_plain_one_at_a_smaller_step_but_for_a_ninth():
    step = late_step(1.0, 8, 95)
    late, plain = ffgg.late_bound(1.0, 3.0, 500, 8, 95), gradient_bound(1.0, 3.0, 500, step)
    assert 1 / 1.25 <= late / plain <= 1 / 0.89
    with pytest.raises(UserError, match="at most at `late_step`"):
        ffgg.late_bound(1.0, 3.0, 500, 8, 95, step=0.1)
