"""How long steps may be: the curvature of clients' losses, and a test of ever longer steps.

For a linear model and half the squared error, a client's Hessian is X'X/n, X its rows with a 1 for the intercept, and
steps above 2/L, L its largest eigenvalue, go ever further astray. Of log losses, p = softmax(Wx), it is X'X/n times
diag(p) - pp', whose largest eigenvalue is 1/K before the first step, p = 1/K, and never above 1/2. A batch of b rows
curves more than all n together: in the mean over draws, lr E[A^2] <= 2 E[A] of its A = X_b'X_b/b bounds lr, and
E[A^2] <= ((b - 1)/b L + R/b) E[A], R the largest |x|^2 of a row (Ma, Bassily and Belkin 2018).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece import tree
from apiece.client.descend import gradient
from apiece.client.draw import draw, numbers, shuffler, whole
from apiece.protocol import Data, Loss, Message, Params, Question, Tree

ITERATIONS = 20  # of a power iteration: the largest eigenvalue to a few percent, never above it
BATCH = 32  # examples of a client in a step of the range test
SIZES = tuple(1e-3 * 2.5**k for k in range(11))  # step sizes of the range test, up to 9.5
STEPS = 4  # with each of them
WORSE = 1.5  # a loss so many times the initial one is of steps that are too long


class Curvature(NamedTuple):
    """Of each client, how many rows it has, the largest eigenvalue of X'X/n, and the largest |x|^2 of a row.

    >>> float(1 / Curvature(np.array([10]), np.array([4.0]), np.array([8.0])).of_batches(0).max())
    0.25
    """

    sizes: np.ndarray
    largest: np.ndarray
    row: np.ndarray

    def of_batches(self, batch: int) -> np.ndarray:
        """The curvature that steps on batches of so many rows meet, of each client; 0: on all rows.

        >>> Curvature(np.array([10, 100]), np.array([2.0, 2.0]), np.array([8.0, 8.0])).of_batches(32).tolist()
        [2.0, 2.1875]
        """
        if not batch:
            return self.largest
        drawn = self.largest * (1 - 1 / batch) + self.row / batch
        return np.where(self.sizes <= batch, self.largest, drawn)


def _of_rows(message: Message, data: Data, key: Tree) -> tuple:
    """(largest eigenvalue of X'X/n, largest |x|^2) of the client's own rows with an intercept, by power iteration."""
    batch = whole(data)
    x = numbers(batch.x.reshape(len(batch.weight), -1))
    x = jnp.where(batch.weight[:, None] > 0, jnp.concatenate([x, jnp.ones((len(x), 1), x.dtype)], axis=1), 0)
    size = jnp.maximum(batch.weight.sum(), 1)

    def again(_: Tree, v: jax.Array) -> jax.Array:
        v = x.T @ (x @ v)
        return v / jnp.linalg.norm(v)  # never of 0: the intercept is there

    v = lax.fori_loop(0, ITERATIONS, again, jnp.abs(jax.random.normal(key, x.shape[1:], x.dtype)))
    return jnp.sum(jnp.square(x @ v)) / jnp.sum(v * v) / size, jnp.sum(x * x, axis=1).max()


ROWS = Question(_of_rows, stacked=True)  # a maximum is no sum, and whose it is helps to mend it


def measure_curvature(ask: Callable[..., Tree], sizes: np.ndarray) -> Curvature:
    """The curvature of every client's rows: one exchange, in which each client sends two numbers.

    Args:
        ask: `Engine.ask`, or its like. sizes: the clients' numbers of rows.

    >>> x = jnp.array([[3.0], [4.0]])
    >>> ask = lambda question: jax.tree.map(lambda leaf: leaf[None], question.answer(
    ...     (), Data(x, None, 0, 2, 2), jax.random.key(0)))
    >>> found = measure_curvature(ask, np.array([2]))
    >>> found.largest.round(3).tolist(), found.row.tolist()
    ([13.481], [17.0])
    """
    largest, row = (np.asarray(found, np.float64) for found in ask(ROWS))
    return Curvature(np.asarray(sizes), largest, row)


class RangeTest(NamedTuple):
    """The longest steps that the loss stood (the shortest tried, if none), and how many steps were taken in all.

    >>> RangeTest(longest=0.1, steps=30)._fields
    ('longest', 'steps')
    """

    longest: float
    steps: int


def find_longest_steps(ask: Callable[..., Tree], loss: Loss, params: Params) -> RangeTest:
    """Longer and longer steps on the clients' pooled batches, a few of each size from the initial model, until the loss
    goes up.

    Args:
        ask: `Engine.ask` of the clients to take part, or its like. loss: the clients'. params: the initial model.

    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2).sum() / batch.weight.sum()  # curvature 2
    >>> y = jnp.array([4.0, 4.0])
    >>> ask = lambda question, message: jax.jit(question.answer)(message, Data(y, y, 0, 2, 2), jax.random.key(0))
    >>> 0.4 <= find_longest_steps(ask, loss, jnp.zeros(())).longest <= 1.0
    True
    """
    question, longest, taken, first = Question(_slope_of(loss)), SIZES[0], 0, np.inf
    for lr in SIZES:
        at = params
        for step in range(STEPS + 1):
            total, slope, size = ask(question, (at, np.int32(step)))
            taken += 1
            now = float(total) / float(size)
            first = now if taken == 1 else first
            if not now <= WORSE * first:  # or it is no number
                return RangeTest(longest, taken)
            at = tree.step(at, -lr / float(size), slope)
        longest = lr
    return RangeTest(longest, taken)


def _slope_of(loss: Loss) -> Callable[..., Any]:
    def answer(message: Message, data: Data, key: Tree) -> tuple:
        params, step = message
        draw_key, loss_key = jax.random.split(jax.random.fold_in(key, step))
        batch = draw(data, shuffler(draw_key, data.size), BATCH)
        size = batch.weight.sum()
        slope = gradient(loss, params, batch, loss_key)
        return size * loss(params, batch, loss_key), tree.scale(size, slope), size

    return answer
