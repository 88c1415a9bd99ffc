"""The asymptotic risks: published tables, limits, and what the misprinted formulas would say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.theory.asymptotics import (
    Spectrum,
    best_lam,
    best_risk,
    centre,
    ridge,
    ridgeless,
    tuning_pays_below,
)

# gamma, lam, r^2, sigma^2, B, V, B + V, ridgeless B and V, lam*, risk*
IDENTITY_TABLE = [
    (2, 0.5, 1, 1, 0.553170, 0.348875, 0.902044, 0.5, 1, 2, 0.780776),
    (2, 1, 1, 0.5, 0.603553, 0.103553, 0.707107, 0.5, 0.5, 1, 0.707107),
    (1.5, 0.1, 1, 0.25, 0.357846, 0.247801, 0.605647, 0.333333, 0.5, 0.375, 0.543400),
    (4, 2, 2.25, 1, 1.773977, 0.109272, 1.883249, 1.6875, 0.333333, 1.777778, 1.882634),
    (3, 0.01, 1, 0.1, 0.666679, 0.049261, 0.715940, 0.666667, 0.05, 0.3, 0.707925),
    (10, 5, 1, 1, 0.912681, 0.044331, 0.957012, 0.9, 0.111111, 10, 0.951249),
]
TWO, THREE = ([0.5, 2.0], [0.5, 0.5]), ([0.2, 1.0, 3.0], [0.3, 0.4, 0.3])
# spectrum, shares of the deviation, gamma, r^2, sigma^2, ridgeless B and V, lam, B, V
SPECTRUM_TABLE = [
    (TWO, None, 1.5, 1, 1, 0.307055, 2.319017, 0.3, 0.394535, 0.639928),
    (TWO, None, 2, 1, 1, 0.500000, 1.250000, 0.3, 0.535496, 0.603584),
    (TWO, None, 4, 1, 1, 0.846500, 0.446941, 0.3, 0.849557, 0.359227),
    (TWO, [0.8, 0.2], 1.5, 1, 1, 0.351738, 2.319017, 0.3, 0.388191, 0.639928),
    (TWO, [0.8, 0.2], 4, 1, 1, 0.668165, 0.446941, 0.3, 0.658391, 0.359227),
    (THREE, None, 2, 2, 0.5, 0.881250, 0.765960, 1, 1.172919, 0.164020),
    (THREE, None, 5, 2, 0.5, 1.870743, 0.207867, 1, 1.896796, 0.131918),
]


@pytest.mark.parametrize("row", IDENTITY_TABLE)
def test_the_table_of_the_identity_covariance(row):
    gamma, lam, r2, s2, bias, variance, total, plain_bias, plain_variance, best, least = row
    r, sigma = np.sqrt(r2), np.sqrt(s2)
    got = ridge(gamma, lam, r, sigma)
    np.testing.assert_allclose([got.bias, got.variance, got.total], [bias, variance, total], atol=1e-6)
    np.testing.assert_allclose(ridgeless(gamma, r, sigma), [plain_bias, plain_variance], atol=1e-6)
    np.testing.assert_allclose(best_lam(gamma, r, sigma), best, atol=1e-6)
    np.testing.assert_allclose(best_risk(gamma, r, sigma), least, atol=1e-6)
    assert ridge(gamma, best_lam(gamma, r, sigma), r, sigma).total == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("row", SPECTRUM_TABLE)
def test_the_table_of_other_covariances(row):
    (values, weights), along, gamma, r2, s2, plain_bias, plain_variance, lam, bias, variance = row
    spectrum = Spectrum.of(values, weights, along)
    r, sigma = np.sqrt(r2), np.sqrt(s2)
    np.testing.assert_allclose(ridgeless(gamma, r, sigma, spectrum), [plain_bias, plain_variance], atol=1e-6)
    np.testing.assert_allclose(ridge(gamma, lam, r, sigma, spectrum), [bias, variance], atol=1e-6)


def test_the_printed_ridgeless_risk_is_twice_too_large():
    """Without the squares in the denominators and the factor c, the identity at gamma = 2 would give 3, not 1.5."""
    gamma = 2.0
    c = 1 / (gamma * (gamma - 1))  # the root for the identity
    q = 1 + c * gamma
    printed = (1 + gamma * c * 1) / q + gamma * 1
    assert printed == pytest.approx(3.0)
    assert ridgeless(gamma, 1.0, 1.0).total == pytest.approx(1.5)


fractions = st.floats(0.05, 5.0)
ratios = st.floats(1.05, 20.0)


@given(ratios, fractions, fractions, fractions)
def test_a_general_spectrum_of_equal_eigenvalues_is_the_identity(gamma, lam, r, sigma):
    same = Spectrum.of([1.0, 1.0], [0.3, 0.7])
    np.testing.assert_allclose(ridge(gamma, lam, r, sigma, same), ridge(gamma, lam, r, sigma), rtol=1e-9)
    np.testing.assert_allclose(ridgeless(gamma, r, sigma, same), ridgeless(gamma, r, sigma), rtol=1e-9)


@given(ratios, fractions, fractions)
def test_a_vanishing_ridge_is_ridgeless_and_a_huge_one_stays_at_the_centre(gamma, r, sigma):
    for spectrum in (Spectrum.of([1.0], [1.0]), Spectrum.of(*TWO), Spectrum.of(*THREE)):
        # The way to the limit is as long as gamma is close to 1.
        tiny = 1e-9 * (gamma - 1) ** 2
        np.testing.assert_allclose(
            ridge(gamma, tiny, r, sigma, spectrum), ridgeless(gamma, r, sigma, spectrum), rtol=1e-5
        )
        far = ridge(gamma, 1e9, r, sigma, spectrum)
        assert far.bias == pytest.approx(centre(gamma, r, sigma, spectrum=spectrum).bias, rel=1e-6)
        assert far.variance < 1e-12


@given(ratios, fractions, fractions, fractions)
def test_no_lam_is_better_than_the_best_and_the_best_is_never_worse_than_fed_avg(gamma, lam, r, sigma):
    least = best_risk(gamma, r, sigma)
    assert least <= ridge(gamma, lam, r, sigma).total * (1 + 1e-9)
    assert least <= r**2 * (1 + 1e-9)
    assert least == pytest.approx(ridge(gamma, best_lam(gamma, r, sigma), r, sigma).total, rel=1e-7)


@given(ratios, fractions)
def test_fine_tuning_pays_exactly_below_its_noise(gamma, r):
    edge = tuning_pays_below(gamma, r)
    for factor, pays in ((0.99, True), (1.01, False)):
        assert (ridgeless(gamma, r, factor * edge).total < centre(gamma, r, factor * edge).total) == pays


@pytest.mark.parametrize(
    ("gamma", "clients", "r", "sigma", "risk"),
    [(2.0, 200, 1.0, 1.0, 1.015), (2.0, 40, 1.0, 1.0, 1.0750), (4.0, 60, 1.5, 1.0, 2.429)],
)
def test_finitely_many_clients_know_the_centre_less_well(gamma, clients, r, sigma, risk):
    assert centre(gamma, r, sigma, clients).total == pytest.approx(risk, abs=5e-4)
    assert centre(gamma, r, sigma, 1e12).total == pytest.approx(r**2)


def test_arrays_broadcast():
    got = ridge(np.array([2.0, 3.0])[:, None], np.array([0.5, 1.0, 2.0]), 1.0, 1.0, Spectrum.of(*TWO))
    assert got.bias.shape == got.variance.shape == (2, 3)
    assert got.bias[1, 2] == pytest.approx(ridge(3.0, 2.0, 1.0, 1.0, Spectrum.of(*TWO)).bias)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ridgeless(1.0, 1.0, 1.0), "above 1"),
        (lambda: ridge(2.0, 0.0, 1.0, 1.0), "lam above 0"),
        (lambda: ridge(2.0, 1.0, -1.0, 1.0), "at least 0"),
        (lambda: best_lam(2.0, 0.0, 1.0), "radius 0"),
        (lambda: Spectrum.of([1.0, 2.0], [0.5, 0.6]), "sum to 1"),
        (lambda: Spectrum.of([1.0, 0.0], [0.5, 0.5]), "above 0"),
        (lambda: Spectrum.of([1.0], [0.5, 0.5]), "as many"),
        (lambda: centre(2.0, 1.0, 1.0, 10, Spectrum.of(*TWO)), "identity"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()
