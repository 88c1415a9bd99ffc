"""Covariances of the features, and the sample covariances they lead to when there are fewer examples than features.

A covariance is given by its eigenvalues s_k with weights h_k. n examples of d features, d / n -> gamma > 1, have a
sample covariance S whose eigenvalues do not converge to the s_k, but to a law that is known by its Stieltjes transform
m(z) = lim tr (S - z I)^-1 / d: Marchenko and Pastur's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.theory import plain
from apiece.theory.domain import above_zero, shares


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
        if not (s > 0).all():
            raise UserError("the eigenvalues of a covariance are above 0 here: features that never vary are left out")
        return cls(s, shares("weights of the eigenvalues", h), shares("shares of the deviation", g))

    def isotropic(self) -> bool:
        """Does the deviation lie along the eigenvectors as they are frequent (g = h)?"""
        return bool(np.allclose(self.along, self.weights, rtol=0, atol=1e-12))


IDENTITY = Spectrum.of([1.0], [1.0])


def ratio(gamma: Any) -> np.ndarray:
    """gamma as an array, when all are above 1.

    >>> ratio(0.5)
    Traceback (most recent call last):
    apiece.errors.UserError: gamma = d / n must be above 1: these limits are for clients with fewer examples than ...
    """
    found = np.asarray(gamma, float)
    if not (found > 1).all():
        raise UserError(
            "gamma = d / n must be above 1: these limits are for clients with fewer examples than parameters"
        )
    return found


def zero_root(gamma: Any, spectrum: Spectrum = IDENTITY) -> Any:
    """The c > 0 with sum_k h_k / (1 + c gamma s_k) = 1 - 1/gamma, which the ridgeless risks are made of.

    For the identity 1 / (gamma (gamma - 1)).

    >>> round(zero_root(1.5, Spectrum.of([0.5, 2.0], [0.5, 0.5])), 6)
    1.447443
    """
    gamma = ratio(gamma)
    s, h = spectrum.values, spectrum.weights
    if len(s) == 1:
        return plain(1 / (gamma * (gamma - 1) * s[0]))
    pull = gamma[..., None] * s

    def short(c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Without the 1 on both sides, which would cost digits for a large gamma.
        far = c[..., None] * pull
        return np.sum(h * far / (1 + far), axis=-1) - 1 / gamma, np.sum(h * pull / (1 + far) ** 2, axis=-1)

    return _root(short, gamma.shape)


def companion(gamma: Any, lam: Any, spectrum: Spectrum = IDENTITY) -> Any:
    """The v > 0 with 1/v = lam + gamma sum_k h_k s_k / (1 + s_k v): the limit of tr (X X'/n + lam I)^-1 / n.

    For the identity 2 / (lam + gamma - 1 + D) with D = sqrt((1 + gamma + lam)^2 - 4 gamma).

    >>> round(companion(2.0, 0.5), 6)
    0.561553
    """
    gamma, (lam,) = ratio(gamma), above_zero(lam=lam)
    if np.isinf(lam).any():
        raise UserError("lam must be finite: an infinite lam is the centre itself, FedAvg")
    s, h = spectrum.values, spectrum.weights
    if len(s) == 1:
        b = lam + s[0] * (gamma - 1)
        return plain(2 / (b + np.sqrt(b**2 + 4 * lam * s[0])))

    def short(v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        far = 1 + v[..., None] * s
        return (
            lam * v + gamma * np.sum(h * s / far, axis=-1) * v - 1,
            lam + gamma * np.sum(h * s / far**2, axis=-1),
        )

    return _root(short, np.broadcast_shapes(gamma.shape, lam.shape))


class Stieltjes(NamedTuple):
    """m(-lam) and its slope m'(-lam): the limits of tr (S + lam I)^-1 / d and tr (S + lam I)^-2 / d."""

    m: Any
    slope: Any


def stieltjes(gamma: Any, lam: Any, spectrum: Spectrum = IDENTITY) -> Stieltjes:
    """The Stieltjes transform of the sample covariance's limit law at -lam, and its derivative there.

    m = (v + (gamma - 1)/lam) / gamma with v of `companion`;  with a = lam v, den_k = (a s_k + lam)^2 and
    J = sum_k h_k s_k / den_k:  m' = sum_k h_k (1 + gamma m s_k)/den_k / (1 + gamma lam J).

    >>> [round(value, 6) for value in stieltjes(2.0, 0.5)]
    [1.280776, 2.212678]
    """
    v = companion(gamma, lam, spectrum)
    gamma, lam = np.asarray(gamma, float), np.asarray(lam, float)
    m = (v + (gamma - 1) / lam) / gamma
    den, damped = denominators(gamma, lam, v, spectrum)
    tilted = 1 + (gamma * m)[..., None] * spectrum.values
    return Stieltjes(plain(m), plain(np.sum(spectrum.weights * tilted / den, axis=-1) / damped))


def variance_share(gamma: Any, lam: Any, spectrum: Spectrum = IDENTITY) -> Any:
    """m1, the limit of tr Sigma S (S + lam I)^-2 / d: a ridge's variance is sigma^2 gamma m1.

    m1 = sum_k h_k s_k^2 a / den_k / (1 + gamma lam J). For the identity m - lam m'.

    >>> round(variance_share(2.0, 0.5), 6)
    0.174437
    """
    v = companion(gamma, lam, spectrum)
    gamma, lam = np.asarray(gamma, float), np.asarray(lam, float)
    den, damped = denominators(gamma, lam, v, spectrum)
    s, h = spectrum.values, spectrum.weights
    return plain(lam * v * np.sum(h * s**2 / den, axis=-1) / damped)


def denominators(gamma: Any, lam: Any, v: Any, spectrum: Spectrum) -> tuple[Any, Any]:
    """(den_k = (lam v s_k + lam)^2 on a new last axis, 1 + gamma lam sum_k h_k s_k / den_k).

    >>> den, damped = denominators(np.array(2.0), np.array(1.0), 1.0, IDENTITY)
    >>> den.tolist(), damped.tolist()
    ([4.0], 1.5)
    """
    s, h = spectrum.values, spectrum.weights
    den = ((lam * v)[..., None] * s + lam[..., None]) ** 2
    return den, 1 + gamma * lam * np.sum(h * s / den, axis=-1)


def _root(rising: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...]) -> Any:
    """Where a concave function that rises from below zero at 0 reaches it, given the function with its slope.

    Newton's steps from the left never pass the root, so that they end when they no longer go right.
    """
    at = np.zeros(shape)
    while True:
        value, slope = rising(at)
        after = np.maximum(at, at - value / slope)
        if not (after > at * (1 + 1e-15)).any():
            return plain(after)
        at = after
