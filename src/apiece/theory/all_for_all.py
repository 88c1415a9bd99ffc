"""All-for-one and All-for-all: who learns from whom, how many samples that saves, at which step and with what bias.

b_ij bounds what client i loses with j's optimum; a precision eps keeps the N_i clients with b_ij <= eps/2 (oneself
always), and lambda_ij = 1/N_i on them. Setting 1: convex losses, |gradients| <= B, |x - x*| <= D, one uniform client a
step, mean iterate. Setting 2: L-smooth, mu-strongly convex, gradients of variance sigma^2, everybody a step. After
Even, Massoulié and Scaman 2022; where the published formulas are misprinted, the corrected ones stand here.
"""

from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError


class Sharing(NamedTuple):
    """What a filter amounts to. neighbours: N_i. loneliness: S = sum_i 1/N_i. largest: lambda_max(Lambda Lambda').

    bias: the mean over clients of sum_j lambda_ij b_ij. speedup: N / S, the harmonic mean of the N_i: how many times
    fewer samples than alone. mixing: W = Lambda Lambda'.
    """

    neighbours: np.ndarray
    loneliness: float
    largest: float
    bias: float
    speedup: float
    mixing: np.ndarray


def sharing(b: Any, eps: float) -> Sharing:
    """The filter of a matrix b at precision eps, and its numbers.

    >>> together = sharing([[0.0, 0.1], [0.1, 0.0]], eps=1.0)
    >>> together.neighbours.tolist(), together.speedup, round(together.bias, 3)
    ([2, 2], 2.0, 0.05)
    """
    b = np.asarray(b, float)
    if b.ndim != 2 or b.shape[0] != b.shape[1] or (b < 0).any():
        raise UserError(f"b is a square matrix of numbers from 0, a row and a column for each client, not {b.shape}")
    if not eps > 0:
        raise UserError(f"the precision eps must be above 0; got {eps}")
    near = (b <= eps / 2) | np.eye(len(b), dtype=bool)
    share = near / near.sum(axis=1, keepdims=True)
    lonely = float(np.sum(share**2))
    largest = float(np.linalg.eigvalsh(share @ share.T)[-1])
    bias = float(np.sum(share * np.where(near, b, 0)) / len(b))
    return Sharing(near.sum(axis=1), lonely, largest, bias, len(b) / lonely, share @ share.T)


def steps_needed(shared: Sharing, eps: float, *, bound: float = 1.0, distance: float = 1.0) -> float:
    """Setting 1: K = 4 D^2 B^2 S / eps^2 steps of one client each bring the mean error of all to eps (plus bias).

    >>> steps_needed(sharing([[0.0]], 0.02), 0.02)
    10000.0
    """
    return 4 * distance**2 * bound**2 * shared.loneliness / eps**2


def phase_step(shared: Sharing, eps: float, *, bound: float = 1.0) -> float:
    """Setting 1, the step of a phase of precision eps: N eps / (2 B^2 S). (The repaired printed one is sqrt(2) larger.)

    >>> phase_step(sharing([[0.0]], 0.02), 0.02)
    0.01
    """
    return len(shared.neighbours) * eps / (2 * bound**2 * shared.loneliness)


def steady_step(shared: Sharing, eps: float, *, smoothness: float, convexity: float, noise: float) -> float:
    """Setting 2: min{1 / (2 L lambda_max), mu eps N / (2 L sigma^2 S)}; `noise` is the variance sigma^2.

    Without lambda_max, which reaches N/4, the method can diverge.

    >>> steady_step(sharing([[0.0]], 0.02), 0.02, smoothness=1.0, convexity=1.0, noise=0.25)
    0.04
    """
    clients = len(shared.neighbours)
    quiet = convexity * eps * clients / (2 * smoothness * noise * shared.loneliness)
    return min(1 / (2 * smoothness * shared.largest), quiet)


def mixture_bound(
    mixture: Any, b_row: Any, steps: float, *, bound: float = 1.0, distance: float = 1.0
) -> tuple[float, float]:
    """All-for-one, setting 1: (error bound, the step that gives it), for a probability vector over the clients.

    D B sqrt(N sum lambda^2 / K) + sum_j lambda_j b_j, with the step D / (B sqrt(K N sum lambda^2)). The printed bound
    lacks N.

    >>> error, step = mixture_bound([0.5, 0.5], [0.0, 0.1], 100)
    >>> round(error, 3), round(step, 3)
    (0.15, 0.1)
    """
    share, row = np.asarray(mixture, float), np.asarray(b_row, float)
    if share.shape != row.shape or (share < 0).any() or abs(share.sum() - 1) > 1e-9:
        raise UserError("a mixture has a probability for each client of the row of b, and they sum to 1")
    spread = len(share) * np.sum(share**2)
    error = distance * bound * np.sqrt(spread / steps) + np.sum(share * np.where(share > 0, row, 0))
    return float(error), float(distance / (bound * np.sqrt(steps * spread)))
