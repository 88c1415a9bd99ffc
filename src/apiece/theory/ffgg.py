"""FFGG's constants: how large a step may be when replies are exact, inexact, late or forged, and how much inner work.

L is the smoothness of min_w f_m(theta, w), the same for all clients; theta the shared part, w the private one. All
arguments may be arrays and broadcast. Where the published conditions are misprinted, the corrected ones stand here.
"""

from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.theory import plain
from apiece.theory.domain import above_zero, curvatures, from_zero


def gradient_bound(smoothness: Any, distance: Any, rounds: Any, step: Any = None) -> Any:
    """The least E|F|^2 of so many rounds with exact inner solves is at most L |theta_0 - theta*|^2 / (step R).

    For a step of at most 1/L, which is the default; needs an optimum theta* that all clients share.

    >>> gradient_bound(2.0, 3.0, 100)
    0.36
    """
    (L, rounds), (distance,) = above_zero(smoothness=smoothness, rounds=rounds), from_zero(distance=distance)
    step = 1 / L if step is None else np.asarray(step, float)
    if (step * L > 1 + 1e-12).any() or not (step > 0).all():
        raise UserError("the bound holds for steps above 0 and at most at 1/L")
    return plain(L * distance**2 / (step * rounds))


def inexact_step(smoothness: Any) -> Any:
    """1/(2 L): the proved step when the inner problems are solved by `inner_steps` gradient steps only.

    The theorem prints 1/L; its proof needs half of that.

    >>> inexact_step(2.0)
    0.25
    """
    (L,) = above_zero(smoothness=smoothness)
    return plain(1 / (2 * L))


class Smoothness(NamedTuple):
    """L of min_w f, and the paper's upper bound for it."""

    exact: Any
    bound: Any


def quadratic_smoothness(a: Any, b: Any, hessian: Any) -> Smoothness:
    """L for f(theta, w) = phi(theta) + |A theta + B w - y|^2 / 2: |phi'' + A'(I - B B^+) A|, spectral norms.

    The bound is 2 max(|phi''|, |A'(I - B B^+) A|), up to twice as large as need be and never too small. `hessian` is
    phi'', constant. Leading axes are clients; L of a federation is the largest.

    >>> quadratic_smoothness([[2.0], [1.0]], [[1.0], [0.0]], [[3.0]])
    Smoothness(exact=4.0, bound=6.0)
    """
    a, b, hessian = (np.asarray(value, float) for value in (a, b, hessian))
    if a.shape[-2] != b.shape[-2] or hessian.shape[-2:] != (a.shape[-1],) * 2:
        raise UserError("A and B have a row for each target, phi'' a row and a column for each column of A")
    left = a - b @ (np.linalg.pinv(b) @ a)
    inner = np.swapaxes(a, -1, -2) @ left
    norm = lambda matrix: np.linalg.norm(matrix, ord=2, axis=(-2, -1))
    return Smoothness(plain(norm(hessian + inner)), plain(2 * np.maximum(norm(hessian), norm(inner))))


def composed_smoothness(outer: Any, inner: Any, a: Any) -> Any:
    """L for f(theta, w) = phi(theta) + psi(A theta + B w - y), both convex: at most L_phi + L_psi |A|^2.

    `outer` is the smoothness of phi, `inner` that of psi. The paper's Example 3 prints L_phi + L_psi: with A = 10 I,
    B = 0, phi = 0 and psi = |u|^2/2 that is 1, and the truth is 100.

    >>> composed_smoothness(0.0, 1.0, [[10.0, 0.0], [0.0, 10.0]])
    100.0
    """
    (outer, inner), a = from_zero(outer=outer, inner=inner), np.asarray(a, float)
    return plain(outer + inner * np.linalg.norm(a, ord=2, axis=(-2, -1)) ** 2)


def coupled_convexity(convexity: Any, cross: Any, response: Any) -> Any:
    """How strongly monotone F_m is (Example 2): mu - C1 C2, at least mu/2 if C1 C2 <= mu/2.

    f is mu-strongly convex in theta, its mixed second derivative at most C1 (`cross`), and w*(theta) moves by at most
    C2 (`response`) for each length that theta moves.

    >>> coupled_convexity(2.0, 0.5, 1.0)
    1.5
    """
    (mu,), (cross, response) = above_zero(convexity=convexity), from_zero(cross=cross, response=response)
    if not (cross * response <= mu / 2).all():
        raise UserError("Example 2 needs C1 C2 <= mu/2: the private part answers too strongly")
    return plain(mu - cross * response)


def late_step(smoothness: Any, active: Any, delay: Any) -> Any:
    """1 / (2 L sqrt(2 A d)): the proved step with A clients at work and replies up to d server versions late.

    Far too careful: with 8 clients at work and delays up to 95, where it is 0.0128, a step of 0.1 converged.

    >>> round(late_step(1.0, 8, 10), 6)
    0.039528
    """
    L, active, delay = above_zero(smoothness=smoothness, active=active, delay=delay)
    return plain(1 / (2 * L * np.sqrt(2 * active * delay)))


