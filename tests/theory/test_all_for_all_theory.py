"""All-for-all's numbers: the published table, and what they mean for the real methods' filters."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.estimate import similarity
from apiece.theory import formulas
from apiece.theory.all_for_all import (
    continuum,
    fewest_samples,
    fewest_samples_if_curved,
    mixture_bound,
    phase_step,
    phases,
    phases_if_curved,
    samples_needed,
    samples_needed_if_curved,
    sharing,
    steady_step,
    steps_needed,
)

P = np.array([0.1, 0.15, 0.2, 0.6, 0.65])
B = 0.5 * (P[:, None] - P[None]) ** 2
# eps, N_i, S, lambda_max, bias, steps of setting 1, the repaired printed step of it, step of setting 2, speed-up
TABLE = [
    (1e-4, (1, 1, 1, 1, 1), 5, 1, 0, 2e9, 0.000071, 0.000200, 1),
    (0.004, (2, 3, 2, 2, 2), 2.333333, 1.057055, 0.000667, 583333, 0.006061, 0.016218, 2.142857),
    (0.02, (3, 3, 3, 2, 2), 2.0, 1.0, 0.001250, 20000, 0.035355, 0.100000, 2.5),
    (0.2, (3, 3, 4, 3, 2), 1.75, 1.023909, 0.010437, 175, 0.404061, 0.488325, 2.857143),
    (1, (5, 5, 5, 5, 5), 1.0, 1.0, 0.055400, 4, 3.535534, 0.5, 5),
]


@pytest.mark.parametrize("row", TABLE)
def test_the_published_table(row):
    eps, neighbours, lonely, largest, bias, steps, printed, steady, speedup = row
    got = sharing(B, eps)
    assert tuple(got.neighbours) == neighbours
    np.testing.assert_allclose([got.loneliness, got.largest, got.bias], [lonely, largest, bias], atol=1e-6)
    assert got.speedup == pytest.approx(speedup, abs=1e-6)
    assert steps_needed(got, eps) == pytest.approx(steps, rel=1e-6)
    assert np.sqrt(2) * phase_step(got, eps) == pytest.approx(printed, abs=1e-6)
    # The table divides both terms by lambda_max; only the first one has to be.
    step = steady_step(got, eps, smoothness=1.0, convexity=1.0, noise=0.25)
    assert steady == pytest.approx(min(0.5, eps * 5 / (0.5 * lonely)) / largest, abs=1e-6)
    assert steady - 1e-6 <= step <= steady * largest + 1e-6


def test_the_methods_filter_has_these_numbers():
    for eps in (0.004, 0.02, 0.2):
        got, filter = sharing(B, eps), similarity.neighbours(B, eps)
        np.testing.assert_allclose(formulas.mixing(filter), got.mixing, atol=1e-6)
        assert float(formulas.loneliness(filter)) == pytest.approx(got.loneliness, abs=1e-5)
        assert float(similarity.largest_eigenvalue(filter)) == pytest.approx(got.largest, abs=1e-5)


def test_a_star_has_a_large_eigenvalue():
    b = np.full((100, 100), 10.0)
    b[0], b[:, 0] = 0, 0
    assert sharing(b, 1.0).largest == pytest.approx(25.0, abs=0.05)


def test_alone_the_bound_of_a_mixture_has_the_number_of_clients_in_it():
    alone = np.eye(100)[0]
    error, _ = mixture_bound(alone, np.where(alone, 0.0, np.inf), 1000)
    assert error == pytest.approx(np.sqrt(100 / 1000))
    measured, printed = 0.325, 0.0447  # |x| with own gradients only, N = 100, K = 1000, at a step sqrt(2) smaller
    assert printed < measured < error * 1.07


def test_many_precisions_at_once():
    eps = np.array([row[0] for row in TABLE])
    curved = dict(smoothness=1.0, convexity=1.0, noise=0.25)
    together = sharing(B, eps)
    for k, one in enumerate(eps):
        for found, alone in zip(together, sharing(B, one), strict=True):
            np.testing.assert_allclose(found[k], alone, rtol=1e-12)
        assert steps_needed(together, eps)[k] == pytest.approx(steps_needed(sharing(B, one), one))
        assert phase_step(together, eps)[k] == pytest.approx(phase_step(sharing(B, one), one))
        assert steady_step(together, eps, **curved)[k] == pytest.approx(steady_step(sharing(B, one), one, **curved))
    assert sharing(B, eps[:4].reshape(2, 2)).mixing.shape == (2, 2, 5, 5)
    assert sharing(B, 0.02).mixing.shape == (5, 5) and isinstance(sharing(B, 0.02).bias, float)


def test_a_neighbour_saves_samples_and_no_method_saves_more_than_its_constant():
    needed, fewest = samples_needed(B, 0.02), fewest_samples(B, 0.021)
    np.testing.assert_allclose(needed, 4 * 5 / 0.02**2 / np.array([3, 3, 3, 2, 2]))
    np.testing.assert_allclose(fewest, 5 / 0.021**2 / np.array([3, 3, 4, 3, 2]))  # those with b <= 0.084
    assert (fewest <= needed).all()
    np.testing.assert_allclose(samples_needed(B, 0.02, bound=3, distance=2), 36 * needed)
    # The mean over clients of what each needs is what all-for-all needs.
    assert needed.mean() == pytest.approx(steps_needed(sharing(B, 0.02), 0.02))
    alone = samples_needed(B, 1e-4)
    assert (alone == 4 * 5 / 1e-8).all()
    # What curvature makes of it: one power of eps less.
    curved = dict(smoothness=2.0, convexity=0.5, noise=0.25)
    np.testing.assert_allclose(
        samples_needed_if_curved(B, 0.02, **curved), 2 * 0.25 * 5 / (0.25 * 0.02) / np.array([3, 3, 3, 2, 2])
    )
    np.testing.assert_allclose(
        fewest_samples_if_curved(B, 0.021, noise=0.25, distance=2), 0.25 * 4 * 5 / 0.021 / np.array([3, 3, 4, 3, 2])
    )
    assert samples_needed(B, [0.02, 0.2]).shape == fewest_samples(B, [0.02, 0.2]).shape == (2, 5)


def test_the_phases_halve_the_precision():
    found = phases(B, 1.0, 3, bound=2.0)
    assert [phase.eps for phase in found] == [1.0, 0.5, 0.25]
    for phase in found:
        shared = sharing(B, phase.eps)
        assert phase.loneliness == shared.loneliness
        assert 0 <= phase.steps - steps_needed(shared, phase.eps, bound=2.0) + 1e-9 < 1
        # The best step for a number of steps known beforehand, N D / (B sqrt(K S)), is the same.
        assert phase.step == pytest.approx(5 / (2 * np.sqrt(phase.steps * shared.loneliness)), rel=2e-2)
    curved = dict(smoothness=2.0, convexity=0.5, noise=0.25)
    for phase in phases_if_curved(B, 1.0, 6, **curved):
        assert phase.step == steady_step(sharing(B, phase.eps), phase.eps, **curved)
        assert (1 - 0.5 * phase.step) ** phase.steps <= 0.25 < (1 - 0.5 * phase.step) ** (0.5 * phase.steps)


def test_a_continuum_has_the_samples_of_a_fine_sample_of_it():
    """b = |theta - theta'|^2 in one dimension, uniform on [0, 1]: halving eps costs 2^(2 + 1/2)."""
    theta = np.linspace(0, 1, 801)
    b = (theta[:, None] - theta) ** 2
    eps = np.array([0.02, 0.01, 0.005])
    middle = samples_needed(b, eps)[:, 400]
    predicted = continuum(eps, density=1.0, dimension=1, power=2)
    np.testing.assert_allclose(middle / predicted, 4 / np.sqrt(2), rtol=0.03)  # N/N_i = 1/(2 sqrt(eps/2))
    assert continuum(0.1, 4.0, 1, 2) == pytest.approx(continuum(0.1, 1.0, 1, 2) / 4)  # where many are, few suffice


