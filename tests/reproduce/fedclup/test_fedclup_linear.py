"""The regressions have the stated spectrum, and FedCLUP on them is a loop written down."""

import math

import numpy as np
import pytest

from apiece.data.sources import synthetic
from apiece.reproduce.fedclup import convergence as clup_convergence
from apiece.reproduce.fedclup.noise import distances, equal_curvatures
from apiece.reproduce.fedclup.problem import (
    Problem,
    by_theory,
    pooled,
    problem,
    prox,
    rounds_until,
    solution,
    swept,
    together,
)
from apiece.theory import linear

pytestmark = pytest.mark.usefixtures("x64")


def rounds_by_hand(p, lam, mu, most=300):
    """Rounds to 1e-10 from zero: the loop itself, in NumPy, all in one place."""
    steps = math.ceil(2 + (lam + 1) / (lam + mu) * math.log(1056 / mu**2))
    x, w, target = np.zeros(p.b.shape[1]), np.zeros_like(p.b), solution(p, lam)[0]
    for t in range(most):
        if np.sum((x - target) ** 2) < 1e-10 * np.sum(target**2):
            return t
        for _ in range(steps):
            w = w - (np.einsum("ijk,ik->ij", p.h, w) - p.b + lam * (w - x)) / (lam + 1)
        x = x - (lam + 1) / 2 * (x - w.mean(0))
    return None


def test_the_spectrum_is_exact_and_the_deviations_are_as_stated():
    p = problem(4, clients=6, examples=30, features=5, mu=0.05, radius=0.3)
    np.testing.assert_allclose(np.linalg.eigvalsh(p.h), np.tile(np.geomspace(0.05, 1, 5), (6, 1)), atol=1e-12)
    away = p.truth - p.truth.mean(0)
    assert np.linalg.norm(away, axis=1).max() == pytest.approx(0.3)
    # X'y/n = H w* + noise, of covariance H/n: whitened, it is standard normal.
    many = together([problem(s, examples=30) for s in range(40)])
    noise = np.linalg.solve(
        np.linalg.cholesky(many.h / 30), (many.b - np.einsum("smij,smj->smi", many.h, many.truth))[..., None]
    )
    assert noise.mean() == pytest.approx(0, abs=4 / math.sqrt(noise.size))
    assert noise.var() == pytest.approx(1, abs=4 * math.sqrt(2 / noise.size))


def test_the_solution_is_the_closed_form_of_the_library():
    made = synthetic.linear_spectrum(clients=4, examples=20, features=3, dtype="float64", seed=1)
    xs, ys = made.train.x.reshape(4, 20, 3), made.train.y.reshape(4, 20)
    p = Problem(
        np.einsum("mni,mnj->mij", xs, xs) / 20, np.einsum("mni,mn->mi", xs, ys) / 20, made.truth["personal"]
    )  # fmt: skip
    for found, expected in zip(solution(p, 0.3), linear.centre(list(xs), list(ys), 0.3), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(pooled(p), linear.fed_avg(list(xs), list(ys)), atol=1e-12)
    tuned = [linear.ridge_tuned(x, y, np.ones(3), 0.3) for x, y in zip(xs, ys, strict=True)]
    np.testing.assert_allclose(prox(p, 0.3, np.ones(3)), tuned, atol=1e-12)
    both = together([p, p])
    np.testing.assert_allclose(solution(both, np.array([0.3, 2.0]))[0][1], solution(p, 2.0)[0], atol=1e-12)


def test_many_settings_at_once_take_the_rounds_of_the_loop():
    cases = {(kappa, lam): (1 / kappa, by_theory(lam, 1 / kappa)) for kappa, lam in ((10, 0.1), (10, 1.0), (20, 1.0))}
    found = swept(cases, seeds=2, rounds=90)
    for (kappa, lam), (mu, _) in cases.items():
        rounds = rounds_until(found[kappa, lam].error(), 1e-10)
        assert rounds.tolist() == [rounds_by_hand(problem(s, mu=mu), lam, mu) for s in range(2)]
    assert rounds_until(found[10, 0.1].error(), 1e-10)[0] == 24
    assert rounds_until(found[20, 1.0].error(), 1e-10)[0] == 68
    assert rounds_until(found[20, 1.0].error()[:, :50], 1e-10).tolist() == [np.inf, np.inf]  # too few are no success


def test_a_faster_contraction_than_the_reference_would_be_noticed():
    rows, _ = clup_convergence.contraction({}, seeds=1)
    assert all(row.holds for row in rows) and len(rows) == 8
    measured = [row.ours for row in rows if row.source == "reference"]
    np.testing.assert_allclose(measured, list(clup_convergence.MEASURED.values()), atol=6e-4)


def test_without_noise_small_steps_and_batches_lead_to_the_solution_and_noise_keeps_away():
    p = equal_curvatures(together([problem(0, clients=4, features=3, mu=0.5)] * 2))
    noise = np.random.default_rng(0).normal(size=(1, 4, 64, 3)) * np.array([0.0, 1.0])[:, None, None, None]
    still, noisy = distances(p, noise - noise.mean(2, keepdims=True), np.ones(2), np.full(2, 0.1))
    assert still[-1] < 1e-8 < 1e-5 < noisy[-30:].mean()
