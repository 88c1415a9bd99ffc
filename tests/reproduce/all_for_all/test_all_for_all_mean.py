"""A hundred coins: the schedules on the engine against plain NumPy loops, and the statements about steps."""

import numpy as np
import pytest

from apiece.reproduce.all_for_all import coins
from apiece.reproduce.all_for_all.coins import chances_of, clusters, error, estimated, followed, tossed
from apiece.reproduce.all_for_all.steps import speedups

pytestmark = pytest.mark.usefixtures("x64")

RUN = tossed(0, chances_of(0))
LOOKS = (10, 30)


def filter_of(b, eps):
    near = b <= eps / 2
    np.fill_diagonal(near, True)
    return near / near.sum(1, keepdims=True)


def pace(share, eps):
    """lambda_max, and the theory's step for L = mu = 1 and a variance of 1/4."""
    top = np.linalg.eigvalsh(share @ share.T)[-1]
    return top, min(0.5 / top, eps * len(share) / (0.5 * (share**2).sum()))


def test_noise_moves_what_is_believed_of_the_chances_and_not_the_chances():
    exact, noisy = tossed(3, chances_of(3)), tossed(3, chances_of(3), noise=0.1)
    believed = lambda tosses: np.sqrt(2 * tosses.b[0])
    assert 0 < np.abs(believed(noisy) - believed(exact)).max() <= 0.2
    np.testing.assert_array_equal(noisy.chances, exact.chances)
    np.testing.assert_allclose(exact.samples.mean(0), exact.chances, atol=0.07)


def test_alone_everybody_has_its_running_mean():
    models = followed(coins.alone, [RUN], LOOKS)[0]
    np.testing.assert_allclose(models, [RUN.samples[:t].mean(0) for t in LOOKS], atol=1e-12)


@pytest.mark.parametrize("length", [1.0, 0.5])
def test_phases_are_the_theorys_or_so_many_times_as_long(length):
    x, left, q, expected = np.full(100, 0.5), 0, -1, []
    for t in range(30):
        if not left:
            q += 1
            share = filter_of(RUN.b, 0.5 / 2**q)
            lr = pace(share, 0.5 / 2**q)[1]
            left = int(np.ceil(length * np.log(4) / lr))
        x = x - lr * share @ share.T @ (x - RUN.samples[t])
        left -= 1
        expected += [x] if t + 1 in LOOKS else []
    np.testing.assert_allclose(followed(coins.in_phases([RUN], length), [RUN], LOOKS)[0], expected, atol=1e-9)


def test_the_balanced_precision_is_the_least_that_covers_the_noise_and_the_engine_follows_it():
    eps = coins.balance(RUN.b)
    assert (np.diff(eps) <= 0).all()
    x, expected = np.full(100, 0.5), []
    for t in range(30):
        share = filter_of(RUN.b, eps[t])
        assert eps[t] >= 0.25 * (share**2).sum() / (100 * (t + 1))
        top = pace(share, eps[t])[0]
        x = x - min(0.5 / top, 1 / (t + 2)) * share @ share.T @ (x - RUN.samples[t])
        expected += [x] if t + 1 in LOOKS else []
    np.testing.assert_allclose(followed(coins.balanced([RUN]), [RUN], LOOKS)[0], expected, atol=1e-9)


def test_an_estimated_b_is_that_of_the_means_so_far_and_each_phase_starts_at_their_mixture():
    sums, t, eps, errors = np.cumsum(RUN.samples, 0), 5, 0.125, {}
    while t < 30:
        mean = sums[t - 1] / t
        spread = np.maximum(mean * (1 - mean), 0.5 / t) / (t - 1)
        b = np.maximum((mean[:, None] - mean[None]) ** 2 - spread[:, None] - spread[None], 0) / 2
        share = filter_of(b, eps)
        lr = pace(share, eps)[1]
        x = share @ mean
        for _ in range(min(int(np.ceil(np.log(4) / lr)), 30 - t)):
            x = x - lr * share @ share.T @ (x - RUN.samples[t])
            t += 1
            errors[t] = error(x, RUN.chances)
        eps /= 2
    np.testing.assert_allclose(estimated([RUN], "unbiased", looks=LOOKS)[0], [errors[t] for t in LOOKS], atol=1e-9)


def test_there_are_four_kinds_of_coins():
    assert sorted(set(clusters())) == [0.1, 0.35, 0.65, 0.9]


def test_the_speed_up_is_not_its_inverse():
    assert [claim.holds for claim in speedups()] == [True, True, True, True, False]
