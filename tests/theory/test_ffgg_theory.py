"""FFGG's constants: the published numbers where they are right, the corrected ones where they are not."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.theory.ffgg import byzantine_share, byzantine_step, gradient_bound, inner_steps, late_step


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


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: late_step(0.0, 8, 10), "smoothness must be above 0"),
        (lambda: gradient_bound(2.0, 1.0, 10, step=1.0), "at most at 1/L"),
        (lambda: byzantine_share(0.5, 1.5, 1.5, 1), "two honest"),
        (lambda: byzantine_step(1.5, 1.5, 16, 0.2, growth=0.5), "at least 1"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()
