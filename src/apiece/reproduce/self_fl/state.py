"""What is asked of a trained run: the server's model, and how good it is."""

from collections.abc import Callable
from itertools import pairwise

import jax
import numpy as np

from apiece.engines.engine import RunState
from apiece.experiment.build import Arena
from apiece.protocol import Batch, Params

ROWS = 2000  # judged at a time


def shared_model(run: RunState) -> Params | None:
    """The server's model; None where it has none, or none of the clients' shape."""
    model = getattr(run.server, "x", run.server)
    alike: bool = jax.tree.structure(model) == jax.tree.structure(run.params)  # type: ignore[operator]
    return model if alike else None


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
