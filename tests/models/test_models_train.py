"""Every model trains under every method, and the same on both engines; and what the models are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from model_runs import MODELS, fits, rotation
from product import keeps_its_shapes, trains_and_agrees

from apiece.errors import UserError
from apiece.methods import CATALOG
from apiece.models import adapted, char_lstm, cnn2, named_model, objective, resnet18, sensor_cnn, transformer
from apiece.models import catalog as named
from apiece.protocol import Batch
from apiece.split import paths, split


def test_every_model_of_the_catalog_is_here():
    assert named.MODELS.keys() <= MODELS.keys()


@pytest.mark.thorough
@pytest.mark.parametrize("model", MODELS)
def test_a_model_keeps_its_shapes_under_every_method_it_fits(model):
    keeps_its_shapes(model)


# Every method with one model and every model with one method or two: compiling is what takes the time.
SOON = [("softmax", "fed_dyn"), ("mlp", "fed_babu")]
LATER = [pair for pair in rotation(MODELS) if pair not in SOON]


@pytest.mark.parametrize(
    ("model", "method"), [*SOON, *(pytest.param(*pair, marks=pytest.mark.thorough) for pair in LATER)]
)
def test_a_model_trains_alike_on_both_engines(model, method):
    trains_and_agrees(model, method)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("model", "method"), [(m, n) for m in MODELS for n in CATALOG if fits(m, n)])
def test_every_model_trains_under_every_method_it_fits(model, method):
    trains_and_agrees(model, method)


@pytest.mark.parametrize(
    ("model", "first", "last"),
    [
        (cnn2((8, 8), 3, width=2), "conv0/w", "out/w"),
        (resnet18((8, 8), 3, width=2, blocks=(1,)), "stem/w", "out/w"),
        (sensor_cnn((8, 1), 3, width=2), "conv0/w", "out/w"),
        (char_lstm(5, width=4), "embed/w", "out/w"),
        (transformer(5, width=4, inner=4, heads=1, blocks=2), "embed/w", "out/w"),
    ],
)
def test_the_words_for_parts_fit_the_models_names(model, first, last):
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert first in paths(split(params, "input")[1])
    assert last in paths(split(params, "output")[1])
    own = paths(split(params, "output")[1])
    assert set(own) == {"out/b", "out/w"}


def test_norm_layers_are_found_by_their_word():
    params = jax.eval_shape(transformer(5, width=4, inner=4, heads=1, blocks=1).init, jax.random.key(0))
    assert {path.split("/")[-2] for path in paths(split(params, "norm")[1])} == {"norm", "norm0", "norm1"}


def test_adapters_start_as_the_model_and_reach_convolutions():
    plain = cnn2((4, 4), 3, width=4, hidden=(8,))
    model = adapted(plain, rank=2, where="conv1")
    params, x = model.init(jax.random.key(0)), jnp.ones((2, 4, 4))
    assert jax.tree.map(jnp.shape, params["adapter"]["conv1"]["w"]) == {"a": (2, 100), "b": (8, 2)}
    np.testing.assert_array_equal(model.apply(params, x), plain.apply(params["model"], x))
    params["adapter"]["conv1"]["w"]["b"] += 1.0
    row = params["adapter"]["conv1"]["w"]["a"].sum(0)
    moved = jax.tree.map(lambda leaf: leaf, params["model"])
    moved["conv1"]["w"] = moved["conv1"]["w"] + row.reshape(5, 5, 4, 1)
    np.testing.assert_allclose(model.apply(params, x), plain.apply(moved, x), rtol=1e-5)


def test_places_without_a_target_do_not_count():
    model = char_lstm(5, embed=2, width=4, layers=1)
    judge, params = objective(model, "next_character"), model.init(jax.random.key(0))
    x = jnp.array([[1, 2, 3, 4]])
    batch = lambda x, y: Batch(x, jnp.array([y]), jnp.ones(1))
    padded = judge.outcomes(params, batch(x, [2, 3, -1, -1]))
    short = judge.outcomes(params, batch(x[:, :2], [2, 3]))
    np.testing.assert_allclose(padded, short, rtol=1e-6)
    assert judge.outcomes(params, batch(x, [-1, -1, -1, -1]))[0].item() == 0


def test_one_target_an_example_is_judged_at_the_last_token():
    every, last = (char_lstm(5, embed=2, width=4, layers=1, every=e) for e in (True, False))
    params, x = every.init(jax.random.key(0)), jnp.array([[1, 2, 3], [4, 0, -1]])
    logits = every.apply(params, x)
    np.testing.assert_allclose(last.apply(params, x), logits[jnp.arange(2), jnp.array([2, 1])], rtol=1e-6)


def test_the_past_of_a_transformer_does_not_see_the_future():
    model = transformer(5, length=6, width=8, inner=8, heads=2, blocks=2)
    params, x = model.init(jax.random.key(0)), jnp.array([[1, 2, 3, 4, 0, 1]])
    other = x.at[0, 4].set(3)
    a, b = (model.apply(params, tokens) for tokens in (x, other))
    np.testing.assert_allclose(a[:, :4], b[:, :4], rtol=1e-6)
    assert not np.allclose(a[:, 4], b[:, 4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cnn22", "classification", (8, 8), 3), "did you mean 'cnn2'"),
        (("cnn2", "custom", (8, 8), 3), "does not fit a custom federation; take quadratic"),
        (("cnn2", "classification", (64,), 3), r"needs examples of shape \(height, width\)"),
        (("cnn5", "classification", (4, 4), 3), "too small"),
        (("char_lstm", "classification", (8, 8), 3), "takes sequences of tokens"),
    ],
)
def test_a_model_that_does_not_fit_says_so(arguments, message):
    with pytest.raises(UserError, match=message):
        named_model(*arguments)


def test_an_unknown_option_of_a_model_names_its_neighbour():
    with pytest.raises(UserError, match="model 'cnn2' has no option 'widht': did you mean 'width'"):
        named_model("cnn2", "classification", (8, 8), 3, options={"widht": 4})