def test_without_noise_only_curvature_limits_the_step():
    shared = sharing(B, 0.2)
    assert steady_step(shared, 0.2, smoothness=2.0, convexity=1.0, noise=0.0) == 1 / (4 * shared.largest)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sharing([[0.0, 1.0]], 1.0), "square"),
        (lambda: sharing(B, 0.0), "above 0"),
        (lambda: sharing(-B, 1.0), "numbers from 0"),
        (lambda: sharing(B, [0.1, -0.1]), "above 0"),
        (lambda: steps_needed(sharing(B, 1.0), 1.0, bound=0.0), "bound must be above 0"),
        (lambda: steady_step(sharing(B, 1.0), 1.0, smoothness=1.0, convexity=2.0, noise=1.0), "never above"),
        (lambda: fewest_samples(B, 0.0), "above 0"),
        (lambda: fewest_samples_if_curved(B, 0.1, noise=-1.0), "noise"),
        (lambda: samples_needed(B, 0.1, distance=-1.0), "distance"),
        (lambda: samples_needed_if_curved(B, 0.1, smoothness=1.0, convexity=0.0, noise=1.0), "convexity"),
        (lambda: continuum(0.1, 0.0, 1, 1), "density"),
        (lambda: phases(B, 1.0, 0), "at least one phase"),
        (lambda: phases_if_curved(B, -1.0, 2, smoothness=1.0, convexity=1.0, noise=1.0), "above 0"),
        (lambda: mixture_bound([0.5, 0.5], [0.0, 0.0], 0), "steps"),
        (lambda: mixture_bound([0.5, 0.4], [0.0, 0.0], 10), "sum to 1"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()
