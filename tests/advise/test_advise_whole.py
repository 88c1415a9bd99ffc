"""A whole advice: the same on every engine, blind to validation and test, resumable; its spec runs and predicts."""

import dataclasses
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from apiece.advise import advise, read_advice
from apiece.advise.answer import tell_of_budget
from apiece.advise.keep import Kept
from apiece.cli import app
from apiece.data import from_rows
from apiece.experiment.spec import make_spec
from apiece.files import read_json
from apiece.report.advice import show_advice
from apiece.report.reference.record import schema

pytestmark = pytest.mark.thorough
CLIENTS, ROWS = 9, 16


def federation(seed=0, own=1.0):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(CLIENTS), ROWS)
    x = rng.normal(size=(len(owner), 3)).astype(np.float32)
    truth = np.array([1.0, -1, 0]) + own * rng.normal(size=(CLIENTS, 3))
    y = ((x * truth[owner]).sum(axis=1) + 0.5 * rng.normal(size=len(x))).astype(np.float32)
    split = np.tile([0, 0, 0, 0, 0, 0, 1, 2], len(x) // 8)
    return from_rows(x, y, owner, split=split)


def told(advice):
    return {key: value for key, value in advice.plain().items() if key not in ("cost", "environment", "spec")}


def test_the_remote_engine_gives_the_same_advice():
    here, far = (advise(federation(), folds=1, engine=engine) for engine in ("vectorized", "remote"))
    assert (here.kind, here.method) == (far.kind, far.method)
    for mine, theirs in zip(here.tried, far.tried, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-3), mine.name
    assert here.heterogeneity.z == pytest.approx(far.heterogeneity.z, rel=1e-3)
    assert here.errors["advised"].mean == pytest.approx(far.errors["advised"].mean, rel=2e-2)


def test_validation_and_test_rows_change_nothing():
    plain = federation()
    other = lambda split: dataclasses.replace(split, y=-3 * split.y, x=split.x + 1)
    changed = dataclasses.replace(plain, validation=other(plain.validation), test=other(plain.test))
    assert told(advise(plain, folds=1)) == told(advise(changed, folds=1))


def test_a_killed_advice_goes_on_and_ends_with_the_same(tmp_path, monkeypatch):
    whole = advise(federation(), folds=1, out=tmp_path / "whole")
    seen, tree = [], Kept.tree

    def killed(self, name, make):
        if name.startswith("scores"):
            raise KeyboardInterrupt
        return tree(self, name, make)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Kept, "tree", killed)
        advise(federation(), folds=1, out=tmp_path / "part")

    def counted(self, name, make):
        return tree(self, name, lambda: (seen.append(name), make())[1])

    monkeypatch.setattr(Kept, "tree", counted)
    again = advise(federation(), folds=1, out=tmp_path / "part")
    assert set(seen) <= {"scores-0", "scores-1", "weights", "told", "work"} and "scores-0" in seen
    drop = lambda found: {key: value for key, value in told(found).items() if key != "next"}
    assert drop(again) == drop(whole)


def test_an_advice_is_written_as_its_schema_says_and_read_again(tmp_path):
    found = advise(federation(), folds=1, out=tmp_path)
    values = read_json(tmp_path / "advice.json")
    assert read_advice(values).plain() == found.plain() and set(schema("advice")["required"]) <= set(values)
    assert make_spec(found.spec).rows[found.method].method == found.method
    assert len(found.answer) == 3 and found.reasons and found.doubts and found.next
    late = tell_of_budget(found, 0.001).doubts
    assert late[:-1] == found.doubts and late[-1].startswith("It took ") and tell_of_budget(found, 1e6) == found
    show_advice(found, explain=True)


def test_clients_that_differ_much_and_have_much_are_told_to_keep_to_their_own():
    rng = np.random.default_rng(3)
    owner = np.repeat(np.arange(8), 80)
    x = rng.normal(size=(len(owner), 3)).astype(np.float32)
    y = ((x * (5 * rng.normal(size=(8, 3)))[owner]).sum(axis=1) + 0.1 * rng.normal(size=len(x))).astype(np.float32)
    found = advise(from_rows(x, y, owner, split=np.zeros(len(x), int)), folds=1)
    assert found.kind in ("local", "path", "nearer", "stack") and found.degree.own_share > 0.9
    assert found.errors["advised"].mean < 0.05 * found.errors["shared"].mean


def test_from_a_table_to_an_advice_to_a_run_to_predictions(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["ward,age,dose,ill"]
    for ward in range(6):
        for _ in range(24):
            age, dose = rng.normal(50, 10), rng.normal()
            sick = (age - 50) / 10 + (-1) ** ward * dose + 0.5 * rng.normal() > 0
            lines.append(f"w{ward},{age:.1f},{dose:.2f},{'yes' if sick else 'no'}")
    (tmp_path / "wards.csv").write_text("\n".join(lines) + "\n")
    call = lambda *words: CliRunner().invoke(app, [str(word) for word in words])
    out = tmp_path / "advice"
    told = call(
        "advise", tmp_path / "wards.csv", "--client", "ward", "--label", "ill", "--folds", 1, "--out", out, "--json"
    )
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["format"] == 2
    run = call("run", "--spec", out / "spec.toml", "--out", tmp_path / "run", "--json")
    assert run.exit_code == 0, run.output
    (tmp_path / "new.csv").write_text("\n".join(lines[:4]) + "\n")
    said = call("predict", tmp_path / "run", "w1", tmp_path / "new.csv")
    assert said.exit_code == 0 and len(said.stdout.strip().splitlines()) == 4, said.output
