"""Pooled questions: every engine answers the same, and the server sees sums."""

import jax.numpy as jnp
import numpy as np
import pytest
from every_engine import MAKE

from apiece.client.draw import whole
from apiece.data import statistics
from apiece.errors import UserError
from apiece.methods import fed_avg
from apiece.protocol import Question

SIZES = np.array([4, 0, 7, 1, 5])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
RNG = np.random.default_rng(0)
X = (RNG.normal(size=(SIZES.sum(), 3)) * [1, 10, 0.1] + [0, 5, 1]).astype(np.float32)
X[2, 1] = X[9, 0] = np.nan  # values that are missing
Y = RNG.normal(size=SIZES.sum()).astype(np.float32)


def build(hyper, round):
    return fed_avg(lambda params, batch, key: 0.0)


@pytest.fixture(scope="module", params=MAKE)
def engine(request):
    return MAKE[request.param](build, X, Y, OFFSETS, held_out={"test": (X[:5], Y[:5], np.arange(6))})


def test_scales_are_those_of_all_rows(engine):
    mean, spread = statistics.mean_and_spread(engine.ask)
    np.testing.assert_allclose(mean, np.nanmean(X, axis=0), rtol=1e-5)
    np.testing.assert_allclose(spread, np.nanstd(X, axis=0), rtol=1e-4)


def test_fills_are_the_medians_of_all_rows(engine):
    np.testing.assert_array_equal(statistics.medians(engine.ask), np.nanmedian(X.astype(np.float64), axis=0))


def test_answers_are_summed_or_stacked_as_the_question_says(engine):
    size = lambda message, data, key: jnp.asarray(data.size, jnp.int32) + message
    assert engine.ask(Question(size), jnp.int32(0)).tolist() == SIZES.sum()
    stacked = engine.ask(Question(size, stacked=True), jnp.int32(2), ids=[2, 0])
    assert stacked.tolist() == [9, 6]


def test_a_question_sees_the_clients_own_rows_of_the_part_asked_for(engine):
    total = lambda message, data, key: (whole(data).weight * whole(data).y).sum()
    found = engine.ask(Question(total, stacked=True), part="test", ids=[0, 3])
    np.testing.assert_allclose(found, Y[[0, 3]], rtol=1e-6)


def test_every_client_has_a_key_of_its_own_the_same_on_every_engine(engine):
    import jax

    draw = lambda message, data, key: jax.random.uniform(key)
    found = engine.ask(Question(draw, stacked=True), ids=[0, 2, 3])
    expected = [jax.random.uniform(jax.random.fold_in(jax.random.key(0), i)) for i in (0, 2, 3)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_part_that_is_not_there_is_named_with_the_nearest_one(engine):
    with pytest.raises(UserError, match="part = 'tets' is unknown: did you mean 'test'"):
        engine.ask(Question(lambda message, data, key: 0.0), part="tets")
