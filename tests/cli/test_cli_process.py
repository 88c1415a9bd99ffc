"""The command line as a process: one JSON document, exit codes, kills and Ctrl-C."""

import fcntl
import json
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from cli_process import SPEC, apiece, call, start, stop_when

KILLED = """
seeds = [0, 1]
tune = 2
baselines = false
[data.options]
clients = 12
partition = "dirichlet_per_class"
alpha = 1.0
[train]
rounds = 40
cohort = 5
evaluate_every = 1
checkpoint_seconds = 0
[methods.ditto]
lam = 0.5
"""


def once(tmp_path_factory, name, make):
    """A folder that whichever worker comes first fills, and all others only read."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if base.name.startswith("popen-") else base) / f"cli-{name}"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "made").exists():
            shutil.rmtree(place, ignore_errors=True)  # what a worker left that failed
            place.mkdir()
            make(place)
            (place / "made").touch()
    return place


def compared(place):
    (place / "s.toml").write_text(SPEC)
    first = apiece("compare", "--spec", "s.toml", "--methods", "local", "--out", "first", cwd=place)
    (place / "out.txt").write_text(first.stdout)
    (place / "err.txt").write_text(first.stderr)
    assert first.returncode == 0
    second = apiece("compare", "--spec", "s.toml", "--methods", "local", "--out", "second", "--json", cwd=place)
    (place / "out.json").write_text(second.stdout)
    (place / "err-json.txt").write_text(second.stderr)
    assert second.returncode == 0


def undisturbed(place):
    (place / "s.toml").write_text(KILLED)
    assert apiece("compare", "--spec", "s.toml", "--out", "run", cwd=place).returncode == 0


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    return once(tmp_path_factory, "two-runs", compared)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return once(tmp_path_factory, "whole", undisturbed)


def record_of(out: Path):
    return json.loads((out / "record.json").read_text())


def metrics_of(out: Path) -> str:
    return json.dumps({name: [(trial["seed"], trial["metrics"]) for trial in method["seeds"]]
                       for name, method in record_of(out)["methods"].items()})  # fmt: skip


@pytest.mark.thorough
def test_the_same_seed_in_two_processes_gives_byte_equal_metrics(two_runs):
    assert metrics_of(two_runs / "first") == metrics_of(two_runs / "second")
    first, second = (record_of(two_runs / name)["methods"] for name in ("first", "second"))
    assert all(first[name]["tuning"] == second[name]["tuning"] for name in first)
    clients = [(two_runs / name / "clients.parquet").read_bytes() for name in ("first", "second")]
    assert clients[0] == clients[1]


@pytest.mark.thorough
def test_json_is_one_document_on_stdout_and_the_record(two_runs):
    text = (two_runs / "out.json").read_text()
    found, end = json.JSONDecoder().raw_decode(text)
    assert text[end:] == "\n" and found == record_of(two_runs / "second")
    assert "ftfa: seed 1" in (two_runs / "err-json.txt").read_text(), "progress is told on stderr"


def test_the_table_fits_a_terminal_of_eighty_columns(two_runs):
    text = (two_runs / "out.txt").read_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text, "nothing was cut off"
    for name in ("local", "fed_avg", "ftfa"):
        line = next(line for line in text.splitlines() if line.split()[:1] == [name])
        test = record_of(two_runs / "first")["methods"][name]["summary"]["test"]["accuracy"]["mean_weighted"]
        assert f"{100 * test['mean']:.1f}" in line
    assert "wrote first/" in (two_runs / "err.txt").read_text() and "wrote" not in text


def test_the_folder_has_the_report(two_runs):
    page = (two_runs / "first" / "report.html").read_text()
    assert "<html" in page and "ftfa" in page


def test_an_existing_output_folder_is_never_touched(two_runs, monkeypatch):
    monkeypatch.chdir(two_runs)
    before = {p: p.read_bytes() for p in (two_runs / "first").rglob("*") if p.is_file()}
    again = call("compare", "--spec", "s.toml", "--out", "first", "--json", code=2)
    assert again.stdout == ""
    assert "already exists; nothing was written" in again.stderr and "apiece resume first" in again.stderr
    assert {p: p.read_bytes() for p in (two_runs / "first").rglob("*") if p.is_file()} == before


@pytest.mark.thorough
def test_a_killed_run_resumes_in_another_process_to_the_numbers_of_an_undisturbed_one(whole, tmp_path):
    killed(whole, tmp_path, "checkpoints/ditto-0.safetensors")
    resumed = apiece("resume", "run", "--json", cwd=tmp_path)
    assert resumed.returncode == 0 and json.loads(resumed.stdout) == record_of(tmp_path / "run")
    assert metrics_of(tmp_path / "run") == metrics_of(whole / "run")
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["checkpoints/ditto-tuning.json", "checkpoints/ditto-0-done.safetensors"])
def test_whenever_it_is_killed_a_run_resumes_to_the_same_numbers(whole, tmp_path, moment):
    killed(whole, tmp_path, moment)
    call("resume", tmp_path / "run")
    assert metrics_of(tmp_path / "run") == metrics_of(whole / "run")


def killed(whole, place, moment):
    process = start("compare", "--spec", whole / "s.toml", "--out", "run", cwd=place)
    stop_when(process, place / "run" / moment, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (place / "run" / "record.json").exists(), "killed in the middle"


def test_ctrl_c_leaves_a_run_that_resumes_and_says_how(whole, tmp_path):
    process = start("compare", "--spec", whole / "s.toml", "--out", "run", "--json", cwd=tmp_path)
    out, err = stop_when(process, tmp_path / "run" / "checkpoints" / "ditto-0.safetensors", signal.SIGINT)
    assert process.returncode == 130 and out == ""
    assert "stopped; continue with: apiece resume run" in err and "Traceback" not in err
    call("resume", tmp_path / "run")
    assert metrics_of(tmp_path / "run") == metrics_of(whole / "run")


def test_resuming_a_finished_run_changes_nothing_but_shows_it_again(whole, tmp_path):
    shutil.copytree(whole / "run", tmp_path / "run")
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    assert "ditto" in call("resume", tmp_path / "run").stdout
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_resuming_after_the_data_changed_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{'abc'[i % 3]},{i % 7},{i % 5},{'yn'[i % 2]}" for i in range(60)]
    (tmp_path / "d.csv").write_text("client,u,v,label\n" + "\n".join(rows) + "\n")
    call("run", "fed_avg", "--data", "d.csv", "--rounds", "1", "--out", "run")
    (tmp_path / "run" / "record.json").unlink()
    (tmp_path / "d.csv").write_text("client,u,v,label\n" + "\n".join([*rows[1:], "a,3,3,y"]) + "\n")
    refused = call("resume", "run", code=2)
    assert refused.stdout == "" and "the data of 'run' changed since the run began" in refused.stderr
    assert not (tmp_path / "run" / "record.json").exists()


def test_the_module_is_the_command():
    found = subprocess.run([sys.executable, "-m", "apiece.cli", "--help"], capture_output=True, text=True, check=True)
    assert "compare" in found.stdout and found.stderr == ""


def test_the_version_is_the_packages():
    assert call("--version").stdout == f"apiece {version('apiece')}\n"
