"""The NumPy program behind IFCA's golden numbers: plain loops over rounds, clients and groups; nothing of apiece."""

import numpy as np
from golden import descend

# Six clients that want two things, with a little of their own: 0, 2 and 3 are near (2, 1), the others near (-1, -2).
CENTRES = np.array([[2.0, 1.0], [-1.0, -2.0]])
GROUP = np.array([0, 1, 0, 0, 1, 1])
COUNTS = np.array([2, 1, 1, 3, 1, 2])  # examples, which make a client's weight
H6 = np.array([np.diag([1.0 + 0.1 * i, 1.5 - 0.1 * i]) for i in range(6)])
WANTED = CENTRES[GROUP] + 0.1 * np.array([[1, 0], [0, 1], [-1, 1], [0, -1], [1, 1], [-1, 0]])
B6 = np.einsum("ijk,ik->ij", H6, WANTED)


def value(h, b, w):
    return w @ h @ w / 2 - b @ w


def choose(h, b, x):
    return int(np.argmin([value(h, b, w) for w in x]))


def ifca(h, b, weight, x, rounds, steps, lr):
    """From the models x [groups, d]: (them after each round, whom each client chose then)."""
    trace, choices = [], []
    for _ in range(rounds):
        chosen = [choose(h[i], b[i], x) for i in range(len(b))]
        moved = x.copy()
        for k in range(len(x)):
            mine = [i for i in range(len(b)) if chosen[i] == k]
            for i in mine:
                share = weight[i] / sum(weight[m] for m in mine)
                moved[k] += share * (descend(h[i], b[i], x[k], steps, lr) - x[k])
        x = moved
        trace.append(x)
        choices.append(chosen)
    return np.array(trace), np.array(choices)
