"""All-for-all's numbers: the published table, and what they mean for the real methods' filters."""

import numpy as np
import pytest

from apiece import similarity
from apiece.errors import UserError
from apiece.theory.all_for_all import mixture_bound, phase_step, sharing, steady_step, steps_needed

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
        np.testing.assert_allclose(similarity.mixing(filter), got.mixing, atol=1e-6)
        assert float(similarity.loneliness(filter)) == pytest.approx(got.loneliness, abs=1e-5)
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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sharing([[0.0, 1.0]], 1.0), "square"),
        (lambda: sharing(B, 0.0), "above 0"),
        (lambda: mixture_bound([0.5, 0.4], [0.0, 0.0], 10), "sum to 1"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()
