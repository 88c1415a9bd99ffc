"""Losses example by example, and losses in which examples count differently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.client.weigh import each_loss, map_rows, weighted_loss
from apiece.models import objective, softmax
from apiece.protocol import Batch, Data

KEY, RNG, MODEL = jax.random.key(0), np.random.default_rng(0), softmax((3,), 4)
LOSS = objective(MODEL, "classification").loss
PARAMS = jax.tree.map(lambda leaf: jnp.array(RNG.normal(size=leaf.shape)), jax.eval_shape(MODEL.init, KEY))
BATCH = Batch(jnp.array(RNG.normal(size=(5, 3))), jnp.array([0, 1, 2, 3, 0]), jnp.array([1.0, 1, 1, 1, 0]))


def alone():
    logits = np.asarray(BATCH.x) @ np.asarray(PARAMS["w"]).T + np.asarray(PARAMS["b"])
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(5), np.asarray(BATCH.y)]


@pytest.mark.parametrize("factor", [[1, 1, 1, 1, 1], [2, 0.5, 1, 0, 9], [0.01, 0.02, 0, 0.3, 5], [0, 0, 0, 0, 1]])
def test_every_example_counts_by_its_factor_however_small_their_sum(factor):
    expected = (np.array(factor) * alone())[:4].sum() / 4
    np.testing.assert_allclose(weighted_loss(LOSS, PARAMS, BATCH, jnp.array(factor), KEY), expected, rtol=1e-5)


def test_factors_of_one_change_no_digit():
    ones = weighted_loss(LOSS, PARAMS, BATCH, jnp.ones(5), KEY)
    np.testing.assert_array_equal(ones, LOSS(PARAMS, BATCH, KEY))


def test_gradients_are_finite_where_nobody_counts():
    bare = lambda params, batch, key: (batch.weight * (params - batch.y) ** 2).sum() / batch.weight.sum()
    slope = jax.grad(lambda w: weighted_loss(bare, w, BATCH, jnp.zeros(5), KEY))(jnp.array(1.0))
    assert slope == 0


def test_each_example_has_the_loss_that_it_has_alone():
    np.testing.assert_allclose(each_loss(LOSS, PARAMS, BATCH, KEY), alone(), rtol=1e-5)


def test_rows_are_mapped_in_chunks_as_they_are_at_once():
    data = Data(jnp.arange(900.0), jnp.arange(900), 100, 599, 700)
    got = map_rows(lambda batch: (batch.x * batch.weight, batch.y), data, 700)
    np.testing.assert_array_equal(got[0], np.where(np.arange(700) < 599, 100 + np.arange(700), 0))
    assert got[1].shape == (700,)
