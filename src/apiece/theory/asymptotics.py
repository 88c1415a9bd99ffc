"""Asymptotic risks of linear estimators, when clients have fewer examples than parameters (Cheng, Chadha, Duchi 2021).

Many clients; each has n examples of d features, d / n -> gamma > 1, y = x'theta_i + noise; the error is
|theta - theta_i|^2 weighted by the covariance of x. Three lengths matter: `radius` r = |theta_i - theta_0|, how far a
client lies from the centre; `norm` rho = |theta_i|, how far from zero; `noise` sigma, a standard deviation. All
arguments may be arrays and broadcast. Where the published formulas are misprinted, the corrected ones stand here.

Who uses which: FedAvg stays at the centre: risk r^2, no variance. FTFA and MAML-FL are ridgeless around the centre,
RTFA and pFedMe are ridge around it; training alone is the same around zero, with rho in the place of r.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from apiece.errors import UserError
from apiece.theory import plain


class Risk(NamedTuple):
    """Squared bias and variance; the risk is their sum.

    >>> Risk(0.5, 1.0).total
    1.5
    """

    bias: Any
    variance: Any

    @property
    def total(self) -> Any:
        """bias + variance."""
        return self.bias + self.variance


class Spectrum(NamedTuple):
    """A covariance by its eigenvalues: `values` s_k with weights h_k, and the share g_k of the deviation along each.

    >>> Spectrum.of([0.5, 2.0], [0.5, 0.5]).along.tolist()
    [0.5, 0.5]
    """

    values: np.ndarray
    weights: np.ndarray
    along: np.ndarray

    @classmethod
    def of(cls, values: Any, weights: Any, along: Any = None) -> "Spectrum":
        """Checked; without `along` the deviation lies along the eigenvectors as they are frequent."""
        s, h = np.asarray(values, float), np.asarray(weights, float)
        g = h if along is None else np.asarray(along, float)
        if not s.shape == h.shape == g.shape or s.ndim != 1:
            raise UserError("a spectrum has as many eigenvalues as weights (and shares of the deviation)")
        if (s <= 0).any():
            raise UserError("the eigenvalues of a covariance are above 0 here: features that never vary are left out")
        for what, shares in (("weights of the eigenvalues", h), ("shares of the deviation", g)):
            if (shares < 0).any() or abs(shares.sum() - 1) > 1e-9:
                raise UserError(f"the {what} are not negative and sum to 1; they sum to {shares.sum():.6g}")
        return cls(s, h, g)


IDENTITY = Spectrum.of([1.0], [1.0])


def ridgeless(gamma: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """FTFA, MAML-FL (around the centre) and, with rho for r, the shortest interpolating model alone.

    Identity: B = r^2 (1 - 1/gamma), V = sigma^2 / (gamma - 1). In general, with c > 0 the root of
    sum_k h_k / (1 + c gamma s_k) = 1 - 1/gamma, q_k = (1 + c gamma s_k)^2 and R = sum h s^2/q / sum h s/q:
    B = r^2 (1 + gamma c R) sum_k g_k s_k / q_k,  V = sigma^2 gamma c R.

    >>> ridgeless(2.0, 1.0, 1.0)
    Risk(bias=0.5, variance=1.0)
    """
    gamma, radius, noise = _checked(gamma, radius, noise)
    if spectrum is IDENTITY:
        return Risk(plain(radius**2 * (1 - 1 / gamma)), plain(noise**2 / (gamma - 1)))
    s, h, g = spectrum

    def one(gamma: float) -> tuple[float, float]:
        c = _root(lambda c: 1 - 1 / gamma - np.sum(h / (1 + c * gamma * s)))
        q = (1 + c * gamma * s) ** 2
        ratio = np.sum(h * s**2 / q) / np.sum(h * s / q)
        return (1 + gamma * c * ratio) * np.sum(g * s / q), gamma * c * ratio

    bias, variance = _each(one, gamma)
    return Risk(plain(radius**2 * bias), plain(noise**2 * variance))


def ridge(gamma: Any, lam: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """RTFA, pFedMe (around the centre) and, with rho for r, ridge regression alone.

    Identity, with D = sqrt((1 - gamma + lam)^2 + 4 gamma lam), free of cancellation:
    B = r^2 [D - (1 - gamma) - lam (1 + gamma + lam)/D] / (2 gamma),  V = sigma^2 [(1 + gamma + lam)/D - 1] / 2.
    In general, with v > 0 the root of 1/v = lam + gamma sum_k h_k s_k / (1 + s_k v), a = lam v,
    den_k = (a s_k + lam)^2, J = sum h s/den and m1 = sum h s^2 a/den / (1 + gamma lam J):
    B = lam^2 r^2 (1 + gamma m1) sum_k g_k s_k / den_k,  V = sigma^2 gamma m1.

    >>> round(ridge(2.0, 0.5, 1.0, 1.0).total, 6)
    0.902044
    """
    gamma, radius, noise = _checked(gamma, radius, noise)
    lam = np.asarray(lam, float)
    if (lam <= 0).any():
        raise UserError("a ridge has lam above 0; lam -> 0 is the ridgeless limit")
    if spectrum is IDENTITY:
        d = np.sqrt((1 - gamma + lam) ** 2 + 4 * gamma * lam)
        bias = radius**2 * (d - (1 - gamma) - lam * (1 + gamma + lam) / d) / (2 * gamma)
        return Risk(plain(bias), plain(noise**2 * ((1 + gamma + lam) / d - 1) / 2))
    s, h, g = spectrum

    def one(gamma: float, lam: float) -> tuple[float, float]:
        v = _root(lambda v: lam * v + gamma * np.sum(h * s * v / (1 + s * v)) - 1)
        a = lam * v
        den = (a * s + lam) ** 2
        m1 = np.sum(h * s**2 * a / den) / (1 + gamma * lam * np.sum(h * s / den))
        return lam**2 * (1 + gamma * m1) * np.sum(g * s / den), gamma * m1

    bias, variance = _each(one, gamma, lam)
    return Risk(plain(radius**2 * bias), plain(noise**2 * variance))


def centre(gamma: Any, radius: Any, noise: Any, clients: Any = np.inf, spectrum: Spectrum = IDENTITY) -> Risk:
    """FedAvg's model: r^2 (by the covariance), and no variance for infinitely many clients.

    Of m clients (identity only): r^2 + [r^2 (gamma - 1) + sigma^2 gamma] / m, as a client that took part sees it.

    >>> centre(2.0, 1.0, 1.0, clients=200)
    Risk(bias=1.005, variance=0.01)
    """
    gamma, radius, noise = _checked(gamma, radius, noise)
    clients = np.asarray(clients, float)
    if spectrum is not IDENTITY:
        if np.isfinite(clients).any():
            raise UserError("the correction for finitely many clients is known for the identity covariance only")
        return Risk(plain(radius**2 * np.sum(spectrum.along * spectrum.values)), plain(0 * gamma * noise))
    return Risk(plain(radius**2 * (1 + (gamma - 1) / clients)), plain(noise**2 * gamma / clients))


def best_lam(gamma: Any, radius: Any, noise: Any) -> Any:
    """lam* = sigma^2 gamma / r^2, which minimizes the ridge risk for the identity covariance.

    >>> best_lam(2.0, 1.0, 1.0)
    2.0
    """
    gamma, radius, noise = _checked(gamma, radius, noise)
    if (radius == 0).any():
        raise UserError("clients that do not differ at all (radius 0) need no model of their own: lam* is infinite")
    return plain(noise**2 * gamma / radius**2)


def best_risk(gamma: Any, radius: Any, noise: Any) -> Any:
    """The ridge risk at lam*, never above r^2, FedAvg's. With a = 1 - 1/gamma:

    [r^2 a - sigma^2 + sqrt(r^4 a^2 + sigma^4 + 2 sigma^2 r^2 (1 + 1/gamma))] / 2.

    >>> round(best_risk(2.0, 1.0, 1.0), 6)
    0.780776
    """
    gamma, radius, noise = _checked(gamma, radius, noise)
    r2, s2, a = radius**2, noise**2, 1 - 1 / gamma
    return plain((r2 * a - s2 + np.sqrt(r2**2 * a**2 + s2**2 + 2 * s2 * r2 * (1 + 1 / gamma))) / 2)


def tuning_pays_below(gamma: Any, radius: Any) -> Any:
    """The noise (a standard deviation) below which FTFA beats FedAvg: sigma^2 < r^2 (gamma - 1) / gamma.

    >>> round(tuning_pays_below(2.0, 1.0), 6)
    0.707107
    """
    gamma, radius, _ = _checked(gamma, radius, 0.0)
    return plain(radius * np.sqrt((gamma - 1) / gamma))


def _checked(gamma: Any, radius: Any, noise: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    gamma, radius, noise = (np.asarray(value, float) for value in (gamma, radius, noise))
    if not (gamma > 1).all():
        raise UserError(
            "gamma = d / n must be above 1: these limits are for clients with fewer examples than parameters"
        )
    if (radius < 0).any() or (noise < 0).any():
        raise UserError("radius and noise are lengths and standard deviations: at least 0")
    return gamma, radius, noise


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that rises through zero on (0, infinity) does so."""
    high = 1.0
    while rising(high) < 0:
        high *= 4
    low = high
    while rising(low) > 0:
        low /= 4
    return low if low == high else float(optimize.brentq(rising, low, high, xtol=1e-300, rtol=1e-15, maxiter=500))


def _each(one: Callable[..., tuple[float, float]], *columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = [one(*map(float, row)) for row in np.broadcast(*columns)]
    shape = np.broadcast_shapes(*(column.shape for column in columns))
    bias, variance = np.array(found).T if found else (np.zeros(0), np.zeros(0))
    return bias.reshape(shape), variance.reshape(shape)
