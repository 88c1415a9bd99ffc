"""Self-FL's Gaussian hierarchy: what each client should borrow, what it gains, and where the iteration ends.

theta_m ~ N(theta_0, spread) around a centre about which nothing is known beforehand, z_m ~ N(theta_m, variance_m) what
client m estimates alone; w_m = 1/(spread + variance_m), A_m = sum_{k != m} w_k, INIT_m = sum_{k != m} w_k z_k / A_m.
Every estimate is (1 - r_m) z_m + r_m INIT_m with r_m = pull_m / (1/variance_m + pull_m). Two rules for the pull:
"bayes", 1/(spread + 1/A_m), is the posterior mean of theta_m; "paper" (Chen, Ding et al. 2022), A_m, takes theta_m for
the centre itself. Clients on the last axis; leading axes broadcast, those of `spread` without the clients' axis.
"""

from typing import Any, NamedTuple

import numpy as np

from apiece.errors import UserError
from apiece.theory import formulas, plain
from apiece.theory.domain import above_zero, from_zero
from apiece.theory.formulas import RULES


class Hierarchy(NamedTuple):
    """Of each client: its precision w, the others' A, their pull, and the part r of the estimate that is theirs."""

    precision: np.ndarray
    others: np.ndarray
    pull: np.ndarray
    borrowed: np.ndarray


def hierarchy(variance: Any, spread: Any, rule: str = "bayes") -> Hierarchy:
    """The weights that follow from the variances.

    >>> hierarchy([0.5, 1.0, 2.0], 0.25).precision.round(6).tolist()
    [1.333333, 0.8, 0.444444]
    """
    if rule not in RULES:
        raise UserError(f"rule is one of {', '.join(RULES)}; got '{rule}'")
    (variance,), (spread,) = above_zero(variance=variance), from_zero(spread=spread)
    if variance.ndim == 0 or variance.shape[-1] < 2:
        raise UserError("variance has the clients on its last axis, two at least: there must be others to learn from")
    spread = spread[..., None]
    weight = formulas.precision(spread, variance)
    others = weight.sum(axis=-1, keepdims=True) - weight
    pull = formulas.pull(others, spread, rule)
    return Hierarchy(weight, others, pull, variance * pull / (1 + variance * pull))


def global_estimate(z: Any, variance: Any, spread: Any) -> tuple[Any, Any]:
    """(G, its variance): sum_m w_m z_m / sum_m w_m and 1 / sum_m w_m, the posterior of the centre.

    >>> [round(value, 6) for value in global_estimate([1.0, 2.0, 4.0], [0.5, 1.0, 2.0], 0.25)]
    [1.827586, 0.387931]
    """
    weight = hierarchy(variance, spread).precision
    total = weight.sum(axis=-1)
    return plain(np.sum(weight * np.asarray(z, float), axis=-1) / total), plain(1 / total)


def others_mean(z: Any, variance: Any, spread: Any) -> np.ndarray:
    """INIT_m, where a client starts: the mean of the others.

    >>> others_mean([1.0, 2.0, 4.0], [0.5, 1.0, 2.0], 0.25).round(6).tolist()
    [2.714286, 1.75, 1.375]
    """
    h = hierarchy(variance, spread)
    said = h.precision * np.asarray(z, float)
    return (said.sum(axis=-1, keepdims=True) - said) / h.others


def posterior(z: Any, variance: Any, spread: Any, rule: str = "bayes") -> tuple[np.ndarray, np.ndarray]:
    """(mean, variance as the rule believes it): (1 - r) z + r INIT and 1 / (1/variance + pull).

    The belief of "paper" is wrong under its own model; `errors` has the truth.

    >>> mean, believed = posterior([1.0, 2.0, 4.0], [0.5, 1.0, 2.0], 0.25)
    >>> mean.round(6).tolist(), believed.round(6).tolist()
    ([1.551724, 1.862069, 2.068966], [0.33908, 0.448276, 0.528736])
    """
    h, z = hierarchy(variance, spread, rule), np.asarray(z, float)
    mean = (1 - h.borrowed) * z + h.borrowed * others_mean(z, variance, spread)
    return mean, (1 - h.borrowed) * np.asarray(variance, float) + 0 * mean


def gain(variance: Any, spread: Any, rule: str = "bayes") -> np.ndarray:
    """GAIN_m = 1 + variance_m pull_m: how many times smaller than z_m's the rule believes its variance to be.

    >>> gain([0.5, 1.0, 2.0], 0.25, "paper").round(6).tolist()
    [1.622222, 2.777778, 5.266667]
    """
    return 1 + np.asarray(variance, float) * hierarchy(variance, spread, rule).pull


