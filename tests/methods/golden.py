"""The NumPy programs behind the golden numbers: plain loops over clients, rounds and steps; no JAX, nothing of apiece.

A problem is `H` [clients, d, d] and `b` [clients, d], for the losses w'Hw/2 - b'w; `p` are the clients' weights.
"""

import numpy as np

# Three clients, two parameters; smoothness L = 3, strong convexity mu = 0.5.
H = np.array([[[2.0, 0.0], [0.0, 1.0]], [[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.0], [0.0, 3.0]]])
B = np.array([[2.0, 1.0], [0.0, 0.5], [-1.0, 3.0]])
P = np.array([0.5, 0.25, 0.25])
U = np.ones(3) / 3


def pooled_optimum(h, b, p):
    return np.linalg.solve(sum(p[i] * h[i] for i in range(len(p))), sum(p[i] * b[i] for i in range(len(p))))


def local_optima(h, b):
    return np.array([np.linalg.solve(h[i], b[i]) for i in range(len(b))])


def prox(h, b, lam, center):
    """argmin_v v'hv/2 - b'v + lam/2 |v - center|^2."""
    return np.linalg.solve(h + lam * np.eye(len(b)), b + lam * center)


def centre_problem(h, b, p, lam):
    """min over x and all w_i of sum_i p_i [L_i(w_i) + lam/2 |w_i - x|^2]: (x, the w_i).

    The optimal w_i is prox_i(x), and the optimal x is the mean of the w_i: a linear equation for x.
    """
    d = b.shape[1]
    inverse = [np.linalg.inv(h[i] + lam * np.eye(d)) for i in range(len(p))]
    left = np.eye(d) - sum(p[i] * lam * inverse[i] for i in range(len(p)))
    right = sum(p[i] * inverse[i] @ b[i] for i in range(len(p)))
    x = np.linalg.solve(left, right)
    return x, np.array([prox(h[i], b[i], lam, x) for i in range(len(p))])


def descend(h, b, w, steps, lr, lam=0.0, center=None):
    for _ in range(steps):
        pull = lam * (w - center) if center is not None else 0.0
        w = w - lr * (h @ w - b + pull)
    return w


def fed_avg(h, b, p, rounds, steps, lr, x=None):
    x, trace = np.zeros(b.shape[1]) if x is None else x, []
    for _ in range(rounds):
        x = sum(p[i] * descend(h[i], b[i], x, steps, lr) for i in range(len(p)))
        trace.append(x)
    return np.array(trace)


def fed_prox(h, b, p, rounds, steps, lr, lam):
    x, trace = np.zeros(b.shape[1]), []
    for _ in range(rounds):
        x = sum(p[i] * descend(h[i], b[i], x, steps, lr, lam, x) for i in range(len(p)))
        trace.append(x)
    return np.array(trace)


def ditto(h, b, p, rounds, steps, lr, lam):
    x, v, trace, personal = np.zeros(b.shape[1]), np.zeros_like(b), [], []
    for _ in range(rounds):
        v = np.array([descend(h[i], b[i], v[i], steps, lr, lam, x) for i in range(len(p))])
        x = sum(p[i] * descend(h[i], b[i], x, steps, lr) for i in range(len(p)))
        trace.append(x)
        personal.append(v)
    return np.array(trace), np.array(personal)


def pfedme(h, b, p, rounds, steps, lr, lam, beta=1.0, prox_steps=None, prox_lr=0.1, warm=False):
    """prox_steps None: the exact prox. Returns the server's trace and the last personal models."""
    x, trace = np.zeros(b.shape[1]), []
    personal = np.zeros_like(b)
    for _ in range(rounds):
        mean = np.zeros(b.shape[1])
        for i in range(len(p)):
            w, q = x, x
            for _ in range(steps):
                if prox_steps is None:
                    q = prox(h[i], b[i], lam, w)
                else:
                    q = descend(h[i], b[i], q if warm else w, prox_steps, prox_lr, lam, w)
                w = w - lr * lam * (w - q)
            personal[i] = q
            mean = mean + p[i] * w
        x = (1 - beta) * x + beta * mean
        trace.append(x)
    return np.array(trace), personal


def fed_clup(h, b, rounds, steps, lr, lam, gamma, x=None):
    m, d = b.shape
    x, w, trace, personal = np.zeros(d) if x is None else x, np.zeros((m, d)), [], []
    for _ in range(rounds):
        w = np.array([descend(h[i], b[i], w[i], steps, lr, lam, x) for i in range(m)])
        x = x - gamma * sum(lam * (x - w[i]) for i in range(m)) / m
        trace.append(x)
        personal.append(w)
    return np.array(trace), np.array(personal)


def scaffold(h, b, rounds, steps, lr, server_lr, cohorts=None):
    """`cohorts`: the clients of each round; by default everybody."""
    m, d = b.shape
    x, c, own, trace = np.zeros(d), np.zeros(d), np.zeros((m, d)), []
    for r in range(rounds):
        here = range(m) if cohorts is None else cohorts[r]
        moved, changed = np.zeros(d), np.zeros(d)
        for i in here:
            y = x
            for _ in range(steps):
                y = y - lr * (h[i] @ y - b[i] - own[i] + c)
            new = own[i] - c + (x - y) / (steps * lr)
            moved, changed = moved + (y - x) / len(here), changed + (new - own[i]) / len(here)
            own[i] = new
        x, c = x + server_lr * moved, c + len(here) / m * changed
        trace.append(x)
    return np.array(trace), c, own


def fed_dyn(h, b, rounds, steps, lr, lam, cohorts=None):
    """In the paper's letters: a server state `big` (its h), the mean of all clients' `own`; `cohorts` as above."""
    m, d = b.shape
    x, big, own, trace = np.zeros(d), np.zeros(d), np.zeros((m, d)), []
    for r in range(rounds):
        here = range(m) if cohorts is None else cohorts[r]
        solved = []
        for i in here:
            y = x
            for _ in range(steps):
                y = y - lr * (h[i] @ y - b[i] - own[i] + lam * (y - x))
            own[i] = own[i] - lam * (y - x)
            solved.append(y)
        big = big - lam / m * sum(y - x for y in solved)
        x = sum(solved) / len(solved) - big / lam
        trace.append(x)
    return np.array(trace), own


def random_problem(seed, clients, examples, features, mu, smoothness, radius, noise=1.0):
    """Least squares whose every Gram matrix has eigenvalues geomspace(mu, smoothness): H and b."""
    rng = np.random.default_rng(seed)
    center = rng.standard_normal(features)
    away = rng.standard_normal((clients, features))
    away -= away.mean(0)
    away *= radius / np.linalg.norm(away, axis=1).max()
    h, b = [], []
    for i in range(clients):
        q, _ = np.linalg.qr(rng.standard_normal((examples, features)))
        v, _ = np.linalg.qr(rng.standard_normal((features, features)))
        x = np.sqrt(examples) * q @ np.diag(np.sqrt(np.geomspace(mu, smoothness, features))) @ v.T
        y = x @ (center + away[i]) + noise * rng.standard_normal(examples)
        h.append(x.T @ x / examples)
        b.append(x.T @ y / examples)
    return np.array(h), np.array(b)
