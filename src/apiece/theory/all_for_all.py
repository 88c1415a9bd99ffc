"""All-for-one and All-for-all: who learns from whom, how many samples that saves, at which step and with what bias.

b_ij bounds what client i loses with j's optimum; a precision eps keeps the N_i clients with b_ij <= eps/2 (oneself
always), and lambda_ij = 1/N_i on them. Setting 1: convex losses, |gradients| <= B, |x - x*| <= D, one uniform client a
step, mean iterate. Setting 2: L-smooth, mu-strongly convex, gradients of variance sigma^2, everybody a step. After
Even, Massoulié and Scaman 2022; where the published formulas are misprinted, the corrected ones stand here.
"""

from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.theory import formulas, plain
from apiece.theory.domain import above_zero, curvatures, from_zero


class Sharing(NamedTuple):
    """What a filter amounts to. neighbours: N_i. loneliness: S = sum_i 1/N_i. largest: lambda_max(Lambda Lambda').

    bias: the mean over clients of sum_j lambda_ij b_ij. speedup: N / S, the harmonic mean of the N_i: how many times
    fewer samples than alone. mixing: W = Lambda Lambda'. With an array of precisions, all have its axes in front.
    """

    neighbours: np.ndarray
    loneliness: Any
    largest: Any
    bias: Any
    speedup: Any
    mixing: np.ndarray


def sharing(b: Any, eps: Any) -> Sharing:
    """The filter of a matrix b at precision eps (or at each of an array of them), and its numbers.

    >>> together = sharing([[0.0, 0.1], [0.1, 0.0]], eps=1.0)
    >>> together.neighbours.tolist(), together.speedup, round(together.bias, 3)
    ([2, 2], 2.0, 0.05)
    """
    b = _unlike(b)
    share = formulas.neighbours(b, _precision(eps)[..., None, None], np.eye(len(b), dtype=bool))
    near = share > 0
    count, mixing, lonely = near.sum(axis=-1), formulas.mixing(share), formulas.loneliness(share)
    bias = np.sum(share * np.where(near, b, 0), axis=(-1, -2)) / len(b)
    largest = np.linalg.eigvalsh(mixing)[..., -1]
    return Sharing(count, plain(lonely), plain(largest), plain(bias), plain(len(b) / lonely), mixing)


def steps_needed(shared: Sharing, eps: Any, *, bound: Any = 1.0, distance: Any = 1.0) -> Any:
    """Setting 1: K = 4 D^2 B^2 S / eps^2 steps of one client each bring the mean error of all to eps (plus bias).

    >>> steps_needed(sharing([[0.0]], 0.02), 0.02)
    10000.0
    """
    eps, (bound, distance) = _precision(eps), above_zero(bound=bound, distance=distance)
    return plain(formulas.phase_length(shared.loneliness, eps, bound, distance))


def phase_step(shared: Sharing, eps: Any, *, bound: Any = 1.0) -> Any:
    """Setting 1, the step of a phase of precision eps: N eps / (2 B^2 S). (The repaired printed one is sqrt(2) larger.)

    >>> phase_step(sharing([[0.0]], 0.02), 0.02)
    0.01
    """
    eps, (bound,) = _precision(eps), above_zero(bound=bound)
    return plain(formulas.phase_step(shared.loneliness, shared.neighbours.shape[-1], eps, bound))


def steady_step(shared: Sharing, eps: Any, *, smoothness: Any, convexity: Any, noise: Any) -> Any:
    """Setting 2: min{1 / (2 L lambda_max), mu eps N / (2 L sigma^2 S)}; `noise` is the variance sigma^2.

    Without lambda_max, which reaches N/4, the method can diverge.

    >>> steady_step(sharing([[0.0]], 0.02), 0.02, smoothness=1.0, convexity=1.0, noise=0.25)
    0.04
    """
    eps, (L, mu), (noise,) = _precision(eps), curvatures(smoothness, convexity), from_zero(noise=noise)
    with np.errstate(divide="ignore"):
        known = shared.neighbours.shape[-1], eps, L, mu, noise
        return plain(formulas.steady_step(shared.largest, shared.loneliness, *known))


