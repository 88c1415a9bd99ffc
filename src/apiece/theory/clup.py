"""FedCLUP's theory: constants, rates, statistical bounds and the choice of lam, with the corrections it needed.

Assumed throughout: each client's loss is L-smooth and mu-strongly convex (`smoothness`, `convexity`), clients count
equally, m clients with n examples each (N = m n), noise E|grad l(w*_i)|^2 <= rho2, and optima |w*_i - w*_g| <= R
(`radius`). The problem is min mean_i [L_i(w_i) + lam/2 |w_i - x|^2]. Every function takes numbers or arrays.
"""

from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.theory import formulas
from apiece.theory.domain import above_zero, curvatures, from_zero

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
    (lam,), (L, mu) = above_zero(lam=lam), curvatures(smoothness, convexity)
    gamma, lr, steps = formulas.proved_steps(lam, L, mu)
    near = lam + mu
    return Constants(lam * mu / near, lam * L / (lam + L), lam / near, gamma, lr, np.ceil(steps).astype(int))


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
    (lam,), (L, mu) = above_zero(lam=lam), curvatures(smoothness, convexity)
    return L / mu * (lam + mu) / (lam + L)


def rounds_to(eps: Numbers, lam: Numbers, smoothness: Numbers, convexity: Numbers, exact_prox: bool = False) -> Numbers:
    """The rounds after which the squared distance to the solution is at most the part eps of what it was: an integer.

    ceil(ln eps / ln r), r the proved `rate` (of the distance with its Lyapunov companion); `exact_prox`: of
    (1 - gamma mu_g)^2, which clients that solve their problems exactly reach on quadratics.

    >>> float(rounds_to(1e-10, 0.5, 3.0, 0.5)), float(rounds_to(1e-10, 0.5, 3.0, 0.5, exact_prox=True))
    (111.0, 34.0)
    """
    eps = np.asarray(eps, float)
    if not ((eps > 0) & (eps <= 1)).all():
        raise UserError(f"eps is the part of the squared distance that may be left, above 0 and at most 1; got {eps}")
    c = constants(lam, smoothness, convexity)
    shrink = (1 - c.gamma * c.mu_g) ** 2 if exact_prox else rate(lam, smoothness, convexity)
    return np.ceil(np.log(eps) / np.log(shrink) - 1e-9) + 0.0


def gradients_to(
    eps: Numbers, lam: Numbers, smoothness: Numbers, convexity: Numbers, exact_prox: bool = False
) -> Numbers:
    """The gradients each client computes in those rounds: K of `constants` a round.

    Of the order kappa ln(1/eps) ln(kappa), whatever lam, for a small lam that saves rounds needs more local steps. The
    constant changes with lam by two or so, in this bound upwards and in measurements downwards.

    >>> float(gradients_to(1e-10, 0.5, 3.0, 0.5))
    4329.0
    """
    rounds = rounds_to(eps, lam, smoothness, convexity, exact_prox)
    return rounds * constants(lam, smoothness, convexity).steps


def lyapunov_weight(lam: Numbers, smoothness: Numbers, convexity: Numbers) -> Numbers:
    """c of the Lyapunov function |x - x*|^2 + c mean_i |w_i - prox_i(x)|^2, which shrinks by `rate` in every round.

    c = 2 lam^2 [gamma/e + gamma^2 (2 + 1/(1 - gamma L_g))] / (1 - gamma mu_g + gamma e - q), with
    e = mu_g/2 (1 - gamma mu_g) and q = (2 + 4 L_w^2 gamma^2 lam^2)(1 - lr (mu + lam))^K. The w_i of a round stand
    beside the x that they were made from.

    >>> round(float(lyapunov_weight(1.0, 1.0, 0.1)), 4)
    59.3426
    """
    mu_g, l_g, l_w, gamma, lr, steps = constants(lam, smoothness, convexity)
    (lam,), (_, mu) = above_zero(lam=lam), curvatures(smoothness, convexity)
    e = mu_g / 2 * (1 - gamma * mu_g)
    q = (2 + 4 * l_w**2 * gamma**2 * lam**2) * (1 - lr * (mu + lam)) ** steps
    return 2 * lam**2 * (gamma / e + gamma**2 * (2 + 1 / (1 - gamma * l_g))) / (1 - gamma * mu_g + gamma * e - q)


def total_error(
    rounds: Numbers, lam: Numbers, smoothness: Numbers, convexity: Numbers, start: Numbers, statistical: Numbers
) -> Numbers:
    """The mean squared distance to the true models after T rounds is at most this (Corollary 3, corrected).

    2 [2 max(1/c, L_w^2) r^T V_0] + 2 b: r of `rate`, c of `lyapunov_weight`, V_0 (`start`) the Lyapunov function before
    the first round counted, and b (`statistical`) the squared error of the exact solution, as from
    `statistical_bounds`. Printed is 2 r^T mean_i |w_i - w~_i|^2 in the place of the first term, which is 0 for personal
    models that begin at the solution; but the server drags them away from it.

    >>> round(float(total_error(1000, 1.0, 1.0, 0.1, start=5.0, statistical=0.25)), 6)
    0.5
    """
    (rounds, start, statistical) = from_zero(rounds=rounds, start=start, statistical=statistical)
    c, weight = constants(lam, smoothness, convexity), lyapunov_weight(lam, smoothness, convexity)
    left = 2 * np.maximum(1 / weight, c.l_w**2) * rate(lam, smoothness, convexity) ** rounds * start
    return 2 * left + 2 * statistical


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
    (lam,), (L, mu) = above_zero(lam=lam), curvatures(smoothness, convexity)
    rho2, n, total, R = _statistics(rho2, examples, total, radius)
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


