"""Shared and private parts, by rule and by name: nothing lost, nothing in both."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.models import mlp, softmax
from apiece.models.adapter import adapted
from apiece.split import divide, join, layers, part, paths, split, under
from apiece.split import given as holding

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


# Parts by name.

DEEP = mlp((4,), 3, hidden=(5,) * 12).init(jax.random.key(0))
# As a network of another library may name things: sorted by name, neither the first nor the last is at its place.
NETWORK = {
    "params": {
        "BatchNorm_0": {"scale": 1.0, "bias": 0.0},
        "Conv_0": {"kernel": 1.0, "bias": 0.0},
        "Dense_2": {"kernel": 1.0},
        "Dense_10": {"kernel": 1.0},
        "bn1": {"scale": 1.0},
    }
}
NAMED = {
    "block0": {"conv": {"w": 1.0}, "LayerNorm": {"scale": 1.0}},
    "head": {"w": 1.0},
    "stem": {"w": 1.0},
    "zoom": {"w": 1.0},
}
PARTS = [
    (DEEP, "input", ["hidden0/b", "hidden0/w"]),
    (DEEP, "output", ["out/b", "out/w"]),
    (DEEP, "hidden10, out/b", ["hidden10/b", "hidden10/w", "out/b"]),
    (DEEP, "hidden10/w/", ["hidden10/w"]),
    (PARAMS, "not output", ["hidden0/b", "hidden0/w", "hidden1/b", "hidden1/w"]),
    (PARAMS, "not hidden0, out", ["hidden1/b", "hidden1/w"]),
    (NETWORK, "input", ["params/Conv_0/bias", "params/Conv_0/kernel"]),
    (NETWORK, "output", ["params/Dense_10/kernel"]),
    (NETWORK, "norm", ["params/BatchNorm_0/bias", "params/BatchNorm_0/scale", "params/bn1/scale"]),
    (NAMED, "input", ["stem/w"]),
    (NAMED, "output", ["head/w"]),
    (NAMED, "norm", ["block0/LayerNorm/scale"]),
    ([{"w": 1.0}, {"w": 2.0}, {"w": 3.0}], "output", ["2/w"]),
    ({"normal": {"w": 1.0}, "norm": {"w": 1.0}}, "norm", ["norm/w"]),
]


@pytest.mark.parametrize(("params", "words", "expected"), PARTS)
def test_a_part_has_a_name(params, words, expected):
    shared, private = split(params, words)
    assert paths(private) == expected
    assert sorted(paths(shared) + expected) == sorted(paths(params))


def test_layers_stand_in_the_order_of_their_numbers():
    assert layers(paths(DEEP)) == [*(f"hidden{k}" for k in range(12)), "out"]


@pytest.mark.parametrize("words", ["input", "output"])
def test_the_one_layer_of_a_model_is_everything(words):
    with pytest.raises(UserError, match=f"private = '{words}': nothing is left to share.*private = 'b'"):
        split(softmax((4,), 3).init(jax.random.key(0)), words)


def test_a_misspelt_part_is_guessed():
    with pytest.raises(UserError, match=r"no parameter is private under private = 'outptu'.*did you mean 'output'"):
        split(PARAMS, "outptu")


def test_a_part_may_be_everything_where_one_divides():
    assert paths(divide(PARAMS, lambda path: True)[1]) == NAMES
    assert not paths(divide(PARAMS, part("nowhere", NAMES))[1])


def test_a_loss_of_one_part_holds_the_other():
    loss = lambda p, batch, key: p["a"] * p["b"] ** 2
    own = {"a": None, "b": jnp.array(3.0)}
    slope = jax.grad(holding(loss, {"a": jnp.array(2.0), "b": None}))(own, None, None)
    assert slope["a"] is None
    assert slope["b"] == 12


# Adapters.


def test_an_adapter_starts_without_effect_and_then_has_one():
    plain, key = mlp((6,), 3, hidden=(5,)), jax.random.key(0)
    model = adapted(plain, rank=2)
    params, x = model.init(key), jax.random.normal(key, (4, 6))
    assert paths(split(params, "adapter")[1]) == [
        "adapter/hidden0/w/a", "adapter/hidden0/w/b", "adapter/out/w/a", "adapter/out/w/b"
    ]  # fmt: skip
    before = plain.apply(params["model"], x)
    assert (model.apply(params, x) == before).all()
    params["adapter"]["out"]["w"]["b"] += 1.0
    after = plain.apply(params["model"] | {"out": {
        "w": params["model"]["out"]["w"] + jnp.ones((3, 2)) @ params["adapter"]["out"]["w"]["a"],
        "b": params["model"]["out"]["b"],
    }}, x)  # fmt: skip
    assert jnp.allclose(model.apply(params, x), after, atol=1e-5)
    assert not jnp.allclose(after, before)


def test_layers_of_an_adapted_model_are_the_models_own():
    params = adapted(mlp((6,), 3, hidden=(5,)), rank=2).init(jax.random.key(0))
    assert paths(split(params, "input")[1]) == ["model/hidden0/b", "model/hidden0/w"]
    assert paths(split(params, "output")[1]) == ["model/out/b", "model/out/w"]


def test_an_adapter_goes_where_it_is_wanted_and_fits():
    of = lambda **how: paths(adapted(mlp((6,), 3, hidden=(5,)), **how).init(jax.random.key(0))["adapter"])
    assert of(rank=4) == ["hidden0/w/a", "hidden0/w/b"]  # three outputs are too few for rank 4
    assert of(rank=4, where="output") == ["out/w/a", "out/w/b"]
    with pytest.raises(UserError, match=r"no matrix to adapt under 'nowhere'.*hidden0/b"):
        of(where="nowhere")
