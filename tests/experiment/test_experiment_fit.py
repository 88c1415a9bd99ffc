"""fit: a model, a method and a federation of one's own; personal models, predictions, newcomers."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from experiment_runs import SMALL, federation

from apiece import fit
from apiece.data import from_rows
from apiece.errors import UserError
from apiece.methods import fed_avg
from apiece.models import Objective, softmax
from apiece.protocol import Method

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)).astype(np.float32)
OWNER = np.arange(120) % 4
SLOPES = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], np.float32)
Y = (X * SLOPES[OWNER]).sum(1) + 0.01 * RNG.normal(size=120)
QUICK = dict(rounds=2, evaluate_every=2)


def own_federation():
    return from_rows(X, Y, OWNER, ids=["ann", "bob", "cid", "dee"])


@pytest.fixture(scope="module")
def ditto():
    return fit("ditto", federation=federation(), options={"lam": 0.5}, **SMALL["train"])


@pytest.fixture(scope="module")
def alone():
    return fit("local", federation=own_federation(), rounds=4, evaluate_every=2, options={"lr": 0.3})


def test_each_client_of_an_own_federation_gets_the_model_of_its_own_data(alone):
    for name, slopes in zip(["ann", "bob", "cid", "dee"], SLOPES, strict=True):
        np.testing.assert_allclose(alone.personal(name)["w"][0], slopes, atol=0.1)
    assert alone.evaluate()["test"]["r2"] > 0.95


def test_a_prediction_is_what_the_personal_model_says(alone):
    model = alone.personal("bob")
    np.testing.assert_allclose(alone.predict("bob", X[:5]), X[:5] @ model["w"][0] + model["b"][0], rtol=1e-5)


def test_examples_of_another_shape_are_not_predicted(alone):
    for x in (X[:5, :2], X[0]):
        with pytest.raises(UserError, match=r"a batch of examples of shape \(3,\) is needed"):
            alone.predict("bob", x)


def test_the_curve_has_a_look_at_validation_every_few_rounds(alone):
    assert [point["round"] for point in alone.curve] == [2, 4]
    assert alone.curve[1]["validation_loss"] < alone.curve[0]["validation_loss"]


def test_the_costs_of_a_fit_are_counted(ditto):
    assert (ditto.costs["visits"], ditto.costs["gradients"], ditto.costs["bytes_up"]) == (15, 15 * 40, 15 * 2600)


def test_an_unknown_client_suggests_the_nearest(alone):
    with pytest.raises(UserError, match="no client 'bobb' in rows: did you mean 'bob'"):
        alone.personal("bobb")


def test_the_watcher_is_told_of_every_round():
    seen = []
    fit("fed_avg", federation=own_federation(), rounds=5, evaluate_every=2, watch=seen.append)
    assert seen == [2, 2, 1]


def test_onboarding_gives_what_a_new_client_in_the_federation_gets(ditto):
    new = federation().new
    x, y = new.train.client(0)
    onboarded, own = ditto.onboard(x, y), ditto.personal(str(new.ids[0]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), onboarded, own)
    shared = ditto.run.server
    assert not np.allclose(onboarded["w"], shared["w"], atol=1e-3), "it learned from its own data"


def test_onboarding_changes_nobody_else(ditto):
    name = str(federation().ids[0])
    before = np.asarray(ditto.personal(name)["w"])
    ditto.onboard(np.zeros((4, 64), np.uint8), np.array([1, 2, 1, 2]))
    assert np.array_equal(ditto.personal(name)["w"], before)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((4, 63)), np.zeros(4)),
        (np.zeros((4, 8, 8)), np.zeros(4)),
        (np.zeros((4, 64)), np.zeros(3)),
        (np.zeros((0, 64)), np.zeros(0)),
        (np.zeros(64), np.zeros(64)),
    ],
)
def test_newcomers_of_another_shape_are_told_so(ditto, x, y):
    with pytest.raises(UserError, match=r"examples of shape \(64,\)"):
        ditto.onboard(x, y)


def test_any_pair_of_init_and_apply_is_a_model():
    def init(key, x):
        return {"layer": {"kernel": jnp.zeros((x.shape[-1],)), "bias": jnp.zeros(())}}

    def apply(params, x):
        return x @ params["layer"]["kernel"] + params["layer"]["bias"]

    own = fit("local", SimpleNamespace(init=init, apply=apply), own_federation(), rounds=2, options={"lr": 0.3})
    ours = fit("local", federation=own_federation(), rounds=2, options={"lr": 0.3})
    assert own.personal("ann")["layer"]["kernel"].shape == (3,)
    np.testing.assert_allclose(own.predict("ann", X[:3]), ours.predict("ann", X[:3]), atol=1e-5)


def test_what_has_no_init_and_apply_is_no_model():
    with pytest.raises(UserError, match="a model needs two functions, init and apply; object has not"):
        fit("local", object(), own_federation(), **QUICK)


@pytest.mark.parametrize(
    ("apply", "said"),
    [
        (lambda p, x: (x @ p)[:, None], r"gives outputs of shape \(1,\)"),  # would be broadcast against the targets
        (lambda p, x: jnp.stack([x @ p] * 2, 1), r"gives outputs of shape \(2,\)"),
        (lambda p, x: x @ p[:2], r"does not take examples of shape \(3,\)"),
        (lambda p, x: (x @ p, 0), r"does not take examples of shape \(3,\)"),
    ],
)
def test_models_whose_outputs_do_not_fit_are_refused(apply, said):
    with pytest.raises(UserError, match=said):
        fit("local", SimpleNamespace(init=lambda key: jnp.zeros(3), apply=apply), own_federation(), **QUICK)


def test_a_classifier_with_too_few_classes_is_refused():
    with pytest.raises(UserError, match=r"gives outputs of shape \(3,\) an example; this classification needs \(10,\)"):
        fit("fed_avg", softmax((64,), 3), federation(), **QUICK)


def test_a_method_of_ones_own_is_a_factory_with_options():
    def stubborn(loss, *, stride: float = 1.0) -> Method:
        base = fed_avg(loss, steps=1)
        return base._replace(merge=lambda x, replies, cohort, key: jax.tree.map(lambda leaf: leaf + stride, x))

    found = fit(stubborn, federation=own_federation(), rounds=3, evaluate_every=2, options={"stride": 2.0})
    np.testing.assert_allclose(found.personal("ann")["w"], 6.0)
    with pytest.raises(UserError, match="method 'stubborn' has no option 'strides': did you mean 'stride'"):
        fit(stubborn, federation=own_federation(), options={"strides": 2.0}, **QUICK)


def test_an_objective_of_ones_own_is_what_is_trained():
    def outcomes(params, batch):
        error = jnp.abs(batch.x @ params["w"][0] + params["b"][0] - batch.y)
        return error, error

    loss = lambda params, batch, key: jnp.sum(batch.weight * outcomes(params, batch)[0]) / batch.weight.sum()
    found = fit("local", None, own_federation(), objective=Objective(loss, outcomes), options={"lr": 0.1}, rounds=4)
    metrics = found.evaluate()["test"]
    assert metrics["loss"]["mean"] == metrics["error"]["mean"] < np.abs(Y).mean() / 2


def test_training_works_without_anything_held_out():
    everything = from_rows(X, Y, OWNER, shares=(1.0, 0.0, 0.0))
    found = fit("local", federation=everything, rounds=2, evaluate_every=1, options={"lr": 0.3})
    assert np.isnan(found.curve[-1]["validation_loss"])
    np.testing.assert_allclose(found.personal("3")["w"][0], SLOPES[3], atol=0.2)
    assert found.evaluate()["test"]["loss"]["clients_empty"] == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (dict(method="dito"), "unknown method 'dito': did you mean 'ditto'?"),
        (dict(options={"lam": "x"}), "is a finite number, not 'x'"),
        (dict(cohorts=3), "fit: unknown key 'train.cohorts': did you mean 'cohort'?"),
        (dict(rounds=0), "fit: 'train.rounds' = 0 is wrong"),
        (dict(seed=-1), "fit: 'seeds.0' = -1 is wrong"),
        (dict(cohort=5), "a cohort of 5 clients is more than the 4 there are"),
        (dict(cohort=2, probability=0.5), "exclude each other"),
        (dict(schedule="cosinus"), "fit: 'train.schedule' = 'cosinus' is wrong"),
        (
            dict(schedule="linear", schedule_options={"every": 3}),
            "schedule 'linear' has no option 'every': known: warmup",
        ),
    ],
)
def test_mistakes_in_a_fit_are_named(arguments, said):
    with pytest.raises(UserError) as caught:
        fit(**{"method": "ditto", "federation": own_federation(), **QUICK, **arguments})
    assert said in str(caught.value)


def test_the_same_seed_gives_the_same_fit_and_another_seed_another():
    small = {"batch": 4}  # or every batch would be all of a client's data, whatever the seed
    fits = [fit("fed_avg", federation=own_federation(), seed=seed, options=small, **QUICK) for seed in (0, 0, 1)]
    weights = [np.asarray(f.personal("ann")["w"]) for f in fits]
    assert np.array_equal(weights[0], weights[1]) and not np.array_equal(weights[0], weights[2])
