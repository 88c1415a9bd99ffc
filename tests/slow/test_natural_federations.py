"""On every natural federation a run tells, for every method, each gain, who is hurt, and how newcomers fare."""

import math
import os

import pyarrow.parquet as parquet
import pytest

from apiece import compare
from apiece.data import source
from apiece.report import write_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("APIECE_DATA" not in os.environ, reason="APIECE_DATA names no folder with the real data sets"),
]

# (source, its options, clients, model, its options): what is told must be complete, not good, so all is small.
FEDERATIONS = {
    "writers": ("mnist_by_writer", {}, 30, "softmax", {}),
    "roles": ("shakespeare_roles", {"min_characters": 3000}, 12, "char_lstm", {"width": 8, "layers": 1}),
    "people": ("har_by_subject", {}, 12, "softmax", {}),
    "speakers": ("audiomnist_by_speaker", {"word": 7}, 12, "softmax", {}),
    "hospitals": ("heart_by_hospital", {}, 4, "softmax", {}),
    "schools": ("school_by_school", {}, 30, "linear", {}),
    "sensors": ("vehicle_by_sensor", {}, 23, "softmax", {}),
}


@pytest.mark.parametrize("name", FEDERATIONS)
def test_a_run_tells_of_every_client_and_of_newcomers_for_every_method(name, tmp_path):
    known, options, clients, model, sizes = FEDERATIONS[name]
    federation = source(known, **options)
    federation = federation.take(range(min(clients, federation.clients)))
    lr = 0.01 if name == "schools" else 0.1  # a linear model of so many features needs short steps
    methods = {"ditto": {"lr": lr}, "local": {"lr": lr}, "fed_avg": {"lr": lr}, "ftfa": {"lr": lr, "tune_lr": lr}}
    how = dict(rounds=2, seeds=1, tune=1, out=tmp_path / "run", model=model, model_options=sizes)
    found = compare(federation, methods, **how)
    assert found.record.methods.keys() == methods.keys()
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    table = parquet.read_table(tmp_path / "run" / "clients.parquet").to_pylist()
    trained = found.record.federation.clients
    for method, told in found.record.methods.items():
        gains = [row["gain_over_local"] for row in table if row["method"] == method and not row["new"]]
        assert len(gains) == trained and all(map(math.isfinite, gains)), method
        if method != "local":
            assert 0 <= told.harm.hurt_proved <= 1 and 0 <= told.harm.hurt_expected <= 1, method
        if name != "hospitals":  # there are four, and all of them train
            late = told.newcomers
            assert len(late.examples) > 1 and all(math.isfinite(score.mean) for score in late.scores), method
        assert method in page
    assert ("newcomers" in page) == (name != "hospitals")


@pytest.mark.parametrize("name", FEDERATIONS)
def test_with_default_steps_nobody_diverges(name, tmp_path):
    known, options, clients, model, sizes = FEDERATIONS[name]
    federation = source(known, **options)
    federation = federation.take(range(min(clients, federation.clients)))
    how = dict(rounds=3, seeds=1, tune=2, out=tmp_path / "run", model=model, model_options=sizes)
    record = compare(federation, ["ditto"], **how).record
    assert not record.ranking.diverged
    for method in record.methods.values():
        assert not method.fallen and all(math.isfinite(one.validation_loss) for one in method.tuning)
