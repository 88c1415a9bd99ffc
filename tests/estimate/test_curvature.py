"""How long steps may be, against NumPy's eigenvalues and against steps themselves."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.estimate import find_longest_steps, measure_curvature
from apiece.methods import fed_avg
from apiece.models import linear, objective

RNG = np.random.default_rng(0)
OFFSETS = np.array([0, 5, 45, 60])
X = (RNG.normal(size=(60, 4)) * [1, 2, 0.1, 5] + [0, 1, 0, 3]).astype(np.float32)
Y = RNG.normal(size=60).astype(np.float32)
MODEL = linear((4,))
LOSS = objective(MODEL, "regression").loss


def engine(kind):
    return kind(lambda hyper, round: fed_avg(LOSS), X, Y, OFFSETS)


@pytest.mark.parametrize("kind", [Vectorized, Remote])
def test_curvature_is_the_largest_eigenvalue_of_each_clients_rows(kind):
    found = measure_curvature(engine(kind).ask, np.diff(OFFSETS))
    for i, (first, last) in enumerate(itertools.pairwise(OFFSETS)):
        rows = np.column_stack([X[first:last], np.ones(last - first)]).astype(np.float64)
        exact = np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]
        assert 0.97 * exact <= found.largest[i] <= exact * (1 + 1e-5)
        assert found.row[i] == pytest.approx(np.square(rows).sum(1).max(), rel=1e-5)


def test_batches_curve_more_than_all_rows_in_the_mean_square():
    found = measure_curvature(engine(Vectorized).ask, np.diff(OFFSETS))
    rows = np.column_stack([X[5:45], np.ones(40)]).astype(np.float64)
    # E[A^2] <= L_b E[A] for A of 8 rows that are drawn with replacement: the exact mean, in NumPy.
    mean = rows.T @ rows / 40
    squares = (np.square(rows).sum(1)[:, None, None] * rows[:, :, None] * rows[:, None, :]).mean(0)
    second = 7 / 8 * mean @ mean + squares / 8
    bound = found.of_batches(8)[1]
    assert np.linalg.eigvalsh(bound * mean - second)[0] > -1e-3 * bound
    assert bound > found.largest[1] and found.of_batches(8)[0] == found.largest[0]  # of five rows all are drawn


def test_a_range_test_ends_where_steps_on_pooled_rows_go_astray():
    params = MODEL.init(jax.random.key(0))
    test = find_longest_steps(engine(Vectorized).ask, LOSS, params)
    rows = np.column_stack([X, np.ones(60)])
    brink = 2 / np.linalg.eigvalsh(rows.T @ rows / 60)[-1]
    assert brink / 4 < test.longest < 2.5 * brink
    assert test.steps < 60


def test_a_loss_that_stands_everything_is_tested_up_to_the_end():
    flat = lambda w, batch, key: 0.0 * w + (batch.weight * batch.y).sum() / batch.weight.sum() + 10
    assert find_longest_steps(engine(Vectorized).ask, flat, jnp.zeros(())).longest > 5
