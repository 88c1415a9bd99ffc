"""The rates of All-for-one and All-for-all against runs of their own updates in NumPy: bounds hold and are not idle."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.theory import all_for_all_rates as rates
from apiece.theory.all_for_all import sharing

P = np.array([0.1, 0.15, 0.2, 0.6, 0.65])  # the clients' means; b_ij = (p_i - p_j)^2 / 2 is exact for squares
B = (P[:, None] - P) ** 2 / 2


def noisy_run(shared, step, steps, noise, seeds=200, averaged=False, start=0.0):
    """The mean over clients and runs of (x_i - p_i)^2 / 2 after x <- x - step W (x - p + noise), everybody a step."""
    rng = np.random.default_rng(0)
    x, total = np.full((seeds, len(P)), start), 0.0
    for _ in range(steps):
        x = x - step * (x - P + np.sqrt(noise) * rng.standard_normal(x.shape)) @ shared.mixing.T
        total = total + x
    return float(np.mean(((total / steps if averaged else x) - P) ** 2) / 2)


@pytest.mark.parametrize(("eps", "steps"), [(0.004, 200), (0.02, 200), (0.2, 50), (1.0, 50)])
def test_the_bound_of_curved_losses_holds(eps, steps):
    shared, noise = sharing(B, eps), 0.25
    start = float(np.mean(P**2) / 2)
    bound, step = rates.curved_bound(shared, steps, smoothness=1.0, convexity=1.0, noise=noise, start=start)
    found = noisy_run(shared, step, steps, noise)
    assert found <= bound
    assert found >= bound / 30


def test_without_noise_or_bias_only_the_start_is_left():
    alone = sharing(B, 1e-6)
    bound, step = rates.curved_bound(alone, 10, smoothness=2.0, convexity=1.0, noise=0.0, start=3.0)
    assert bound == pytest.approx(3 * np.exp(-10 / 4))
    assert step == pytest.approx(1 / 4)


@pytest.mark.parametrize("eps", [0.004, 0.2])
def test_the_bound_of_flat_losses_holds_for_the_mean_iterate(eps):
    shared, noise, steps = sharing(B, eps), 0.25, 300
    bound, step = rates.flat_bound(shared, steps, smoothness=1.0, noise=noise, distance=0.65)
    assert noisy_run(shared, step, steps, noise, averaged=True) <= bound
    more = rates.flat_bound(shared, 4 * steps, smoothness=1.0, noise=noise, distance=0.65)
    assert more[1] < step  # a step without K in it, as printed, would be the same
    assert more[0] - shared.bias == pytest.approx((bound - shared.bias) / 2, rel=0.1)


def test_the_bound_of_one_model_holds():
    share, noise, steps = np.array([0.5, 0.5, 0, 0, 0]), 0.25, 100
    rng, log = np.random.default_rng(1), np.log(100)
    x = np.zeros(2000)
    for _ in range(steps):
        slope = x[:, None] - P + np.sqrt(noise) * rng.standard_normal((2000, 5))
        x = x - log / steps * slope @ share
    start = float(share @ (P**2) / 2)
    how = dict(smoothness=1.0, convexity=1.0, noise=noise, start=start)
    bound = rates.mixture_bound_if_curved(share, B[0], steps, **how)
    assert np.mean((x - P[0]) ** 2) / 2 <= bound
    assert rates.mixture_bound_if_curved(share, B[0], steps, **how, m=1.0) > bound
    with pytest.raises(UserError, match="sum to 1"):
        rates.mixture_bound_if_curved([0.5, 0.2], [0, 0], 10, **how)


def test_times_are_those_of_their_bounds():
    """By hand, from the numbers of partners at two precisions."""
    near = np.array([(B[i] <= 0.01).sum() for i in range(5)])
    got = rates.samples_for_all(B, 0.02, smoothness=2.0, convexity=1.0, noise=0.5, start=1.0)
    assert got == pytest.approx(2 * max(2 * 0.5 / 0.02 * np.sum(1 / near), 10) * np.log(50))
    one = rates.samples_for_one(B, 0.02, smoothness=2.0, convexity=1.0, noise=0.5)
    np.testing.assert_allclose(one, 2 * 0.5 / 0.02 * 5 / near)
    np.testing.assert_allclose(rates.samples_for_one(B, 0.02, smoothness=2.0, convexity=1.0, noise=0.5, m=1.0), 4 * one)
    flat = rates.samples_for_all_if_flat(B, 0.02, smoothness=1.0, noise=0.25, distance=0.5)
    assert flat == pytest.approx(max(8 * 0.25 * 0.25 / 0.0004 * np.sum(1 / near), 4 * 5 * 0.25 / 0.02))


def test_no_method_is_promised_less_than_the_lower_bound():
    distances = np.abs(P[:, None] - P)
    for eps in (0.001, 0.01, 0.1):
        fewest = rates.fewest_samples_for_all(distances, eps)
        wide = np.array([(distances[i] <= 20 * eps).sum() for i in range(5)])
        assert fewest == pytest.approx(np.sum(1 / wide) / (5 * eps) ** 2)
        upper = 4 / eps**2 * np.sum(1 / np.array([(distances[i] <= eps / 2).sum() for i in range(5)]))
        assert fewest <= upper
