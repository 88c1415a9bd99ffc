"""Who beats whom: the noise, the radius, the examples a parameter or the lam at which two estimators are equally good.

In the letters of `apiece.theory.asymptotics`. The closed forms are for the identity covariance and infinitely many
clients; `crossover` searches for any covariance. Where there is no crossing the answer is nan.
"""

from typing import Any

import numpy as np
from scipy import optimize

from apiece.errors import UserError, suggest
from apiece.theory import plain
from apiece.theory.asymptotics import IDENTITY, Spectrum, best_lam, best_risk, ridge, ridgeless, risks
from apiece.theory.domain import above_zero, from_zero
from apiece.theory.spectrum import ratio

QUANTITIES = ("gamma", "ridge", "radius", "noise", "norm")


def tuning_pays_from_gamma(radius: Any, noise: Any) -> Any:
    """The gamma above which FTFA beats FedAvg: r^2 / (r^2 - sigma^2); nan if the noise is at least the radius.

    >>> round(tuning_pays_from_gamma(1.0, 0.5), 6)
    1.333333
    """
    radius, noise = from_zero(radius=radius, noise=noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        return plain(np.where(noise < radius, radius**2 / (radius**2 - noise**2), np.nan))


def tuning_pays_from_radius(gamma: Any, noise: Any) -> Any:
    """The radius above which FTFA beats FedAvg: sigma sqrt(gamma / (gamma - 1)).

    >>> round(tuning_pays_from_radius(2.0, 1.0), 6)
    1.414214
    """
    gamma, (noise,) = ratio(gamma), from_zero(noise=noise)
    return plain(noise * np.sqrt(gamma / (gamma - 1)))


def best_gamma(radius: Any, noise: Any) -> Any:
    """The gamma at which FTFA's risk is least, r / (r - sigma), where it is sigma (2 r - sigma) = r^2 - (r - sigma)^2.

    The risk falls from infinity at gamma = 1 to there, then rises towards r^2. If the noise is at least the radius it
    falls towards r^2 all the way: infinite. There is no worst gamma but 1.

    >>> best_gamma(1.0, 0.5), best_gamma(1.0, 2.0)
    (2.0, inf)
    """
    radius, noise = from_zero(radius=radius, noise=noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Without noise the risk rises all the way from gamma = 1.
        return plain(np.where(noise < radius, radius / (radius - noise), np.inf))


def local_pays_below(gamma: Any, radius: Any, norm: Any) -> Any:
    """The noise below which interpolating alone beats FedAvg: sigma^2 = (gamma - 1) [r^2 - rho^2 (1 - 1/gamma)].

    nan where FedAvg wins without any noise: rho^2 > r^2 gamma / (gamma - 1).

    >>> round(local_pays_below(1.25, 1.0, 2**0.5), 6)
    0.387298
    """
    gamma, (radius, norm) = ratio(gamma), from_zero(radius=radius, norm=norm)
    square = (gamma - 1) * (radius**2 - norm**2 * (1 - 1 / gamma))
    return plain(np.sqrt(np.where(square >= 0, square, np.nan)))


def local_pays_from_radius(gamma: Any, noise: Any, norm: Any, tuned: bool = False) -> Any:
    """The radius above which training alone beats FedAvg, rho being given: the root of its risk.

    sqrt(rho^2 (1 - 1/gamma) + sigma^2 / (gamma - 1)); `tuned`: with a ridge at its best lam. It may exceed rho, which
    is possible when the centre is far from zero.

    >>> round(local_pays_from_radius(2.0, 0.5, 1.0), 6), round(local_pays_from_radius(2.0, 0.5, 1.0, tuned=True), 6)
    (0.866025, 0.800243)
    """
    alone = best_risk(gamma, norm, noise) if tuned else ridgeless(gamma, norm, noise).total
    return plain(np.sqrt(alone))


def ridge_pays_from_noise(gamma: Any, lam: Any, radius: Any, spectrum: Spectrum = IDENTITY) -> Any:
    """The noise above which RTFA with this lam beats FTFA: r^2 dB / dV, its more of bias for its less of variance.

    sigma^2 = r^2 [B(lam) - B(0)] / [V(0) - V(lam)] with B, V at r = sigma = 1; any covariance. 0 where even the bias
    is less.

    >>> round(ridge_pays_from_noise(2.0, 2.0, 1.0), 6)
    0.441808
    """
    (radius,) = from_zero(radius=radius)
    tuned, plainly = ridge(gamma, lam, 1.0, 1.0, spectrum), ridgeless(gamma, 1.0, 1.0, spectrum)
    paid = np.maximum(tuned.bias - plainly.bias, 0)
    return plain(radius * np.sqrt(paid / (plainly.variance - tuned.variance)))


def ridge_pays_below_lam(gamma: Any, radius: Any, noise: Any) -> Any:
    """The lam below which RTFA beats FTFA; infinite when FTFA does not beat FedAvg.

    With t = 1 + gamma + lam the risk is a constant and (alpha t - 2 r^2) / sqrt(t^2 - 4 gamma), where
    alpha = r^2 (1 + gamma)/(2 gamma) + sigma^2/2; k its value at lam = 0. Two t share it:
    lam = 4 alpha r^2 / (alpha^2 - k^2) - 2 (1 + gamma) if k < alpha.

    >>> round(ridge_pays_below_lam(2.0, 1.0, 0.5), 6)
    3.333333
    """
    gamma, (radius, noise) = ratio(gamma), from_zero(radius=radius, noise=noise)
    r2 = radius**2
    alpha = r2 * (1 + gamma) / (2 * gamma) + noise**2 / 2
    k = (alpha * (1 + gamma) - 2 * r2) / (gamma - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        lam = 4 * alpha * r2 / (alpha**2 - k**2) - 2 * (1 + gamma)
    return plain(np.where(k < alpha, np.maximum(lam, 0), np.inf))


def worth_of_the_centre(gamma: Any, radius: Any, noise: Any) -> Any:
    """C = dR*/d(r^2) > 0: RTFA at its best beats ridge alone at its best by about C (rho^2 - r^2), if rho > r.

    = B/r^2 at lam* = lam*^2 m'(-lam*), for the risk is stationary in lam there. R* is concave in r^2, so the advantage
    lies between C (rho^2 - r^2) with C at rho and with C at r.

    >>> round(worth_of_the_centre(2.0, 1.0, 1.0), 6)
    0.674437
    """
    radius, noise = above_zero(radius=radius, noise=noise)
    return ridge(gamma, best_lam(gamma, radius, noise), 1.0, 0.0).bias


def crossover(
    first: str, second: str, over: str, between: tuple[float, float], spectrum: Spectrum = IDENTITY, **given: Any
) -> Any:
    """Where two of the estimators of `risks` are equally good, for any covariance: the least such value, or nan.

    `over` is one of gamma, ridge, radius, noise and norm, and is sought `between` two values, both above 0; the other
    four are given, as numbers or arrays. Leave `ridge` out for lam*.

    >>> round(crossover("ftfa", "fed_avg", "noise", (0.01, 10), gamma=2.0, radius=1.0, norm=1.5), 6)
    0.707107
    """
    given = {name: value for name, value in given.items() if value is not None}
    names = ("fed_avg", "ftfa", "rtfa", "maml_fl", "pfedme", "local", "local_ridge")
    for word, known in ((first, names), (second, names), (over, QUANTITIES)):
        if word not in known:
            raise UserError(f"crossover: '{word}' is not known; {suggest(word, known)}")
    missing = {name for name in QUANTITIES if name not in given} - {over, "ridge"}
    if missing or over in given or not set(given) <= set(QUANTITIES):
        raise UserError(f"crossover over {over}: give the other of gamma, radius, noise, norm and perhaps ridge")
    low, high = between
    if not 0 < low < high < np.inf:
        raise UserError(f"crossover: between which two values above 0, the smaller first? got {between}")

    # The best lam may have to be searched for: not when nobody asks.
    unasked = None if {first, second} & {"rtfa", "pfedme", "local_ridge"} else 1.0

    def one(*values: float) -> float:
        fixed = {"ridge": unasked} | dict(zip(given, values, strict=True))

        def gap(log: Any) -> Any:
            found = risks(**(fixed | {over: np.exp(log)}), spectrum=spectrum)
            return found[first].total - found[second].total

        grid = np.linspace(np.log(low), np.log(high), 65)
        sign = np.sign(gap(grid) + np.zeros(len(grid)))  # a risk that does not depend on `over` is one number
        turns = np.flatnonzero(sign[:-1] * sign[1:] <= 0)
        if not len(turns) or (sign == 0).all():
            return np.nan
        at = turns[0]
        if sign[at] == 0:
            return float(np.exp(grid[at]))
        return float(np.exp(optimize.brentq(gap, grid[at], grid[at + 1], xtol=1e-14)))

    return plain(np.vectorize(one, otypes=[float])(*given.values()))
