"""The NumPy programs behind the golden numbers of methods around FedCLUP's problem; no JAX, nothing of apiece.

A problem is `h` [clients, d, d] and `b` [clients, d], for the losses w'hw/2 - b'w.
"""

import math

import numpy as np


def slopes(h, b, w):
    return np.einsum("...jk,...k->...j", h, w) - b


def l2gd(h, b, lam, p, alpha, coins):
    """After each iteration: everybody's models, and how often they communicated. `alpha` as in the paper."""
    m, d = b.shape
    x, previous, asked, models, asks = np.zeros((m, d)), 1, 0, [], []
    for coin in coins:
        if coin:
            asked += previous == 0
            c = alpha * lam / (m * p)
            x = (1 - c) * x + c * x.mean(0)
        else:
            x = x - alpha / (m * (1 - p)) * slopes(h, b, x)
        previous = coin
        models.append(x)
        asks.append(asked)
    return np.array(models), np.array(asks)


def l2gd_alpha(m, smoothness, lam, p):
    return m / (2 * max(smoothness / (1 - p), lam / p))


def al2sgd_coins(seed, p, iterations):
    """Two rows: is it a pull, is w renewed."""
    drawn = np.random.default_rng(seed).random((iterations, 2))
    return (drawn < [p, p * (1 - p)]).T.astype(float)


def al2sgd(h, b, lam, mu, smoothness, coins):
    """After each iteration: everybody's y, and the communications. As published, with every constant over m."""
    m, d = b.shape
    p = lam / (lam + smoothness)
    mu, l_f, l_c = mu / m, (smoothness + lam) / m, max(smoothness / (1 - p), lam / p) / m
    eta, t2 = 1 / (4 * max(l_f, l_c)), l_c / (2 * max(l_f, l_c))
    t1 = min(0.5, math.sqrt(eta * mu * max(0.5, t2 / (p * (1 - p)))))
    gamma = 1 / max(2 * mu, 4 * t1 / eta)
    beta = 1 - gamma * mu
    y = z = w = np.zeros((m, d))
    previous, asked, models, asks = None, 0, [], []
    for pull, renew in coins.T:
        x = t1 * z + t2 * w + (1 - t1 - t2) * y
        apart = lam / m * (w - w.mean(0))
        if pull:
            g = lam / (m * p) * (x - x.mean(0)) - (1 / p - 1) * apart + slopes(h, b, w) / m
        else:
            g = (slopes(h, b, x) - slopes(h, b, w)) / (m * (1 - p)) + slopes(h, b, w) / m + apart
        new = x - eta * g
        z = beta * z + (1 - beta) * x + gamma / eta * (new - x)
        asked += int(bool(pull) and previous == 0) + int(renew)
        previous, y = pull, new
        if renew:
            w = new
        models.append(y)
        asks.append(asked)
    return np.array(models), np.array(asks)


def inside(w, radius):
    """The projection on the ball of that radius around zero, row by row."""
    length = np.linalg.norm(w, axis=-1, keepdims=True)
    return w if radius is None else w * np.minimum(1, radius / np.maximum(length, 1e-300))


def chen(h, b, rounds, steps, lr, lam, gamma, decay, radius):
    """The centre after each round."""
    x, w, trace = np.zeros(b.shape[1]), np.zeros_like(b), []
    for t in range(rounds):
        size = lr / (1 + decay * t)
        for _ in range(steps):
            w = inside(w - size * (slopes(h, b, w) + lam * (w - x)), radius)
        x = inside(x - gamma / (1 + decay * t) * lam * (x - w).mean(0), radius)
        trace.append(x)
    return np.array(trace)


# Dynamic lambda: eight federations at once, on the leading axis.

GRID = (0.01, 0.05, 0.2, 1.0, 5.0)
MU, L = 0.05, 1.0
CLIENTS, TRAIN, HELD, FEATURES = 20, 40, 20, 6


def federation(seed, radius):
    """(x [clients, 60, d], y [clients, 60], true models): the last 20 rows of each are for validation."""
    rng = np.random.default_rng(seed)
    center = rng.standard_normal(FEATURES)
    away = rng.standard_normal((CLIENTS, FEATURES))
    away -= away.mean(0)
    away *= radius / np.linalg.norm(away, axis=1).max()
    scale = np.diag(np.sqrt(np.geomspace(MU, L, FEATURES)))
    xs, ys = [], []
    for w in center + away:
        u, _ = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))
        q, _ = np.linalg.qr(rng.standard_normal((TRAIN, FEATURES)))
        x = math.sqrt(TRAIN) * q @ scale @ u.T
        y = x @ w + rng.standard_normal(TRAIN)
        held = rng.standard_normal((HELD, FEATURES)) @ scale @ u.T
        xs.append(np.concatenate([x, held]))
        ys.append(np.concatenate([y, held @ w + rng.standard_normal(HELD)]))
    return np.array(xs), np.array(ys), center + away


def steps_of(lam):
    return math.ceil(2 + (lam + L) / (lam + MU) * math.log(1056 * (L / MU) ** 2))


def clup_round(h, b, lam, x, w):
    for _ in range(steps_of(lam)):
        w = w - (slopes(h, b, w) + lam * (w - x[..., None, :])) / (lam + L)
    return x - (lam + L) / (2 * L) * (x - w.mean(-2)), w


def normal_equations(x, y):
    x, y = x[..., :TRAIN, :], y[..., :TRAIN]
    return np.einsum("...nj,...nk->...jk", x, x) / TRAIN, np.einsum("...nj,...n->...j", x, y) / TRAIN


def fixed(x, y, lam, rounds):
    """After each round: everybody's models, from their local optima on, with one lam. Any leading axes."""
    h, b = normal_equations(x, y)
    w = np.linalg.solve(h, b[..., None])[..., 0]
    shared, models = w.mean(-2), []
    for _ in range(rounds):
        shared, w = clup_round(h, b, lam, shared, w)
        models.append(w)
    return np.array(models)


def dynamic(x, y, rounds, patience=3, improvement=0.02):
    """After each round: everybody's models; and the last place on the grid. One federation."""
    h, b = normal_equations(x, y)
    w = np.linalg.solve(h, b[..., None])[..., 0]
    shared, models = w.mean(0), []
    j, stale, best, below, kept, over = 0, 0, math.inf, None, None, False
    for _ in range(rounds):
        if not over:
            shared, w = clup_round(h, b, GRID[j], shared, w)
            residual = np.einsum("mnd,md->mn", x[:, TRAIN:], w) - y[:, TRAIN:]
            v = 0.5 * np.mean(residual**2)
            stale = 0 if v < best * (1 - improvement) else stale + 1
            if v < best:
                best, kept = v, (shared, w)
            if stale >= patience:
                if below is not None and best > below[0] * (1 + improvement):
                    (shared, w), over = below[1], True
                elif j < len(GRID) - 1:
                    below, j, stale, best = (best, kept), j + 1, 0, math.inf
                else:
                    over = True
        models.append(w)
    return np.array(models), j
