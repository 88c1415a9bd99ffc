"""Pre-train, freeze, federate the last layer: features are computed once and kept as an ordinary federation.

    start = pretrained(model, others)                        # the pooled rows of clients that are not federated
    last = features(model, start.params, federation)         # what the last layer sees of every example
    fit("ftfa", federation=last)                             # softmax regression, by any method

Pre-training may be federated itself, `fit("fed_avg", model, others)`: any parameters of the model will do.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from apiece.client.descend import descend
from apiece.data.federation import Federation
from apiece.data.splits import SPLITS, Split
from apiece.errors import UserError
from apiece.models.model import Model
from apiece.models.objective import objective
from apiece.models.outputs import check_outputs
from apiece.protocol import Batch, Data, Params

ROWS = 512  # examples that are looked at together


class Pretrained(NamedTuple):
    """The model's parameters, and its mean error on validation after every pass (`error` is the last).

    The error is a share of mistakes (at all places, for sequences), in regression the squared error.

    >>> Pretrained({}, [0.5, 0.25]).error
    0.25
    """

    params: Params
    errors: list[float]

    @property
    def error(self) -> float:
        """After the last pass."""
        return self.errors[-1]


def pretrained(
    model: Model,
    federation: Federation,
    *,
    epochs: int = 10,
    lr: float = 0.1,
    decay: float = 1.0,
    batch: int = 128,
    optimizer: optax.GradientTransformation | None = None,
    seed: int = 0,
    watch: Callable[[int, float], None] = lambda epochs, error: None,
) -> Pretrained:
    """Train a model centrally, on the pooled training rows of all clients: p <- p - lr G(p), in mini-batches.

    Args:
        epochs: passes over the rows. lr: step size, multiplied by `decay` after each pass. batch: examples a step.
        optimizer: any optax transformation of the gradient (`optax.scale_by_adam()`), before the step of size `lr`.
        watch: called with the passes done and the validation error (NaN where there are no validation rows).

    >>> from apiece.data import digits
    >>> from apiece.models import mlp
    >>> pretrained(mlp((64,), 10, hidden=(16,)), digits(clients=10), epochs=3, batch=32).error < 0.3
    True
    """
    if epochs < 1:
        raise UserError(f"epochs = {epochs} passes are no pre-training; take 1 or more")
    check_outputs(model, federation)
    judge, train = objective(model, federation.task), federation.train
    x, y = jnp.asarray(train.x), jnp.asarray(train.y)

    @jax.jit
    def once(params: Params, x: jax.Array, y: jax.Array, key: Any, lr: Any) -> Params:
        # Every pass starts the optimizer's memory anew: a few steps of hundreds.
        data = Data(x, y, 0, train.rows, train.rows)
        return descend(judge.loss, params, data, key, epochs=1, lr=lr, batch=batch, optimizer=optimizer)

    ask = jax.jit(lambda params, x, y: judge.outcomes(params, Batch(x, y, None))[1])
    held_out = federation.validation
    start, order = jax.random.split(jax.random.key(seed))
    params, errors = model.init(start), []
    for done in range(epochs):
        params = once(params, x, y, jax.random.fold_in(order, done), lr * decay**done)
        found = _in_batches(partial(ask, params), held_out.x, held_out.y)
        errors.append(float(found.mean(dtype=np.float64)) if held_out.rows else math.nan)
        watch(done + 1, errors[-1])
    return Pretrained(params, errors)


def features(model: Model, params: Params, federation: Federation, *, places: int | None = None) -> Federation:
    """The same clients, splits, labels and new clients; x are what the model's last layer sees of the examples.

    Computed once, in batches, as float32. Of a sequence, each place is an example of its own, or, with `places`, each
    of so many last ones. The features are as large as they come: `.standardized()` gives them one scale.

    >>> from apiece.data import digits
    >>> from apiece.models import mlp
    >>> model = mlp((64,), 10, hidden=(16,))
    >>> last = features(model, model.init(jax.random.key(0)), digits(clients=10))
    >>> last.clients, last.train.x.shape[1:], last.train.x.dtype.name
    (10, (16,), 'float32')
    """
    below = getattr(model, "features", None)
    if not callable(below):
        raise UserError(
            f"{getattr(model, 'name', 'this model')} does not tell what its last layer sees; give it such a function: "
            "model._replace(features=lambda params, x: ...)"
        )
    length = federation.train.y.shape[1] if federation.task == "next_character" else 1
    if federation.task != "next_character" and places is not None:
        raise UserError(f"places = {places} is for sequences, and {federation.name} has none; leave it out")
    kept = length if places is None else places
    if not 1 <= kept <= length:
        raise UserError(f"places = {places} must lie in 1..{length}, the length of a sequence of {federation.name}")

    @jax.jit
    def see(x: jax.Array) -> jax.Array:
        seen = below(params, x)
        return seen[:, -kept:] if federation.task == "next_character" else seen

    def seen(split: Split) -> Split:
        x = np.asarray(_in_batches(see, split.x), np.float32)
        if federation.task != "next_character":
            return replace(split, x=x)
        return Split(x.reshape(-1, *x.shape[2:]), split.y[:, -kept:].reshape(-1), split.offsets * kept)

    def side(federation: Federation) -> Federation:
        task = "classification" if federation.task == "next_character" else federation.task
        about: dict[str, Any] = dict(name=f"{federation.name} features", task=task, features=())
        parts: dict[str, Any] = {part: seen(getattr(federation, part)) for part in SPLITS}
        notes = (*federation.notes, f"examples are features, computed by {model.name}")
        new = None if federation.new is None else side(federation.new)
        return replace(federation, new=new, notes=notes, **parts, **about)

    return side(federation)


def _in_batches(function: Callable[..., jax.Array], *columns: np.ndarray) -> np.ndarray:
    """What a function of rows gives for all of them, so many at a time; the last batch is filled up."""
    rows = len(columns[0])
    fill = lambda part: np.concatenate([part, np.zeros((ROWS - len(part), *part.shape[1:]), part.dtype)])
    take = lambda first: [fill(np.asarray(column[first : first + ROWS])) for column in columns]
    parts = [np.asarray(function(*take(first)))[: rows - first] for first in range(0, max(rows, 1), ROWS)]
    return np.concatenate(parts)[:rows]
