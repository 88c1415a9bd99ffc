"""Who beats whom: at each crossing the two risks are equal, and on its two sides the winners differ."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.theory import crossovers as cross
from apiece.theory.asymptotics import IDENTITY, Spectrum, best_risk, centre, ridge, ridgeless, risks, tuning_pays_below

ratios, lengths = st.floats(1.05, 20.0), st.floats(0.05, 5.0)
TWO = Spectrum.of([0.5, 2.0], [0.5, 0.5], [0.8, 0.2])


def wins(first, second, **given):
    found = risks(**({"ridge": 1.0, "norm": 1.0} | given))
    return found[first].total < found[second].total


@given(ratios, lengths)
def test_fine_tuning_against_the_centre(gamma, r):
    sigma = tuning_pays_below(gamma, r)
    assert cross.tuning_pays_from_gamma(r, sigma) == pytest.approx(gamma, rel=1e-9)
    assert cross.tuning_pays_from_radius(gamma, sigma) == pytest.approx(r, rel=1e-9)
    for factor, pays in ((0.99, False), (1.01, True)):
        assert wins("ftfa", "fed_avg", gamma=1 + factor * (gamma - 1), radius=r, noise=sigma) == pays
        assert wins("ftfa", "fed_avg", gamma=gamma, radius=factor * r, noise=sigma) == pays


@given(lengths, lengths)
def test_fine_tuning_is_best_at_a_gamma_and_never_worst_in_between(r, sigma):
    best = cross.best_gamma(r, sigma)
    gammas = 1 + np.geomspace(1e-3, 1e3, 400)
    risk = ridgeless(gammas, r, sigma).total
    if sigma >= r:
        assert best == np.inf and (np.diff(risk) < 0).all() and (risk >= r**2).all()
        assert np.isnan(cross.tuning_pays_from_gamma(r, sigma))
    elif sigma < 0.99 * r:
        least = ridgeless(best, r, sigma).total
        assert least == pytest.approx(sigma * (2 * r - sigma)) == pytest.approx(r**2 - (r - sigma) ** 2)
        assert (risk >= least * (1 - 1e-12)).all()
        assert (np.diff(risk[gammas < best]) < 0).all() and (np.diff(risk[gammas > best]) > 0).all()


@given(ratios, lengths, lengths)
def test_training_alone_against_the_centre(gamma, r, norm):
    sigma = cross.local_pays_below(gamma, r, norm)
    if np.isnan(sigma):
        assert not wins("local", "fed_avg", gamma=gamma, radius=r, noise=0.0, norm=norm)
        return
    assert ridgeless(gamma, norm, sigma).total == pytest.approx(r**2, rel=1e-9)
    if sigma > 1e-3:
        assert cross.local_pays_from_radius(gamma, sigma, norm) == pytest.approx(r, rel=1e-9)
        assert wins("local", "fed_avg", gamma=gamma, radius=r, noise=0.99 * sigma, norm=norm)
        assert not wins("local", "fed_avg", gamma=gamma, radius=r, noise=1.01 * sigma, norm=norm)
    tuned = cross.local_pays_from_radius(gamma, sigma, norm, tuned=True)
    assert tuned <= cross.local_pays_from_radius(gamma, sigma, norm) * (1 + 1e-9)
    assert centre(gamma, tuned, sigma).total == pytest.approx(best_risk(gamma, norm, sigma))


@given(ratios, lengths, lengths)
def test_the_noise_from_which_a_ridge_pays(gamma, lam, r):
    for spectrum in (IDENTITY, TWO):
        edge = cross.ridge_pays_from_noise(gamma, lam, r, spectrum)
        for factor, pays in ((0.98, False), (1.02, True)):
            with_ridge = ridge(gamma, lam, r, factor * edge, spectrum).total
            assert (with_ridge < ridgeless(gamma, r, factor * edge, spectrum).total) == pays or edge == 0


@given(ratios, lengths, lengths)
def test_the_lam_below_which_a_ridge_pays(gamma, r, sigma):
    edge = cross.ridge_pays_below_lam(gamma, r, sigma)
    pooled, tuned = centre(gamma, r, sigma).total, ridgeless(gamma, r, sigma).total
    if abs(tuned / pooled - 1) < 1e-6:
        return
    assert np.isfinite(edge) == (tuned < pooled)
    if np.isinf(edge):
        assert (ridge(gamma, np.geomspace(1e-3, 1e6, 40), r, sigma).total < tuned).all()
    else:
        assert ridge(gamma, edge, r, sigma).total == pytest.approx(tuned, rel=1e-7)
        assert edge > sigma**2 * gamma / r**2  # lam* is among those that pay
        assert ridge(gamma, 0.9 * edge, r, sigma).total < tuned < ridge(gamma, 1.1 * edge, r, sigma).total


def test_what_the_centre_is_worth():
    assert cross.worth_of_the_centre(2.0, 1.0, 1.0) == pytest.approx(0.674437, abs=5e-7)


@given(ratios, lengths, lengths, st.floats(0.01, 3.0))
def test_the_advantage_of_a_centre_lies_between_its_worths(gamma, r, sigma, more):
    """The printed first-order expansion has the other sign."""
    rho = np.sqrt(r**2 + more)
    h = 1e-5 * r**2
    slope = (best_risk(gamma, np.sqrt(r**2 + h), sigma) - best_risk(gamma, np.sqrt(r**2 - h), sigma)) / (2 * h)
    assert cross.worth_of_the_centre(gamma, r, sigma) == pytest.approx(slope, rel=1e-4)
    found = risks(gamma, None, r, sigma, rho)
    advantage = found["local_ridge"].total - found["rtfa"].total
    low, high = (cross.worth_of_the_centre(gamma, at, sigma) * more for at in (rho, r))
    assert 0 < low * (1 - 1e-9) <= advantage <= high * (1 + 1e-9)


def test_the_search_finds_the_closed_forms():
    given = dict(radius=1.3, norm=1.6, ridge=0.7)
    found = cross.crossover("ftfa", "fed_avg", "noise", (1e-3, 10), gamma=[1.5, 2.0, 4.0], **given)
    np.testing.assert_allclose(found, tuning_pays_below([1.5, 2.0, 4.0], 1.3), rtol=1e-9)
    found = cross.crossover("ftfa", "rtfa", "noise", (1e-3, 10), gamma=2.0, **given)
    assert found == pytest.approx(cross.ridge_pays_from_noise(2.0, 0.7, 1.3), rel=1e-9)
    found = cross.crossover("rtfa", "ftfa", "ridge", (1e-3, 1e3), gamma=2.0, radius=1.3, norm=1.0, noise=0.5)
    assert found == pytest.approx(cross.ridge_pays_below_lam(2.0, 1.3, 0.5), rel=1e-9)
    found = cross.crossover("local", "fed_avg", "radius", (1e-3, 10), gamma=2.0, noise=0.5, norm=1.6)
    assert found == pytest.approx(cross.local_pays_from_radius(2.0, 0.5, 1.6), rel=1e-9)
    found = cross.crossover("local_ridge", "fed_avg", "radius", (1e-3, 10), gamma=2.0, noise=0.5, norm=1.6)
    assert found == pytest.approx(cross.local_pays_from_radius(2.0, 0.5, 1.6, tuned=True), rel=1e-9)
    found = cross.crossover("ftfa", "fed_avg", "gamma", (1.01, 100), radius=1.3, noise=0.5, norm=1.0)
    assert found == pytest.approx(cross.tuning_pays_from_gamma(1.3, 0.5), rel=1e-9)
    found = cross.crossover("rtfa", "local_ridge", "norm", (1e-2, 10), gamma=2.0, radius=1.3, noise=0.5)
    assert found == pytest.approx(1.3, rel=1e-9)  # a centre helps exactly when it is nearer than zero


def test_the_search_works_for_any_covariance_and_says_when_there_is_none():
    sigma = cross.crossover("ftfa", "fed_avg", "noise", (1e-3, 10), TWO, gamma=2.0, radius=1.0, norm=1.0)
    assert ridgeless(2.0, 1.0, sigma, TWO).total == pytest.approx(centre(2.0, 1.0, sigma, spectrum=TWO).total)
    never = cross.crossover("rtfa", "fed_avg", "noise", (1e-2, 10), gamma=2.0, radius=1.0, norm=1.0)
    assert np.isnan(never)  # at lam* RTFA always wins
    assert np.isnan(cross.crossover("ftfa", "maml_fl", "noise", (0.1, 1), gamma=2.0, radius=1.0, norm=1.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(first="fedavg"), "did you mean 'fed_avg'"),
        (dict(over="sigma"), "not known"),
        (dict(between=(0.0, 1.0)), "above 0"),
        (dict(norm=None), "give the other"),
        (dict(noise=1.0), "give the other"),
        (dict(colour=1.0), "give the other"),
    ],
)
def test_a_wrong_question_is_explained(change, words):
    asked = dict(first="ftfa", second="fed_avg", over="noise", between=(0.1, 1), gamma=2.0, radius=1.0, norm=1.0)
    with pytest.raises(UserError, match=words):
        cross.crossover(**(asked | change))
