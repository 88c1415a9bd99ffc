"""Arithmetic on trees against NumPy, dtypes that stay, rows and bytes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece import tree

NUMBERS = st.floats(-100, 100, width=32)


def some(seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return {"w": rng.normal(size=(3, 2)).astype(dtype), "deep": [rng.normal(size=4).astype(dtype), ()]}


def leaves(*trees):
    return zip(*(jax.tree.leaves(t) for t in trees), strict=True)


@given(st.integers(0, 99), NUMBERS)
def test_arithmetic_is_numpys_leaf_by_leaf(seed, number):
    a, b = some(seed), some(seed + 1)
    f = np.float32(number)
    expected = {
        "add": lambda p, q: p + q,
        "sub": lambda p, q: p - q,
        "step": lambda p, q: p + f * q,
        "mix": lambda p, q: (1 - f) * p + f * q,
        "scale": lambda p, q: f * p,
    }
    got = {
        "add": tree.add(a, b),
        "sub": tree.sub(a, b),
        "step": tree.step(a, number, b),
        "mix": tree.mix(a, b, number),
        "scale": tree.scale(number, a),
    }
    for name, rule in expected.items():
        for p, q, result in leaves(a, b, got[name]):
            np.testing.assert_allclose(result, rule(p, q), rtol=1e-5, atol=1e-4, err_msg=name)


def test_the_inner_product_and_the_norm_run_over_all_leaves():
    a, b = some(0), some(1)
    flat = lambda t: np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(t)])
    np.testing.assert_allclose(tree.dot(a, b), flat(a) @ flat(b), rtol=1e-5)
    np.testing.assert_allclose(tree.norm(a), np.linalg.norm(flat(a)), rtol=1e-6)
    assert tree.norm(()) == 0


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("number", [np.float64(0.5), jnp.float32(0.5)])
def test_a_number_never_changes_the_dtype_of_a_model(dtype, number, x64):
    a = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), some(0))
    number = jnp.asarray(number)
    for result in (tree.scale(number, a), tree.step(a, number, a), tree.mix(a, a, number)):
        assert {leaf.dtype for leaf in jax.tree.leaves(result)} == {jnp.dtype(dtype)}


def test_structures_that_differ_are_refused():
    with pytest.raises(ValueError, match=r"structure|arity|keys"):
        tree.add({"w": 1.0}, {"v": 1.0})
    with pytest.raises(ValueError, match="zip"):
        tree.dot({"w": jnp.ones(1)}, {"w": jnp.ones(1), "v": jnp.ones(1)})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True))
def test_rows_that_are_put_are_the_rows_that_are_taken(places):
    rows = tree.stack([some(k) for k in range(5)])
    values = tree.stack([some(10 + k) for k in places])
    at = jnp.array(places)
    changed = tree.put(rows, at, values)
    for got, expected in leaves(tree.take(changed, at), values):
        np.testing.assert_array_equal(got, expected)
    others = jnp.array([k for k in range(5) if k not in places], int)
    for got, expected in leaves(tree.take(changed, others), tree.take(rows, others)):
        np.testing.assert_array_equal(got, expected)


def test_where_chooses_a_whole_tree_and_stops_what_is_not_a_number():
    nan = jax.tree.map(lambda leaf: leaf * np.nan, some(0))
    for got, expected in leaves(tree.where(jnp.array(False), nan, some(1)), some(1)):
        np.testing.assert_array_equal(got, expected)


def test_bytes_are_counted_from_shapes_alone():
    shapes = jax.eval_shape(
        lambda: {"w": jnp.zeros((10, 2)), "n": jnp.zeros((), jnp.int8), "h": jnp.zeros(3, jnp.bfloat16)}
    )
    assert tree.size_in_bytes(shapes) == 80 + 1 + 6
    assert tree.size_in_bytes(()) == 0
    assert tree.zeros(some(0))["w"].shape == (3, 2)
