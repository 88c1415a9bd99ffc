"""How much to personalize: lines of theory that were made apart name the same number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.theory import all_for_all, clup, self_fl
from apiece.theory.asymptotics import best_lam, best_risk, ridge

EXAMPLES, FEATURES, NOISE = 50, 200, 0.7


@given(st.floats(0.2, 5.0))
def test_ridge_tuning_self_fl_and_fed_clup_name_one_pull(radius):
    """Standard normal features: per coordinate a client knows itself up to v = noise^2 / n, and the clients' spread is
    radius^2 / d. All three say v / spread."""
    v, spread = NOISE**2 / EXAMPLES, radius**2 / FEATURES
    pull = v / spread
    assert best_lam(FEATURES / EXAMPLES, radius, NOISE) == pytest.approx(pull)
    # Self-FL: of infinitely many clients the part v / (v + spread) is borrowed, which a pull to the centre of
    # lam / (1 + lam) is.
    borrowed = self_fl.hierarchy(np.full(1_000_000, v), spread).borrowed[0]
    assert borrowed / (1 - borrowed) == pytest.approx(pull, rel=1e-4)
    # FedCLUP's rule, with the variance of a whole gradient d noise^2 and curvature 1.
    rule = clup.lam_by_corollary(1.0, 1.0, FEATURES * NOISE**2, EXAMPLES, 100 * EXAMPLES, radius)
    assert not rule.at_least and rule.lam == pytest.approx(pull)


@given(st.floats(0.2, 5.0), st.floats(1.2, 10.0))
def test_that_pull_is_the_best_one(radius, gamma):
    at = best_lam(gamma, radius, NOISE)
    best = ridge(gamma, at, radius, NOISE).total
    assert all(ridge(gamma, factor * at, radius, NOISE).total > best for factor in (0.5, 0.9, 1.1, 2.0))


def test_how_wide_the_valley_around_the_best_pull_is():
    """The numbers of docs/explanation-how-much-to-personalize.md."""
    gamma, noise = np.meshgrid(np.geomspace(1.2, 10, 40), np.geomspace(0.1, 3, 40))
    at, best = best_lam(gamma, 1.0, noise), best_risk(gamma, 1.0, noise)
    lost = {factor: ridge(gamma, factor * at, 1.0, noise).total / best - 1 for factor in (0.1, 1 / 3, 3, 10)}
    for factor in (1 / 3, 3):
        assert 0.015 < np.median(lost[factor]) < 0.025 and lost[factor].max() < 0.2
    for factor, worst in ((10, 0.51), (0.1, 1.22)):
        assert 0.05 < np.median(lost[factor]) < 0.07 and lost[factor].max() == pytest.approx(worst, abs=0.01)


def test_all_for_all_borrows_from_those_nearer_than_the_noise():
    """Two means: at the precision of one's own error, neighbours are those whose difference costs no more than it."""
    samples, variance = 100, 0.25
    own_error = variance / (2 * samples)
    eps = 2 * own_error
    for distance, near in ((0.9 * (2 * own_error) ** 0.5, 2), (1.1 * (2 * own_error) ** 0.5, 1)):
        b = np.array([[0, distance**2 / 2], [distance**2 / 2, 0]])
        assert all_for_all.sharing(b, eps).neighbours.tolist() == [near, near]