def mixture_bound(mixture: Any, b_row: Any, steps: Any, *, bound: Any = 1.0, distance: Any = 1.0) -> tuple[Any, Any]:
    """All-for-one, setting 1: (error bound, the step that gives it), for a probability vector over the clients.

    D B sqrt(N sum lambda^2 / K) + sum_j lambda_j b_j, with the step D / (B sqrt(K N sum lambda^2)). The printed bound
    lacks N.

    >>> error, step = mixture_bound([0.5, 0.5], [0.0, 0.1], 100)
    >>> round(error, 3), round(step, 3)
    (0.15, 0.1)
    """
    share, (row,) = np.asarray(mixture, float), from_zero(b_row=b_row)
    if share.shape != row.shape or (share < 0).any() or abs(share.sum() - 1) > 1e-9:
        raise UserError("a mixture has a probability for each client of the row of b, and they sum to 1")
    steps, bound, distance = above_zero(steps=steps, bound=bound, distance=distance)
    spread = len(share) * np.sum(share**2)
    error = distance * bound * np.sqrt(spread / steps) + np.sum(share * np.where(share > 0, row, 0))
    return plain(error), plain(distance / (bound * np.sqrt(steps * spread)))


def samples_needed(b: Any, eps: Any, *, bound: Any = 1.0, distance: Any = 1.0) -> np.ndarray:
    """All-for-one, setting 1: T_i = 4 D^2 B^2 N / (eps^2 N_i), the samples drawn in all until client i's error is eps.

    Client i's own share of them is T_i / N. Alone N_i = 1.

    >>> samples_needed([[0.0, 0.1], [0.1, 0.0]], eps=1.0).tolist()
    [4.0, 4.0]
    """
    near, eps = _near(b, _precision(eps) / 2).sum(axis=-1), _precision(eps)
    bound, distance = above_zero(bound=bound, distance=distance)
    return 4 * (distance * bound / eps)[..., None] ** 2 * near.shape[-1] / near


def samples_needed_if_curved(b: Any, eps: Any, *, smoothness: Any, convexity: Any, noise: Any) -> np.ndarray:
    """All-for-one, setting 2, up to a constant and logarithms: T_i ~ L sigma^2 N / (mu^2 eps N_i).

    >>> samples_needed_if_curved([[0.0, 0.1], [0.1, 0.0]], eps=1.0, smoothness=1.0, convexity=1.0, noise=0.25).tolist()
    [0.25, 0.25]
    """
    near, eps = _near(b, _precision(eps) / 2).sum(axis=-1), _precision(eps)
    (L, mu), (noise,) = curvatures(smoothness, convexity), above_zero(noise=noise)
    return (L * noise / (mu**2 * eps))[..., None] * near.shape[-1] / near


def fewest_samples(b: Any, eps: Any, *, bound: Any = 1.0, distance: Any = 1.0) -> np.ndarray:
    """Setting 1, up to an unknown constant: no method needs fewer than r^2 B^2 N / (eps^2 N_i'), r = `distance`.

    N_i' = #{j: b_ij <= 4 eps}: eight times as generous as the filter, so that the filter is within a constant of the
    best whenever N_i does not jump in between.

    >>> fewest_samples([[0.0, 1.0], [1.0, 0.0]], eps=0.5).tolist()
    [4.0, 4.0]
    """
    near, eps = _near(b, 4 * _precision(eps)).sum(axis=-1), _precision(eps)
    bound, distance = above_zero(bound=bound, distance=distance)
    return (distance * bound / eps)[..., None] ** 2 * near.shape[-1] / near


def fewest_samples_if_curved(b: Any, eps: Any, *, noise: Any, distance: Any = 1.0) -> np.ndarray:
    """Setting 2, up to an unknown constant: r^2 sigma^2 N / (eps N_i'), N_i' = #{j: b_ij <= 4 eps}.

    >>> fewest_samples_if_curved([[0.0, 1.0], [1.0, 0.0]], eps=0.5, noise=0.25).tolist()
    [0.5, 0.5]
    """
    near, eps = _near(b, 4 * _precision(eps)).sum(axis=-1), _precision(eps)
    noise, distance = above_zero(noise=noise, distance=distance)
    return (distance**2 * noise / eps)[..., None] * near.shape[-1] / near


