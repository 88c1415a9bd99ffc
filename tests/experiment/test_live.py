"""While a run goes it says how far it is; when it is finished nothing of that is left."""

import json

import pytest
from typer.testing import CliRunner

from apiece import compare, resume
from apiece.cli import app
from apiece.experiment import RunFolder
from apiece.experiment.live import MOST, Live
from apiece.files import read_json


def test_a_run_tells_how_far_it_is_until_it_is_finished(tmp_path):
    folder, told = tmp_path / "run", []

    def watch(what, done, total):
        live = RunFolder(folder).live
        if live.exists():
            seen = CliRunner().invoke(app, ["watch", str(folder), "--once", "--json"])
            told.append(json.loads(seen.stdout))
        if what.startswith("ditto: seed 1") and done == total:
            raise KeyboardInterrupt

    how = dict(rounds=4, seeds=2, tune=1, evaluate_every=1, data_options={"clients": 12}, baselines=False)
    with pytest.raises(KeyboardInterrupt):
        compare("digits", ["ditto"], out=folder, watch=watch, **how)
    assert told and all(one["state"] == "running" for one in told)
    left = read_json(RunFolder(folder).live)
    assert [len(run["looks"]) for run in left["runs"]] == [4, 3], "the last look came after the kill"
    assert left["runs"][0]["looks"][-1]["visits"] == 4 * 11, "one of twelve is held out"
    stopped = CliRunner().invoke(app, ["watch", str(folder)])
    assert stopped.exit_code == 1 and "ditto" in stopped.stdout and "apiece resume" in stopped.output
    resume(folder)
    assert not RunFolder(folder).live.exists()
    finished = CliRunner().invoke(app, ["watch", str(folder)])
    assert finished.exit_code == 0 and "finished" in finished.stdout


def test_what_is_no_run_is_refused(tmp_path):
    said = CliRunner().invoke(app, ["watch", str(tmp_path / "nothing")])
    assert said.exit_code == 2 and "is not a run folder" in said.output


def test_a_run_that_went_back_is_seen_again_from_there_and_long_ones_are_thinned(tmp_path):
    live = Live(tmp_path)
    for round in (1, 2, 3, 2):
        live.seen("ditto", 0, {"round": round, "validation_loss": float(round)})
    assert [one["round"] for one in live.runs["ditto", 0]] == [1, 2]
    for round in range(3, 3 * MOST):
        live.seen("ditto", 0, {"round": round})
    rounds = [one["round"] for one in live.runs["ditto", 0]]
    assert len(rounds) <= MOST + 1 and rounds[-1] == 3 * MOST - 1 and rounds == sorted(rounds)
    live.close()
    again = Live(tmp_path)
    assert again.runs == live.runs
