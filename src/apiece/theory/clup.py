"""FedCLUP's theory: constants, rates, statistical bounds and the choice of lam, with the corrections it needed.

Assumed throughout: each client's loss is L-smooth and mu-strongly convex (`smoothness`, `convexity`), clients count
equally, m clients with n examples each (N = m n), noise E|grad l(w*_i)|^2 <= rho2, and optima |w*_i - w*_g| <= R
(`radius`). The problem is min mean_i [L_i(w_i) + lam/2 |w_i - x|^2]. Every function takes numbers or arrays.
"""

from typing import Any, NamedTuple

import numpy as np

Numbers = Any  # a number or an array of numbers


class Constants(NamedTuple):
    """Of the mean Moreau envelope: convexity, smoothness, the Lipschitz constant of prox; and the steps."""

    mu_g: Numbers
    l_g: Numbers
    l_w: Numbers
    gamma: Numbers
    lr: Numbers
    steps: Numbers


def constants(lam: Numbers, smoothness: Numbers, convexity: Numbers) -> Constants:
    """mu_g = lam mu/(lam + mu), L_g = lam L/(lam + L), L_w = lam/(lam + mu); and the steps with a proved rate:

    gamma = 1/(2 L_g), lr = 1/(lam + L), K = ceil(2 + (lam + L)/(lam + mu) ln(1056 (L/mu)^2)).

    >>> [round(float(c), 6) for c in constants(0.5, 3.0, 0.5)]
    [0.25, 0.428571, 0.5, 1.166667, 0.285714, 39.0]
    """
    lam, L, mu = (np.asarray(value, float) for value in (lam, smoothness, convexity))
    steps = np.ceil(2 + (lam + L) / (lam + mu) * np.log(1056 * (L / mu) ** 2)).astype(int)
    l_g = lam * L / (lam + L)
    return Constants(lam * mu / (lam + mu), l_g, lam / (lam + mu), 1 / (2 * l_g), 1 / (lam + L), steps)


def rate(lam: Numbers, smoothness: Numbers, convexity: Numbers) -> Numbers:
    """Per round, the squared distance to the solution (with its Lyapunov companion) shrinks by at least this factor:

    r = 1 - g/2 - g^2/2 with g = gamma mu_g, for the steps of `constants`. With an exact prox on quadratics: (1 - g)^2.

    >>> float(rate(0.5, 3.0, 0.5).round(6))
    0.811632
    """
    c = constants(lam, smoothness, convexity)
    progress = c.gamma * c.mu_g
    return 1 - progress / 2 - progress**2 / 2


def simple_rate(lam: Numbers, smoothness: Numbers, convexity: Numbers) -> Numbers:
    """1 - (lam + L)/(4 kappa (lam + mu)) >= `rate`, kappa = L/mu: a larger lam makes it slower.

    >>> float(simple_rate(0.5, 3.0, 0.5).round(6))
    0.854167
    """
    return 1 - 1 / (4 * rounds_factor(lam, smoothness, convexity))


def rounds_factor(lam: Numbers, smoothness: Numbers, convexity: Numbers) -> Numbers:
    """kappa (lam + mu)/(lam + L): communication rounds to accuracy e are of the order of this times ln(1/e).

    >>> float(rounds_factor(0.5, 3.0, 0.5).round(6))
    1.714286
    """
    lam, L, mu = (np.asarray(value, float) for value in (lam, smoothness, convexity))
    return L / mu * (lam + mu) / (lam + L)


def steps_suffice(
    lam: Numbers, smoothness: Numbers, convexity: Numbers, gamma: Numbers, lr: Numbers, steps: Numbers
) -> Numbers:
    """Is the linear rate proved for these steps? Both conditions, for gamma < 1/L_g and lr <= 1/(lam + L):

    (2 + 64 L_w^2 lam^2/mu_g^2) (1 - lr (mu + lam))^K <= (1 - gamma L_g)^4, and gamma (2 + 1/(1 - gamma L_g)) mu_g <= 2.

    >>> bool(steps_suffice(0.5, 3.0, 0.5, gamma=7 / 6, lr=2 / 7, steps=39))
    True
    """
    c = constants(lam, smoothness, convexity)
    left = 1 - np.asarray(gamma) * c.l_g
    inner = (1 - np.asarray(lr) * (np.asarray(convexity) + lam)) ** np.asarray(steps)
    with np.errstate(divide="ignore"):
        enough = (2 + 64 * c.l_w**2 * np.asarray(lam) ** 2 / c.mu_g**2) * inner <= left**4
        small = gamma * (2 + 1 / left) * c.mu_g <= 2
    return (left > 0) & (np.asarray(lr) <= c.lr) & enough & small


