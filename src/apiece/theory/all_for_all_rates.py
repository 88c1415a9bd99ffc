"""How fast All-for-one and All-for-all converge: error bounds, times to a precision, and a lower bound.

In the letters of `apiece.theory.all_for_all`: N clients, b_ij, the filter lambda_ij of a precision, S = sum_ij
lambda_ij^2 = sum_i 1/N_i; L-smooth, mu-strongly convex losses, kappa = L/mu, gradients of variance sigma^2 (`noise`);
F0 the mean excess at the start (`start`). N_i(2b): how many clients have 2 b_ij <= eps. After Even, Massoulié and
Scaman 2022; where the published formula is misprinted, the corrected one stands here, and the text says so.
"""

from typing import Any

import numpy as np

from apiece.errors import UserError
from apiece.theory import plain
from apiece.theory.all_for_all import Sharing, _near, _precision, _unlike
from apiece.theory.domain import above_zero, curvatures, from_zero


def curved_bound(
    shared: Sharing, steps: Any, *, smoothness: Any, convexity: Any, noise: Any, start: Any
) -> tuple[Any, Any]:
    """Theorem 3.b, setting 2, everybody a step: (bound on the mean excess after `steps` rounds, the step for it).

    step = min{1/(2 L l), max(ln(N F0 mu^2 K / (L sigma^2 S)), 1) / (mu K)} for the update with W and no 1/N,
    l = lambda_max(W). Bound: F0 e^(-mu K / (2 L l)) + (L sigma^2 S / (mu^2 N K)) max(ln(...), 1) + bias. (Printed
    e^(-kappa/(2L)), in which neither the rounds nor l stand; the logarithm stands for the O~.)

    >>> from apiece.theory.all_for_all import sharing
    >>> error, step = curved_bound(sharing([[0.0]], 1.0), 100, smoothness=1.0, convexity=1.0, noise=0.25, start=1.0)
    >>> round(error, 4), round(step, 4)
    (0.015, 0.0599)
    """
    (L, mu), (noise, start) = curvatures(smoothness, convexity), from_zero(noise=noise, start=start)
    (steps,) = above_zero(steps=steps)
    clients = shared.neighbours.shape[-1]
    quiet = L * noise * shared.loneliness / mu**2
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.maximum(np.log(np.maximum(clients * start * steps / quiet, 1)), 1)
    log = np.where(quiet > 0, log, np.inf)
    step = np.minimum(1 / (2 * L * shared.largest), log / (mu * steps))
    left = start * np.exp(-mu * steps / (2 * L * shared.largest))
    chance = np.where(quiet > 0, quiet / (clients * steps) * np.where(quiet > 0, log, 0), 0)
    return plain(left + chance + shared.bias), plain(step)


def samples_for_all(b: Any, eps: Any, *, smoothness: Any, convexity: Any, noise: Any, start: Any) -> Any:
    """Theorem 4.2: T = 2 max{kappa sigma^2 / (eps mu) sum_i 1/N_i(2b), N kappa} ln(F0/eps), samples of all together.

    >>> samples_for_all([[0.0, 0.1], [0.1, 0.0]], 0.5, smoothness=1.0, convexity=1.0, noise=2.0, start=0.5).item()
    0.0
    """
    near, eps = _near(b, _precision(eps) / 2).sum(axis=-1), _precision(eps)
    (L, mu), (noise, start) = curvatures(smoothness, convexity), from_zero(noise=noise, start=start)
    most = np.maximum(L / mu * noise / (eps * mu) * (1 / near).sum(axis=-1), near.shape[-1] * L / mu)
    return 2 * most * np.log(np.maximum(start / eps, 1))


def mixture_bound_if_curved(
    mixture: Any,
    b_row: Any,
    steps: Any,
    *,
    smoothness: Any,
    convexity: Any,
    noise: Any,
    start: Any,
    m: Any = 0.0,
) -> Any:
    """Theorem 6.b, All-for-one in setting 2, bias in gradients (b~ = mu b, times 1 + m |gradient|^2 at most):

    2 (m + 1) kappa [F0 e^(-K/(2 kappa)) + L sigma^2 / (mu^2 K) sum_j lambda_j^2] + sum_j lambda_j b_j, the O~ with the
    constant 1. `start`: sum_j lambda_j (f_j(x0) - f_j(x_j*)).

    >>> round(mixture_bound_if_curved([0.5, 0.5], [0.0, 0.1], 100, smoothness=1, convexity=1, noise=1, start=0), 4)
    0.06
    """
    share, (row,) = np.asarray(mixture, float), from_zero(b_row=b_row)
    if share.shape != row.shape or (share < 0).any() or abs(share.sum() - 1) > 1e-9:
        raise UserError("a mixture has a probability for each client of the row of b, and they sum to 1")
    (L, mu), (noise, start, m) = curvatures(smoothness, convexity), from_zero(noise=noise, start=start, m=m)
    (steps,) = above_zero(steps=steps)
    kappa = L / mu
    forgotten = start * np.exp(-steps / (2 * kappa)) + L * noise / (mu**2 * steps) * np.sum(share**2)
    return plain(2 * (m + 1) * kappa * forgotten + np.sum(share * np.where(share > 0, row, 0)))


