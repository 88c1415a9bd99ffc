"""`apiece predict`, `onboard` and `export`: the models of a finished run, from its folder alone."""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_process import call
from pyarrow import parquet
from safetensors.numpy import load_file

import apiece

PAGE = (Path(__file__).parents[2] / "docs/how-to-use-a-model-elsewhere.md").read_text(encoding="utf-8")


def write_rows(file, header, rows):
    file.write_text("\n".join([header, *(",".join(map(str, one)) for one in rows)]) + "\n", "utf-8")
    return file


def patients(clinic, count):
    return [
        (clinic, "" if k % 7 == 2 else 40 + k, ("north", "south")[k % 2], ("no", "yes")[k % 3 == 0])
        for k in range(count)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run in a folder that was moved, without its data."""
    place = tmp_path_factory.mktemp("use")
    rows = [one for clinic in ("oslo", "rome") for one in patients(clinic, 20)]
    data = write_rows(place / "clinics.csv", "clinic,age,side,ill", rows)
    columns = ["--client", "clinic", "--label", "ill", "-D", "standardize=true"]
    call("run", "ditto", "--data", data, *columns, "--rounds", 1, "--out", place / "run", "-s", "ditto.steps=1")
    data.unlink()
    return (place / "run").rename(place / "moved")


@pytest.fixture
def place(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run, tmp_path / "run")
    write_rows(tmp_path / "new.csv", "side,age,day", [("north", 50, 1), ("west", "", 2)])
    return tmp_path


def test_predictions_are_written_with_the_names_of_classes_and_their_probabilities(place):
    result = call("predict", "run", "rome", "new.csv", "--out", "said.csv")
    assert "'day'" in result.stderr and "'west' was never seen in training" in result.stderr
    with (place / "said.csv").open() as file:
        rows = list(csv.DictReader(file))
    expected = apiece.open("run").predict("rome", "new.csv")
    assert [one["prediction"] for one in rows] == expected.labels
    likely = [[float(one[f"probability {name}"]) for name in ("no", "yes")] for one in rows]
    np.testing.assert_allclose(likely, expected.probabilities)
    call("predict", "run", "rome", "new.csv", "--out", "said.parquet")
    assert parquet.read_table("said.parquet").column("prediction").to_pylist() == expected.labels
    told = json.loads(call("predict", "run", "rome", "new.csv", "--json").stdout)
    assert told["columns"]["prediction"] == expected.labels
    assert call("predict", "run", "rome", "new.csv").stdout == (place / "said.csv").read_text()


def test_a_newcomer_is_taken_in_and_predicted_for_and_exported(place):
    write_rows(place / "lima.csv", "age,side,ill", [one[1:] for one in patients("lima", 8)])
    told = call("onboard", "run", "lima.csv", "--out", "lima").stdout
    assert "apiece predict run 'lima' new.csv" in told.replace("\n", " ")
    assert len(json.loads(call("predict", "run", "lima", "new.csv", "--json").stdout)["columns"]["prediction"]) == 2
    card = json.loads((place / "lima" / "card.json").read_text())
    arrays = load_file(place / "lima" / "model.safetensors")
    assert card["client"] == "lima" and card["classes"] == ["no", "yes"]
    assert {name: list(array.shape) for name, array in arrays.items()} == {
        k: v["shape"] for k, v in card["arrays"].items()
    }


def test_an_export_holds_the_arrays_of_the_clients_model(place):
    files = json.loads(call("export", "run", "oslo", "--out", "oslo", "--json").stdout)["files"]
    assert files == ["card.json", "model.safetensors"]
    model = apiece.open("run").personal("oslo")
    arrays = load_file("oslo/model.safetensors")
    assert sorted(arrays) == sorted(model) and all((arrays[name] == model[name]).all() for name in arrays)


def test_a_finished_run_is_shown_and_reported_without_its_data(place):
    (place / "run" / "report.html").unlink()
    shown = call("resume", "run")
    assert "ditto" in shown.stdout and (place / "run" / "report.html").exists()
    assert "use its models: apiece predict run CLIENT new.csv" in shown.stderr
    call("report", "run")
    (place / "run" / "record.json").unlink()
    assert "there is no data" in call("resume", "run", code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predict", "nowhere", "rome", "new.csv"], "there is no run folder 'nowhere'"),
        (["predict", "run", "roma", "new.csv"], "no client 'roma' in run: did you mean 'rome'?"),
        (["predict", "run", "rome", "none.csv"], "none.csv cannot be read"),
        (["predict", "run", "rome", "new.csv", "--out", "new.csv"], "new.csv already exists"),
        (["predict", "run", "rome", "new.csv", "--out", "said.txt"], "written as .csv or .parquet"),
        (["predict", "run", "rome", "new.csv", "--method", "dito"], "did you mean 'ditto'?"),
        (["predict", "run", "rome", "new.csv", "--seed", "5"], "no seed 5"),
        (["onboard", "run", "new.csv"], "no column 'ill' with the target"),
        (["onboard", "run", "new.csv", "--name", "rome"], "'rome' is a client of the run"),
        (["onboard", "run", "new.csv", "--out", "run"], "run already exists"),
        (["export", "run", "rome", "--out", "run"], "run already exists"),
        (["export", "run", "roma", "--out", "x"], "did you mean 'rome'?"),
    ],
)
def test_a_mistake_is_one_paragraph_and_nothing_is_written(place, arguments, said):
    before = sorted(place.rglob("*"))
    assert said in " ".join(call(*arguments, code=2).stderr.split())
    assert sorted(place.rglob("*")) == before


def test_the_program_of_the_page_predicts_without_apiece(place):
    (script,) = re.findall(r"```python\n(# predict\.py.*?)```", PAGE, re.DOTALL)
    assert set(re.findall(r"^(?:import|from) (\w+)", script, re.MULTILINE)) == {
        "csv",
        "json",
        "sys",
        "numpy",
        "safetensors",
    }
    (place / "predict.py").write_text(script, encoding="utf-8")
    call("export", "run", "rome", "--out", "rome")
    told = subprocess.run([sys.executable, "predict.py", "rome", "new.csv"], capture_output=True, text=True, check=True)
    words = [line.split() for line in told.stdout.splitlines()]
    expected = apiece.open("run").predict("rome", "new.csv")
    assert [line[0] for line in words] == expected.labels
    np.testing.assert_allclose([[float(c) for c in line[1:]] for line in words], expected.probabilities, atol=2e-6)


def test_the_commands_of_the_page_run(place):
    write_rows(place / "lima.csv", "age,side,ill", [one[1:] for one in patients("lima", 8)])
    commands = re.findall(r"^    apiece (.*)$", PAGE.replace("runs/compare-1", "run"), re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        if "--onnx" not in command:
            call(*command.split())
    assert (place / "predictions.csv").exists() and (place / "rome" / "card.json").exists()
