"""What a model is trained by (`loss`) and judged by (`outcomes`, example by example)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from apiece.errors import UserError, suggest
from apiece.models.model import Model
from apiece.protocol import Batch, Params
from apiece.shelf import Shelf

_MADE = Shelf(most=64)  # programs are compiled for an objective: the same one again compiles nothing


class Objective(NamedTuple):
    """`loss(params, batch, key)` is the weighted mean over the batch; `outcomes` gives (loss, error) per example.

    The error is 0/1 for classification (a share of places for sequences) and the squared error for regression.
    `error` is what the error of an objective of one's own is called in tables; less of it is better.

    >>> from apiece.models import linear
    >>> judge = objective(linear((1,)), "regression")
    >>> batch = Batch(jnp.ones((2, 1)), jnp.array([1.0, 3.0]), jnp.ones(2))
    >>> judge.outcomes(linear((1,)).init(jax.random.key(0)), batch)[1].tolist()
    [1.0, 9.0]
    """

    loss: Callable[[Params, Batch, Any], jax.Array]
    outcomes: Callable[[Params, Batch], tuple[jax.Array, jax.Array]]
    margins: Callable[[Params, Batch], tuple[jax.Array, jax.Array, jax.Array]] | None = None
    error: str = "error"


def objective(model: Model, task: str) -> Objective:
    """The objective of a task: log loss for "classification", half the squared error for "regression".

    Of the same model and task it is the same objective, so that what was compiled for it serves again.

    For "next_character" (or classification) with y [batch, length], an example's loss is the mean over its places, its
    error the share of wrong ones; places where y is -1 do not count.

    "custom" is for quadratic clients L(w) = w'Hw/2 - b'w, whose examples are (H, b), with `models.quadratic`.

    >>> from apiece.models import linear
    >>> judge = objective(linear((2,)), "regression")
    >>> batch = Batch(jnp.ones((2, 2)), jnp.array([1.0, 3.0]), jnp.array([1.0, 0.0]))
    >>> float(judge.loss(linear((2,)).init(jax.random.key(0)), batch, None))
    0.5
    """
    if task not in _PER_EXAMPLE:
        raise UserError(f"unknown task '{task}'; {suggest(task, _PER_EXAMPLE)}")
    return _MADE.take((model, task), lambda: _objective(model, _PER_EXAMPLE[task]))


def _objective(model: Model, judge: Callable[[Any, jax.Array], tuple[jax.Array, jax.Array]]) -> Objective:
    def outcomes(params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        return judge(model.apply(params, batch.x), batch.y)

    def loss(params: Params, batch: Batch, key: Any) -> jax.Array:
        return jnp.sum(batch.weight * outcomes(params, batch)[0]) / jnp.maximum(batch.weight.sum(), 1)

    def margins(params: Params, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        logits = model.apply(params, batch.x)
        return (*judge(logits, batch.y), logits[..., 1] - logits[..., 0])

    return Objective(loss, outcomes, margins)


def brier(model: Model) -> Objective:
    """Classifiers trained by log loss and judged by the Brier score: the squared error of the predicted probabilities.

    >>> from apiece.models import softmax
    >>> model = softmax((2,), 4)
    >>> batch = Batch(jnp.zeros((1, 2)), jnp.array([3]), jnp.ones(1))
    >>> round(float(brier(model).outcomes(model.init(jax.random.key(0)), batch)[1][0]), 3)
    0.75
    """
    log_loss = objective(model, "classification")

    def outcomes(params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        logits = model.apply(params, batch.x)
        right = jax.nn.one_hot(batch.y, logits.shape[-1], dtype=logits.dtype)
        return _classification(logits, batch.y)[0], jnp.square(jax.nn.softmax(logits) - right).sum(axis=-1)

    return Objective(log_loss.loss, outcomes, error="brier")


def _classification(logits: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    # A one-hot product is faster than taking the label's entry, forward and backward.
    picked = jnp.sum(jax.nn.one_hot(y, logits.shape[-1], dtype=logits.dtype) * logits, axis=-1)
    error = (jnp.argmax(logits, axis=-1) != y).astype(jnp.float32)
    loss = jax.nn.logsumexp(logits, axis=-1) - picked
    if y.ndim == 1:
        return loss, error
    present = (y >= 0).astype(loss.dtype)
    over_places = lambda each: jnp.sum(present * each, axis=1) / jnp.maximum(present.sum(1), 1)
    return over_places(loss), over_places(error)


def _regression(prediction: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    squared = jnp.square(prediction - y).reshape(len(y), -1).sum(axis=-1)
    return squared / 2, squared


def _quadratic(outputs: tuple[jax.Array, jax.Array], b: jax.Array) -> tuple[jax.Array, jax.Array]:
    w, bowl = outputs
    value = bowl - b @ w
    return value, value


_PER_EXAMPLE: dict[str, Callable[[Any, jax.Array], tuple[jax.Array, jax.Array]]] = {
    "classification": _classification,
    "next_character": _classification,
    "regression": _regression,
    "custom": _quadratic,
}
