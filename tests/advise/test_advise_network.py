"""Advice for networks: the hold-out is unseen by the pilot, parts are told apart, and what is advised runs."""

import jax
import numpy as np
import pytest

from apiece.advise import advise
from apiece.advise.network import SETTINGS, candidate_names, network_of, without_fold
from apiece.advise.network_choice import Tuning, pick_of_network
from apiece.client.linear import deal_folds
from apiece.data import from_rows
from apiece.experiment import build as setup
from apiece.experiment.compare import run_spec
from apiece.experiment.opened import open as open_run
from apiece.experiment.spec import make_spec
from apiece.experiment.spec_tables import ModelSpec
from apiece.methods.head import see
from apiece.methods.stack_tuned import head_in, with_head
from apiece.models import adapted, mlp

CLIENTS, ROWS = 8, 32


def federation(seed=0):
    """Two classes; half of the clients call the left side 1, the others the right."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(CLIENTS), ROWS)
    x = rng.normal(size=(len(owner), 2)).astype(np.float32)
    y = x[:, 0] * np.where(owner % 2, 1, -1) > 0
    return from_rows(x, y.astype(int), owner, split=np.tile([0] * 6 + [1, 2], len(x) // 8), classes=("in", "out"))


def place_of(model="mlp"):
    given = federation()
    return setup.arena(given, setup.model_of(ModelSpec(name=model, hidden=[4]), given))


def test_the_pilot_never_sees_the_fold_that_it_is_judged_on():
    place = place_of()
    kept = without_fold(place, seed=3)
    for i in range(CLIENTS):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(jax.random.key(0), i), 0x666F6C64), 3)
        start, end = place.offsets[i : i + 2]
        stays = np.asarray(deal_folds(key, 24)) != SETTINGS[0][0]
        mine = slice(*kept.offsets[i : i + 2])
        np.testing.assert_array_equal(np.asarray(kept.x[mine]), np.asarray(place.x[start:end])[stays])
        np.testing.assert_array_equal(np.asarray(kept.y[mine]), np.asarray(place.y[start:end])[stays])


def test_the_parts_of_a_network_are_candidates_and_the_best_of_each_kind_is_picked():
    of = network_of(place_of(), place_of().model.init(jax.random.key(0)))
    assert of.parts == ("", "input")
    names = candidate_names(of)
    scores = np.full(len(names), 1.0)
    scores[[names.index("path 1"), names.index("tuned input 3")]] = 0.5
    picked = pick_of_network(scores, names)
    assert picked.kinds == ["shared", "path", "nearer", "tuned", "local"] and picked.path == 1
    assert Tuning.of(names[picked.at[3]]) == Tuning("input", 3)


@pytest.mark.thorough
def test_a_network_is_advised_and_what_is_advised_runs_and_predicts(tmp_path):
    found = advise(federation(), {"name": "mlp", "hidden": [8]}, out=tmp_path / "advice")
    assert found.method in ("fed_avg", "ftfa", "stack_tuned", "local") and found.folds == 1
    assert set(found.private["losses"]) == {"nothing", "output", "all", "input"}
    assert found.private["part"] in found.private["losses"] and "gradients say" in found.reasons[-1]
    assert found.hurt.proved == 0 and found.hurt is not None and np.isfinite(found.gains["local"].mean)
    assert found.errors["advised"].mean < found.errors["shared"].mean, "clients contradict each other"
    again = advise(federation(), {"name": "mlp", "hidden": [8]}, out=tmp_path / "advice")
    assert again.tried == found.tried, "what an interrupted advice has found is used again"
    ran = run_spec(make_spec(found.spec), tmp_path / "run")
    assert ran.rows[found.method].method == found.method
    said = open_run(tmp_path / "run").predict("0", np.zeros((2, 2), np.float32))
    assert said.probabilities.shape == (2, 2)


def test_a_last_layer_under_an_adapter_is_what_the_model_computes_with():
    model = adapted(mlp((3,), 4, hidden=(5,)), rank=2)
    params = jax.tree.map(lambda leaf: leaf + 0.1, model.init(jax.random.key(0)))
    x = jax.random.normal(jax.random.key(1), (6, 3))
    head = head_in(params)
    np.testing.assert_allclose(see(model, params, x) @ head["w"].T + head["b"], model.apply(params, x), atol=1e-5)
    other = jax.tree.map(lambda leaf: 2 * leaf, head)
    changed = with_head(params, other)
    np.testing.assert_allclose(model.apply(changed, x), 2 * model.apply(params, x), atol=1e-5)


@pytest.mark.thorough
def test_an_adapter_is_a_part_that_may_be_kept_private_and_what_is_advised_runs(tmp_path):
    model = {"name": "mlp", "hidden": [8], "adapter": {"rank": 2, "where": "hidden0"}}
    found = advise(federation(), model, out=tmp_path / "advice")
    assert set(found.private["losses"]) == {"nothing", "output", "all", "input", "adapter"}
    assert found.spec["model"]["adapter"] == {"rank": 2, "where": "hidden0"}
    run_spec(make_spec(found.spec), tmp_path / "run")
    said = open_run(tmp_path / "run").predict("0", np.zeros((2, 2), np.float32))
    assert said.probabilities.shape == (2, 2)
