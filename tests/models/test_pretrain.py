"""Pre-train, freeze, federate the last layer: features are the model's, the federation is the same in all else."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import fit
from apiece.data import Federation, digits
from apiece.data.deal import from_rows
from apiece.data.splits import SPLITS
from apiece.errors import UserError
from apiece.models import adapted, char_lstm, cnn2, mlp, pretrain, sensor_cnn, softmax
from apiece.models.layers import dense
from apiece.models.pretrain import features, pretrained


@pytest.fixture(scope="module")
def federation():
    return digits(clients=12, alpha=0.5).hold_out_clients(0.25)


@pytest.fixture(scope="module")
def model():
    return mlp((64,), 10, hidden=(16,))


@pytest.fixture(scope="module")
def last(model, federation):
    return features(model, model.init(jax.random.key(1)), federation)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (mlp((4, 4), 3, hidden=(8,)), np.zeros((2, 4, 4), np.uint8)),
        (cnn2((4, 4), 3, width=2, hidden=(8,)), np.zeros((2, 4, 4), np.uint8)),
        (sensor_cnn((8, 2), 3, width=2, hidden=(4,)), np.zeros((2, 8, 2), np.float32)),
        (char_lstm(5, embed=2, width=4, layers=1), np.zeros((2, 6), np.int32)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_outputs_are_the_last_layer_on_the_features(model, x):
    params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(jax.random.key(0)))
    both = jax.jit(lambda params, x: (model.apply(params, x), dense(params["out"], model.features(params, x))))
    outputs, expected = both(params, x)
    np.testing.assert_allclose(outputs, expected, rtol=1e-6)


def test_an_adapted_model_has_the_features_of_its_adapted_weights(model):
    small = adapted(model, rank=2, where="hidden0")
    params = jax.tree.map(lambda leaf: leaf + 0.1, small.init(jax.random.key(0)))
    both = jax.jit(lambda p, x: (small.apply(p, x), dense(p["model"]["out"], small.features(p, x))))
    outputs, expected = both(params, np.ones((3, 64), np.uint8))
    np.testing.assert_allclose(outputs, expected, rtol=1e-5)
    assert (params["adapter"]["hidden0"]["w"]["b"] != 0).all(), "an adapter of zeros would change nothing"


def test_all_but_the_examples_stays(federation, last):
    assert last.task == "classification" and last.classes == federation.classes
    for one, other in ((federation, last), (federation.new, last.new)):
        np.testing.assert_array_equal(one.ids, other.ids)
        for part in SPLITS:
            np.testing.assert_array_equal(getattr(one, part).y, getattr(other, part).y)
            np.testing.assert_array_equal(getattr(one, part).offsets, getattr(other, part).offsets)
            assert getattr(other, part).x.shape[1:] == (16,) and getattr(other, part).x.dtype == np.float32
    assert "mlp 64-16-10" in last.notes[-1]


def test_features_are_those_of_every_row_however_many_are_looked_at_together(model, federation, last, monkeypatch):
    expected = model.features(model.init(jax.random.key(1)), jnp.asarray(federation.test.x))
    np.testing.assert_allclose(last.test.x, expected, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(pretrain, "ROWS", 7)
    again = features(model, model.init(jax.random.key(1)), federation)
    np.testing.assert_allclose(again.train.x, last.train.x, rtol=1e-5, atol=1e-6)


def test_features_can_be_saved_and_opened_and_an_empty_split_stays_empty(model, federation, last, tmp_path):
    opened = Federation.load(last.save(tmp_path / "features"))
    np.testing.assert_array_equal(opened.new.test.x, last.new.test.x)
    whole = digits(clients=3, shares=(1, 0, 0))
    assert features(model, model.init(jax.random.key(0)), whole).test.x.shape == (0, 16)


def test_one_scale_for_all_keeps_rare_features_small(last):
    together = last.standardized(together=True).train.x
    assert np.abs(together.mean(0)).max() < 1e-4
    assert np.square(together).mean() == pytest.approx(1, rel=1e-3)
    np.testing.assert_allclose(together.std(0) / together.std(0)[0], last.train.x.std(0) / last.train.x.std(0)[0], 1e-3)


def test_of_a_sequence_every_place_is_an_example_or_the_last_ones():
    walk = (np.arange(30)[:, None] + np.arange(7)) % 5
    texts = from_rows(walk[:, :-1].astype(np.uint8), walk[:, 1:], np.arange(30) % 3, classes=tuple("abcde"))
    model = char_lstm(5, embed=2, width=4, layers=1)
    params = model.init(jax.random.key(0))
    every, ends = features(model, params, texts), features(model, params, texts, places=1)
    assert every.task == ends.task == "classification"
    np.testing.assert_array_equal(every.train.sizes, 6 * texts.train.sizes)
    np.testing.assert_array_equal(ends.train.y, texts.train.y[:, -1])
    np.testing.assert_array_equal(every.train.y, texts.train.y.reshape(-1))
    np.testing.assert_allclose(ends.train.x, every.train.x[5::6], rtol=1e-6)
    with pytest.raises(UserError, match=r"1\.\.6"):
        features(model, params, texts, places=7)


def test_what_cannot_be_is_said(model, federation):
    plain = softmax((64,), 10)
    with pytest.raises(UserError, match="_replace"):
        features(plain, plain.init(jax.random.key(0)), federation)
    with pytest.raises(UserError, match="sequences"):
        features(model, model.init(jax.random.key(0)), federation, places=1)
    with pytest.raises(UserError, match="epochs"):
        pretrained(model, federation, epochs=0)


@pytest.mark.thorough
def test_pretraining_learns_from_training_rows_alone_and_tells_its_error(model, federation):
    others, mine = federation.take(range(4)), federation.take(range(4, 9))
    told = []
    start = pretrained(model, others, epochs=8, batch=32, watch=lambda epochs, error: told.append((epochs, error)))
    wrong = model.apply(start.params, jnp.asarray(others.validation.x)).argmax(1) != others.validation.y
    assert start.error == pytest.approx(float(wrong.mean())) and told[-1] == (8, start.error)
    assert start.error < 0.3 < start.errors[0]
    blank = lambda split: replace(split, x=np.zeros_like(split.x), y=np.zeros_like(split.y))
    blind = replace(others, validation=blank(others.validation), test=blank(others.test))
    jax.tree.map(np.testing.assert_array_equal, start.params, pretrained(model, blind, epochs=8, batch=32).params)
    result = fit("fed_avg", federation=features(model, start.params, mine), rounds=50)
    as_it_came = (model.apply(start.params, jnp.asarray(mine.test.x)).argmax(1) == mine.test.y).mean()
    assert result.evaluate()["test"]["accuracy"]["mean_weighted"] > as_it_came, "a last layer of their own is better"


@pytest.mark.slow
def test_pretraining_may_be_federated(model, federation):
    others, mine = federation.take(range(4)), federation.take(range(4, 9))
    shared = fit("fed_avg", model, others, rounds=2, options={"steps": 2}).personal(others.ids[0])
    assert features(model, shared, mine).clients == 5
