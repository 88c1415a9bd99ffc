"""Honest by construction: validation selects, test is looked at once, new clients teach nobody."""

from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from experiment_runs import SMALL, federation, make_once, models_of, record_of, run

from apiece.data import Split
from apiece.engines.simulation.vectorized import Vectorized
from apiece.experiment import fit

PLAN = {"train": SMALL["train"], "seeds": [0], "tune": 3, "baselines": False}
METHODS = {"ditto": {}}


def with_test_labels(shift):
    """The same federation, whose test labels are all wrong by `shift`."""
    test = federation().test
    return replace(federation(), test=Split(test.x, ((test.y + shift) % 10).astype(np.int32), test.offsets))


@pytest.fixture(scope="module")
def clean(shared_place):
    return make_once(shared_place, "clean", lambda out: run_on(with_test_labels(0), out))


@pytest.fixture(scope="module")
def poisoned(shared_place):
    return make_once(shared_place, "poisoned", lambda out: run_on(with_test_labels(1), out))


def run_on(data, out):
    saved = data.save(out.with_name(f"{out.name}-data"))
    return run({**PLAN, "methods": METHODS, "data": {"source": str(saved)}}, out)


def test_poisoned_test_labels_change_neither_the_choice_nor_the_training(clean, poisoned):
    honest, fooled = record_of(clean)["methods"], record_of(poisoned)["methods"]
    for name in METHODS:
        assert honest[name]["tuning"] == fooled[name]["tuning"]
        assert honest[name]["options"] == fooled[name]["options"]
        a, b = (found[name]["seeds"][0]["metrics"] for found in (honest, fooled))
        assert a["validation"] == b["validation"]
        assert a["test"]["accuracy"]["mean"] > b["test"]["accuracy"]["mean"] + 0.3, "the poison was really tested on"
    assert models_of(clean) == models_of(poisoned)
    curves = [pq.read_table(out / "rounds.parquet").drop_columns(["seconds"]) for out in (clean, poisoned)]
    assert curves[0].equals(curves[1])


def test_the_choice_follows_validation_where_test_would_choose_otherwise(poisoned):
    found = record_of(poisoned)["methods"]["ditto"]
    test_losses = []
    for trial in found["tuning"]:
        fitted = fit("ditto", federation=with_test_labels(1), options=trial["options"], **SMALL["train"])
        metrics = fitted.evaluate()
        assert metrics["validation"]["loss"]["mean"] == pytest.approx(trial["validation_loss"])
        test_losses.append(metrics["test"]["loss"]["mean"])
    validation_losses = [trial["validation_loss"] for trial in found["tuning"]]
    best, best_by_test = np.argmin(validation_losses), np.argmin(test_losses)
    assert best != best_by_test, "or this would be no test"
    assert found["options"]["lr"] == found["tuning"][best]["options"]["lr"]
    assert found["seeds"][0]["metrics"]["test"]["loss"]["mean"] == pytest.approx(test_losses[best])


def test_the_test_split_is_looked_at_once_per_trial_and_only_at_the_end(tmp_path, monkeypatch):
    looks = []
    original = Vectorized.outcomes

    newcomers = range(federation().clients, federation().clients + federation().new.clients)
    by_examples = []  # newcomers alone, once more for every number of examples that they bring

    def counted(self, run, ids, outcomes, parts, most=None):
        kept = by_examples if most is not None and set(ids.tolist()) <= set(newcomers) else looks
        kept.append((run.round, tuple(sorted(parts))))
        return original(self, run, ids, outcomes, parts, most)

    monkeypatch.setattr(Vectorized, "outcomes", counted)
    values = {**SMALL, "baselines": False, "methods": {"fed_avg": {}}, "seeds": [0, 1], "tune": 2}
    run(values, tmp_path / "run")
    rounds = SMALL["train"]["rounds"]
    on_test = [look for look in looks if "test" in look[1]]
    assert on_test == [(rounds, ("test", "validation"))] * 2, "once per seed, after the last round"
    assert set(by_examples) == {(rounds, ("test",))}, "newcomers, too, only after the last round"
    expected = {rounds: 2 + 2 + 2} | {r: 2 for r in range(1, rounds)}  # tuning and training look at validation
    assert Counter(look[0] for look in looks) == expected
    # and nothing else reads what the engine scores: no test example reaches a method
    assert looks[0] == (rounds, ("validation",))


@pytest.mark.parametrize("method", ["ditto", "scaffold"])
def test_new_clients_are_judged_but_never_train(method):
    with_new = federation()
    train = with_new.new.train
    poison = Split(255 - train.x, ((train.y + 3) % 10).astype(np.int32), train.offsets)
    fits = [
        fit(method, federation=data, **SMALL["train"])
        for data in (with_new, replace(with_new, new=replace(with_new.new, train=poison)))
    ]
    servers = [jax.tree.map(np.asarray, f.run.server) for f in fits]
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, servers), strict=True))
    name, new_name = str(with_new.ids[0]), str(with_new.new.ids[0])
    assert np.array_equal(fits[0].personal(name)["w"], fits[1].personal(name)["w"])
    assert fits[0].curve[-1]["validation_loss"] == fits[1].curve[-1]["validation_loss"]
    metrics = [f.evaluate() for f in fits]
    assert metrics[0]["test"] == metrics[1]["test"]
    assert metrics[0]["new_clients"]["accuracy"]["clients"] == 1
    if method == "ditto":  # a new client does learn from its own data, for itself
        assert not np.array_equal(fits[0].personal(new_name)["w"], fits[1].personal(new_name)["w"])
        assert metrics[0]["new_clients"] != metrics[1]["new_clients"]
