"""kNN-Per: its golden numbers, the methods it becomes at both ends of its mixture, and what it refuses."""

import dataclasses

import golden_neighbours as golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from apiece import fit, methods
from apiece.data import digits
from apiece.engines.costs import costs
from apiece.errors import UserError
from apiece.models import char_lstm, linear, mlp, objective, quadratic, softmax
from apiece.protocol import Data

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
OWN, OTHERS = 14, 5  # examples of the client, and of its neighbours in the flat array
X = RNG.normal(size=(OTHERS + OWN + OTHERS, 4))
Y = RNG.integers(0, 3, len(X))
QUERIES = RNG.normal(size=(6, 4))
MODELS = {"softmax": softmax((4,), 3), "mlp": mlp((4,), 3, hidden=(7,)), "linear": linear((4,))}
close = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)


def mine(y=Y, capacity=20):
    return Data(jnp.array(X), jnp.array(y), OTHERS, OWN, capacity)


def started(name):
    """A model, and parameters that are not zero."""
    model = MODELS[name]
    leaves, structure = jax.tree.flatten(model.init(KEY))
    return model, jax.tree.unflatten(structure, [jnp.array(RNG.normal(size=leaf.shape)) for leaf in leaves])


def said(model, params, data, x=QUERIES, **options):
    method = methods.knn_per(lambda params, batch, key: 0.0, model=model, **options)
    memory = method.personal(method.enroll(params, params, data, KEY), params, data, KEY)
    return np.asarray(method.predict(model.apply, memory, jnp.array(x)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("neighbours", [1, 4, 100])
@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_classes_follow_the_golden_program(name, neighbours):
    model, params = started(name)
    see = (lambda x: x) if name == "softmax" else lambda x: np.asarray(model.features(params, jnp.array(x)))
    memory, labels = see(X[OTHERS : OTHERS + OWN]), Y[OTHERS : OTHERS + OWN]
    logits = np.asarray(model.apply(params, jnp.array(QUERIES)))
    expected = golden.classes(see(QUERIES), logits, memory, labels, neighbours, 0.3, 2.5)
    close(np.exp(said(model, params, mine(), mix=0.3, neighbours=neighbours, scale=2.5)), expected)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("outputs", [1, 2])
def test_numbers_follow_the_golden_program(outputs):
    model = linear((4,), outputs)
    params = jax.tree.map(lambda leaf: jnp.array(RNG.normal(size=leaf.shape)), model.init(KEY))
    targets = RNG.normal(size=(len(X), outputs)) if outputs > 1 else RNG.normal(size=len(X))
    own = slice(OTHERS, OTHERS + OWN)
    expected = golden.numbers(
        QUERIES, np.asarray(model.apply(params, jnp.array(QUERIES))), X[own], targets[own], 4, 0.3, 2.5
    )
    close(said(model, params, mine(targets), mix=0.3, neighbours=4, scale=2.5), expected)


@pytest.mark.usefixtures("x64")
def test_neighbours_alone_are_those_of_scikit_learn():
    model, params = started("softmax")
    own = slice(OTHERS, OTHERS + OWN)
    by_distance = lambda distances: np.exp(-(distances**2))
    theirs = KNeighborsClassifier(5, weights=by_distance).fit(X[own], Y[own]).predict_proba(QUERIES)
    close(np.exp(said(model, params, mine(), mix=1.0, neighbours=5)), theirs)


@pytest.mark.usefixtures("x64")
def test_without_neighbours_it_says_what_the_shared_model_says():
    for name, data in (("mlp", mine()), ("linear", mine(RNG.normal(size=len(X))))):
        model, params = started(name)
        outputs = model.apply(params, jnp.array(QUERIES))
        expected = outputs if name == "linear" else jax.nn.log_softmax(outputs)
        np.testing.assert_array_equal(said(model, params, data, mix=0.0), expected)


def test_the_shared_model_is_that_of_fed_avg_to_the_last_digit():
    clients = digits(clients=6)
    ours, theirs = (fit(name, federation=clients, rounds=3) for name in ("knn_per", "fed_avg"))
    jax.tree.map(np.testing.assert_array_equal, ours.personal("3").params, theirs.personal("3"))


@pytest.mark.usefixtures("x64")
def test_room_beyond_the_examples_never_matters():
    model, params = started("softmax")
    tight, roomy, chunked = (said(model, params, mine(capacity=rows)) for rows in (OWN, 20, 300))
    close(roomy, tight)
    close(chunked, tight)


def test_who_has_no_examples_hears_the_shared_model_alone():
    model = MODELS["softmax"]
    params = jax.tree.map(jnp.ones_like, model.init(KEY))
    nobody = dataclasses.replace(mine(), size=0)
    expected = jax.nn.log_softmax(model.apply(params, jnp.array(QUERIES)))
    np.testing.assert_allclose(said(model, params, nobody, mix=0.9), expected, atol=1e-6)


def test_far_from_everybody_the_nearest_still_counts_and_a_class_that_nobody_has_is_not_impossible():
    model = MODELS["softmax"]
    got = said(model, model.init(KEY), mine(np.where(Y == 2, 0, Y)), 1e4 + QUERIES, mix=1.0)
    assert np.isfinite(got).all()
    np.testing.assert_allclose(np.exp(got).sum(1), 1, atol=1e-5)


def test_to_remember_costs_no_gradients_and_sends_nothing():
    model = MODELS["mlp"]
    params, example = model.init(KEY), (jnp.array(X[:1], jnp.float32), jnp.array(Y[:1]))
    loss = objective(model, "classification").loss
    ours, theirs = (
        costs(method, params, example, 40)
        for method in (methods.knn_per(loss, model=model, steps=5), methods.fed_avg(loss, steps=5))
    )
    assert ours == theirs and ours.gradients == 5


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        (char_lstm(5, embed=2, width=3, layers=1), np.zeros((2, 4), int), np.zeros((2, 4), int)),
        (quadratic(4), np.zeros((2, 4, 4)), np.zeros((2, 4))),
    ],
)
def test_what_has_no_single_answer_is_refused(model, x, y):
    method, params = methods.knn_per(lambda params, batch, key: 0.0, model=model), model.init(KEY)
    with pytest.raises(UserError, match="'knn_per' mixes the class or the numbers of an example with its neighbours'"):
        method.enroll(params, params, Data(jnp.array(x), jnp.array(y), 0, 2, 2), KEY)


def test_a_client_of_unknown_size_is_refused():
    model = MODELS["softmax"]
    with pytest.raises(UserError, match="give Data its capacity"):
        said(model, model.init(KEY), mine(capacity=None))