def late_bound(smoothness: Any, distance: Any, replies: Any, active: Any, delay: Any, step: Any = None) -> Any:
    """The mean of E|F_m|^2 over the versions of asynchronous FFGG is at most this, after R replies (Theorem 7).

    L |theta_0 - theta*|^2 / (step R (3/2 - x - 2 A d x^2)) with x = step L, for steps up to `late_step`, the default:
    then the last factor is at least 0.89, and the rate that of `gradient_bound` at the smaller step. Needs an optimum
    that all share, and the next client drawn uniformly. (With the replies at work counted as merged, the distance to
    theta* falls in expectation by 2 step/L of E|F_m|^2 a version, but for what A replies, up to d versions late, add.)

    >>> round(late_bound(1.0, 3.0, 1000, 8, 95), 4)
    0.5672
    """
    (distance,) = from_zero(distance=distance)
    L, replies, active, delay = above_zero(smoothness=smoothness, replies=replies, active=active, delay=delay)
    most = late_step(L, active, delay)
    x = L * (most if step is None else np.asarray(step, float))
    if (x > L * most * (1 + 1e-12)).any() or not (x > 0).all():
        raise UserError("the bound holds for steps above 0 and at most at `late_step`, 1/(2 L sqrt(2 A d))")
    return plain(L**2 * distance**2 / (x * replies * (1.5 - x - 2 * active * delay * x**2)))


def inner_steps(
    smoothness: Any,
    private_smoothness: Any,
    private_convexity: Any,
    coupling: Any,
    *,
    growth: Any = 1.0,
    offset: Any = 1.0,
    rounds: Any = 1000,
    distance: Any = 1.0,
) -> Any:
    """How many inner gradient steps keep the error of inexact solves below that of R rounds (a real number).

    (L_ww / mu_w) max{2 ln(a R), 2 ln(b R / r_0), ln(b^2 R / r_0^2)}, a = 2 L_w A / L, b = 2 L_w C / L, where L_ww and
    mu_w are the smoothness and strong convexity in w, L_w (`coupling`) is how fast df/dtheta changes with w, the
    start of w is at most A |theta - theta*| + C from its optimum, and r_0 = |theta_0 - theta*|.

    >>> round(inner_steps(2.0, 5.0, 0.5, 5.0), 4)
    170.3439
    """
    L, l_w, rounds, distance = above_zero(smoothness=smoothness, coupling=coupling, rounds=rounds, distance=distance)
    growth, offset = above_zero(growth=growth, offset=offset)
    l_ww, mu_w = curvatures(private_smoothness, private_convexity)
    a, b = 2 * l_w * growth / L, 2 * l_w * offset / L
    most = np.maximum(2 * np.log(a * rounds), 2 * np.log(b * rounds / distance))
    return plain(l_ww / mu_w * np.maximum(most, np.log(b**2 * rounds / distance**2)))


def byzantine_share(
    convexity: Any, smoothness: Any, similarity: Any, honest: Any, *, growth: Any = 1.0, rule: Any = 1.0
) -> Any:
    """The largest share of Byzantine clients that is proved to be withstood (bucketing with Krum, median, RFA).

    mu / (8 c [(rho + 1/(G - 1)) l + (rho - 1) L]): c is the `rule`'s constant, G the number of honest clients, l how
    unlike their gradients grow (`similarity`), rho (`growth`) the factor of unbiased noise. The printed 2c is wrong.

    >>> round(byzantine_share(0.5, 1.5, 1.5, 16), 6)
    0.039062
    """
    L, mu = curvatures(smoothness, convexity)
    (rule,) = above_zero(rule=rule)
    return plain(mu / (8 * rule * _unlike(L, similarity, honest, growth)))


def byzantine_step(
    smoothness: Any, similarity: Any, honest: Any, share: Any, *, growth: Any = 1.0, rule: Any = 1.0
) -> Any:
    """The proved step with such a share delta of Byzantine clients; the rate is then 1 - step mu / 2.

    1 / (4 [(rho - 1) (L + l)/G + L + 2 c delta ((rho + 1/(G - 1)) l + (rho - 1) L)]).

    >>> round(byzantine_step(1.5, 1.5, 16, 0.2), 6)
    0.116822
    """
    unlike = _unlike(smoothness, similarity, honest, growth)
    L, l, rule = above_zero(smoothness=smoothness, similarity=similarity, rule=rule)
    share = np.asarray(share, float)
    if not ((share >= 0) & (share < 0.5)).all():
        raise UserError(
            f"the share of Byzantine clients is below 1/2: a majority of forgers cannot be told; got {share}"
        )
    noise = (np.asarray(growth, float) - 1) * (L + l) / honest
    return plain(1 / (4 * (noise + L + 2 * rule * share * unlike)))


def byzantine_rate(convexity: Any, smoothness: Any, step: Any) -> Any:
    """1 - step mu / 2: the factor on the squared distance to the optimum per round with such a step.

    For clients that share an optimum; otherwise up to an error that the forgers can cause.

    >>> round(byzantine_rate(0.5, 1.5, 0.116822), 6)
    0.970795
    """
    (L, mu), (step,) = curvatures(smoothness, convexity), above_zero(step=step)
    if (step * L > 0.25 + 1e-12).any():
        raise UserError("the rate is proved for steps of `byzantine_step`, which are never above 1/(4 L)")
    return plain(1 - step * mu / 2)


def _unlike(smoothness: Any, similarity: Any, honest: Any, growth: Any) -> Any:
    smoothness, similarity = above_zero(smoothness=smoothness, similarity=similarity)
    honest, growth = np.asarray(honest, float), np.asarray(growth, float)
    if not (honest >= 2).all():
        raise UserError("there must be at least two honest clients")
    if not (growth >= 1).all():
        raise UserError("growth, the factor rho of the noise, is at least 1 (exact replies: 1)")
    return (growth + 1 / (honest - 1)) * similarity + (growth - 1) * smoothness
