"""The dynamic-lambda reproduction: its data, its runs against a NumPy program, and checks that can fail."""

import math

import jax
import numpy as np
import pytest

from apiece.reproduce.fedclup import dynamic_lambda as table
from apiece.reproduce.fedclup.lam_runs import CLIENTS, GRID, MU, TRAIN, L, federation, fixed_runs

ROUNDS = 3


@pytest.fixture(scope="module")
def data():
    return [part[None, None] for part in federation(3, 1.0)]  # one radius, one seed


@pytest.fixture(scope="module")
def runs(data):
    with jax.enable_x64(True):
        return fixed_runs(*data, ROUNDS)


def clup_in_numpy(data, lam, warm):
    """Errors and held-out losses after each round."""
    x, y, truth = (part[0, 0] for part in data)
    a, b = x[:, :TRAIN], y[:, :TRAIN]
    h, g = np.einsum("cni,cnj->cij", a, a) / TRAIN, np.einsum("cni,cn->ci", a, b) / TRAIN
    w = np.linalg.solve(h, g[..., None])[..., 0] if warm else np.zeros_like(g)
    center, errors, losses = w.mean(0), [], []
    for _ in range(ROUNDS):
        for _ in range(math.ceil(2 + (lam + L) / (lam + MU) * math.log(1056 * (L / MU) ** 2))):
            w = w - (np.einsum("cij,cj->ci", h, w) - g + lam * (w - center)) / (lam + L)
        center = center - (lam + L) / (2 * L) * (center - w).mean(0)
        errors.append(np.mean(np.sum((w - truth) ** 2, axis=1)))
        losses.append(np.mean((np.einsum("cni,ci->cn", x[:, TRAIN:], w) - y[:, TRAIN:]) ** 2) / 2)
    return errors, losses


@pytest.mark.parametrize("j", [0, 3])
def test_fixed_runs_start_from_the_local_optima_and_cold_ones_from_zeros(data, runs, j):
    fixed, judged, cold = runs
    errors, losses = clup_in_numpy(data, GRID[j], warm=True)
    np.testing.assert_allclose(fixed[0, j, 0], errors, rtol=1e-9)
    np.testing.assert_allclose(judged[0, j, 0], losses, rtol=1e-9)
    np.testing.assert_allclose(cold[j, 0], clup_in_numpy(data, GRID[j], warm=False)[0], rtol=1e-9)


def test_clients_lie_around_a_centre_at_the_radius():
    x, y, w = federation(0, 3.0)
    away = np.linalg.norm(w - w.mean(0), axis=1)
    assert w.shape == (CLIENTS, 6) and away.max() == pytest.approx(3.0)
    noise = y - np.einsum("cni,ci->cn", x, w)
    assert noise.std() == pytest.approx(1, abs=0.05) and noise[:, TRAIN:].std() == pytest.approx(1, abs=0.1)


def made(dynamic, fixed, stage=1):
    """Eight seeds that agree: `dynamic` [rounds], `fixed` [lam, rounds]."""
    seeds = lambda values: np.repeat(np.asarray(values, float)[..., None, :], table.SEEDS, axis=-2)
    return table.Runs(seeds(fixed), seeds(fixed), seeds(dynamic), np.full((table.SEEDS, len(dynamic)), stage))


def test_the_verdicts_follow_the_numbers():
    fixed = [[3, 3, 3], [4, 2, 2], [5, 2.5, 1], [6, 5, 4], [7, 6, 5]]
    near, far = made([3, 2, 1.05], fixed), made([3, 2, 1.2], fixed)
    assert [claim.holds for claim in table._final(1.0, near)] == [True, True]
    assert [claim.holds for claim in table._final(1.0, far)] == [False, False]
    assert table._on_the_way(1.0, near).holds and not table._on_the_way(1.0, far).holds
    with_stages = lambda *stages: {R: made([1], fixed, stage) for R, stage in zip(table.RADII, stages, strict=True)}
    assert table._without_radius(with_stages(5, 4, 2)).holds
    assert not table._without_radius(with_stages(5, 5, 2)).holds


def test_a_trade_off_needs_errors_that_cross():
    alike = made([1, 1, 1], [[1, 1, 1]] * 5)
    crossing = np.array([[5, 5, 5], [9, 4, 4], [9, 9, 3], [9, 9, 2], [9, 9, 1]], float)[:, None]
    holds = lambda cold: table._trade_off(alike, cold)[0].holds
    assert holds(crossing)
    assert not holds(crossing[::-1])
    assert not holds(crossing[:, :, [2, 2, 2]])  # the last lam is the best at once