def error_if_alike(
    lam: Numbers, convexity: Numbers, rho2: Numbers, examples: Numbers, total: Numbers, radius: Numbers
) -> Numbers:
    """E|w_i - w*_i|^2 of the exact solution, exactly, when all losses are quadratic with the one curvature mu.

    With a = lam/(lam + mu), what a client takes from the mean of all, v = rho2/(mu^2 n) and m = N/n:
    [(1 - a)^2 + a (2 - a)/m] v + a^2 R^2. It has the least value v/m + (1 - 1/m) v R^2/(R^2 + (1 - 1/m) v), at
    lam = (1 - 1/m) rho2/(mu n R^2): for many clients the lam of the rule for R > 1/sqrt(n).

    >>> float(error_if_alike(1.0, 1.0, 4.0, 4, 400, 1.0).round(6))
    0.5075
    """
    (lam, mu), (rho2, n, total, R) = (
        above_zero(lam=lam, convexity=convexity),
        _statistics(rho2, examples, total, radius),
    )
    a, v, m = lam / (lam + mu), rho2 / (mu**2 * n), total / n
    return ((1 - a) ** 2 + a * (2 - a) / m) * v + a**2 * R**2


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
    measured errors at a lam twenty-five times smaller came within a tenth of the best.

    >>> rule = lam_by_corollary(1, 0.5, 4, 100, 1000, [0.05, 0.5])
    >>> rule.lam.tolist(), rule.at_least.tolist()
    ([255.5, 0.32], [True, False])
    """
    L, mu = curvatures(smoothness, convexity)
    rho2, n, total, R = _statistics(rho2, examples, total, radius)
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
    (L, mu), (rho2,) = curvatures(smoothness, convexity), from_zero(rho2=rho2)
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
    (lam,), (L, mu), (sigma2,) = above_zero(lam=lam), curvatures(smoothness, convexity), from_zero(variance=variance)
    batch, clients = above_zero(batch=batch, clients=clients)
    lr = np.minimum(mu * (lam + L) / (4 * L * (lam + mu) ** 2), 1 / (lam + L))
    ball = np.minimum(2 * (lam + L) / (mu * L * (lam + mu)), 8 * (lam + mu) / (mu**2 * (lam + L)))
    return lr, ball * sigma2 / (batch * clients)


class Frontier(NamedTuple):
    """For each lam the bound on the squared error, the rounds and gradients that reach it; and the undominated ones."""

    error: Numbers
    rounds: Numbers
    gradients: Numbers
    pareto: Numbers


def frontier(
    lams: Numbers,
    smoothness: Numbers,
    convexity: Numbers,
    rho2: Numbers,
    examples: Numbers,
    total: Numbers,
    radius: Numbers,
    start: Numbers = 1.0,
    exact_prox: bool = False,
) -> Frontier:
    """Accuracy against communication, one point for each of `lams` (on the last axis).

    error = min(b1, b2) of `statistical_bounds`; rounds and gradients until the squared distance to the solution, at
    first `start`, is below that error: iterating on is no gain. pareto: no other lam has both a smaller error and fewer
    rounds (or one of them smaller and the other equal).

    >>> found = frontier([0.01, 0.1, 1.0], 1.0, 0.5, 3.0, 40, 800, 0.5, start=100.0)
    >>> found.error.round(2).tolist(), found.rounds.tolist(), found.pareto.tolist()
    ([1.32, 2.44, 20.8], [10.0, 10.0, 7.0], [True, False, True])
    """
    (start,) = above_zero(start=start)
    error = np.minimum(*statistical_bounds(lams, smoothness, convexity, rho2, examples, total, radius))
    eps = np.minimum(error / start, 1)
    rounds = rounds_to(eps, lams, smoothness, convexity, exact_prox)
    gradients = gradients_to(eps, lams, smoothness, convexity, exact_prox)
    return Frontier(error, rounds, gradients, undominated(error, rounds))


def undominated(error: Numbers, rounds: Numbers) -> Numbers:
    """Which points (on the last axis) no other one beats: smaller in both, or in one and equal in the other.

    >>> undominated(np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0, 1.0])).tolist()
    [True, False, True]
    """
    mine, other = (error[..., :, None], rounds[..., :, None]), (error[..., None, :], rounds[..., None, :])
    no_worse = (other[0] <= mine[0]) & (other[1] <= mine[1])
    better = (other[0] < mine[0]) | (other[1] < mine[1])
    return ~(no_worse & better).any(axis=-1)


def _statistics(rho2: Numbers, examples: Numbers, total: Numbers, radius: Numbers) -> tuple[np.ndarray, ...]:
    rho2, radius = from_zero(rho2=rho2, radius=radius)
    examples, total = above_zero(examples=examples, total=total)
    if (examples > total).any():
        raise UserError("a client's `examples` (n) are among the `total` ones (N): n is never above N")
    return rho2, examples, total, radius
