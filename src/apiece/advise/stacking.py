"""What follows from the sums that clients tell of their held-out examples: scores, kappa, means, spreads. In NumPy.

A *predictor* is one of the chosen candidates, or their mixture by one kappa; `Told` has them in that order.
"""

import numpy as np

from apiece.advise.weigh import KAPPAS, WIDTH, Told

FEWEST = 8  # clients for whom weights of their own can be judged
CUT = 0.95  # client means above this quantile count as much as it: one tiny client must not decide


def client_means(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[clients, ...]: sums divided by the number of examples; NaN for clients that have none.

    >>> client_means(np.array([6.0, 0.0]), np.array([3, 0])).tolist()
    [2.0, nan]
    """
    shape = (-1, *[1] * (np.ndim(sums) - 1))
    return np.asarray(sums, np.float64) / np.where(count > 0, count, np.nan).reshape(shape)


def variance_of(told: Told, classes: int, outputs: int = 1) -> np.ndarray:
    """[2]: the pooled squared error of the best candidate, of models on three quarters and on half of the data."""
    if classes:
        return np.ones(2)
    count = np.maximum(told.count.sum(axis=0, dtype=np.float64), 1)
    return np.maximum((told.every.sum(axis=0, dtype=np.float64) / count[:, None] / outputs).min(axis=1), 1e-12)


def pooled_scores(told: Told, classes: int, outputs: int = 1) -> np.ndarray:
    """[candidates]: the mean over clients of their mean loss, large ones cut; every client weighs the same.

    Numbers have a normal density, with the pooled squared error of the best candidate as variance.
    """
    means = client_means(told.every[:, 0], told.count[:, 0])
    if not classes:
        variance = variance_of(told, classes, outputs)[0]
        means = means / (2 * variance) + outputs * np.log(2 * np.pi * variance) / 2
    means = means[np.isfinite(means).all(axis=1)]
    if len(means) >= 20:
        means = np.minimum(means, np.quantile(means, CUT, axis=0))
    return means.mean(axis=0)


def choose_kappa(told: Told) -> float:
    """How strongly clients' weights are shrunken: by the likelihood of halves that the weights have not seen."""
    if len(told.count) < FEWEST:
        return float("inf")
    return KAPPAS[int(np.argmin(np.nanmean(client_means(told.loss[:, 0, WIDTH:], told.count[:, 0]), axis=0)))]


def mixture_of(kappa: float) -> int:
    """Which predictor the mixture of this kappa is."""
    return WIDTH + KAPPAS.index(kappa)


def paired(sums: np.ndarray, cross: np.ndarray, one: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    """([clients] sums of the differences between two predictors, sums of their squares), on the same examples."""
    total = np.asarray(sums[:, 0, one], np.float64) - sums[:, 0, other]
    square = np.asarray(cross[:, one, one], np.float64) - 2.0 * cross[:, one, other] + cross[:, other, other]
    return total, np.maximum(square, 0)
