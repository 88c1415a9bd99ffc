"""Non-parametric empirical Bayes: the clients' true values may lie in any number of humps.

    d_i | Delta_i ~ N(Delta_i, v_i),   Delta_i ~ g,   g any distribution on a grid

Kiefer and Wolfowitz's maximum-likelihood g (1956), by EM. `two_humps` says when it is worth leaving the normal for.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apiece.evaluate.empirical_bayes import fit_normal

GRID_POINTS = 81
# EM sharpens g for ever, and the more slowly the less the data say; stopping it here is a mild smoothing.
EM_STEPS = 500
TINY = 1e-300


def grid_likelihood(d: ArrayLike, v: ArrayLike, points: int = GRID_POINTS) -> tuple[NDArray, NDArray]:
    """Grid from the smallest to the largest d, and each client's likelihood [clients, points], its largest set to 1.

    >>> grid, likelihood = grid_likelihood([-1.0, 1.0], [1.0, 1.0], points=3)
    >>> grid, likelihood.round(3)
    (array([-1.,  0.,  1.]), array([[1.   , 0.607, 0.135],
           [0.135, 0.607, 1.   ]]))
    """
    d, v = np.asarray(d, dtype=np.float64), np.asarray(v, dtype=np.float64)
    grid = np.linspace(d.min(), d.max(), points)
    exponent = -((d[:, None] - grid) ** 2) / (2 * v[:, None])
    return grid, np.exp(exponent - exponent.max(axis=1, keepdims=True))


def fit_grid(likelihood: ArrayLike, counts: ArrayLike | None = None, steps: int = EM_STEPS) -> NDArray[np.float64]:
    """Weights g [..., points] of the grid by EM from the uniform; `counts` [..., clients] as in `fit_normal`.

    >>> _, likelihood = grid_likelihood([-9.0, 9.0, 9.0], [1.0, 1.0, 1.0], points=3)
    >>> fit_grid(likelihood).round(3)
    array([0.333, 0.   , 0.667])
    """
    likelihood = np.asarray(likelihood, dtype=np.float64)
    clients, points = likelihood.shape
    counts = np.ones(clients) if counts is None else np.asarray(counts, dtype=np.float64)
    share = counts / counts.sum(-1, keepdims=True)
    g = np.full((*share.shape[:-1], points), 1 / points)
    for _ in range(steps):
        # A client that a resample left out may have no weight near it: 0 / TINY is 0, 0 / 0 would not be.
        g = g * ((share / np.maximum(g @ likelihood.T, TINY)) @ likelihood)
    return g


def posterior_on_grid(likelihood: ArrayLike, g: ArrayLike) -> NDArray[np.float64]:
    """Each client's posterior weights on the grid [clients, points].

    >>> posterior_on_grid([[1.0, 1.0], [0.0, 1.0]], [0.25, 0.75])
    array([[0.25, 0.75],
           [0.  , 1.  ]])
    """
    joint = np.asarray(likelihood) * np.asarray(g)
    return joint / joint.sum(axis=-1, keepdims=True)


def two_humps(d: ArrayLike, v: ArrayLike) -> bool:
    """Whether the d_i visibly come from two humps, so that one normal prior would describe nobody.

    Two normals of one width (mu_1, mu_2, tau^2 and a share: two parameters more than one normal) are fitted by EM; the
    answer is yes if the marginal log-likelihood rises by more than log(clients), which is BIC's price for two
    parameters. Fewer than 8 clients cannot show two humps.

    >>> two_humps([-9.0] * 10 + [9.0] * 10, [4.0] * 20), two_humps([-2.0, 0.0, 2.0] * 7, [4.0] * 21)
    (True, False)
    """
    return bool(np.size(d) >= 8 and gain_of_two_humps(d, v) > np.log(np.size(d)))


def gain_of_two_humps(d: ArrayLike, v: ArrayLike, steps: int = 200, rise: float = 1e-4) -> float:
    """Rise of the marginal log-likelihood from one normal prior to two of a common width; never below 0.

    EM ends after `steps` or when a step gains less than `rise`: too early can only mean too small a gain.

    >>> round(gain_of_two_humps([-9.0] * 10 + [9.0] * 10, [4.0] * 20), 1)
    26.2
    """
    d, v = np.asarray(d, dtype=np.float64), np.asarray(v, dtype=np.float64)
    one = fit_normal(d, v)
    single = log_normal(d, one.mu, v + one.tau2).sum()
    best, order = single, np.argsort(d)
    # EM stops at the nearest top, so it starts from a small left hump, two halves, and a small right hump.
    for part in (0.1, 0.5, 0.9):
        cut = min(max(round(part * d.size), 1), d.size - 1)
        mu = np.array([[d[order[:cut]].mean()], [d[order[cut:]].mean()]])
        share = np.array([[cut / d.size], [1 - cut / d.size]])
        tau2 = max(float(one.tau2) / 4, 0.01 * v.mean())
        reached = -np.inf
        for _ in range(steps):
            log_joint = np.log(np.maximum(share, TINY)) + log_normal(d, mu, v + tau2)
            log_marginal = np.logaddexp(*log_joint)
            if log_marginal.sum() < reached + rise:
                break
            reached = log_marginal.sum()
            belongs = np.exp(log_joint - log_marginal)
            share, weight, k = belongs.mean(axis=1, keepdims=True), belongs / (v + tau2), tau2 / (v + tau2)
            mu = (weight * d).sum(axis=1, keepdims=True) / np.maximum(weight.sum(axis=1, keepdims=True), TINY)
            tau2 = float((belongs * ((k * (d - mu)) ** 2 + k * v)).sum() / d.size)
        best = max(best, reached)
    return float(best - single)


def log_normal(d: NDArray, mean: NDArray, variance: NDArray) -> NDArray[np.float64]:
    """Logarithm of the normal density.

    >>> log_normal(np.array([0.0, 1.0]), np.array(0.0), np.array(1.0)).round(3)
    array([-0.919, -1.419])
    """
    return -((d - mean) ** 2) / (2 * variance) - np.log(2 * np.pi * variance) / 2
