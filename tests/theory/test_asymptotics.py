"""The asymptotic risks: published tables, limits, and what the misprinted formulas would say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from apiece.errors import UserError
from apiece.theory import asymptotics, printed
from apiece.theory.asymptotics import (
    IDENTITY,
    Spectrum,
    best_lam,
    best_risk,
    centre,
    ridge,
    ridgeless,
    risks,
    stieltjes,
    tuning_pays_below,
)
from apiece.theory.spectrum import companion, variance_share, zero_root

# gamma, lam, r^2, sigma^2, B, V, B + V, ridgeless B and V, lam*, risk*, m, m'
IDENTITY_TABLE = [
    (2, 0.5, 1, 1, 0.553170, 0.348875, 0.902044, 0.5, 1, 2, 0.780776, 1.280776, 2.212678),
    (2, 1, 1, 0.5, 0.603553, 0.103553, 0.707107, 0.5, 0.5, 1, 0.707107, 0.707107, 0.603553),
    (1.5, 0.1, 1, 0.25, 0.357846, 0.247801, 0.605647, 0.333333, 0.5, 0.375, 0.543400, 4.239266, 35.784644),
    (4, 2, 2.25, 1, 1.773977, 0.109272, 1.883249, 1.6875, 0.333333, 1.777778, 1.882634, 0.421535, 0.197109),
    (3, 0.01, 1, 0.1, 0.666679, 0.049261, 0.715940, 0.666667, 0.05, 0.3, 0.707925, 66.832096, 6666.789210),
    (10, 5, 1, 1, 0.912681, 0.044331, 0.957012, 0.9, 0.111111, 10, 0.951249, 0.186969, 0.036507),
]
TWO, THREE = ([0.5, 2.0], [0.5, 0.5]), ([0.2, 1.0, 3.0], [0.3, 0.4, 0.3])
# spectrum, shares of the deviation, gamma, r^2, sigma^2, ridgeless B and V, lam, B, V, c, m, m', m1
SPECTRUM_TABLE = [
    (TWO, None, 1.5, 1, 1, 0.307055, 2.319017, 0.3, 0.394535, 0.639928, 1.447443, 1.726242, 4.634492, 0.426619),
    (TWO, None, 2, 1, 1, 0.500000, 1.250000, 0.3, 0.535496, 0.603584, 0.5, 1.988818, 5.888400, 0.301792),
    (TWO, None, 4, 1, 1, 0.846500, 0.446941, 0.3, 0.849557, 0.359227, 0.073833, 2.565686, 8.356792, 0.089807),
    (TWO, [0.8, 0.2], 1.5, 1, 1, 0.351738, 2.319017, 0.3, 0.388191, 0.639928, 1.447443, 1.726242, 4.634492, 0.426619),
    (TWO, [0.8, 0.2], 4, 1, 1, 0.668165, 0.446941, 0.3, 0.658391, 0.359227, 0.073833, 2.565686, 8.356792, 0.089807),
    (THREE, None, 2, 2, 0.5, 0.881250, 0.765960, 1, 1.172919, 0.164020, 0.567376, 0.699923, 0.606162, 0.164020),
    (THREE, None, 5, 2, 0.5, 1.870743, 0.207867, 1, 1.896796, 0.131918, 0.042764, 0.833301, 0.807008, 0.052767),
]


@pytest.mark.parametrize("row", IDENTITY_TABLE)
def test_the_table_of_the_identity_covariance(row):
    gamma, lam, r2, s2, bias, variance, total, plain_bias, plain_variance, best, least, m, slope = row
    r, sigma = np.sqrt(r2), np.sqrt(s2)
    got = ridge(gamma, lam, r, sigma)
    np.testing.assert_allclose([got.bias, got.variance, got.total], [bias, variance, total], atol=1e-6)
    np.testing.assert_allclose(ridgeless(gamma, r, sigma), [plain_bias, plain_variance], atol=1e-6)
    np.testing.assert_allclose(stieltjes(gamma, lam), [m, slope], rtol=1e-9, atol=6e-7)
    np.testing.assert_allclose(best_lam(gamma, r, sigma), best, atol=1e-6)
    np.testing.assert_allclose(best_risk(gamma, r, sigma), least, atol=1e-6)
    assert ridge(gamma, best_lam(gamma, r, sigma), r, sigma).total == pytest.approx(least, abs=1e-6)


@pytest.mark.parametrize("row", SPECTRUM_TABLE)
def test_the_table_of_other_covariances(row):
    (values, weights), along, gamma, r2, s2, plain_bias, plain_variance, lam, bias, variance, c, m, slope, m1 = row
    spectrum = Spectrum.of(values, weights, along)
    r, sigma = np.sqrt(r2), np.sqrt(s2)
    np.testing.assert_allclose(ridgeless(gamma, r, sigma, spectrum), [plain_bias, plain_variance], atol=1e-6)
    np.testing.assert_allclose(ridge(gamma, lam, r, sigma, spectrum), [bias, variance], atol=1e-6)
    assert zero_root(gamma, spectrum) == pytest.approx(c, abs=6e-7)
    np.testing.assert_allclose(stieltjes(gamma, lam, spectrum), [m, slope], atol=6e-7)
    assert variance_share(gamma, lam, spectrum) == pytest.approx(m1, abs=6e-7)
    # The same variance, as the theorem writes it once corrected.
    den = (lam * companion(gamma, lam, spectrum) * spectrum.values + lam) ** 2
    written = (1 - gamma + gamma * lam**2 * stieltjes(gamma, lam, spectrum).slope) * np.sum(
        spectrum.weights * spectrum.values**2 / den
    )
    assert written == pytest.approx(variance_share(gamma, lam, spectrum), rel=1e-9)


# spectrum, gamma, r, sigma, lam; simulated FTFA and its standard error, simulated RTFA and its; both as printed
SIMULATED = [
    (IDENTITY, 2, 1, 1, 2, 1.5048, 0.0104, 0.7778, 0.0023, 3.0, 0.575),
    (IDENTITY, 4, 1.5, 1, 0.5, 2.0235, 0.0058, 1.9291, 0.0050, 6.25, 31.1),
    (Spectrum.of(*TWO), 2, 1, 0.7, 0.3, 1.1108, 0.0074, 0.8240, 0.0047, 2.72, 13.0),
]


@pytest.mark.parametrize("row", SIMULATED)
def test_simulations_agree_with_the_corrected_risks_and_refute_the_printed_ones(row):
    """d = 400, 200 clients, tuned from the true centre."""
    spectrum, gamma, r, sigma, lam, ftfa, ftfa_error, rtfa, rtfa_error, ftfa_printed, rtfa_printed = row
    assert abs(ridgeless(gamma, r, sigma, spectrum).total - ftfa) < 2 * ftfa_error
    assert abs(ridge(gamma, lam, r, sigma, spectrum).total - rtfa) < 2 * rtfa_error
    wrong = printed.ridgeless(gamma, r, sigma, spectrum).total, printed.ridge(gamma, lam, r, sigma, spectrum).total
    assert wrong == pytest.approx((ftfa_printed, rtfa_printed), rel=4e-3)  # known to three digits
    assert abs(wrong[0] - ftfa) > 100 * ftfa_error and abs(wrong[1] - rtfa) > 50 * rtfa_error


def test_the_printed_risks_of_three_eigenvalues():
    spectrum = Spectrum.of(*THREE)
    assert printed.ridgeless(2, 1, 0.7, spectrum).total == pytest.approx(3.16, abs=5e-3)
    assert printed.ridge(2, 0.3, 1, 0.7, spectrum).total == pytest.approx(12.9, abs=5e-2)


fractions = st.floats(0.05, 5.0)
ratios = st.floats(1.05, 20.0)


@given(ratios, fractions, fractions, fractions)
def test_a_general_spectrum_of_equal_eigenvalues_is_the_identity(gamma, lam, r, sigma):
    same = Spectrum.of([1.0, 1.0], [0.3, 0.7])
    np.testing.assert_allclose(ridge(gamma, lam, r, sigma, same), ridge(gamma, lam, r, sigma), rtol=1e-9)
    np.testing.assert_allclose(ridgeless(gamma, r, sigma, same), ridgeless(gamma, r, sigma), rtol=1e-9)


@given(ratios, fractions)
def test_the_slope_of_the_stieltjes_transform_is_its_derivative(gamma, lam):
    for spectrum in (IDENTITY, Spectrum.of(*TWO), Spectrum.of(*THREE)):
        low, high = (stieltjes(gamma, lam * (1 + sign * 1e-5), spectrum).m for sign in (-1, 1))
        assert stieltjes(gamma, lam, spectrum).slope == pytest.approx((low - high) / (2e-5 * lam), rel=1e-6)


def test_the_stieltjes_transform_is_that_of_a_sample_covariance():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 400)) * np.sqrt(np.repeat([0.5, 2.0], 200))
    eigenvalues = np.append(np.linalg.eigvalsh(x @ x.T / 200), np.zeros(200))
    m, slope = stieltjes(2.0, 0.3, Spectrum.of(*TWO))
    assert np.mean(1 / (eigenvalues + 0.3)) == pytest.approx(m, rel=3e-3)
    assert np.mean(1 / (eigenvalues + 0.3) ** 2) == pytest.approx(slope, rel=3e-3)


@given(ratios, fractions, fractions)
def test_risks_change_continuously_away_from_the_identity(gamma, lam, r):
    near = Spectrum.of([1 - 1e-7, 1 + 1e-7], [0.5, 0.5])
    np.testing.assert_allclose(ridge(gamma, lam, r, 1.0, near), ridge(gamma, lam, r, 1.0), rtol=1e-6)
    np.testing.assert_allclose(ridgeless(gamma, r, 1.0, near), ridgeless(gamma, r, 1.0), rtol=1e-6)


@given(fractions, fractions)
def test_just_enough_examples_explode_the_variance_and_very_few_teach_nothing(r, sigma):
    for spectrum in (IDENTITY, Spectrum.of(*TWO), Spectrum.of(*THREE)):
        tight, scarce = (ridgeless(gamma, r, sigma, spectrum) for gamma in (1 + 1e-6, 1e6))
        assert tight.variance > 1e5 * sigma**2 and tight.bias < 1e-5 * r**2
        assert scarce.bias == pytest.approx(centre(2.0, r, sigma, spectrum=spectrum).bias, rel=1e-4)
        assert scarce.variance < 1e-4 * sigma**2
        # A ridge has no such explosion.
        assert ridge(1 + 1e-6, 1.0, r, sigma, spectrum).variance < sigma**2


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


@given(ratios, fractions, fractions)
def test_without_a_favourite_direction_the_best_lam_is_the_same_for_all_covariances(gamma, r, sigma):
    for spectrum in (IDENTITY, Spectrum.of(*TWO), Spectrum.of(*THREE)):
        total = lambda log, spectrum=spectrum: ridge(gamma, np.exp(log), r, sigma, spectrum).total
        lam = best_lam(gamma, r, sigma, spectrum)
        found = optimize.minimize_scalar(total, bracket=(np.log(lam) - 2, np.log(lam) + 1.7), options={"xtol": 1e-9})
        assert np.exp(found.x) == pytest.approx(lam, rel=1e-3)
        least = sigma**2 * (1 / (lam * companion(gamma, lam, spectrum)) - 1)
        assert best_risk(gamma, r, sigma, spectrum) == pytest.approx(least, rel=1e-6)
        assert found.fun == pytest.approx(least, rel=1e-6)


def test_with_a_favourite_direction_the_best_lam_is_searched_for():
    rng = np.random.default_rng(0)
    for along in ([0.8, 0.2], [0.3, 0.7], [1.0, 0.0]):
        spectrum = Spectrum.of(*TWO, along)
        lam, least = best_lam(2.0, 1.0, 1.0, spectrum), best_risk(2.0, 1.0, 1.0, spectrum)
        assert ridge(2.0, lam, 1.0, 1.0, spectrum).total == pytest.approx(least)
        assert (ridge(2.0, lam * np.exp(rng.normal(size=50)), 1.0, 1.0, spectrum).total >= least).all()
        assert abs(lam - 2.0) > 0.1
    weak, strong = (best_lam(2.0, 1.0, 1.0, Spectrum.of(*TWO, along)) for along in ([1.0, 0.0], [0.0, 1.0]))
    assert strong < 2 < weak  # shrink what varies little, not what varies much


def test_the_best_lam_may_be_zero_or_infinite():
    strong = Spectrum.of(*TWO, [0.0, 1.0])
    assert best_lam(2.0, 1.0, 0.05, strong) == 0
    assert best_risk(2.0, 1.0, 0.05, strong) == ridgeless(2.0, 1.0, 0.05, strong).total
    assert best_lam(2.0, 0.0, 1.0) == best_lam(2.0, 0.0, 1.0, strong) == np.inf
    assert best_risk(2.0, 0.0, 1.0) == 0
    assert best_lam(2.0, 1.0, 0.0) == best_lam(2.0, 1.0, 0.0, strong) == 0
    assert best_risk(2.0, 1.0, 0.0) == ridgeless(2.0, 1.0, 0.0).total


# spectrum, gamma, r, sigma, lam; the seven risks in the order of `risks`, |theta_0| = 1
SEVEN = [
    (IDENTITY, 2, 1, 1, 2, (1.0, 1.5, 0.7808, 1.5, 0.7808, 2.0, 1.455)),
    (IDENTITY, 4, 1.5, 1, 0.5, (2.25, 2.021, 1.929, 2.021, 1.929, 2.771, 2.685)),
    (Spectrum.of(*TWO), 2, 1, 0.7, 0.3, (1.25, 1.1125, 0.831, 1.1125, 0.831, 1.6125, 1.367)),
    (Spectrum.of(*THREE), 2, 1, 0.7, 0.3, (1.36, 1.191, 0.823, 1.191, 0.823, 1.632, 1.308)),
]


@pytest.mark.parametrize("row", SEVEN)
def test_all_seven_estimators(row):
    spectrum, gamma, r, sigma, lam, totals = row
    found = risks(gamma, lam, r, sigma, np.sqrt(r**2 + 1), spectrum)
    assert list(found) == ["fed_avg", "ftfa", "rtfa", "maml_fl", "pfedme", "local", "local_ridge"]
    np.testing.assert_allclose([risk.total for risk in found.values()], totals, atol=6e-4)


def test_each_ridge_has_its_own_best_lam():
    found = risks(2.0, None, 1.0, 1.0, 2.0)
    assert found["rtfa"].total == pytest.approx(best_risk(2.0, 1.0, 1.0))
    assert found["local_ridge"].total == pytest.approx(best_risk(2.0, 2.0, 1.0))
    quiet = risks(2.0, None, [0.0, 1.0], 0.0, 2.0)
    np.testing.assert_allclose(quiet["rtfa"].total, quiet["ftfa"].total * [0, 1])


def test_alone_only_the_direction_of_the_own_model_counts():
    spectrum = Spectrum.of(*TWO, [0.8, 0.2])
    found = risks(2.0, 0.3, 1.0, 1.0, 2.0, spectrum, along_centre=[0.1, 0.9])
    assert found["local"] == ridgeless(2.0, 2.0, 1.0, Spectrum.of(*TWO, [0.1, 0.9]))
    assert found["ftfa"] == ridgeless(2.0, 1.0, 1.0, spectrum)


@given(ratios, fractions)
def test_fine_tuning_pays_exactly_below_its_noise(gamma, r):
    edge = tuning_pays_below(gamma, r)
    for factor, pays in ((0.99, True), (1.01, False)):
        assert (ridgeless(gamma, r, factor * edge).total < centre(gamma, r, factor * edge).total) == pays


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ridgeless(1.0, 1.0, 1.0), "above 1"),
        (lambda: ridge(2.0, 0.0, 1.0, 1.0), "lam must be above 0"),
        (lambda: ridge(2.0, 1.0, -1.0, 1.0), "at least 0"),
        (lambda: ridge(2.0, np.inf, 1.0, 1.0), "finite"),
        (lambda: stieltjes(0.5, 1.0), "above 1"),
        (lambda: Spectrum.of([1.0, 2.0], [0.5, 0.5], [1.5, -0.5]), "shares of the deviation"),
        (lambda: risks(2.0, -1.0, 1.0, 1.0, 1.0), "lam must be above 0"),
        (lambda: printed.ridge(2.0, 0.0, 1.0, 1.0), "lam must be above 0"),
        (lambda: printed.ridgeless(0.9, 1.0, 1.0), "above 1"),
        (lambda: Spectrum.of([1.0, 2.0], [0.5, 0.6]), "sum to 1"),
        (lambda: Spectrum.of([1.0, 0.0], [0.5, 0.5]), "above 0"),
        (lambda: Spectrum.of([1.0], [0.5, 0.5]), "as many"),
        (lambda: centre(2.0, 1.0, 1.0, 0), "one client"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_risks_of_kinds_are_means_of_each_kinds_own():
    spread = asymptotics.Spectrum.of([0.5, 2.0], [0.5, 0.5])
    kinds = [asymptotics.Kind(0.25, 2.0, 1.0, 1.0, 1.5), asymptotics.Kind(0.75, 4.0, 2.0, 0.5, 2.5, spread)]
    found = asymptotics.risks_of_kinds(kinds, 0.5)
    each = [asymptotics.risks(kind.gamma, 0.5, *kind[2:]) for kind in kinds]
    for name, risk in found.items():
        mean = 0.25 * each[0][name].total + 0.75 * each[1][name].total
        assert risk.total == pytest.approx(mean), name
    with pytest.raises(UserError, match="sum to 1"):
        asymptotics.risks_of_kinds([kinds[0]], 0.5)
