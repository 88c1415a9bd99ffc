"""Shared and private parts: nothing lost, nothing in both, private leaves not in what is sent."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.models import mlp
from apiece.split import join, paths, split, under

PARAMS = mlp((4,), 3, hidden=(5, 2)).init(jax.random.key(0))
NAMES = paths(PARAMS)


@given(st.sets(st.sampled_from(NAMES), min_size=1, max_size=len(NAMES) - 1))
def test_a_split_joins_to_what_it_was(chosen):
    shared, private = split(PARAMS, lambda path: path in chosen)
    assert set(paths(private)) == chosen
    assert set(paths(shared)) == set(NAMES) - chosen
    whole = join(shared, private)
    assert jax.tree.structure(whole) == jax.tree.structure(PARAMS)
    assert all((a == b).all() for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(PARAMS), strict=True))


def test_paths_name_layers_and_positions():
    assert NAMES == ["hidden0/b", "hidden0/w", "hidden1/b", "hidden1/w", "out/b", "out/w"]
    assert paths([jnp.ones(1), {"w": jnp.ones(1)}]) == ["0", "1/w"]


def test_under_takes_a_layer_and_not_its_namesakes():
    private = split(PARAMS, under("out", "hidden1/b"))[1]
    assert paths(private) == ["hidden1/b", "out/b", "out/w"]
    assert not under("hidden")("hidden0/w")


def test_a_part_works_under_grad_and_jit():
    shared, private = split(PARAMS, under("out"))
    loss = lambda s: sum((leaf**2).sum() for leaf in jax.tree.leaves(join(s, private)))
    gradient = jax.jit(jax.grad(loss))(shared)
    assert paths(gradient) == paths(shared)


@pytest.mark.parametrize(
    ("rule", "complaint"), [(under("nowhere"), "hidden0/b"), (lambda path: True, "nothing is left")]
)
def test_a_rule_that_splits_nothing_is_refused(rule, complaint):
    with pytest.raises(UserError, match=complaint):
        split(PARAMS, rule)