def samples_for_one(b: Any, eps: Any, *, smoothness: Any, convexity: Any, noise: Any, m: Any = 0.0) -> np.ndarray:
    """Theorem 7 in setting 2, up to logarithms and a constant: (m + 1) kappa^2 sigma^2 N / (mu eps N_i(2b)).

    With m <= 1/2, kappa stands for (m + 1) kappa^2. (In setting 1 it is `all_for_all.samples_needed`.)

    >>> samples_for_one([[0.0, 0.1], [0.1, 0.0]], 1.0, smoothness=2.0, convexity=1.0, noise=0.5).tolist()
    [1.0, 1.0]
    """
    near, eps = _near(b, _precision(eps) / 2).sum(axis=-1), _precision(eps)
    (L, mu), (noise, m) = curvatures(smoothness, convexity), from_zero(noise=noise, m=m)
    kappa = L / mu
    factor = np.where(m <= 0.5, kappa, (m + 1) * kappa**2)
    return (factor * noise / (mu * eps))[..., None] * near.shape[-1] / near


def flat_bound(shared: Sharing, steps: Any, *, smoothness: Any, noise: Any, distance: Any = 1.0) -> tuple[Any, Any]:
    """Theorem 8, mu = 0, everybody a step, mean iterate: (bound on the mean excess, the step that gives it).

    step = min{1/(2 L l), sqrt(N) D / (sigma sqrt(S K))}, for |x_i - x*| <= D of each client; bound
    2 L l D^2 / K + 2 D sigma sqrt(S / (K N)) + bias. (The printed step has no K in it, and the printed bound the bias
    under the root and without 1/N.)

    >>> from apiece.theory.all_for_all import sharing
    >>> error, step = flat_bound(sharing([[0.0]], 1.0), 100, smoothness=1.0, noise=1.0)
    >>> round(error, 3), round(step, 3)
    (0.22, 0.1)
    """
    (noise,), (L, steps, distance) = (
        from_zero(noise=noise),
        above_zero(smoothness=smoothness, steps=steps, distance=distance),
    )
    clients, S, largest = shared.neighbours.shape[-1], shared.loneliness, shared.largest
    with np.errstate(divide="ignore"):
        step = np.minimum(1 / (2 * L * largest), np.sqrt(clients / steps / (S * noise)) * distance)
    error = 2 * L * largest * distance**2 / steps + 2 * distance * np.sqrt(noise * S / (steps * clients)) + shared.bias
    return plain(error), plain(step)


def samples_for_all_if_flat(b: Any, eps: Any, *, smoothness: Any, noise: Any, distance: Any = 1.0) -> Any:
    """Theorem 8: T = max{8 D^2 sigma^2 / eps^2 sum_i 1/N_i(2b), 4 N L D^2 / eps}, samples of all together.

    >>> samples_for_all_if_flat([[0.0]], 1.0, smoothness=1.0, noise=1.0).item()
    8.0
    """
    near, eps = _near(b, _precision(eps) / 2).sum(axis=-1), _precision(eps)
    (noise,), (L, distance) = from_zero(noise=noise), above_zero(smoothness=smoothness, distance=distance)
    chance = 8 * distance**2 * noise / eps**2 * (1 / near).sum(axis=-1)
    return np.maximum(chance, 4 * near.shape[-1] * L * distance**2 / eps)


def fewest_samples_for_all(b: Any, eps: Any, *, bound: Any = 1.0, distance: Any = 1.0) -> Any:
    """Corollary 1, setting 1, up to an unknown constant: r^2 B^2 / (N^2 eps^2) sum_i 1/N_i(b / (4N)), b a metric.

    N_i(b/(4N)) = #{j: b_ij <= 4 N eps}: far more generous than the filter, so that the bound is far from what any
    method reaches (the statement divides by N^2 where the upper bound has none).

    >>> fewest_samples_for_all([[0.0, 1.0], [1.0, 0.0]], eps=0.05).item()
    200.0
    """
    clients = len(_unlike(b))
    near, eps = _near(b, 4 * clients * _precision(eps)).sum(axis=-1), _precision(eps)
    bound, distance = above_zero(bound=bound, distance=distance)
    return (distance * bound / (clients * eps)) ** 2 * (1 / near).sum(axis=-1)
