"""Self-FL's listing with its slips: a NumPy program of it, and what it does to many clients with a few digits each."""

import numpy as np
import pytest
from golden import B, H
from quadratic_runs import trace
from sklearn.datasets import load_digits

N, BATCH, L_MAX, L_DEFAULT = 8, 2, 40, 3


def listing(h, b, rounds, lr, printed):
    """Algorithm 1, everybody taking part: (own models, x) after each round. Client m has N copies of one quadratic."""
    clients, size = b.shape
    x, models = np.zeros(size), np.zeros((clients, size))
    mean, variance = np.zeros((clients, size)), np.zeros(clients)  # over rounds, summed over coordinates
    spread, total = 0.0, 0.0
    trail = []
    for t in range(1, rounds + 1):
        weight = np.where(variance > 0, 1 / (spread + np.where(variance > 0, variance, 1)), 0)
        told = []
        for m in range(clients):
            start, steps, others = x, L_DEFAULT, total - weight[m]
            if variance[m] > 0:
                start = x - weight[m] / others * (models[m] - x)
                rho = lr / ((BATCH if printed else N) * variance[m])
                ratio = others / (1 / variance[m] + others)
                steps = 1 if rho >= 1 else int(np.clip(np.round(np.log(ratio) / np.log(1 - rho)), 1, L_MAX))
            model = start
            for _ in range(steps):
                model = model - lr * (h[m] @ model - b[m])
            moved = (model - mean[m]) / t
            mean[m] = mean[m] + moved
            move = np.linalg.norm(moved) if printed else moved @ moved
            told.append((t - 1) / t * (variance[m] + move) + np.sum((model - mean[m]) ** 2) / t)
            models[m] = model
        variance = np.array(told)
        spread = np.mean(np.sum((models - models.mean(0)) ** 2, axis=1))
        known = variance > 0
        share = 1 / (spread + variance) if known.any() else np.ones(clients)
        total = share.sum() if known.any() else 0.0
        x = share @ models / share.sum()
        trail.append((models.copy(), x.copy()))
    return [np.array(each) for each in zip(*trail, strict=True)]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("printed", [True, False])
def test_the_listing_is_followed_with_its_slips_and_without(printed):
    how = dict(rule="paper", variance="welford", summed=True, smoothing=True, l_max=L_MAX, l_default=L_DEFAULT)
    got = trace(
        "vectorized", "self_fl", H, B, 8, counts=[N] * 3, lr=0.05, batch=BATCH, printed=printed, population=3, **how
    )
    models, x = listing(H, B, 8, 0.05, printed)
    np.testing.assert_allclose(got.models, models, rtol=0, atol=1e-6)
    np.testing.assert_allclose([server.x for server in got.server], x, rtol=0, atol=1e-6)


def digit_clients(rng, clients=60):
    """Five of the ten digits each, from scikit-learn's: (x, y) to train on, and to test on."""
    x, y = load_digits(return_X_y=True)
    x = np.hstack([x / 16, np.ones((len(x), 1))])
    found = []
    for _ in range(clients):
        mine = rng.permutation(np.flatnonzero(np.isin(y, rng.permutation(10)[:5])))[: rng.integers(30, 80)]
        cut = 2 * len(mine) // 3
        found.append((x[mine[:cut]], y[mine[:cut]], x[mine[cut:]], y[mine[cut:]]))
    return found


def softmax_steps(w, x, y, steps, lr, rng):
    for _ in range(steps):
        at = rng.permutation(len(y))[:10]
        p = np.exp(x[at] @ w)
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(at)), y[at]] -= 1
        w = w - lr * x[at].T @ p / len(at)
    return w


def played(seed, rounds=60, lr=0.03, adapt=True):
    """(own, shared accuracy) of Algorithm 1 as printed, a tenth of the clients a round; not `adapt`: FedAvg."""
    rng = np.random.default_rng(seed)
    clients = digit_clients(rng)
    count = len(clients)
    x = np.zeros((65, 10))
    models, mean = np.zeros((count, 65, 10)), np.zeros((count, 65, 10))
    variance, seen, spread = np.zeros(count), np.zeros(count, int), 0.0
    for _ in range(rounds):
        active = rng.permutation(count)[: count // 10]
        weight = np.where(variance > 0, 1 / (spread + np.where(variance > 0, variance, 1)), 0)
        total = weight.sum()
        for m in active:
            start, steps, others = x, 20, total - weight[m]
            if adapt and variance[m] > 0 and others > 0:
                start = x - weight[m] / others * (models[m] - x)
                rho, ratio = lr / (10 * variance[m]), others / (1 / variance[m] + others)
                steps = 1 if rho >= 1 else int(np.clip(np.round(np.log(ratio) / np.log(1 - rho)), 1, 40))
            models[m] = softmax_steps(start, *clients[m][:2], steps, lr, rng)
            seen[m] += 1
            moved = (models[m] - mean[m]) / seen[m]
            mean[m] += moved
            away = np.sum((models[m] - mean[m]) ** 2)
            variance[m] = (seen[m] - 1) / seen[m] * (variance[m] + np.linalg.norm(moved)) + away / seen[m]
            if seen[m] == 1:
                variance[m] = 0.0  # nothing is known after one model
        near = models[active]
        spread = np.mean(np.sum((near - near.mean(0)) ** 2, axis=(1, 2)))
        if adapt:
            usual = variance[variance > 0].mean() if (variance > 0).any() else 1.0
            share = 1 / (spread + np.where(variance[active] > 0, variance[active], usual))
            x = x + 0.1 * (np.tensordot(share / share.sum(), near, 1) - x)
        else:
            share = np.array([len(clients[m][1]) for m in active], float)
            x = np.tensordot(share / share.sum(), near, 1)
    right = lambda w, m: np.mean((clients[m][2] @ w).argmax(1) == clients[m][3])
    shared = np.mean([right(x, m) for m in range(count)])
    own = np.mean([right(models[m] if adapt else x, m) for m in range(count)])
    return own, shared


def test_by_an_independent_program_own_models_as_printed_are_behind_the_averaged_one():
    gaps = [played(seed)[0] - played(seed, adapt=False)[0] for seed in range(4)]
    assert np.mean(gaps) + 2.4 * np.std(gaps, ddof=1) / 2 < 0, gaps  # a one-sided 95 % bound over four draws