def continuum(eps: Any, density: Any, dimension: Any, power: Any, *, bound: Any = 1.0, distance: Any = 1.0) -> Any:
    """Setting 1, up to a constant, for endlessly many clients: T(theta) = B^2 D^2 eps^(-2 - p/q) / nu(theta).

    Clients have a parameter theta in p dimensions, of density nu, and b = |theta - theta'|^q: the part eps^(p/q) nu of
    them is near. (Printed once with nu in the numerator.)

    >>> continuum(0.5, density=2.0, dimension=2, power=2)
    4.0
    """
    eps, (nu, p, q) = _precision(eps), above_zero(density=density, dimension=dimension, power=power)
    bound, distance = above_zero(bound=bound, distance=distance)
    return plain((bound * distance) ** 2 * eps ** (-2 - p / q) / nu)


class Phase(NamedTuple):
    """A phase of the time-adaptive method: until this precision, with S of its filter, so many steps of this size."""

    eps: float
    loneliness: float
    steps: int
    step: float


def phases(b: Any, first: float, count: int, *, bound: float = 1.0, distance: float = 1.0) -> list[Phase]:
    """Setting 1: eps_q = first / 2^q, each with K_q = 4 D^2 B^2 S_q / eps_q^2 steps of size N eps_q / (2 B^2 S_q).

    The models are kept from phase to phase; the graph gets finer.

    >>> [tuple(phase) for phase in phases([[0.0, 0.2], [0.2, 0.0]], 0.5, 2)]
    [(0.5, 1.0, 16, 0.5), (0.25, 2.0, 128, 0.125)]
    """
    filters = _halving(b, first, count)
    needed = [steps_needed(shared, eps, bound=bound, distance=distance) for eps, shared in filters]
    return [
        Phase(eps, shared.loneliness, int(np.ceil(steps - 1e-9)), phase_step(shared, eps, bound=bound))
        for (eps, shared), steps in zip(filters, needed, strict=True)
    ]


def phases_if_curved(
    b: Any, first: float, count: int, *, smoothness: float, convexity: float, noise: float
) -> list[Phase]:
    """Setting 2: eps_q = first / 2^q, the step of `steady_step`, K_q = ceil(ln 4 / (mu step_q)).

    The steps shrink what the phase before left, 2 eps_q, by four; the other half of eps_q is for the noise.

    >>> [tuple(phase) for phase in phases_if_curved([[0.0]], 0.5, 2, smoothness=1.0, convexity=1.0, noise=0.25)]
    [(0.5, 1.0, 3, 0.5), (0.25, 1.0, 3, 0.5)]
    """
    found = []
    for eps, shared in _halving(b, first, count):
        step = steady_step(shared, eps, smoothness=smoothness, convexity=convexity, noise=noise)
        found.append(Phase(eps, shared.loneliness, int(formulas.steps_to_a_quarter(convexity, step)), step))
    return found


def _halving(b: Any, first: float, count: int) -> list[tuple[float, Sharing]]:
    if count < 1:
        raise UserError(f"there is at least one phase; got count = {count}")
    return [(eps, sharing(b, eps)) for eps in (float(first) / 2**q for q in range(count))]


def _near(b: Any, most: Any) -> np.ndarray:
    b = _unlike(b)
    return (b <= np.asarray(most)[..., None, None]) | np.eye(len(b), dtype=bool)


def _unlike(b: Any) -> np.ndarray:
    b = np.asarray(b, float)
    if b.ndim != 2 or b.shape[0] != b.shape[1] or not (b >= 0).all():
        raise UserError(f"b is a square matrix of numbers from 0, a row and a column for each client, not {b.shape}")
    return b


def _precision(eps: Any) -> np.ndarray:
    found = np.asarray(eps, float)
    if not (found > 0).all():
        raise UserError(f"the precision eps must be above 0; got {eps}")
    return found
