"""Asymptotic risks of linear estimators, when clients have fewer examples than parameters (Cheng, Chadha, Duchi 2021).

Many clients; each has n examples of d features, d / n -> gamma > 1, y = x'theta_i + noise; the error is
|theta - theta_i|^2 weighted by the covariance of x. Three lengths matter: `radius` r = |theta_i - theta_0|, how far a
client lies from the centre; `norm` rho = |theta_i|, how far from zero; `noise` sigma, a standard deviation. All
arguments may be arrays and broadcast. Where the published formulas are misprinted, the corrected ones stand here.

Who uses which: FedAvg stays at the centre: risk r^2, no variance. FTFA and MAML-FL are ridgeless around the centre,
RTFA and pFedMe are ridge around it; training alone is the same around zero, with rho in the place of r.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from apiece.theory import finite, plain
from apiece.theory.domain import from_zero, shares
from apiece.theory.risk import Risk
from apiece.theory.spectrum import IDENTITY, Spectrum, companion, denominators, ratio, stieltjes, zero_root

__all__ = ["IDENTITY", "Kind", "Risk", "Spectrum", "best_lam", "best_risk", "centre", "ridge", "ridgeless", "risks",
           "risks_of_kinds", "stieltjes", "tuning_pays_below"]  # fmt: skip


def ridgeless(gamma: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """FTFA, MAML-FL (around the centre) and, with rho for r, the shortest interpolating model alone.

    Identity: B = r^2 (1 - 1/gamma), V = sigma^2 / (gamma - 1). In general, with c of `zero_root`,
    q_k = (1 + c gamma s_k)^2 and R = sum h s^2/q / sum h s/q:
    B = r^2 (1 + gamma c R) sum_k g_k s_k / q_k,  V = sigma^2 gamma c R.

    >>> ridgeless(2.0, 1.0, 1.0)
    Risk(bias=0.5, variance=1.0)
    """
    gamma, (radius, noise) = ratio(gamma), from_zero(radius=radius, noise=noise)
    s, h, g = spectrum
    c = zero_root(gamma, spectrum)
    q = (1 + (c * gamma)[..., None] * s) ** 2
    scale = gamma * c * np.sum(h * s**2 / q, axis=-1) / np.sum(h * s / q, axis=-1)
    return Risk(plain(radius**2 * (1 + scale) * np.sum(g * s / q, axis=-1)), plain(noise**2 * scale))


def ridge(gamma: Any, lam: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Risk:
    """RTFA, pFedMe (around the centre) and, with rho for r, ridge regression alone.

    Identity, with D = sqrt((1 + gamma + lam)^2 - 4 gamma):
    B = r^2 lam^2 m' = r^2 [D - (1 - gamma) - lam (1 + gamma + lam)/D] / (2 gamma),
    V = sigma^2 gamma (m - lam m') = sigma^2 [(1 + gamma + lam)/D - 1] / 2;  dB/dlam = 2 lam r^2 / D^3,
    dV/dlam = -2 gamma sigma^2 / D^3. In general, with v of `companion`, den_k = (lam v s_k + lam)^2 and m1 of
    `variance_share`:  B = lam^2 r^2 (1 + gamma m1) sum_k g_k s_k / den_k,  V = sigma^2 gamma m1.

    >>> round(ridge(2.0, 0.5, 1.0, 1.0).total, 6)
    0.902044
    """
    gamma, (radius, noise) = ratio(gamma), from_zero(radius=radius, noise=noise)
    v = companion(gamma, lam, spectrum)
    lam = np.asarray(lam, float)
    s, h, g = spectrum
    den, damped = denominators(gamma, lam, v, spectrum)
    m1 = lam * v * np.sum(h * s**2 / den, axis=-1) / damped
    bias = lam**2 * (1 + gamma * m1) * np.sum(g * s / den, axis=-1)
    return Risk(plain(radius**2 * bias), plain(noise**2 * gamma * m1))


def centre(gamma: Any, radius: Any, noise: Any, clients: Any = np.inf, spectrum: Spectrum = IDENTITY) -> Risk:
    """FedAvg's model: r^2 sum_k g_k s_k, and no variance for infinitely many clients.

    Of m clients (to first order in 1/m): [r^2 sum_k g_k s_k (gamma - 1) + sigma^2 gamma] / m more.

    >>> centre(2.0, 1.0, 1.0, clients=200)
    Risk(bias=1.005, variance=0.01)
    """
    more = finite.fed_avg(gamma, radius, noise, clients, spectrum)
    return Risk(np.asarray(radius, float) ** 2 * np.sum(spectrum.along * spectrum.values), 0.0).plus(more)


def best_lam(gamma: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Any:
    """The lam with the least ridge risk: lam* = sigma^2 gamma / r^2 whenever the deviation has no favourite direction.

    That is for every covariance with g = h, not the identity alone: the ridge is then the Bayes estimate of a deviation
    drawn from N(0, r^2/d I). Otherwise found by a search over log lam; 0 when ridgeless is best (a deviation along
    strong features), infinite when nothing beats the centre, and for clients that do not differ (radius 0).

    >>> best_lam(2.0, 1.0, 1.0), best_lam(2.0, 1.0, 1.0, Spectrum.of([0.5, 2.0], [0.5, 0.5]))
    (2.0, 2.0)
    >>> round(best_lam(2.0, 1.0, 1.0, Spectrum.of([0.5, 2.0], [0.5, 0.5], along=[0.8, 0.2])), 4)
    4.4577
    """
    gamma, (radius, noise) = ratio(gamma), from_zero(radius=radius, noise=noise)
    with np.errstate(divide="ignore", invalid="ignore"):
        isotropic = np.where(radius > 0, noise**2 * gamma / radius**2, np.inf)
    if spectrum.isotropic():
        return plain(isotropic)
    search = np.vectorize(lambda gamma, r, sigma: _searched(gamma, r, sigma, spectrum), otypes=[float])
    return plain(search(gamma, radius, noise))


def best_risk(gamma: Any, radius: Any, noise: Any, spectrum: Spectrum = IDENTITY) -> Any:
    """The ridge risk at lam*, never above r^2 sum_k g_k s_k, FedAvg's.

    Identity, with a = 1 - 1/gamma: [r^2 a - sigma^2 + sqrt(r^4 a^2 + sigma^4 + 2 sigma^2 r^2 (1 + 1/gamma))] / 2.
    Any covariance with g = h: sigma^2 (1 / (lam* v) - 1), v of `companion` at lam*.

    >>> round(best_risk(2.0, 1.0, 1.0), 6)
    0.780776
    """
    return _ridge_from_0_to_infinity(gamma, best_lam(gamma, radius, noise, spectrum), radius, noise, spectrum).total


def risks(
    gamma: Any,
    ridge: Any,
    radius: Any,
    noise: Any,
    norm: Any,
    spectrum: Spectrum = IDENTITY,
    clients: Any = np.inf,
    along_centre: Any = None,
) -> dict[str, Risk]:
    """The risks of all seven estimators, by the catalog's names (`local_ridge`, ridge alone, is not in the catalog).

    `ridge` is lam; none: lam*, for those around the centre and for ridge alone each their own. `norm` is
    rho = |theta_i|, with rho^2 = r^2 + |theta_0|^2 if the deviation is orthogonal to the centre. `along_centre`: the
    shares of theta_i itself along the eigenvectors, by default those of the deviation. Finitely many `clients` are
    accounted for to first order (see `apiece.theory.finite`); pFedMe's correction is known for the identity only, and
    nan otherwise.

    >>> {name: round(float(risk.total), 3) for name, risk in risks(2.0, 2.0, 1.0, 1.0, 2**0.5).items()}
    {'fed_avg': 1.0, 'ftfa': 1.5, 'rtfa': 0.781, 'maml_fl': 1.5, 'pfedme': 0.781, 'local': 2.0, 'local_ridge': 1.455}
    """
    own = spectrum if along_centre is None else Spectrum.of(spectrum.values, spectrum.weights, along_centre)
    around = best_lam(gamma, radius, noise, spectrum) if ridge is None else ridge
    alone = best_lam(gamma, norm, noise, own) if ridge is None else ridge

    fed_avg = centre(gamma, radius, noise, clients, spectrum)
    ftfa = ridgeless(gamma, radius, noise, spectrum)
    rtfa = pfedme = _ridge_from_0_to_infinity(gamma, around, radius, noise, spectrum)
    if np.isfinite(np.asarray(clients, float)).any():
        none = finite.ftfa(gamma, radius, noise, clients, spectrum)
        all_ = finite.fed_avg(gamma, radius, noise, clients, spectrum)
        ridged = lambda lam: finite.rtfa(gamma, lam, radius, noise, clients, spectrum)
        moreau = lambda lam: finite.pfedme(gamma, lam, radius, noise, clients)
        ftfa, rtfa = ftfa.plus(none), rtfa.plus(_between(none, ridged, all_, around))
        # At lam = 0, too, pFedMe's estimate of the centre costs what FedAvg's does.
        pfedme = pfedme.plus(_between(all_, moreau, all_, around) if spectrum is IDENTITY else Risk(np.nan, np.nan))
    return {
        "fed_avg": fed_avg,
        "ftfa": ftfa,
        "rtfa": rtfa,
        "maml_fl": ftfa,
        "pfedme": pfedme,
        "local": ridgeless(gamma, norm, noise, own),
        "local_ridge": _ridge_from_0_to_infinity(gamma, alone, norm, noise, own),
    }


class Kind(NamedTuple):
    """A kind of clients: what share of all they are, and what their risks depend on."""

    share: float
    gamma: float
    radius: float
    noise: float
    norm: float
    spectrum: Spectrum = IDENTITY


def risks_of_kinds(kinds: Sequence[Kind], ridge: Any) -> dict[str, Risk]:
    """The mean risks over clients that differ in size, covariance, radius and noise: covariate and label shift.

    The limits hold client by client: FedAvg's model still tends to the shared centre if deviations are independent of
    covariances, and from there on a client has its own gamma, r, sigma and spectrum. Infinitely many clients.

    >>> alike = Kind(0.5, 2.0, 1.0, 1.0, 2**0.5)
    >>> small_and_noisy = Kind(0.5, 4.0, 1.0, 2.0, 2**0.5, Spectrum.of([0.5, 2.0], [0.5, 0.5]))
    >>> found = risks_of_kinds([alike, small_and_noisy], 2.0)
    >>> [round(float(found[name].total), 3) for name in ("fed_avg", "ftfa", "rtfa", "local")]
    [1.125, 2.067, 1.164, 2.74]
    """
    shares("shares of the kinds", np.array([kind.share for kind in kinds]))
    each = [(kind.share, risks(kind.gamma, ridge, kind.radius, kind.noise, kind.norm, kind.spectrum)) for kind in kinds]
    mean = lambda name, part: plain(np.sum([share * getattr(found[name], part) for share, found in each], axis=0))
    return {name: Risk(mean(name, "bias"), mean(name, "variance")) for name in each[0][1]}


def tuning_pays_below(gamma: Any, radius: Any) -> Any:
    """The noise (a standard deviation) below which FTFA beats FedAvg: sigma^2 < r^2 (gamma - 1) / gamma.

    >>> round(tuning_pays_below(2.0, 1.0), 6)
    0.707107
    """
    gamma, (radius,) = ratio(gamma), from_zero(radius=radius)
    return plain(radius * np.sqrt((gamma - 1) / gamma))


def _ridge_from_0_to_infinity(gamma: Any, lam: Any, radius: Any, noise: Any, spectrum: Spectrum) -> Risk:
    return _between(
        ridgeless(gamma, radius, noise, spectrum),
        lambda lam: ridge(gamma, lam, radius, noise, spectrum),
        centre(gamma, radius, noise, spectrum=spectrum),
        lam,
    )


def _between(zero: Risk, inside: Callable[[np.ndarray], Risk], infinite: Risk, lam: Any) -> Risk:
    """A risk that depends on lam, with its limits at 0 and infinity."""
    lam = np.asarray(lam, float)
    proper = inside(np.where((lam == 0) | (lam == np.inf), 1.0, lam))
    low, high = lam == 0, lam == np.inf
    return Risk(
        *(plain(np.where(low, a, np.where(high, c, b))) for a, b, c in zip(zero, proper, infinite, strict=True))
    )


def _searched(gamma: float, radius: float, noise: float, spectrum: Spectrum) -> float:
    if radius == 0 or noise == 0:
        return np.inf if radius == 0 else 0.0
    total = lambda log: ridge(gamma, np.exp(log), radius, noise, spectrum).total
    # There may be several valleys: a coarse look first.
    middle = np.log(noise**2 * gamma / radius**2)
    grid = middle + np.linspace(-12, 12, 97)
    seen = total(grid)
    at = int(np.argmin(seen))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, 96)]
    found = optimize.minimize_scalar(total, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    if ridgeless(gamma, radius, noise, spectrum).total <= found.fun:
        return 0.0
    return np.inf if centre(gamma, radius, noise, spectrum=spectrum).total <= found.fun else float(np.exp(found.x))
