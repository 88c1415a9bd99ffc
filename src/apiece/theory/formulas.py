"""The formulas that methods compute with too, each written once: for numbers, NumPy arrays and traced JAX arrays alike.

Nothing is checked here, and no dtype is chosen: what comes in decides both. The functions of the same names in
`theory.clup`, `theory.self_fl` and `theory.all_for_all` check their arguments, compute in float64, and say what is
assumed.
"""

import math
from typing import Any

import numpy as np

from apiece.theory import plain

RULES = ("bayes", "paper")  # of Self-FL, for the pull


def array_functions(*values: Any) -> Any:
    """The library that has the functions for these values: JAX's if one of them is JAX's, traced or not; else NumPy.

    >>> array_functions(1.0, np.ones(2)).__name__
    'numpy'
    """
    libraries = [value.__array_namespace__() for value in values if hasattr(value, "__array_namespace__")]
    return next((library for library in libraries if library is not np), np)


# FedCLUP.


def proved_steps(lam: Any, smoothness: Any, convexity: Any) -> tuple[Any, Any, Any]:
    """(gamma, lr, K) under which the linear rate is proved; K is to be rounded up, and only lam may be traced.

    gamma = 1/(2 L_g) = (lam + L)/(2 lam L),  lr = 1/(lam + L),  K = 2 + (lam + L)/(lam + mu) ln(1056 (L/mu)^2).

    >>> [round(value, 6) for value in proved_steps(0.5, 3.0, 0.5)]
    [1.166667, 0.285714, 38.910168]
    """
    near, far = lam + convexity, lam + smoothness
    # Of two numbers the logarithm stays a plain number: one of NumPy's would decide the dtype beside a traced lam.
    steps = 2 + far / near * plain(np.log(1056 * (smoothness / convexity) ** 2))
    return far / (2 * lam * smoothness), 1 / far, steps


def noisy_steps(lam: Any, smoothness: Any, convexity: Any) -> tuple[Any, Any, Any]:
    """(gamma, lr, K) of Theorem 3, for gradients of batches; K is to be rounded up, and only lam may be traced.

    gamma = 1/(2 L_g);  lr = min{mu (lam + L)/(4 L (lam + mu)^2), 1/(lam + L)}, the step whose ball of noise is the
    smallest proved;  K the least with (2 + 64 L_w^2 lam^2/mu_g^2) (1 - lr (lam + mu))^K <= (1 - gamma L_g)^4 = 1/16,
    where L_w lam/mu_g = lam/mu.

    >>> [round(float(value), 6) for value in noisy_steps(0.5, 3.0, 0.5)]
    [1.166667, 0.145833, 44.16856]
    """
    near, far = lam + convexity, lam + smoothness
    xp = array_functions(lam)
    lr = xp.minimum(convexity * far / (4 * smoothness * near**2), 1 / far)
    steps = xp.log(16 * (2 + 64 * (lam / convexity) ** 2)) / -xp.log1p(-lr * near)
    return far / (2 * lam * smoothness), lr, steps


# Self-FL.


def precision(spread: Any, variance: Any) -> Any:
    """w_m = 1 / (spread + variance_m): how much client m's own estimate says about the centre.

    >>> precision(0.25, 1.0)
    0.8
    """
    return 1 / (spread + variance)


def pull(others: Any, spread: Any, rule: str = "bayes") -> Any:
    """How much the others say about theta_m, given A_m = `others`, the sum of their precisions.

    "paper": A_m;  "bayes": 1 / (spread + 1 / A_m), for the centre is known to 1/A_m and theta_m is `spread` off it.

    >>> pull(4.0, 0.75), pull(4.0, 0.75, "paper")
    (1.0, 4.0)
    """
    return others if rule == "paper" else others / (1 + spread * others)


def steps(variance: Any, pull: Any, rho: Any) -> Any:
    """The (real) number of steps from INIT_m to the estimate, when a step goes the part `rho` of the way to z_m.

    (1 - rho)^l = pull / (1 / variance + pull). A step that goes all the way, or further, is one step.

    >>> round(float(steps(1.0, 10.0, 0.01)), 2), float(steps(0.01, 10.0, 1.0))
    (9.48, 1.0)
    """
    xp = array_functions(variance, pull, rho)
    inside = xp.where(rho < 1, rho, 0.5)  # any number that has a logarithm
    return xp.where(rho < 1, xp.log1p(1 / (variance * pull)) / -xp.log1p(-inside), 1.0)


def whole_steps(variance: Any, pull: Any, rho: Any, most: Any) -> Any:
    """The same as a count from 1 to `most`.

    >>> int(whole_steps(1.0, 10.0, 0.01, most=40))
    9
    """
    xp = array_functions(variance, pull, rho)
    return xp.clip(xp.rint(steps(variance, pull, rho)), 1, most).astype("int32")


# All-for-all.


def neighbours(b: Any, eps: Any, oneself: Any) -> Any:
    """Lambda: row i is 1/N_i on the N_i clients with b_ij <= eps/2, and on `oneself` whatever b says.

    >>> b = np.array([[0.0, 0.1, 0.9], [0.1, 0.0, 0.9], [0.9, 0.9, 0.0]])
    >>> neighbours(b, 0.5, np.eye(3, dtype=bool)).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    near = (b <= eps / 2) | oneself
    return near / near.sum(axis=-1, keepdims=True)


def mixing(filter: Any) -> Any:
    """W = Lambda Lambda': whose gradients move whom. Symmetric, but its rows need not sum to 1.

    >>> mixing(np.array([[0.5, 0.5], [0.5, 0.5]])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    return filter @ filter.mT


def loneliness(filter: Any) -> Any:
    """S = sum of lambda_ij^2 = sum of 1/N_i: from N (all alone) to 1 (all together). N/S is the gain over alone.

    >>> float(loneliness(np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])))
    2.0
    """
    return (filter**2).sum(axis=(-1, -2))


def steady_step(largest: Any, lonely: Any, clients: Any, eps: Any, smoothness: Any, convexity: Any, noise: Any) -> Any:
    """min{1 / (2 L lambda_max), mu eps N / (2 L sigma^2 S)}: no larger than is stable, nor than the noise allows.

    >>> float(steady_step(1.0, 1.0, 1, 0.02, 1.0, 1.0, 0.25))
    0.04
    """
    quiet = convexity * eps * clients / (2 * smoothness * noise * lonely)
    stable = 1 / (2 * smoothness * largest)
    return array_functions(stable, quiet).minimum(stable, quiet)


def phase_step(lonely: Any, clients: Any, eps: Any, bound: Any) -> Any:
    """N eps / (2 B^2 S): the step of a phase of setting 1.

    >>> phase_step(1.0, 1, 0.02, 1.0)
    0.01
    """
    return clients * eps / (2 * bound**2 * lonely)


def phase_length(lonely: Any, eps: Any, bound: Any, distance: Any) -> Any:
    """4 D^2 B^2 S / eps^2: how many rounds it has.

    >>> phase_length(1.0, 0.02, 1.0, 1.0)
    10000.0
    """
    return 4 * distance**2 * bound**2 * lonely / eps**2


def steps_to_a_quarter(convexity: Any, step: Any) -> Any:
    """K = ceil(ln 4 / (mu step)): what is left of the squared error of before is then a quarter.

    >>> float(steps_to_a_quarter(1.0, 0.5))
    3.0
    """
    return array_functions(step).ceil(math.log(4) / (convexity * step))
