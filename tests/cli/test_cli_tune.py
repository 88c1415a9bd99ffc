"""`apiece tune`: its mistakes, its table and its files."""

import json

import pytest
from cli_process import call


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--trials", "0"], "trials = 0: a whole number of trials for each method is needed, at least 1"),
        (["--gradients", "-5"], "gradients = -5.0: what each method may spend is a number of gradient evaluations"),
        (["--strategy", "grid"], "strategy = 'grid' is unknown: known: auto, spread, tpe"),
        (["--trials", "4", "--pruner", "median"], "pruner = 'median': few trials are spread out"),
        (["--join", "here", "--trials", "4"], "--join here: a tuning goes on as it was begun; leave --trials out"),
        (["--join", "here"], "'here' holds no tuning: there is no asked.toml. Begin one: apiece tune --out here"),
        (["--methods", "dito"], "unknown method 'dito': did you mean 'ditto'?"),
    ],
)
def test_a_mistake_is_one_paragraph_and_nothing_is_written(tmp_path, arguments, text):
    result = call("tune", *arguments, code=2)
    assert result.stdout == "" and result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert text in result.stderr and not list(tmp_path.iterdir())


def test_a_tuning_is_shown_in_80_columns_and_read_again(tmp_path):
    (tmp_path / "s.toml").write_text(
        "tune = 2\nbaselines = false\n[data.options]\nclients = 5\n[train]\nrounds = 1\n[methods.fed_avg]\nsteps = 2\n"
    )
    shown = call("tune", "--spec", "s.toml", "--out", "t").stdout
    assert max(map(len, shown.splitlines())) <= 80 and "fed_avg" in shown
    assert "apiece compare --spec t/spec.toml" in shown and "test examples were not looked at" in shown
    files = {path.name for path in (tmp_path / "t").iterdir()}
    assert {"spec.toml", "methods", "tuning.json", "tuning.parquet", "tuning.html", "asked.toml"} <= files
    again = json.loads(call("resume", "t", "--json").stdout)
    assert again["methods"]["fed_avg"]["chosen"] in (0, 1) and again["strategy"] == "spread"
    assert json.loads(call("tune", "--join", "t", "--json").stdout) == again
    said = " ".join(call("tune", "--spec", "s.toml", "--out", "t", code=2).stderr.split())
    assert "there is a tuning in t already: go on with it by apiece tune --join t" in said
    said = call("resume", "t", "--rounds", "5", code=2).stderr
    assert "holds a tuning, not a run" in " ".join(said.split())
