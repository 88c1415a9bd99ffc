"""What finitely many clients add to the asymptotic risks: the centre is estimated, from everybody's own data too.

m clients of equal weight; to first order in 1/m, for examples x ~ N(0, Sigma). Write e for the error of the estimated
centre. Others' data give e the covariance [Delta Delta' + (Delta'Sigma Delta + sigma^2) Sigma^-1 / n] / m, and a
client's own data correlate e with the client's deviation Delta and noise. In simulations with 100 clients the terms
below agree but for some (100 gamma/m) percent of the centre's error. Derived for any covariance but pFedMe's, which is
known for the identity only. Parts proportional to r^2 are called bias, to sigma^2 variance.
"""

from typing import Any

import numpy as np

from apiece.errors import UserError
from apiece.theory import plain
from apiece.theory.domain import above_zero, from_zero
from apiece.theory.risk import Risk
from apiece.theory.spectrum import IDENTITY, Spectrum, companion, ratio, stieltjes, variance_share, zero_root


def fed_avg(gamma: Any, radius: Any, noise: Any, clients: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """FedAvg's model, as a client that took part sees it: [r_S^2 (gamma - 1) + sigma^2 gamma] / m more.

    r_S^2 = r^2 sum_k g_k s_k. Of it, [r_S^2 (gamma + 1) + sigma^2 gamma] / m is the centre's error and -2 r_S^2 / m the
    client's own pull on the centre.

    >>> fed_avg(2.0, 1.0, 1.0, clients=200)
    Risk(bias=0.005, variance=0.01)
    """
    gamma, radius, noise, m = _checked(gamma, radius, noise, clients)
    stretch = np.sum(spectrum.along * spectrum.values)
    return Risk(plain(radius**2 * stretch * (gamma - 1) / m), plain(noise**2 * gamma / m))


def ftfa(gamma: Any, radius: Any, noise: Any, clients: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """FTFA. Identity: (1 - 1/gamma) [r^2 (gamma + 1) + sigma^2 gamma] / m more.

    Fine-tuning leaves the part of e in the null space of a client's examples; for the identity its own data have no
    share in that. In general, in the letters of `rtfa` at lam = 0, where v = gamma c:
    {r^2 (B + gamma b sum g s - 2 T_g) + sigma^2 gamma [2 (1 - 1/gamma) - b]} / m.
    MAML-FL adds the same in the limit of a small inner step.

    >>> round(ftfa(2.0, 1.0, 1.0, clients=200).total, 6)
    0.0125
    """
    gamma, radius, noise, m = _checked(gamma, radius, noise, clients)
    bias, left, own, _ = _felt(gamma, gamma * zero_root(gamma, spectrum), gamma - 1, spectrum)
    more = bias + gamma * left * np.sum(spectrum.along * spectrum.values) - 2 * own
    return Risk(plain(radius**2 * more / m), plain(noise**2 * gamma * (2 * (1 - 1 / gamma) - left) / m))


def rtfa(gamma: Any, lam: Any, radius: Any, noise: Any, clients: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """RTFA. Identity: {b [r^2 (gamma + 1) + sigma^2 gamma] + 2 lam m1 (sigma^2 gamma - lam r^2)} / m more.

    b = lam^2 m' is the part of e that the ridge leaves; the second term is the client's own data, used twice, which
    vanishes at lam*. lam -> 0 is FTFA, lam -> infinity FedAvg. In general, with v of `companion`, u_k = 1 + v s_k,
    w = 1/(1 - gamma v^2 sum h s^2/u^2), k = gamma lam m, B = w sum g s/u^2 and b = w sum h/u^2:
    {r^2 (B + gamma b sum g s - 2 T_g) + sigma^2 gamma (b + 2 T_h / lam)} / m, where T_g = sum_k g_k t_k,
    t = w s (1 - v k s)/u^2 + w gamma v [v k sum h s^2/u^2 - sum h s/u^2] s/u: the limit of lam^2 G Sigma G Sigma^-1 S
    along an eigenvector, G = (S + lam I)^-1.

    >>> round(rtfa(2.0, 2.0, 1.0, 1.0, clients=200).total, 6)
    0.016861
    """
    gamma, radius, noise, m = _checked(gamma, radius, noise, clients)
    (lam,) = above_zero(lam=lam)
    v = companion(gamma, lam, spectrum)
    bias, left, own, own_noise = _felt(gamma, v, lam * v + gamma - 1, spectrum)
    more = bias + gamma * left * np.sum(spectrum.along * spectrum.values) - 2 * own
    return Risk(plain(radius**2 * more / m), plain(noise**2 * gamma * (left + 2 * own_noise / lam) / m))


def pfedme(gamma: Any, lam: Any, radius: Any, noise: Any, clients: Any) -> Risk:
    """pFedMe, whose centre weighs clients by Q = S (S + lam I)^-1 and not by S. Identity only.

    {b [r^2 (1 - 2 lam m + b) + sigma^2 gamma m1] / q^2 + 2 lam (sigma^2 gamma - lam r^2) / (q D^3)} / m more, with
    b = lam^2 m', q = 1 - lam m and D = sqrt((1 + gamma + lam)^2 - 4 gamma).

    >>> round(pfedme(2.0, 2.0, 1.0, 1.0, clients=200).total, 6)
    0.015382
    """
    gamma, radius, noise, m = _checked(gamma, radius, noise, clients)
    (lam,) = above_zero(lam=lam)
    left, m1 = lam**2 * stieltjes(gamma, lam).slope, variance_share(gamma, lam)
    d = np.sqrt((1 + gamma + lam) ** 2 - 4 * gamma)
    q = 2 / (d + 1 + gamma + lam)  # 1 - lam m would lose digits for a large lam
    squared = q - lam * m1  # 1 - 2 lam m + b
    own = 2 * lam / (q * d**3)
    bias = radius**2 * (left * squared / q**2 - lam * own) / m
    return Risk(plain(bias), plain(noise**2 * gamma * (left * m1 / q**2 + own) / m))


def _felt(gamma: np.ndarray, v: Any, k: Any, spectrum: Spectrum) -> tuple[Any, Any, Any, Any]:
    """(B, b, T_g, T_h) of `rtfa`."""
    s, h, g = spectrum
    v, k, wide = np.asarray(v)[..., None], np.asarray(k)[..., None], gamma[..., None]
    u = 1 + v * s
    mean = lambda values: np.sum(h * values, axis=-1, keepdims=True)
    w = 1 / (1 - wide * v**2 * mean(s**2 / u**2))
    t = w * s * (1 - v * k * s) / u**2 + w * wide * v * (v * k * mean(s**2 / u**2) - mean(s / u**2)) * s / u
    return tuple(np.sum(part, axis=-1) for part in (w * g * s / u**2, w * h / u**2, g * t, h * t))


def _checked(gamma: Any, radius: Any, noise: Any, clients: Any) -> tuple[np.ndarray, ...]:
    found = np.asarray(clients, float)
    if not (found >= 1).all():
        raise UserError(f"there is at least one client; got clients = {clients}")
    return ratio(gamma), *from_zero(radius=radius, noise=noise), found
