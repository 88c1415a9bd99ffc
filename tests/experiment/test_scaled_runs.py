"""Runs on examples far from unit scale: trained at unit scale, told in their own units."""

import numpy as np
import pytest

from apiece import compare, fit, sweep
from apiece.cli.flags import values_of
from apiece.data import from_rows
from apiece.experiment import make_spec
from apiece.experiment.build import scaling_wanted
from apiece.experiment.folder import read_record

ROUNDS = 20
WEIGHTS = np.array([2.0, 300.0, 0.01])


def clinics():
    """y = 29 + 11 of what the features say, whose scales are 0.01 to 1,000; a little noise."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3))
    x = (z / WEIGHTS * [1, 1, 100] + [0, 5, 1e4]).astype(np.float32)
    y = 29 + 11 * z.sum(1) / np.sqrt(3) + 0.1 * rng.normal(size=200)
    return from_rows(x, y.astype(np.float32), np.repeat(np.arange(5), 40), name="clinics")


@pytest.fixture(scope="module")
def fitted():
    return fit(
        "fed_avg", federation=clinics(), rounds=ROUNDS, metrics={"bias": lambda outputs, y: np.mean(outputs - y)}
    )


def test_predictions_are_in_the_units_that_were_given(fitted):
    federation = clinics()
    said = fitted.predict("0", federation.test.x)
    assert np.abs(said - federation.test.y).mean() < 1
    assert np.abs(fitted.personal("0")["w"]).max() < 2  # the model's own units


def test_results_are_in_the_targets_own_units(fitted):
    federation, found = clinics(), fitted.evaluate()["test"]
    errors = np.square(fitted.predict("0", federation.test.x) - federation.test.y)  # one model for all
    assert found["error"]["mean_weighted"] == pytest.approx(errors.mean(), rel=1e-3)
    assert found["r2"] > 0.99
    bias = np.mean(fitted.predict("0", federation.test.x) - federation.test.y)
    assert found["bias"]["mean_weighted"] == pytest.approx(bias, abs=1e-3)
    last = fitted.curve[-1]
    assert last["validation_error"] == pytest.approx(2 * last["validation_loss"])
    assert last["validation_error"] == pytest.approx(fitted.evaluate()["validation"]["error"]["mean"], rel=1e-5)


def test_a_newcomer_brings_examples_as_they_are(fitted):
    federation = clinics()
    model = fitted.onboard(federation.train.x[:9], federation.train.y[:9])
    np.testing.assert_allclose(model["w"], fitted.personal("0")["w"], rtol=1e-6)
    assert np.abs(fitted.predict(model, federation.test.x) - federation.test.y).mean() < 1


def test_a_comparison_says_that_it_scaled_and_one_that_may_not_does_not(tmp_path):
    how = dict(rounds=1, seeds=1, tune=1, baselines=False)
    scaled = compare(clinics(), ["fed_avg"], out=tmp_path / "a", **how)
    assert [note for note in read_record(tmp_path / "a").notes if "given mean 0 and spread 1" in note]
    assert [note for note in scaled.record.notes if "targets have mean 29" in note]
    plain = compare(clinics(), ["fed_avg"], out=tmp_path / "b", standardize=False, **how)
    assert plain.place.given is None and [note for note in plain.record.notes if "may crawl or diverge" in note]


def test_a_sweep_scales_alike():
    found = sweep("fed_avg", {"lr": [0.1]}, 1, federation=clinics(), rounds=ROUNDS)
    assert found.rows[0]["test_error"] < 4
    refused = sweep("fed_avg", {"lr": [0.1]}, 1, federation=clinics(), rounds=ROUNDS, standardize=False)
    assert not refused.rows[0]["test_error"] < 4


@pytest.mark.parametrize("data, wanted", [
    ({}, None),
    ({"standardize": False}, False),
    ({"standardize": True}, True),
    ({"options": {"standardize": False}}, False),  # who tells the reader of a file not to scale means it
])  # fmt: skip
def test_a_spec_a_flag_and_an_option_of_a_file_are_one_idea(data, wanted):
    assert scaling_wanted(make_spec({"data": data}).data) is wanted
    if "standardize" in data:
        assert values_of({"standardize": wanted})["data"] == data
