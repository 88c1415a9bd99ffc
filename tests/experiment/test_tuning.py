"""`apiece.tune`: equal budgets, validation alone, a spec that `compare` takes, and processes that are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import compare, make_spec, read_values, resume
from apiece.experiment.tuning import join_tuning, plan_search, tune, tune_spec
from apiece.experiment.tuning.search import SpreadOut

HOW = {"rounds": 2, "baselines": False, "seeds": 1}
METHODS = {"fed_avg": {"steps": 2}, "ditto": {"steps": 2}}


@pytest.fixture(scope="module")
def few():
    return digits(clients=6, seed=3)


@pytest.fixture(scope="module")
def found(few, tmp_path_factory):
    return tune(few, METHODS, trials=2, out=tmp_path_factory.mktemp("tuning") / "a", **HOW)


def losses(tuning, method):
    return [trial["validation"]["validation_loss"] for trial in tuning.record["methods"][method]["trials"]]


def test_every_method_may_spend_as_many_gradients_and_the_cheaper_one_has_more_trials(found):
    rows = found.record["methods"]
    assert {name: len(row["trials"]) for name, row in rows.items()} == {"fed_avg": 4, "ditto": 2}
    assert rows["fed_avg"]["gradients"] == rows["ditto"]["gradients"] == found.record["gradients"]
    # Two rounds of six clients, two steps on each of two models, two trials.
    assert found.record["gradients"] == 2 * 6 * (2 * 2) * 2


def test_trials_are_those_of_a_comparison(found, few, tmp_path):
    same = compare(few, METHODS, tune=2, out=tmp_path / "run", **HOW).record.methods["ditto"].tuning
    mine = found.record["methods"]["ditto"]["trials"]
    assert [one.options for one in same] == [trial["options"] for trial in mine]
    np.testing.assert_allclose([one.validation_loss for one in same], losses(found, "ditto"), rtol=1e-5)


def test_the_specs_are_what_compare_and_run_take_with_nothing_left_to_tune(found, tmp_path):
    joint = make_spec(read_values(found.spec))
    assert joint.tune == 1 and list(joint.rows) == ["fed_avg", "ditto"]
    for name, row in joint.rows.items():
        assert row.options == {"steps": 2, **found.options(name)} and row.points(1) == [{}]
        alone = make_spec(read_values(found.folder / "methods" / f"{name}.toml"))
        assert list(alone.rows) == [name] and alone.rows[name].options == row.options


def test_the_least_validation_loss_is_chosen_and_the_table_has_every_trial(found):
    table = pq.read_table(found.folder / "tuning.parquet").to_pylist()
    assert len(table) == 6 and sum(row["chosen"] for row in table) == 2
    for name in METHODS:
        mine = [row for row in table if row["method"] == name]
        chosen = next(row for row in mine if row["chosen"])
        assert chosen["validation_loss"] == min(row["validation_loss"] for row in mine) == min(losses(found, name))
        assert json.loads(chosen["options"]) == found.options(name) and chosen["option_lr"] == found.options(name)["lr"]


def test_test_examples_are_never_looked_at(few, found, tmp_path):
    y = np.random.default_rng(0).permutation(few.test.y)
    other = replace(few, test=replace(few.test, x=np.zeros_like(few.test.x), y=y))
    again = tune(other, METHODS, trials=2, out=tmp_path / "b", **HOW)
    assert losses(again, "ditto") == losses(found, "ditto") and again.options("ditto") == found.options("ditto")


def test_a_tuning_that_was_cut_off_goes_on_to_the_same_numbers(few, found, tmp_path, monkeypatch):
    tell, told = SpreadOut.tell, []

    def cut(self, trials):
        tell(self, trials)
        told.append(trials)
        if len(told) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(SpreadOut, "tell", cut)
    with pytest.raises(KeyboardInterrupt):
        tune(few, METHODS, trials=2, out=tmp_path / "c", **HOW)
    monkeypatch.setattr(SpreadOut, "tell", tell)
    assert not (tmp_path / "c" / "tuning.json").exists()
    again = join_tuning(tmp_path / "c")
    assert [losses(again, name) for name in METHODS] == [losses(found, name) for name in METHODS]
    assert join_tuning(tmp_path / "c").record == again.record, "a finished one is only read"


def test_a_folder_of_a_tuning_is_no_run(found):
    with pytest.raises(UserError, match="holds a tuning, not a run; go on with it: apiece tune --join"):
        resume(found.folder)
    with pytest.raises(UserError, match=r"holds no tuning: there is no asked.toml"):
        join_tuning(found.folder / "methods")


def test_other_data_are_refused(found, tmp_path):
    shutil.copytree(found.folder, tmp_path / "d")
    (tmp_path / "d" / "tuning.json").unlink()
    known = tmp_path / "d" / "checkpoints" / "federation.json"
    known.write_text(known.read_text().replace(json.loads(known.read_text())["train"], "0" * 32))
    with pytest.raises(UserError, match="changed since the tuning began"):
        join_tuning(tmp_path / "d")


def test_mistakes_are_found_before_anything_is_written(few, tmp_path):
    out = tmp_path / "never"
    nothing = replace(few.validation, x=few.validation.x[:0], y=few.validation.y[:0], offsets=np.zeros(7, int))
    with pytest.raises(UserError, match="no validation examples to tune on"):
        tune(replace(few, validation=nothing), METHODS, trials=2, out=out, **HOW)
    with pytest.raises(UserError, match=r"gradients = 5: a single trial of 'ditto' takes 48; give more, fewer rounds"):
        tune(few, {"ditto": {"steps": 2}}, gradients=5, strategy="spread", out=out, **HOW)
    with pytest.raises(UserError, match="methods is a list of names"):
        tune(few, "ditto", out=out)
    assert not out.exists()


PROGRAM = """
import sys
from apiece.experiment.tuning import join_tuning
found = join_tuning(sys.argv[1])
print(found.running)
"""


def begin(tmp_path, name):
    """A tuning of more trials, as another process begins it, cut off before its first trial."""
    spec = make_spec({"data": {"source": "digits", "options": {"clients": 6}}, "methods": {"fed_avg": {}},
                      "train": {"rounds": 8}, "baselines": False, "seeds": [0]})  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apiece.experiment.tuning.run._try_all", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tune_spec(spec, tmp_path / name, plan_search(trials=14))
    return tmp_path / name


def process(folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], env=environment, stdout=subprocess.PIPE)


@pytest.mark.thorough
def test_a_killed_process_and_two_at_once_end_like_an_undisturbed_one(tmp_path):
    alone, killed, shared = (begin(tmp_path, name) for name in ("alone", "killed", "shared"))
    expected = join_tuning(alone).record["methods"]["fed_avg"]
    first = process(killed)
    until = time.monotonic() + 240
    while time.monotonic() < until and first.poll() is None and not _told(killed):
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=60)
    assert _told(killed) and not (killed / "tuning.json").exists(), "killed on its way"
    again = join_tuning(killed).record["methods"]["fed_avg"]
    whole = [trial for trial in again["trials"] if trial["state"] != "lost"]
    assert [trial["options"] for trial in whole] == [trial["options"] for trial in expected["trials"]]
    assert again["options"] == expected["options"]
    both = [process(shared), process(shared)]
    said = [one.communicate(timeout=400)[0].decode().split()[-1] for one in both]
    assert [one.returncode for one in both] == [0, 0] and "0" in said, "the last of them writes the results"
    mine = join_tuning(shared).record["methods"]["fed_avg"]
    options = [json.dumps(trial["options"]) for trial in mine["trials"]]
    assert len(set(options)) == len(options) and mine["gradients"] <= join_tuning(shared).record["gradients"]
    assert {json.dumps(trial["options"]) for trial in expected["trials"][:8]} <= set(options)


def _told(folder):
    import sqlite3

    path = folder / "checkpoints" / "study.sqlite"
    if not path.exists():
        return 0
    try:
        with sqlite3.connect(path, timeout=5) as database:
            return database.execute("select count(*) from trials where state = 'COMPLETE'").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
