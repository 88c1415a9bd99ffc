"""A Gaussian hierarchy of clients: what each should borrow from the others, and how many gradient steps that is.

theta_m ~ N(theta_0, spread) are the clients' true models around a centre about which nothing is known beforehand;
z_m ~ N(theta_m, variance_m) is what client m estimates from its own data. Everything is per coordinate. Arithmetic on
numbers or arrays, NumPy's or JAX's; a vector holds one entry a client. What follows for all clients at once, with
expected errors, is in `apiece.theory.self_fl`.

Two rules. "bayes" is the posterior mean of theta_m. "paper" (Chen, Ding, et al. 2022) is the posterior mean if theta_m
were the centre itself: it takes the others' models for equally good estimates of one's own.
"""

from typing import Any

import jax.numpy as jnp

from apiece import tree
from apiece.protocol import Params

RULES = ("bayes", "paper")


def precision(spread: Any, variance: Any) -> Any:
    """w_m = 1 / (spread + variance_m): how much z_m says about the centre.

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


def without(x: Params, own: Params, weight: Any, others: Any) -> Params:
    """The others' mean sum_{k != m} w_k z_k / A_m, from the mean of all and one's own: x - (w_m / A_m) (own - x).

    >>> without(2.5, 1.0, 1.0, 1.0)
    4.0
    """
    return tree.step(x, -weight / others, tree.sub(own, x))


def steps_between(variance: Any, towards: Any, rho: Any) -> Any:
    """The (real) number of steps from INIT_m to the posterior mean, when a step goes the part `rho` of the way to z_m.

    (1 - rho)^l = pull / (1 / variance + pull). If the loss is a negative log-likelihood over n examples, a step of size
    lr along the gradient of a batch's mean loss has rho = lr / (n variance); along that of the sum over b, b times it.

    >>> round(float(steps_between(1.0, 10.0, 0.01)), 2)
    9.48
    """
    return jnp.log1p(1 / (variance * towards)) / -jnp.log1p(-rho)


def whole_steps(variance: Any, towards: Any, rho: Any, most: int) -> Any:
    """The same number as a count from 1 to `most`; a step that goes all the way, or further, is one step.

    >>> int(whole_steps(1.0, 10.0, 0.01, most=40)), int(whole_steps(0.01, 10.0, 1.0, most=40))
    (9, 1)
    """
    count = steps_between(variance, towards, jnp.where(rho < 1, rho, 0.5))  # 0.5: any number that has a logarithm
    return jnp.where(rho < 1, jnp.clip(jnp.rint(count), 1, most), 1).astype(jnp.int32)
