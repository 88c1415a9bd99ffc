"""Convex problems whose sums clients keep: the server's side, by L-BFGS on pooled losses and gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import optimize

from apiece.protocol import Params, Tree

TOLERANCE = 1e-4  # the largest entry of a gradient that is as good as none


def minimize_pooled(
    ask: Callable[[Params], tuple[Any, Tree]], start: Params, ridge: float, evaluations: int
) -> tuple[Params, int]:
    """(where the sum of several problems is least, how often clients were asked), from `start`.

    `ask(models)` gives (value, gradient). Problems that have nothing to do with each other, such as those of several
    folds, are solved side by side as one: an exchange then serves all of them.

    >>> minimize_pooled(lambda w: (((w - 3) ** 2).sum(), 2 * (w - 3)), np.zeros(2), 0.0, 9)[0].round(3).tolist()
    [3.0, 3.0]
    """
    flat, rebuild = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), start))
    asked = 0

    def of(vector: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal asked
        asked += 1
        value, slope = ask(jax.tree.map(np.asarray, rebuild(jnp.asarray(vector, jnp.float32))))
        slope = np.asarray(ravel_pytree(slope)[0], np.float64)
        return float(value) + ridge / 2 * float(vector @ vector), slope + ridge * vector

    how = {"maxfun": evaluations, "maxiter": evaluations, "gtol": TOLERANCE, "maxcor": 20}
    found = optimize.minimize(of, np.asarray(flat, np.float64), jac=True, method="L-BFGS-B", options=how)
    return jax.tree.map(np.asarray, rebuild(jnp.asarray(found.x, jnp.float32))), asked
