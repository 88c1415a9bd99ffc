"""StackTuned: last layers solve their own problem on what the network sees; the identities with other methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import methods
from apiece.models import mlp, objective
from apiece.protocol import Data

KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 2)).astype(np.float32), rng.normal(size=12).astype(np.float32)
    model = mlp((2,), 1, hidden=(3,))
    data = Data(jnp.asarray(x), jnp.asarray(y), 0, 12, 12)
    return model, objective(model, "regression").loss, model.init(jax.random.key(1)), data, jnp.asarray(x), y


def made(case, **options):
    model, loss, x, data, *_ = case
    return methods.stack_tuned(loss, model=model, **options).personal((), x, data, KEY)


def test_last_layers_are_ridge_regressions_towards_the_shared_one_on_the_features(case):
    model, _, params, _, x, y = case
    mixture = made(case, lam=6.0, nearer=1.2, trust=0.0, tune_lr=0.01)
    seen = np.hstack([np.asarray(model.features(params, x)), np.ones((12, 1))]).astype(np.float64)
    center = np.append(np.asarray(params["out"]["w"])[0], np.asarray(params["out"]["b"]))
    for at, pull in ((1, 6.0), (2, 1.2)):
        lam = pull / 12
        best = np.linalg.solve(seen.T @ seen / 12 + lam * np.eye(4), seen.T @ y / 12 + lam * center)
        out = mixture.models["out"]
        np.testing.assert_allclose(np.append(out["w"][at, 0], out["b"][at]), best, atol=2e-3)
    np.testing.assert_allclose(mixture.pi, 0.25, rtol=1e-6)  # without trust the pooled weights are everybody's


def test_a_strong_pull_gives_the_shared_model_and_a_part_leaves_the_rest_as_it_is(case):
    *_, params, _, _, _ = case
    mixture = made(case, lam=1e6, tune_part="input", tune_lr=0.05)
    one = lambda k: jax.tree.map(lambda leaf: leaf[k], mixture.models)
    for mine, theirs in zip(jax.tree.leaves(one(1)), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-3)
    np.testing.assert_array_equal(one(3)["out"]["w"], params["out"]["w"])
    assert jnp.abs(jax.tree.leaves(one(3))[0] - jax.tree.leaves(params)[0]).max() > 1e-4


def test_trusted_held_out_examples_move_weights_to_the_candidate_that_explains_them(case):
    model, loss, params, _, x, _ = case
    y = np.asarray(model.apply(params, x)) + 3  # a bias that only own last layers can have soon
    mixture = methods.stack_tuned(loss, model=model, lam=0.1, nearer=0.1, trust=10.0, tune_lr=1e-6).personal(
        (), params, Data(x, jnp.asarray(y), 0, 12, 12), KEY)  # fmt: skip
    assert mixture.pi[1] + mixture.pi[2] > 0.9
