"""The NumPy programs behind the numbers of all-for-one and all-for-all: plain loops; no JAX, nothing of apiece."""

import numpy as np


def neighbours(b, eps):
    near = b <= eps / 2
    np.fill_diagonal(near, True)
    return near / near.sum(1, keepdims=True)


def largest(filter):
    return np.linalg.eigvalsh(filter @ filter.T)[-1]


def wga(h, b, share, rounds, lr):
    """All-for-one: one model, moved by the mixture of everybody's gradients."""
    x, trace = np.zeros(b.shape[1]), []
    for _ in range(rounds):
        x = x - lr * sum(share[j] * (h[j] @ x - b[j]) for j in range(len(b)))
        trace.append(x)
    return np.array(trace)


def afa(h, b, filter, cohorts, lr):
    """All-for-all: each round's cohort answers with gradients at its own models; the step is lr itself."""
    w, x, trace = filter @ filter.T, np.zeros_like(b), []
    for cohort in cohorts:
        g = {j: h[j] @ x[j] - b[j] for j in cohort}
        x = x - lr * np.array([sum(w[i, j] * g[j] for j in cohort) for i in range(len(b))])
        trace.append(x)
    return np.array(trace)


def coins(seed, chances, rounds, noise=0.0):
    """(samples [rounds, clients], b): heads or tails, and half the squared difference of what is known of chances."""
    rng = np.random.default_rng(seed)
    known = chances + rng.uniform(-noise, noise, len(chances)) if noise else chances
    samples = (rng.random((rounds, len(chances))) < chances).astype(float)
    return samples, (known[:, None] - known[None]) ** 2 / 2


def error(x, chances):
    return np.mean((x - chances) ** 2, axis=-1) / 2


def phases(samples, b, chances, eps=0.5, noise=0.25):
    """The error after each round of all-for-all with the theory's phases, L = mu = 1, from 1/2."""
    clients = samples.shape[1]
    x, errors, left, q = np.full(clients, 0.5), [], 0, -1
    for sample in samples:
        if not left:
            q += 1
            filter = neighbours(b, eps / 2**q)
            w, lonely = filter @ filter.T, (filter**2).sum()
            lr = min(0.5 / largest(filter), eps / 2**q * clients / (2 * noise * lonely))
            left = int(np.ceil(np.log(4) / lr))
        x = x - lr * w @ (x - sample)
        left -= 1
        errors.append(error(x, chances))
    return np.array(errors)


def running_means(samples):
    return np.cumsum(samples, 0) / np.arange(1, len(samples) + 1)[:, None]


def balanced_mixture(samples, b, noise=0.25):
    """Everybody's mixture of running means, the precision balanced at each round: eps = noise S(eps) / (N t)."""
    grid = np.geomspace(1e-7, 1.0, 120)
    filters = [neighbours(b, eps) for eps in grid]
    lonely = np.array([(filter**2).sum() for filter in filters])
    models = []
    for t, mean in enumerate(running_means(samples), 1):
        enough = grid >= noise * lonely / (samples.shape[1] * t)
        models.append(filters[int(np.argmax(enough)) if enough.any() else -1] @ mean)
    return np.array(models)
