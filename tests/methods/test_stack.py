"""Stack: candidates and weights against a NumPy program, and the methods that it is at its corners."""

import golden_ridge
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import methods
from apiece.client.linear import deal_folds
from apiece.data import from_rows
from apiece.errors import UserError
from apiece.experiment import fit
from apiece.models import linear, objective
from apiece.protocol import Data

SIZES = (14, 30)
OWNER = np.repeat(np.arange(2), SIZES)
TRAIN = np.zeros(sum(SIZES), int)
KEY = jax.random.key(3)
ALL = {"on_shared": 0.0, "on_path": 0.0, "on_nearer": 0.0, "on_local": 0.0, "on_groups": 0.0, "trust": 0.0}


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sum(SIZES), 3))
    own = np.array([[1.0, -2, 0], [2.0, -1, 1]])[OWNER]
    return x, (x * own).sum(axis=1) + 0.5 * rng.normal(size=len(x))


def pulled(x, y, center, lam):
    """(w, b) together of min mean (x p - y)^2 / 2 + lam/2 |p - center|^2, the intercept pulled as well."""
    ones = np.hstack([x, np.ones((len(y), 1))])
    return np.linalg.solve(ones.T @ ones / len(y) + lam * np.eye(4), ones.T @ y / len(y) + lam * center)


def candidates(x, y, center, lam, nearer, ridge):
    w, b = golden_ridge.ridge_regression(x, y, ridge)
    return np.stack(
        [center, pulled(x, y, center, lam / len(y)), pulled(x, y, center, nearer / len(y)), np.append(w, b)]
    )


def test_a_client_has_the_candidates_and_weights_of_a_numpy_program(x64):
    x, y = rows()
    x, y = x[:14], y[:14]
    pooled, trust = np.array([0.4, 0.3, 0.2, 0.1]), 0.2
    weights = dict(zip(("on_shared", "on_path", "on_nearer", "on_local"), 2 * pooled, strict=True))  # scaled to sum 1
    model = linear((3,))
    options = dict(lam=14.0, nearer=3.0, ridge=0.5, groups=1, trust=trust, **weights)
    method = methods.stack(objective(model, "regression").loss, model=model, **options)
    center = np.array([0.5, -1.0, 0.2, 0.1])
    shared = {"w": jnp.array(center[None, :3]), "b": jnp.array(center[3:])}
    got = method.personal((), shared, Data(jnp.array(x), jnp.array(y), 0, 14, 14), KEY)

    fold, ones = np.asarray(deal_folds(KEY, 14)), np.hstack([x, np.ones((14, 1))])
    densities = []
    for out in (0, 1):
        rest = fold != out
        models = candidates(x[rest], y[rest], center, 14.0, 3.0, 0.5)
        densities.append(np.exp(-((ones[~rest] @ models.T - y[~rest, None]) ** 2) / 2))
    p, w = np.concatenate(densities), pooled.copy()
    for _ in range(25):
        r = p * w
        r /= r.sum(axis=1, keepdims=True)
        w = (pooled + trust * r.sum(axis=0)) / (1 + trust * len(p))
    expected = candidates(x, y, center, 14.0, 3.0, 0.5)
    found = np.hstack([np.asarray(got.models["w"])[:, 0], np.asarray(got.models["b"])])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(got.pi, w, rtol=1e-6)
    said = method.predict(model.apply, got, jnp.array(x))
    np.testing.assert_allclose(said, ones @ expected.T @ w, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("weight", "other", "options"),
    [
        ("on_shared", "fed_avg", {}),
        ("on_local", "local_ridge", {"ridge": 0.5}),
        ("on_path", "rtfa", {"lam": 20.0, "by_size": True, "tune_epochs": 400, "tune_lr": 0.3}),
    ],
)
def test_all_weight_on_one_candidate_is_another_method(weight, other, options):
    x, y = rows()
    federation = from_rows(x, y, OWNER, split=TRAIN)
    own = {"groups": 1, **ALL, weight: 1.0, **{key: options[key] for key in ("lam", "ridge") if key in options}}
    ours = fit("stack", federation=federation, rounds=3, options={"batch": 0, "lr": 0.1, **own})
    theirs = {"lr": 0.1, "batch": 0} if other != "local_ridge" else {}
    that = fit(other, federation=federation, rounds=3, options={**options, **theirs})
    for client in ("0", "1"):
        np.testing.assert_allclose(ours.predict(client, x), that.predict(client, x), rtol=2e-3, atol=2e-3)


def test_all_weight_on_groups_finds_them_from_a_start_that_is_given():
    rng = np.random.default_rng(1)
    x, owner = rng.normal(size=(120, 2)), np.repeat(np.arange(6), 20)
    sign = np.where(owner % 2 == 0, 1.0, -1.0)
    federation = from_rows(x, 2 * sign * x[:, 0] + 0.1 * rng.normal(size=120), owner, split=np.zeros(120, int))
    members = [0, 1, 0, 1, 0, 1]
    options = {**ALL, "on_groups": 1.0, "groups": 2, "members": members, "batch": 0}
    found = fit("stack", federation=federation, rounds=30, options=options)
    for client in range(6):
        one = found.personal(str(client))
        np.testing.assert_allclose(np.asarray(one.models["w"][-1])[0], [2 * (-1) ** client, 0], atol=0.1)
    newcomer = found.onboard(x[:20], (-2 * x[:20, 0]).astype(np.float32))
    assert float(newcomer.models["w"][-1][0, 0]) < -1.8, "a new client chooses its group"


def test_groups_that_are_given_are_one_for_each_client():
    x, y = rows()
    with pytest.raises(UserError, match="option 'members' of method 'stack' has 3 values for 2 clients"):
        fit("stack", federation=from_rows(x, y, OWNER, split=TRAIN), rounds=1, options={"members": [0, 1, 0]})


def test_a_network_is_refused_with_a_sentence():
    with pytest.raises(UserError, match=r"solves linear models.*mlp.* is another"):
        fit("stack", "mlp", rounds=1).personal("0")


def test_a_pull_by_size_is_weaker_for_who_has_more():
    x, y = rows()
    federation = from_rows(x, y, OWNER, split=TRAIN)
    options = {"lam": 1e4, "tune_epochs": 50}
    far = lambda **more: fit("rtfa", federation=federation, rounds=1, options={**options, **more})
    shared = np.asarray(fit("fed_avg", federation=federation, rounds=1).personal("0")["w"])
    moved = [float(np.abs(np.asarray(far(by_size=True).personal(client)["w"]) - shared).max()) for client in "01"]
    assert 0 < moved[0] < moved[1] < 0.1


def test_a_client_that_is_to_be_alone_predicts_as_local_ridge_does_and_others_as_before():
    x, y = rows()
    federation = from_rows(x, y, OWNER, split=TRAIN)
    own = {"groups": 1, **ALL, "on_path": 1.0, "lam": 20.0, "ridge": 0.5, "batch": 0}
    plain = fit("stack", federation=federation, rounds=3, options=own)
    guarded = fit("stack", federation=federation, rounds=3, options={**own, "alone": [1, 0]})
    local = fit("local_ridge", federation=federation, rounds=1, options={"ridge": 0.5})
    np.testing.assert_allclose(guarded.predict("0", x), local.predict("0", x), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(guarded.predict("1", x), plain.predict("1", x), rtol=1e-6, atol=1e-6)
    newcomer = guarded.onboard(x[:14], y[:14].astype(np.float32))
    assert np.asarray(newcomer.pi).tolist() == [0, 1, 0, 0], "nobody has said that a new client is better off alone"
