"""The NumPy program behind FedEM's golden numbers: plain loops over clients, examples and models; nothing of apiece."""

import numpy as np

# Three clients of a linear regression, whose examples come from two lines: w = (2, -1) and w = (-1, 1).
SIZES = np.array([5, 3, 8])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
RNG = np.random.default_rng(4)
X = RNG.normal(size=(SIZES.sum(), 2))
LINES = np.array([[2.0, -1.0], [-1.0, 1.0]])
Y = np.einsum("td,td->t", X, LINES[RNG.integers(0, 2, len(X))]) + 0.1 * RNG.normal(size=len(X))


def believe(x, y, models, pi):
    """[examples, models]: which model explains which example."""
    q = np.zeros((len(y), len(models)))
    for t in range(len(y)):
        for j, w in enumerate(models):
            q[t, j] = pi[j] * np.exp(-((x[t] @ w - y[t]) ** 2) / 2)
        q[t] /= q[t].sum()
    return q


def fed_em(models, rounds, steps, lr, pi_steps):
    """From these models: (them after each round, the clients' shares after the last round, those of their models)."""
    pi = np.full((len(SIZES), len(models)), 1 / len(models))
    own = [slice(*OFFSETS[i : i + 2]) for i in range(len(SIZES))]
    trace = []
    for _ in range(rounds):
        moved = models.copy()
        for i, mine in enumerate(own):
            q = believe(X[mine], Y[mine], models, pi[i])
            pi[i] = q.mean(0)
            for j in range(len(models)):
                w = models[j]
                for _ in range(steps):
                    slope = [q[t, j] * (x @ w - y) * x for t, (x, y) in enumerate(zip(X[mine], Y[mine], strict=True))]
                    w = w - lr * sum(slope) / len(slope)
                moved[j] += SIZES[i] / SIZES.sum() * (w - models[j])
        models = moved
        trace.append(models)
    used = pi.copy()
    for i, mine in enumerate(own):
        for _ in range(pi_steps):
            used[i] = believe(X[mine], Y[mine], models, used[i]).mean(0)
    return np.array(trace), pi, used
