"""Means over replies: weights, absent rows, dtypes."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.aggregate import mean, plain_mean

WEIGHTS = st.lists(st.just(0.0) | st.floats(0, 1e4, width=32, allow_subnormal=False), min_size=6, max_size=6).filter(
    lambda w: max(w) > 1e-3
)


@given(WEIGHTS, st.integers(0, 99))
def test_the_mean_is_numpys_over_those_who_have_weight(weights, seed):
    w = np.array(weights, np.float32)
    leaf = np.random.default_rng(seed).normal(size=(len(w), 2, 3)).astype(np.float32)
    got = mean({"a": jnp.asarray(leaf), "b": jnp.asarray(leaf[:, 0, 0])}, jnp.asarray(w))
    expected = np.average(leaf.astype(float), axis=0, weights=w.astype(float))
    np.testing.assert_allclose(got["a"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["b"], expected[0, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain_mean(jnp.asarray(leaf), jnp.asarray(w)), leaf[w > 0].mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [mean, plain_mean])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 3e38])
def test_rows_of_weight_zero_never_matter(rule, poison):
    leaf = jnp.array([[1.0, 2.0], [poison, poison], [3.0, 4.0]])
    clean = leaf.at[1].set(0)
    w = jnp.array([1.0, 0.0, 3.0])
    np.testing.assert_array_equal(rule(leaf, w), rule(clean, w))


@pytest.mark.parametrize("rule", [mean, plain_mean])
def test_nobody_gives_no_update(rule):
    np.testing.assert_array_equal(rule(jnp.full((2, 3), np.nan), jnp.zeros(2)), np.zeros(3))


@pytest.mark.parametrize("rule", [mean, plain_mean])
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_the_mean_keeps_the_dtype(rule, dtype):
    assert rule(jnp.ones((2, 3), dtype), jnp.array([1.0, 2.0])).dtype == dtype


def test_equal_rows_are_their_own_mean_for_any_sizes():
    row = jnp.array([0.1, -7.0])
    np.testing.assert_allclose(mean(jnp.tile(row, (3, 1)), jnp.array([1e-3, 1e6, 7.0])), row, rtol=1e-6)
