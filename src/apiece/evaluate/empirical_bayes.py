"""Normal-normal empirical Bayes: what a client's noisy mean says once the other clients have been heard.

    d_i | Delta_i ~ N(Delta_i, v_i),   Delta_i ~ N(mu, tau^2)

The variances v_i come from few examples, so they are shrunken first; tau^2 is Paule and Mandel's (1982).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from apiece.evaluate.clients import per_client, sizes_of, sum_per_client

PSEUDO_EXAMPLES = 20


class NormalPrior(NamedTuple):
    """Mean and variance of the clients' true values, and the precision (1 / variance) with which mu is known."""

    mu: NDArray[np.float64]
    tau2: NDArray[np.float64]
    precision: NDArray[np.float64]


def mean_variance(values: ArrayLike, offsets: ArrayLike, pseudo: float = PSEUDO_EXAMPLES) -> NDArray[np.float64]:
    """Variance of each client's mean, its own variance S_i shrunken to the pooled within-client variance S.

        v_i = (pseudo S + (n_i - 1) S_i) / (pseudo - 1 + n_i) / n_i

    Without the pseudo-examples a client with three equal values would look certain. If no client varies within
    itself (one example each, for instance) S is the mean square of all values, which errs on the side of doubt; v is
    0 only if every value is 0. NaN for clients without rows.

    >>> mean_variance([0.0, 0.0, 0.0, 1.0, -1.0], [0, 3, 3, 5]).round(3)
    array([0.202,   nan, 0.365])
    """
    values = np.asarray(values, dtype=np.float64)
    sizes = sizes_of(offsets, values.size)
    centered = values - np.repeat(per_client(values, offsets), sizes)
    squares = sum_per_client(centered**2, offsets)
    freedom = np.maximum(sizes - 1, 0)
    if squares.sum() > 0:
        pooled = squares.sum() / freedom.sum()
    else:
        pooled = np.mean(values**2) if values.size else 0.0
    return (pseudo * pooled + squares) / (pseudo - 1 + sizes) / np.where(sizes > 0, sizes, np.nan)


def fit_normal(d: ArrayLike, v: ArrayLike, counts: ArrayLike | None = None) -> NormalPrior:
    """Paule-Mandel: the tau^2 at which sum (d_i - mu)^2 / (v_i + tau^2) = clients - 1, or 0 if none.

    mu is the mean weighed by 1 / (v_i + tau^2).
    `counts` [..., clients] says how often each client is in the sample; leading axes are separate (bootstrap)
    samples, fitted together. All v must be positive.

    >>> prior = fit_normal([-3.0, 1.0, 5.0], [1.0, 1.0, 1.0])
    >>> round(float(prior.mu), 3), round(float(prior.tau2), 3)
    (1.0, 15.0)
    """
    d, v = np.asarray(d, dtype=np.float64), np.asarray(v, dtype=np.float64)
    counts = np.ones_like(d) if counts is None else np.asarray(counts, dtype=np.float64)
    freedom = counts.sum(-1, keepdims=True) - 1
    tau2 = np.zeros_like(freedom)

    def weigh(tau2):
        weight = 1 / (v + tau2)
        precision = (counts * weight).sum(-1, keepdims=True)
        return weight, (counts * weight * d).sum(-1, keepdims=True) / precision, precision

    # The left side is convex and falls in tau^2: Newton's steps from 0 approach the root from below, so they need no
    # bracket. When tau^2 >> v they double at first, hence the room for many.
    for _ in range(200):
        weight, mu, _ = weigh(tau2)
        terms = counts * weight * (d - mu) ** 2
        excess = terms.sum(-1, keepdims=True) - freedom
        slope = (terms * weight).sum(-1, keepdims=True)
        step = np.where((excess > 1e-10 * (freedom + 1)) & (slope > 0), excess / np.where(slope > 0, slope, 1), 0)
        if not step.any():
            break
        tau2 = tau2 + step
    _, mu, precision = weigh(tau2)
    return NormalPrior(mu[..., 0], tau2[..., 0], precision[..., 0])


def posterior(d: ArrayLike, v: ArrayLike, prior: NormalPrior) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Posterior mean mu + k_i (d_i - mu) and variance k_i v_i + (1 - k_i)^2 / precision, k_i = tau^2 / (tau^2 + v_i).

    The second term of the variance is the doubt about mu itself.

    >>> d, v = [-3.0, 1.0, 5.0], [1.0, 1.0, 1.0]
    >>> mean, variance = posterior(d, v, fit_normal(d, v))
    >>> mean.round(2), variance.round(2)
    (array([-2.75,  1.  ,  4.75]), array([0.96, 0.96, 0.96]))
    """
    d, v = np.asarray(d, dtype=np.float64), np.asarray(v, dtype=np.float64)
    mu, tau2, precision = (np.asarray(part)[..., None] for part in prior)
    k = tau2 / (tau2 + v)
    return mu + k * (d - mu), k * v + (1 - k) ** 2 / precision