def gain_bound(own: Any, other: Any, spread: Any) -> Any:
    """What GAIN ("paper") exceeds when one other client's variance is `other`: own / (spread + other).

    >>> round(gain_bound(1.0, 0.01, 1.0), 6)
    0.990099
    """
    own, other, spread = *above_zero(own=own, other=other), *from_zero(spread=spread)
    return plain(own / (spread + other))


def printed_gain_bound(own: Any, other: Any) -> Any:
    """own / other, as the paper prints it: wrong, kept to show that it fails. It forgets that clients differ.

    >>> printed_gain_bound(1.0, 0.01)  # the gain is 1.99 if the spread is 1
    100.0
    """
    own, other = above_zero(own=own, other=other)
    return plain(own / other)


def steps(variance: Any, pull: Any, rho: Any) -> Any:
    """l, the (real) number of steps from INIT to the estimate when a step goes the part rho of the way to z.

    (1 - rho)^l = r. Gaussian loss and step size lr: rho = lr / variance. Batches of b out of n examples:
    rho = lr / (n variance) along the gradient of the batch's mean loss, b times that along the sum's. From rho = 1 on:
    one step.

    >>> round(steps(1.0, 10.0, 0.01), 6)
    9.483283
    """
    variance, pull, rho = above_zero(variance=variance, pull=pull, rho=rho)
    return plain(formulas.steps(variance, pull, rho))


def whole_steps(variance: Any, pull: Any, rho: Any, most: int = 40) -> Any:
    """The same as a count from 1 to `most`.

    >>> whole_steps([1.0, 0.011], 10.0, [0.01, 0.01 / 0.011]).tolist()
    [9.0, 1.0]
    """
    variance, pull, rho = above_zero(variance=variance, pull=pull, rho=rho)
    return plain(formulas.whole_steps(variance, pull, rho, most).astype(float))


def fixed_point(z: Any, variance: Any, spread: Any, rule: str = "paper") -> tuple[np.ndarray, Any]:
    """(everybody's model, the server's) at which Algorithm 1 ends, with exact numbers of steps: not the posterior.

    theta = (1 - r) z + r P theta, P_mk = w_k / A_m off the diagonal. The others' *personal* models are already drawn
    together when they are averaged; the gap to the posterior falls like 1/sqrt(M).

    >>> personal, server = fixed_point([1.0, 2.0, 4.0], [0.5, 1.0, 2.0], 0.25)
    >>> personal.round(6).tolist(), round(server, 6)
    ([1.282223, 1.640608, 1.907133], 1.501189)
    """
    personal = np.einsum("...mk,...k->...m", _ends(variance, spread, rule), np.asarray(z, float))
    return personal, global_estimate(personal, variance, spread)[0]


class Errors(NamedTuple):
    """E (estimate - theta_m)^2 of each client, by estimate: alone, the centre, the two rules, Algorithm 1's end."""

    local: np.ndarray
    centre: np.ndarray
    paper: np.ndarray
    bayes: np.ndarray
    fixed_point: np.ndarray


def errors(variance: Any, spread: Any) -> Errors:
    """The exact expectations under the hierarchy, for known variances.

    Alone: variance_m. The centre: spread (1 - 2 w_m/W) + 1/W, W = sum w. A rule: (1 - r)^2 variance_m
    + r^2 (spread + 1/A_m), for INIT_m is off by that. Algorithm 1's end ("paper") is T z with rows that sum to one:
    spread |T_m - e_m|^2 + sum_k T_mk^2 variance_k.

    >>> found = errors(np.ones(100), 1.0)
    >>> [round(float(each[0]), 4) for each in found[:4]]
    [1.0, 1.0, 0.9806, 0.505]
    """
    h = hierarchy(variance, spread, "paper")
    variance, wide = np.asarray(variance, float), np.asarray(spread, float)[..., None]
    total = h.precision.sum(axis=-1, keepdims=True)
    off = wide + 1 / h.others
    ruled = lambda part: (1 - part) ** 2 * variance + part**2 * off
    ends = _ends(variance, spread, "paper")
    away = np.sum((ends - np.eye(variance.shape[-1])) ** 2, axis=-1)
    return Errors(
        variance + 0 * off,
        wide * (1 - 2 * h.precision / total) + 1 / total,
        ruled(h.borrowed),
        ruled(hierarchy(variance, spread, "bayes").borrowed),
        wide * away + np.einsum("...mk,...k->...m", ends**2, variance + 0 * off),
    )


def _ends(variance: Any, spread: Any, rule: str) -> np.ndarray:
    """T, of theta = T z at the fixed point."""
    h = hierarchy(variance, spread, rule)
    eye = np.eye(h.precision.shape[-1])
    mean = h.precision[..., None, :] * (1 - eye) / h.others[..., None]
    return np.linalg.solve(eye - h.borrowed[..., None] * mean, eye * (1 - h.borrowed)[..., None])
