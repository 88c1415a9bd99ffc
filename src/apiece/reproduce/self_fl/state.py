"""What a trained Self-FL server knows: everybody's number of local steps, and how good the shared model is."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from apiece.experiment.build import Arena
from apiece.protocol import Batch, Params
from apiece.theory.formulas import precision, pull, whole_steps

ROWS = 2000  # judged at a time


def local_steps(server: Any, sizes: np.ndarray, options: dict[str, Any], coordinates: int) -> np.ndarray:
    """The l_m that the clients of known variance would take next; as `apiece.methods.self_fl` has it.

    >>> from types import SimpleNamespace
    >>> server = SimpleNamespace(variances=np.array([0.5, 1.0, 2.0]), spread=0.25, total=2.577778)
    >>> local_steps(server, np.ones(3), dict(lr=0.05, rule="paper", l_max=40), coordinates=1).tolist()
    [9, 9, 8]
    """
    variance, spread = np.asarray(server.variances, float), float(server.spread)
    known = variance > 0
    s, n = variance[known], np.asarray(sizes)[: len(variance)][known]
    others = float(server.total) - precision(spread, s)
    rho = options["lr"] / (n * s * coordinates)
    return np.asarray(whole_steps(s, pull(others, spread, options["rule"]), rho, options["l_max"]))


def shared_margins(place: Arena) -> Callable[[Params], np.ndarray]:
    """One model's margin (second class above the first) on every test example of the clients that train."""
    return _over_rows(place, lambda params, batch: place.objective.margins(params, batch)[2])  # type: ignore[misc]


def shared_accuracy(place: Arena) -> Callable[[Params], float]:
    """One model's accuracy on all test examples of the clients that train."""
    errors = _over_rows(place, lambda params, batch: place.objective.outcomes(params, batch)[1])
    return lambda params: 1 - float(errors(params).mean())


def _over_rows(place: Arena, judge: Callable[[Params, Batch], jax.Array]) -> Callable[[Params], np.ndarray]:
    x, y, offsets = place.splits["test"]
    rows = int(offsets[place.population])

    @jax.jit
    def piece(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        return judge(params, Batch(x, y, jax.numpy.ones(len(y))))

    def every(params: Params) -> np.ndarray:
        ends = [*range(0, rows, ROWS), rows]
        parts = [piece(params, x[a:b], y[a:b]) for a, b in pairwise(ends)]
        return np.concatenate([np.asarray(part) for part in parts])

    return every
