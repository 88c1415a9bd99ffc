"""FFGG's constants: how large a step may be when replies are exact, inexact, late or forged, and how much inner work.

L is the smoothness of min_w f_m(theta, w), the same for all clients; theta the shared part, w the private one. All
arguments may be arrays and broadcast. Where the published conditions are misprinted, the corrected ones stand here.
"""

from typing import Any

import numpy as np

from apiece.errors import UserError
from apiece.theory import plain


def gradient_bound(smoothness: Any, distance: Any, rounds: Any, step: Any = None) -> Any:
    """The least E|F|^2 of so many rounds with exact inner solves is at most L |theta_0 - theta*|^2 / (step R).

    For a step of at most 1/L, which is the default; needs an optimum theta* that all clients share.

    >>> gradient_bound(2.0, 3.0, 100)
    0.36
    """
    _above_zero(smoothness=smoothness, rounds=rounds)
    step = 1 / np.asarray(smoothness, float) if step is None else np.asarray(step, float)
    if (step * smoothness > 1 + 1e-12).any() or (step <= 0).any():
        raise UserError("the bound holds for steps above 0 and at most at 1/L")
    return plain(smoothness * np.asarray(distance, float) ** 2 / (step * rounds))


def late_step(smoothness: Any, active: Any, delay: Any) -> Any:
    """1 / (2 L sqrt(2 A d)): the proved step with A clients at work and replies up to d server versions late.

    Far too careful: with 8 clients at work and delays up to 95, where it is 0.0128, a step of 0.1 converged.

    >>> round(late_step(1.0, 8, 10), 6)
    0.039528
    """
    _above_zero(smoothness=smoothness, active=active, delay=delay)
    return plain(1 / (2 * np.asarray(smoothness, float) * np.sqrt(2.0 * np.asarray(active) * np.asarray(delay))))


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
    _above_zero(smoothness=smoothness, private_smoothness=private_smoothness, private_convexity=private_convexity,
                coupling=coupling, rounds=rounds, distance=distance, growth=growth, offset=offset)  # fmt: skip
    a = 2 * np.asarray(coupling, float) * growth / smoothness
    b = 2 * np.asarray(coupling, float) * offset / smoothness
    most = np.maximum(2 * np.log(a * rounds), 2 * np.log(b * rounds / distance))
    most = np.maximum(most, np.log(b**2 * rounds / np.asarray(distance, float) ** 2))
    return plain(np.asarray(private_smoothness, float) / private_convexity * most)


def byzantine_share(
    convexity: Any, smoothness: Any, similarity: Any, honest: Any, *, growth: Any = 1.0, rule: Any = 1.0
) -> Any:
    """The largest share of Byzantine clients that is proved to be withstood (bucketing with Krum, median, RFA).

    mu / (8 c [(rho + 1/(G - 1)) l + (rho - 1) L]): c is the `rule`'s constant, G the number of honest clients, l how
    unlike their gradients grow (`similarity`), rho (`growth`) the factor of unbiased noise. The printed 2c is wrong.

    >>> round(byzantine_share(0.5, 1.5, 1.5, 16), 6)
    0.039062
    """
    return plain(np.asarray(convexity, float) / (8 * rule * _unlike(smoothness, similarity, honest, growth)))


def byzantine_step(
    smoothness: Any, similarity: Any, honest: Any, share: Any, *, growth: Any = 1.0, rule: Any = 1.0
) -> Any:
    """The proved step with such a share delta of Byzantine clients; the rate is then 1 - step mu / 2.

    1 / (4 [(rho - 1) (L + l)/G + L + 2 c delta ((rho + 1/(G - 1)) l + (rho - 1) L)]).

    >>> round(byzantine_step(1.5, 1.5, 16, 0.2), 6)
    0.116822
    """
    unlike = _unlike(smoothness, similarity, honest, growth)
    noise = (np.asarray(growth, float) - 1) * (np.asarray(smoothness, float) + similarity) / honest
    return plain(1 / (4 * (noise + smoothness + 2 * rule * np.asarray(share, float) * unlike)))


def _unlike(smoothness: Any, similarity: Any, honest: Any, growth: Any) -> Any:
    _above_zero(smoothness=smoothness, similarity=similarity)
    honest, growth = np.asarray(honest, float), np.asarray(growth, float)
    if (honest < 2).any():
        raise UserError("there must be at least two honest clients")
    if (growth < 1).any():
        raise UserError("growth, the factor rho of the noise, is at least 1 (exact replies: 1)")
    return (growth + 1 / (honest - 1)) * similarity + (growth - 1) * smoothness


def _above_zero(**values: Any) -> None:
    for name, value in values.items():
        if not (np.asarray(value, float) > 0).all():
            raise UserError(f"{name} must be above 0; got {value}")