def statistical_bounds(
    lam: Numbers,
    smoothness: Numbers,
    convexity: Numbers,
    rho2: Numbers,
    examples: Numbers,
    total: Numbers,
    radius: Numbers,
) -> tuple[Numbers, Numbers]:
    """(b1, b2): E|w_i - w*_i|^2 of the exact solution is at most the smaller; b1 is for a large lam, b2 for a small.

    With g = (4/mu)(1/(mu + lam) + L/(mu + lam)^2), a = 4 L^2 R^2 + 2 rho2/n, f = g/(1 - 4 L^2 g):
    b1 = 48 rho2/(mu^2 N) + (48 L^2/mu^2 + 3) R^2 + 12 a/(mu + lam)^2
         + 48 L^2/(mu + lam)^2 [f a + 16 rho2/(mu^2 N) + 16 L^2 R^2/mu^2] + 3 f a  if g <= 1/(8 L^2), else infinite;
    b2 = 4 rho2/(mu^2 n) + (16 rho2/(mu^3 n) + 4 R^2/mu) lam + 8 R^2 lam^2/mu^2.

    >>> [round(float(b), 6) for b in statistical_bounds(100, 1, 0.5, 3, 40, 800, 0.02)]
    [0.853422, 1089.52]
    """
    lam, L, mu, rho2, n, total, R = (
        np.asarray(value, float) for value in (lam, smoothness, convexity, rho2, examples, total, radius)
    )
    near = mu + lam
    g = 4 / mu * (1 / near + L / near**2)
    valid = g <= 1 / (8 * L**2)
    a = 4 * L**2 * R**2 + 2 * rho2 / n
    f = g / np.where(valid, 1 - 4 * L**2 * g, 1)
    pooled = 16 * rho2 / (mu**2 * total) + 16 * L**2 * R**2 / mu**2
    rest = 12 * a / near**2 + 48 * L**2 / near**2 * (f * a + pooled) + 3 * f * a
    b1 = 48 * rho2 / (mu**2 * total) + (48 * L**2 / mu**2 + 3) * R**2 + rest
    b2 = 4 * rho2 / (mu**2 * n) + (16 * rho2 / (mu**3 * n) + 4 * R**2 / mu) * lam + 8 * R**2 * lam**2 / mu**2
    return np.where(valid, b1, np.inf), b2


class Rule(NamedTuple):
    """lam should be at least (`at_least`), or else at most, this."""

    lam: Numbers
    at_least: Numbers


def lam_by_corollary(
    smoothness: Numbers, convexity: Numbers, rho2: Numbers, examples: Numbers, total: Numbers, radius: Numbers
) -> Rule:
    """How much to personalize: clients closer than 1/sqrt(n) should share, others should mostly not.

    R <= 1/sqrt(n): lam >= max{64 kappa^2 L, max(2 kappa, 5) mu (2 L^2 R^2 + rho2/n)/(L^2 R^2 + rho2/N)} - mu;
    R > 1/sqrt(n): lam <= rho2/(n mu R^2).
    Sufficient for the error to be within `corollary_constants` of the best possible; far from tight for large lam:
    measured errors are as small at a lam twenty-five times smaller.

    >>> rule = lam_by_corollary(1, 0.5, 4, 100, 1000, [0.05, 0.5])
    >>> rule.lam.tolist(), rule.at_least.tolist()
    ([255.5, 0.32], [True, False])
    """
    L, mu, rho2, n, total, R = (
        np.asarray(value, float) for value in (smoothness, convexity, rho2, examples, total, radius)
    )
    kappa = L / mu
    gain = (2 * L**2 * R**2 + rho2 / n) / (L**2 * R**2 + rho2 / total)
    share = np.maximum(64 * kappa**2 * L, np.maximum(2 * kappa, 5) * mu * gain) - mu
    close = R * np.sqrt(n) <= 1
    with np.errstate(divide="ignore"):
        apart = rho2 / (n * mu * R**2)
    return Rule(np.where(close, share, apart), close)


def corollary_constants(smoothness: Numbers, convexity: Numbers, rho2: Numbers) -> tuple[Numbers, ...]:
    """(C1, C2, C3, C4) of the error under `lam_by_corollary`, kappa = L/mu:

    C1 = 32 rho2/mu^2, C2 = max{(1 + sqrt 3)^2 rho2/mu^2, 32 kappa^2}, C3 = 192 rho2/mu^2,
    C4 = max{rho2 (1 + sqrt(4 C2 + 5))^2/mu^2, 198 kappa^2}.

    >>> [round(float(c), 1) for c in corollary_constants(1, 0.5, 4)]
    [512.0, 128.0, 3072.0, 9015.6]
    """
    L, mu, rho2 = (np.asarray(value, float) for value in (smoothness, convexity, rho2))
    kappa = L / mu
    c2 = np.maximum((1 + np.sqrt(3)) ** 2 * rho2 / mu**2, 32 * kappa**2)
    c4 = np.maximum(rho2 * (1 + np.sqrt(4 * c2 + 5)) ** 2 / mu**2, 198 * kappa**2)
    return 32 * rho2 / mu**2, c2, 192 * rho2 / mu**2, c4


def noise_ball(
    lam: Numbers, smoothness: Numbers, convexity: Numbers, variance: Numbers, batch: Numbers, clients: Numbers
) -> tuple[Numbers, Numbers]:
    """(lr, squared radius) for mini-batches: the step, and how near the solution it comes, with gamma = 1/(2 L_g).

    lr = min{mu (lam + L)/(4 L (lam + mu)^2), 1/(lam + L)};
    radius^2 = min{2 (lam + L)/(mu L (lam + mu)), 8 (lam + mu)/(mu^2 (lam + L))} variance/(B m), which is at most
    8 variance/(mu^2 B m).
    The factor 1/m is proved for clients with equal Hessians only.

    >>> [round(float(value), 6) for value in noise_ball(0.5, 3.0, 0.5, 1.0, 10, 5)]
    [0.145833, 0.093333]
    """
    lam, L, mu, sigma2 = (np.asarray(value, float) for value in (lam, smoothness, convexity, variance))
    lr = np.minimum(mu * (lam + L) / (4 * L * (lam + mu) ** 2), 1 / (lam + L))
    ball = np.minimum(2 * (lam + L) / (mu * L * (lam + mu)), 8 * (lam + mu) / (mu**2 * (lam + L)))
    return lr, ball * sigma2 / (np.asarray(batch) * np.asarray(clients))
