"""Hurt: hand-made federations, degenerate ones, and properties."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from apiece.errors import UserError
from apiece.evaluate import hurt
from apiece.evaluate.empirical_bayes import fit_normal, mean_variance, posterior
from apiece.evaluate.npmle import fit_grid, grid_likelihood, two_humps
from apiece.evaluate.ties import RADEMACHER, chance_above_zero, sign_p_values


def errors(differences):
    """Paired 0/1 errors that have these differences."""
    differences = np.asarray(differences)
    return (differences > 0).astype(float), (differences < 0).astype(float)


def even(clients, examples):
    return np.arange(0, clients * examples + 1, examples)


def draw(rng, clients, examples, disagree=0.18, points=0.0):
    u, worse = rng.random(clients * examples), (disagree + points / 100) / 2
    return errors(np.where(u < worse, 1, np.where(u < disagree, -1, 0)))


def test_differences_are_points_and_the_variance_is_shrunken_as_written():
    differences = np.array([1, 1, 0, -1, 0, 0, 0, 0, 1.0])
    found = hurt(*errors(differences), [0, 4, 4, 9])
    np.testing.assert_allclose(found.difference, [25, np.nan, 20])
    own = np.array([np.var([1, 1, 0, -1], ddof=1), np.var([0, 0, 0, 0, 1], ddof=1)])
    n = np.array([4, 5])
    pooled = ((n - 1) * own).sum() / (n - 1).sum()
    wanted = 100 * np.sqrt((20 * pooled + (n - 1) * own) / (19 + n) / n)
    np.testing.assert_allclose(found.standard_error[[0, 2]], wanted)
    assert (found.clients, found.clients_empty, found.naive) == (2, 1, 1.0)


def test_paule_mandel_is_the_root_of_its_equation():
    rng = np.random.default_rng(0)
    v = rng.uniform(0.5, 4, 30)
    d = rng.normal(1, np.sqrt(9 + v))

    def excess(tau2):
        weight = 1 / (v + tau2)
        return (weight * (d - (weight * d).sum() / weight.sum()) ** 2).sum() - 29

    assert fit_normal(d, v).tau2 == pytest.approx(optimize.brentq(excess, 0, 1e4), rel=1e-6)


def test_a_resample_is_fitted_like_the_clients_it_holds():
    rng = np.random.default_rng(1)
    d, v, drawn = rng.normal(0, 3, 12), rng.uniform(0.5, 2, 12), rng.integers(0, 12, (3, 12))
    counts = np.array([np.bincount(row, minlength=12) for row in drawn])
    together, likelihood = fit_normal(d, v, counts), grid_likelihood(d, v)[1]
    for s, row in enumerate(drawn):
        alone = fit_normal(d[row], v[row])
        np.testing.assert_allclose([together.mu[s], together.tau2[s]], [alone.mu, alone.tau2], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(fit_grid(likelihood, counts)[s], fit_grid(likelihood[row]), atol=1e-9)


def test_without_spread_everybody_has_the_common_mean():
    d, v = np.array([1.0, 1.1, 0.9]), np.array([4.0, 4.0, 4.0])
    prior = fit_normal(d, v)
    mean, variance = posterior(d, v, prior)
    assert prior.tau2 == 0
    np.testing.assert_allclose(mean, 1.0)
    np.testing.assert_allclose(variance, 4 / 3)


def test_sign_p_values_equal_all_sign_changes_or_bound_them():
    rng = np.random.default_rng(2)
    for sizes in ([1.0, 1, 1, 1, 1, 0], [1.0, 2, 2, 1, 3, 1], rng.exponential(size=8)):
        sums = np.array([np.dot(signs, sizes) for signs in itertools.product([1, -1], repeat=len(sizes))])
        for signs in rng.choice([-1, 1], size=(20, len(sizes))):
            exact = np.mean(sums >= signs @ sizes - 1e-9)
            found = sign_p_values(signs * sizes, [0, len(sizes)])[0]
            if len(set(np.abs(sizes)) - {0}) == 1:
                assert found == pytest.approx(exact)
            else:
                assert exact <= found <= 1
    assert pytest.approx(3.179, abs=5e-4) == RADEMACHER  # 3.178 when cut off, as it is printed


def test_the_share_above_zero_under_ties_is_that_of_random_signs():
    values = np.array([1, 1, 0, 1, 1, 2, 3, 1, 1, 2.0])
    found = chance_above_zero(values, [0, 3, 7, 10], flips=4000)
    wanted = [
        np.mean([np.dot(signs, part) > 0 for signs in itertools.product([1, -1], repeat=len(part))])
        for part in (values[:3], values[3:7], values[7:])
    ]
    np.testing.assert_allclose(found, wanted, atol=4 * 0.5 / math.sqrt(4000))


def test_all_ties_hurt_nobody_and_cost_no_warning():
    zeros = np.zeros(30)
    found = hurt(zeros, zeros, even(6, 5))
    numbers = found.hurt_proved, found.hurt_expected, found.hurt_expected_high, found.worst_client, found.naive
    assert numbers == (0, 0, 0, 0, 0) and found.naive_if_tied == 0
    assert (found.p_value == 1).all()


def test_one_client_is_judged_by_itself():
    rng = np.random.default_rng(3)
    found = hurt(*draw(rng, 1, 200, points=10), [0, 200])
    wanted = stats.norm.sf((1 - found.difference[0]) / found.standard_error[0])
    assert found.hurt_expected == pytest.approx(wanted)
    assert found.worst_client == found.worst_tenth == pytest.approx(found.difference[0])
    assert math.isnan(found.hurt_expected_low) and math.isnan(found.hurt_expected_high)


def test_clients_with_one_example_are_never_proved_hurt():
    differences = np.array([1, 1, 0, -1, 0, 1, 1, 1, 1, 1])
    found = hurt(*errors(differences), even(10, 1))
    assert found.hurt_proved == 0 and 0 < found.hurt_expected <= 1
    assert np.isfinite(found.standard_error).all() and (found.standard_error > 0).all()


def test_no_variance_within_clients_is_not_certainty():
    """Three mistakes of three where everybody else ties: the shrunken variance alone would be 0."""
    differences = np.zeros(60)
    differences[:3] = 1
    found = hurt(*errors(differences), even(20, 3))
    assert found.standard_error[0] > 0 and found.hurt_proved == 0


def test_no_test_example_at_all_is_an_error():
    with pytest.raises(UserError, match="no client"):
        hurt([], [], [0, 0])


def test_a_diverged_model_is_an_error_and_not_a_number():
    with pytest.raises(UserError, match="diverged"):
        hurt([np.inf, 0.0], [0.0, 0.0], [0, 2])


def test_a_true_victim_is_found_and_named():
    rng = np.random.default_rng(4)
    parts = [draw(rng, 1, 300, points=15 if client == 7 else -5) for client in range(20)]
    found = hurt(*(np.concatenate(side) for side in zip(*parts, strict=True)), even(20, 300))
    assert found.proved.nonzero()[0].tolist() == [7] and found.hurt_proved == 0.05
    assert found.risk[7] > 0.95 and np.delete(found.risk, 7).max() < 0.2


def test_seeds_are_averaged_example_by_example():
    rng = np.random.default_rng(5)
    error, local = draw(rng, 8, 25)
    once, thrice = hurt(error, local, even(8, 25)), hurt(np.stack([error] * 3), np.stack([local] * 3), even(8, 25))
    for name, value in once.as_dict().items():
        assert thrice.as_dict()[name] == pytest.approx(value)
    seeds = [draw(rng, 8, 25) for _ in range(3)]
    found = hurt(*(np.stack(side) for side in zip(*seeds, strict=True)), even(8, 25))
    mean = np.mean([error - local for error, local in seeds], axis=0)
    np.testing.assert_allclose(found.difference, 100 * mean.reshape(8, 25).mean(axis=1))
    np.testing.assert_allclose(found.standard_error, 100 * np.sqrt(mean_variance(mean, even(8, 25))))


def test_regression_points_do_not_depend_on_the_unit_of_the_target():
    rng = np.random.default_rng(6)
    y, error, local = rng.normal(size=200), rng.normal(size=200) ** 2, rng.normal(size=200) ** 2
    metres = hurt(error, local, even(10, 20), scale=y.var())
    millimetres = hurt(error * 1e6, local * 1e6, even(10, 20), scale=(1000 * y).var())
    np.testing.assert_allclose(metres.difference, millimetres.difference)
    assert metres.hurt_expected == pytest.approx(millimetres.hurt_expected)
    assert metres.naive_if_tied == pytest.approx(0.5, abs=0.05)


def test_the_same_call_gives_the_same_answer():
    error, local = draw(np.random.default_rng(7), 12, 15)
    assert hurt(error, local, even(12, 15)).as_dict() == hurt(error, local, even(12, 15)).as_dict()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=2, max_size=15), st.integers(0, 2**32 - 1))
def test_whatever_the_sizes_the_numbers_are_shares_and_in_order(sizes, seed):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if offsets[-1] == 0:
        return
    error, local = draw(np.random.default_rng(seed), 1, offsets[-1])
    found = hurt(error, local, offsets, resamples=50)
    for name in ("hurt_proved", "hurt_expected", "naive", "naive_if_tied"):
        assert 0 <= getattr(found, name) <= 1
    assert found.naive_if_tied <= 0.5
    assert found.worst_tenth <= found.worst_client + 1e-9
    assert found.worst_client <= np.nanmax(found.difference) + 1e-9
    np.testing.assert_array_equal(np.isnan(found.risk), np.array(sizes) == 0)
    stricter = hurt(error, local, offsets, resamples=50, delta=5.0)
    assert stricter.hurt_proved <= found.hurt_proved and stricter.hurt_expected <= found.hurt_expected + 1e-9


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(8)), st.integers(0, 2**32 - 1))
def test_the_order_of_clients_changes_nothing_but_the_bootstrap_draws(order, seed):
    error, local = (side.reshape(8, 10) for side in draw(np.random.default_rng(seed), 8, 10))
    order = list(order)
    before = hurt(error.ravel(), local.ravel(), even(8, 10), resamples=10)
    after = hurt(error[order].ravel(), local[order].ravel(), even(8, 10), resamples=10)
    np.testing.assert_allclose(after.risk, before.risk[order], atol=1e-6)
    np.testing.assert_allclose(after.p_value, before.p_value[order])


def test_two_humps_are_seen_and_one_hump_is_left_alone():
    """False switches for normal truths of any width below 5 %; two groups four standard errors apart always seen."""
    rng = np.random.default_rng(8)
    v = np.full(60, 6.0)
    switched = [two_humps(rng.normal(-3, np.sqrt(6 + tau**2), 60), v) for tau in (0, 4, 20) for _ in range(25)]
    assert np.mean(switched) < 0.05
    apart = [two_humps(np.where(np.arange(60) < 12, 5, -5) + rng.normal(0, np.sqrt(6), 60), v) for _ in range(20)]
    assert np.mean(apart) > 0.9
    assert not two_humps([-9.0, 9.0], [1.0, 1.0])


def test_with_two_humps_the_npmle_takes_over_with_its_interval():
    rng = np.random.default_rng(9)
    parts = [draw(rng, 1, 300, points=12 if client < 6 else -8) for client in range(40)]
    found = hurt(*(np.concatenate(side) for side in zip(*parts, strict=True)), even(40, 300), resamples=100)
    assert found.prior == "npmle"
    assert found.hurt_expected == pytest.approx(0.15, abs=0.02)
    assert found.hurt_expected_low < 0.15 < found.hurt_expected_high < 0.35
    assert found.worst_client == pytest.approx(12, abs=4)
