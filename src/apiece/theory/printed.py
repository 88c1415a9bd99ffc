"""The risks of linear estimators as the paper prints them: wrong, and kept to show that they fail.

Cheng, Chadha and Duchi 2021, equations (15) to (18), in the letters of `apiece.theory.asymptotics`, which has the
corrected ones. Against a simulation these are several times too large or too small; nothing else here uses them.
"""

from typing import Any

import numpy as np

from apiece.theory import plain
from apiece.theory.domain import from_zero
from apiece.theory.risk import Risk
from apiece.theory.spectrum import (
    IDENTITY,
    Spectrum,
    companion,
    denominators,
    ratio,
    stieltjes,
    variance_share,
    zero_root,
)


def ridgeless(gamma: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """(15) and (16): q_k = 1 + c gamma s_k without its square, and a variance without the factor c.

    >>> ridgeless(2.0, 1.0, 1.0)  # a simulation: 1.514, with a standard error of 0.011
    Risk(bias=1.0, variance=2.0)
    """
    gamma, (radius, noise) = ratio(gamma), from_zero(radius=radius, noise=noise)
    s, h, g = spectrum
    c = zero_root(gamma, spectrum)
    q = 1 + (c * gamma)[..., None] * s
    spread = np.sum(h * s**2 / q, axis=-1) / np.sum(h * s / q, axis=-1)
    bias = radius**2 * (1 + gamma * c * spread) * np.sum(g * s / q, axis=-1)
    return Risk(plain(bias), plain(noise**2 * gamma * spread))


def ridge(gamma: Any, lam: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """(17) and (18): r where r^2 belongs, lam m' where lam^2 m' belongs. A variance can even be negative.

    >>> round(ridge(2.0, 2.0, 1.0, 1.0).total, 3)  # a simulation: 0.802, with a standard error of 0.002
    0.575
    """
    gamma, (radius, noise) = ratio(gamma), from_zero(radius=radius, noise=noise)
    v = companion(gamma, lam, spectrum)
    lam = np.asarray(lam, float)
    s, h, g = spectrum
    den, _ = denominators(gamma, lam, v, spectrum)
    m1, slope = variance_share(gamma, lam, spectrum), stieltjes(gamma, lam, spectrum).slope
    bias = lam**2 * radius * (1 + gamma * m1) * np.sum(g * s / den, axis=-1)
    variance = noise**2 * gamma * (1 - gamma + gamma * lam * slope) * np.sum(h * s**2 / den, axis=-1)
    return Risk(plain(bias), plain(variance))
