"""Metrics beside the score: one table for page and terminal, which a metric of one's own joins by its name."""

import io
import json

import pytest
from fake_runs import fake_run
from rich.console import Console

from apiece.evaluate import tasks
from apiece.experiment import RunFolder, read_record
from apiece.report import metric_columns
from apiece.report.story import read_story
from apiece.report.task_metrics import task_table
from apiece.report.terminal import comparison


def shown(folder, width=80):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(comparison(read_record(folder)))
    return console.export_text()


def with_own_metrics(folder, metrics, **how):
    """A run whose record has the accuracy under other names too."""
    record = fake_run(folder, **how)
    for method in record["methods"].values():
        for part in method["summary"].values():
            part |= {name: part["accuracy"] for name in metrics}
    record["metrics"] = metrics
    RunFolder(folder).record.write_text(json.dumps(record))
    return record


def test_every_metric_of_a_task_has_a_column():
    found = {*tasks.regression_metrics([0.0, 1.0], [1.0, 2.0], [0, 2]), *tasks.binary_metrics([1.0], [1], [0, 1])}
    assert {column.metric for column in metric_columns.COLUMNS} == found


@pytest.mark.parametrize("task", [{"binary": True}, {"task": "regression"}])
def test_what_is_said_below_the_terminals_table_does_not_depend_on_the_order_of_rows(task, tmp_path, monkeypatch):
    fake_run(tmp_path, new=2, **task)
    told = shown(tmp_path).splitlines()[-3:]
    said = "all test examples together" + "; false accepts at 5% false rejects" * ("binary" in task) + "."
    assert said in shown(tmp_path)
    monkeypatch.setattr(metric_columns, "COLUMNS", metric_columns.COLUMNS[::-1])
    assert said in shown(tmp_path) and shown(tmp_path).splitlines()[-3:] == told


def test_a_metric_of_ones_own_is_on_the_page_and_on_the_terminal(tmp_path):
    record = with_own_metrics(tmp_path, {"f1": True, "brier_score": False}, new=2)
    table = task_table(read_story(tmp_path))
    heads = dict(table.heads)
    assert heads["f1"].endswith("more is better") and heads["brier_score, new clients"].endswith("less is better")
    mean = record["methods"]["ditto"]["summary"]["test"]["f1"]["mean_weighted"]["mean"]
    text = shown(tmp_path)
    assert f"{mean:.3f}" in text and "f1, brier_score: each client by itself, weighted mean." in text
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text


def test_many_metrics_leave_the_rest_to_the_report(tmp_path):
    with_own_metrics(tmp_path, {f"m{at}": True for at in range(9)}, binary=True)
    text = shown(tmp_path)
    assert "m0" in text and "m8" not in text and "more are in the report" in text
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert "m8" in dict(task_table(read_story(tmp_path)).heads)
