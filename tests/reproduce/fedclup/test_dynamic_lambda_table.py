"""The dynamic-lambda reproduction: its data, its runs against a NumPy program, and checks that can fail."""

import math

import jax
import numpy as np
import pytest

from apiece.reproduce.fedclup import dynamic_lambda as table
from apiece.reproduce.fedclup.lam_runs import CLIENTS, GRID, MU, TRAIN, L, dynamic_runs, federation, fixed_runs

ROUNDS = 3


@pytest.fixture(scope="module")
def data():
    return [part[None, None] for part in federation(3, 1.0)]  # one radius, one seed


@pytest.fixture(scope="module")
def runs(data):
    with jax.enable_x64(True):
        return fixed_runs(*data, ROUNDS)


def clup_in_numpy(data, lam, warm, rounds=ROUNDS):
    """Errors and held-out losses after each round."""
    x, y, truth = (part[0, 0] for part in data)
    a, b = x[:, :TRAIN], y[:, :TRAIN]
    h, g = np.einsum("cni,cnj->cij", a, a) / TRAIN, np.einsum("cni,cn->ci", a, b) / TRAIN
    w = np.linalg.solve(h, g[..., None])[..., 0] if warm else np.zeros_like(g)
    center, errors, losses = w.mean(0), [], []
    for _ in range(rounds):
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
    np.testing.assert_allclose(cold[0, j, 0], clup_in_numpy(data, GRID[j], warm=False)[0], rtol=1e-9)


def climb_in_numpy(x, y, truth, rounds, patience=3, improvement=0.02):
    """Dynamic lambda from zeros, written down from its description: errors after each round."""
    a, b = x[:, :TRAIN], y[:, :TRAIN]
    h, g = np.einsum("cni,cnj->cij", a, a) / TRAIN, np.einsum("cni,cn->ci", a, b) / TRAIN
    w, center, place, waited = np.zeros_like(g), np.zeros(g.shape[1]), 0, 0
    best, kept, below, over, errors = np.inf, None, None, False, []
    for _ in range(rounds):
        if not over:
            lam = GRID[place]
            for _ in range(math.ceil(2 + (lam + L) / (lam + MU) * math.log(1056 * (L / MU) ** 2))):
                w = w - (np.einsum("cij,cj->ci", h, w) - g + lam * (w - center)) / (lam + L)
            center = center - (lam + L) / (2 * L) * (center - w).mean(0)
            loss = np.mean((np.einsum("cni,ci->cn", x[:, TRAIN:], w) - y[:, TRAIN:]) ** 2) / 2
            waited = 0 if loss < (1 - improvement) * best else waited + 1
            best, kept = (loss, w) if loss < best else (best, kept)
            if waited >= patience and below is not None and best > (1 + improvement) * below[0]:
                w, over = below[1], True
            elif waited >= patience and place == len(GRID) - 1:
                over = True
            elif waited >= patience:
                below, place, best, waited = (best, kept), place + 1, np.inf, 0
        errors.append(np.mean(np.sum((w - truth) ** 2, axis=1)))
    return np.array(errors)


@pytest.mark.thorough
def test_dynamic_lambda_is_far_from_the_lower_envelope_by_another_program_too():
    """The paper's figure has it on the envelope: a NumPy program of our own says what the library's runs say."""
    rounds, ratios = 12, []
    made = [federation(seed, 0.1) for seed in range(3)]
    with jax.enable_x64(True):
        x, y, truth = (np.array([[one[part] for one in made]]) for part in range(3))
        found, _ = dynamic_runs(x, y, truth, rounds, alone=0)
    for seed, one in enumerate(made):
        mine = climb_in_numpy(*one, rounds)
        np.testing.assert_allclose(found[0, seed], mine, rtol=1e-4)  # losses are compared in single precision there
        fixed = [clup_in_numpy([part[None, None] for part in one], lam, warm=False, rounds=rounds)[0] for lam in GRID]
        ratios.append((mine / np.min(fixed, axis=0)).max())
    assert min(ratios) > 1.5


def test_clients_lie_around_a_centre_at_the_radius():
    x, y, w = federation(0, 3.0)
    away = np.linalg.norm(w - w.mean(0), axis=1)
    assert w.shape == (CLIENTS, 6) and away.max() == pytest.approx(3.0)
    noise = y - np.einsum("cni,ci->cn", x, w)
    assert noise.std() == pytest.approx(1, abs=0.05) and noise[:, TRAIN:].std() == pytest.approx(1, abs=0.1)


def made(dynamic, fixed, stage=1):
    """Eight seeds that agree: `dynamic` [rounds], `fixed` [lam, rounds]."""
    seeds = lambda values: np.repeat(np.asarray(values, float)[..., None, :], table.SEEDS, axis=-2)
    stages = np.full((table.SEEDS, len(dynamic)), stage)
    return table.Runs(seeds(fixed), seeds(fixed), seeds(dynamic), stages, seeds(fixed), seeds(dynamic))


def test_the_verdicts_follow_the_numbers():
    fixed = [[3, 3, 3], [4, 2, 2], [5, 2.5, 1], [6, 5, 4], [7, 6, 5]]
    near, far = made([3, 2, 1.05], fixed), made([3, 2, 1.2], fixed)
    assert [claim.holds for claim in table._final(1.0, near)] == [True, True]
    assert [claim.holds for claim in table._final(1.0, far)] == [False, False]
    for start in table.STARTS:
        assert table._on_the_way(1.0, near, start).holds and not table._on_the_way(1.0, far, start).holds
    with_stages = lambda *stages: {R: made([1], fixed, stage) for R, stage in zip(table.RADII, stages, strict=True)}
    assert table._without_radius(with_stages(5, 4, 2)).holds
    assert not table._without_radius(with_stages(5, 5, 2)).holds


def test_a_trade_off_needs_errors_that_cross():
    alike = made([1, 1, 1], [[1, 1, 1]] * 5)
    crossing = np.array([[5, 5, 5], [9, 4, 4], [9, 9, 3], [9, 9, 2], [9, 9, 1]], float)[:, None]
    holds = lambda cold: table._trade_off(alike._replace(cold=cold))[0].holds
    assert holds(crossing)
    assert not holds(crossing[::-1])
    assert not holds(crossing[:, :, [2, 2, 2]])  # the last lam is the best at once
