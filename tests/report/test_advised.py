"""What was advised before a run stands on its page: the measured path, with theory's prediction beside it."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fake_runs import fake_run

from apiece.report import write_report
from apiece.report.advised import advised
from apiece.report.plots import round_ticks
from apiece.report.story import read_story

ADVICE = {
    "answer": ["Personalize mildly.", "Expected <b>error</b> 3 %."],
    "tried": [
        {"name": "shared", "loss": 0.9},
        *({"name": f"path, lambda = {lam}", "loss": loss} for lam, loss in ((10, 0.8), (1, 0.5), (0.1, 0.7))),
        {"name": "local, ridge = 1", "loss": 1.2},
        {"name": "local, ridge = 0.1", "loss": 1.1},
    ],
    "theory": {"lam": 2.0, "holds": False, "why": "features are correlated"},
}


def told(folder, advice):
    fake_run(folder)
    (folder / "advice.json").write_text(json.dumps(advice), encoding="utf-8")
    return advised(read_story(folder))


def test_theory_stands_beside_the_measured_path(tmp_path):
    found = told(tmp_path, ADVICE)
    lines = {line.name: line for line in found.panel.lines}
    assert lines["measured on held-out examples"].x.tolist() == [0.1, 1, 10]
    assert set(lines["local, for comparison"].y) == {1.1} and set(lines["theory's prediction"].x) == {2.0}
    assert "lambda = 1 has the least held-out loss. Theory predicts 2; its assumptions do not hold" in found.finding
    html = write_report(tmp_path).read_text(encoding="utf-8")
    assert "theory beside measurement" in html and "Expected &lt;b&gt;error" in html


@pytest.mark.parametrize(
    "odd", [{}, {"tried": "x", "theory": 3}, {"tried": [{"name": "path, lambda = x", "loss": 1}, 4]}]
)
def test_an_odd_advice_has_no_picture_and_harms_nothing(odd, tmp_path):
    assert told(tmp_path, {"answer": "share", **odd}).panel is None
    assert "share" in write_report(tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize(("kind", "said"), [("stack", "What is advised."), ("path", "not advised")])
def test_the_weights_of_the_stack_stand_beside_what_was_tried(kind, said, tmp_path):
    stack = {"weights": {"shared": 0.25, "local": 0.75, "groups": 0.0}, "gain": 0.01, "doubt": 0.002, "kappa": None}
    found = told(tmp_path / "run", {**ADVICE, "tried": ADVICE["tried"][:1], "kind": kind, "stack": stack})
    assert [row[0] for row in found.weights.rows] == ["local", "shared"] and said in found.weighed
    assert found.table.rows == [["shared", "0.9000"]], "also without a path"
    html = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "Weights of the stack" in html and "75 %" in html.replace("\N{NO-BREAK SPACE}", " ")


def test_a_prediction_that_is_no_number_is_not_drawn(tmp_path):
    found = told(tmp_path, {**ADVICE, "theory": {"lam": None, "holds": True, "why": ""}})
    assert [line.name for line in found.panel.lines if "theory" in line.name] == []


def test_ticks_of_a_logarithmic_axis_are_round_and_few():
    assert round_ticks(0.05, 50) == [0.1, 1.0, 10.0] and round_ticks(1e-9, 1) == []
