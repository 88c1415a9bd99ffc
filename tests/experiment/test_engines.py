"""One word changes the engine, and nothing else: a comparison through bytes has the numbers of the simulated one."""

import json
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
from experiment_runs import DATA, SMALL, run

from apiece.errors import UserError
from apiece.experiment import make_spec, resume, run_spec
from apiece.experiment.build import engine_of
from apiece.experiment.check import check_spec
from apiece.experiment.spec_tables import TrainSpec

ENGINES = get_args(TrainSpec.model_fields["engine"].annotation)
FAULTS = {"quorum": 5, "dropout": 0.2, "pace": {"jitter": "exponential"}}


def values_of(engine, methods, faults=None, **more):
    train = {**SMALL["train"], "engine": engine, "evaluate_every": 2} | ({"faults": faults} if faults else {})
    return {**SMALL, "methods": {name: {} for name in methods}, "seeds": [0], "tune": 1, "train": train, **more}


def numbers(value, path=""):
    """Every number of a record by its path; seconds and memory differ between two runs, and so does the engine."""
    if isinstance(value, dict):
        skip = ("seconds", "peak_memory_mb", "environment", "revision", "spec")
        return {k: v for key in value if key not in skip for k, v in numbers(value[key], f"{path}/{key}").items()}
    if isinstance(value, list):
        return {k: v for at, item in enumerate(value) for k, v in numbers(item, f"{path}/{at}").items()}
    return {path: value}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more",
    [
        pytest.param(dict(methods=["ditto"], tune=2), id="calm"),
        pytest.param(
            dict(methods=["scaffold", "self_fl"], faults=FAULTS, baselines=False),
            id="faults",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_comparison_through_bytes_has_the_numbers_of_the_simulated_one(tmp_path, more):
    found = {engine: run(values_of(engine, **more), tmp_path / engine) for engine in ENGINES}
    here, *others = (numbers(json.loads((tmp_path / engine / "record.json").read_text())) for engine in found)
    for there in others:
        assert here.keys() == there.keys()
        for path, value in here.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert there[path] == pytest.approx(value, rel=1e-5, abs=1e-5), path
            else:
                assert there[path] == value, path
    mine, *theirs = (pq.read_table(tmp_path / engine / "clients.parquet")["test_loss"].to_numpy() for engine in found)
    for losses in theirs:
        np.testing.assert_allclose(mine, losses, atol=1e-5)


def test_a_remote_run_goes_on_where_it_was_stopped(tmp_path):
    values = values_of("remote", ["scaffold"], baselines=False)
    whole = run(values, tmp_path / "whole")

    class Stopped(Exception):
        pass

    def stop(what, done, total):
        if done >= total:  # after the last round, before anything is judged: a checkpoint of an earlier one is there
            raise Stopped

    with pytest.raises(Stopped):
        run_spec(make_spec(values), tmp_path / "stopped", stop)
    assert list((tmp_path / "stopped" / "checkpoints").glob("scaffold-0.safetensors"))
    again = resume(tmp_path / "stopped")
    key = lambda found: found.record.methods["scaffold"].summary["test"]["loss"]["mean"].mean
    assert key(again) == key(whole)


@pytest.mark.parametrize(("every", "block"), [(3, 3), (500, 64)])
def test_a_compiled_block_of_arrivals_is_no_longer_than_from_one_look_to_the_next(every, block):
    spec = make_spec({"data": DATA, "train": {"evaluate_every": every, "arrivals": {"active": 2}}})
    assert engine_of(check_spec(spec), "fed_avg", {}, spec.train)[0].block == block


def test_arrivals_have_an_engine_of_their_own():
    with pytest.raises(UserError, match=r"leave out train\.engine"):
        make_spec({"train": {"engine": "remote", "arrivals": {}}})
