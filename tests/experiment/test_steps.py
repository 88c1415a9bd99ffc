"""Where tuning looks for step sizes: as long as the data allow, unless the user or a fitting range says otherwise."""

import numpy as np
import pytest

from apiece import compare, fit, sweep
from apiece.data import digits, from_rows
from apiece.experiment import make_spec
from apiece.experiment.check import check_spec
from apiece.experiment.folder import read_record
from apiece.experiment.steps import find_steps


def steep(clients=4, features=6, seed=0, classes=0):
    """A federation at unit scale, of which client 2 is so far from the others that steps of 0.1 lead it astray."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), 30)
    x = rng.normal(size=(len(owner), features))
    x[owner == 2] += 12
    y = x @ rng.normal(size=features) / 10
    about = {"classes": ("no", "yes")} if classes else {}
    y = (y > np.median(y)).astype(int) if classes else y.astype(np.float32)
    return from_rows(x.astype(np.float32), y, owner, ids=[f"ward {i}" for i in range(clients)], **about)


def steps_of(federation, methods, tune=4, **more):
    spec = make_spec({"methods": methods, "tune": tune, "baselines": False, **more})
    place = check_spec(spec, federation)
    return find_steps(place, spec.rows, spec.train, spec.tune, spec.seeds[0])


def largest(federation, client):
    start, end = federation.train.offsets[client : client + 2]
    rows = np.column_stack([federation.train.x[start:end], np.ones(end - start)])
    return np.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]


def test_a_linear_model_is_tuned_up_to_the_steps_that_its_steepest_client_stands():
    federation = steep()
    found = steps_of(
        federation, {"ditto": {}, "ftfa": {}, "fed_avg": {"lr": 0.5}, "local": {"lr": {"range": [0.1, 2]}}}
    )
    assert found.found_by == "curvature" and found.client == "ward 2" and found.exchanges == 1
    top = 1 / largest(federation, 2)  # 18 training rows: a batch of 32 has them all
    assert found.ranges["ditto"]["lr"] == pytest.approx((top / 30, top), rel=0.03)
    assert found.ranges["ftfa"].keys() == {"lr", "tune_lr"}
    assert found.defaults["ditto"]["lr"] == pytest.approx(top / 3, rel=0.03)
    assert not {"fed_avg", "local"} & (found.ranges.keys() | found.defaults.keys())  # what the user says stands


def test_on_digits_every_range_stands_as_it_is():
    found = steps_of(digits(), {"ditto": {}, "ftfa": {}})
    assert not found.ranges and not found.defaults
    assert 3.0 < found.longest < 9.0


def test_log_losses_are_tuned_further_than_squares():
    federation = steep(classes=2)
    found = steps_of(federation, {"ditto": {}})
    assert found.ranges["ditto"]["lr"][1] == pytest.approx(6 * 2 / largest(federation, 2), rel=0.03)


def test_other_models_have_a_range_test_if_anything_is_tuned():
    network = {"model": {"name": "mlp", "hidden": [4]}}
    found = steps_of(steep(), {"fed_avg": {}}, **network)
    assert found.found_by == "range test" and found.client is None and found.gradients == 4 * found.exchanges
    assert found.ranges["fed_avg"]["lr"][1] < 0.1
    assert steps_of(steep(), {"fed_avg": {}}, tune=1, **network) is None


@pytest.mark.parametrize("more", [
    {"train": {"optimizer": {"name": "adam"}}},
    {"model": {"objective": "apiece.models:brier"}, "tune": 1},
])  # fmt: skip
def test_nothing_is_said_where_curvature_says_nothing(more):
    assert steps_of(steep(classes=2), {"fed_avg": {}}, **{"tune": 2, **more}) is None


def test_a_comparison_with_defaults_stands_and_says_where_it_looked(tmp_path):
    found = compare(steep(), ["ditto"], rounds=3, seeds=1, tune=2, baselines=False, out=tmp_path / "run")
    assert not found.record.ranking.diverged
    record = read_record(tmp_path / "run")
    tried = [candidate.options["lr"] for candidate in record.methods["ditto"].tuning]
    low, high = record.steps.ranges["ditto"]["lr"]
    assert all(low <= lr <= high for lr in tried)
    assert [note for note in record.notes if "that of 'ward 2'" in note]


def test_fit_and_sweep_shorten_a_default_that_would_diverge_and_nothing_else():
    last = lambda **options: fit("fed_avg", federation=steep(), rounds=3, options=options).curve[-1]["validation_loss"]
    assert np.isfinite(last())
    assert not last(lr=0.1) < 1e3  # what is given stands
    assert "instead of the default" in fit("fed_avg", federation=steep(), rounds=1).notes[-1]
    assert np.isfinite(sweep("fed_avg", {"steps": [5]}, 1, federation=steep(), rounds=3).rows[0]["test_loss"])
