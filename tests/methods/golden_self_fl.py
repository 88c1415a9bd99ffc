"""The NumPy program behind the golden numbers of Self-FL: scalar models, plain arithmetic; nothing of apiece.

`z` are the clients' own optima, `s` their variances, `s0` the variance between clients; one entry a client.
"""

import numpy as np

Z = np.array([1.0, 2.0, 4.0])
S = np.array([0.5, 1.0, 2.0])
S0 = 0.25


def hierarchy(z, s, s0):
    """Everything there is to know: weights, the shared estimate, the printed and the true posterior."""
    w = 1 / (s0 + s)
    others = w.sum() - w
    init = (np.sum(w * z) - w * z) / others
    bayes = 1 / (s0 + 1 / others)
    return dict(
        w=w,
        A=others,
        G=np.sum(w * z) / w.sum(),
        v_G=1 / w.sum(),
        INIT=init,
        FL=(z / s + others * init) / (1 / s + others),
        v_FL=1 / (1 / s + others),
        GAIN=1 + s * others,
        Bayes=(z / s + bayes * init) / (1 / s + bayes),
        v_Bayes=1 / (1 / s + bayes),
        ratio=others / (1 / s + others),
    )


def algorithm_1(z, s, s0, rounds, kept):
    """`kept`: what is left of the way to z after a client's steps. Returns the clients' models and the shared one."""
    w = 1 / (s0 + s)
    others = w.sum() - w
    q, x, trace = np.zeros_like(z), 0.0, []
    for _ in range(rounds):
        start = x - w / others * (q - x)
        q = (1 - kept) * z + kept * start
        x = np.sum(w * q) / w.sum()
        trace.append((q, x))
    return trace


def fixed_point(z, s, s0):
    """Where algorithm 1 goes with the printed rule: q = (1 - r) z + r P q, P the mean of the others."""
    w = 1 / (s0 + s)
    r = hierarchy(z, s, s0)["ratio"]
    p = np.tile(w, (len(z), 1))
    np.fill_diagonal(p, 0)
    p /= p.sum(1, keepdims=True)
    q = np.linalg.solve(np.eye(len(z)) - r[:, None] * p, (1 - r) * z)
    return q, np.sum(w * q) / w.sum()


def printed_variance(values):
    """The recursion as it stands in the paper: the move of the mean is not squared."""
    mean = variance = 0.0
    for t, x in enumerate(values, 1):
        new = (t - 1) / t * mean + x / t
        variance = (t - 1) / t * variance + (t - 1) / t * (new - mean) + (x - new) ** 2 / t
        mean = new
    return variance


def regression(spread, seed, clients=20, features=10):
    """Linear regression with noise 1: true models `spread` apart, 20 to 60 examples a client. (X, Y, models)."""
    rng = np.random.default_rng(seed)
    centre = rng.standard_normal(features)
    models = centre + spread * rng.standard_normal((clients, features))
    sizes = rng.integers(20, 61, clients)
    x = [rng.standard_normal((n, features)) for n in sizes]
    y = [rows @ model + rng.standard_normal(len(rows)) for rows, model in zip(x, models, strict=True)]
    return x, y, models


def synthetic(case, repetitions, seed=0, clients=20):
    """Mean estimation around 1.6 with sample variance 0.1: (sizes' variances, between-client variance, models, z).

    Case 1: clients alike, 10 to 20 examples; case 2: clients unlike, 10 to 200. One column a repetition.
    """
    rng = np.random.default_rng(seed)
    s0, least, most = (0.001, 10, 20) if case == 1 else (1.0, 10, 200)
    s = 0.1 / rng.integers(least, most + 1, clients)
    models = 1.6 + np.sqrt(s0) * rng.standard_normal((clients, repetitions))
    return s, s0, models, models + np.sqrt(s)[:, None] * rng.standard_normal((clients, repetitions))
