"""`apiece run --hosts`: two real processes, one of them killed in the middle, and the run finished by two or by one."""

import json
import shutil
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.slow
SPEC = """
seeds = [0]
tune = 1
baselines = false
methods = {ditto = {lr = 0.1, steps = 2}}
data = {source = "digits", options = {clients = 12}}
train = {rounds = 60, cohort = 5, evaluate_every = 5, checkpoint_seconds = 0.0, states = "disk"}
"""


def start(hosts, process, *words):
    command = [sys.executable, "-c", "from apiece.cli import main; main()", *map(str, words)]
    command += ["--hosts", hosts, "--process", str(process)] if hosts else []
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(running, seconds=300):
    found = []
    try:
        for process in running:
            out, err = process.communicate(timeout=seconds)
            found.append((process.returncode, out, err))
    finally:
        for process in running:
            process.kill()
            process.wait(timeout=60)
    return found


def hosts():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]},127.0.0.1"


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A folder that two processes left, one of which was killed; and one that a single process finished."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "spec.toml").write_text(SPEC)
    words = ["run", "--spec", folder / "spec.toml", "--out"]
    (whole,) = finish([start(None, 0, *words, folder / "alone")])
    assert whole[0] == 0, whole[2]
    where, kept = hosts(), folder / "killed" / "checkpoints" / "ditto-0.safetensors"
    running = [start(where, k, *words, folder / "killed") for k in range(2)]
    deadline = time.monotonic() + 200
    while not kept.exists() and time.monotonic() < deadline and running[1].poll() is None:
        time.sleep(0.02)
    time.sleep(0.5)  # somewhere between two checkpoints
    running[1].kill()
    (code, _, said), _ = finish(running)
    said = " ".join(said.split())
    assert code == 2 and "process 1 is gone" in said and "apiece resume" in said and "Traceback" not in said
    assert kept.exists() and not (folder / "killed" / "record.json").exists()
    return folder


@pytest.mark.parametrize("count", [2, 1])
def test_a_killed_run_of_two_processes_is_finished_with_the_numbers_of_one(left, count):
    folder = shutil.copytree(left / "killed", left / f"by-{count}")
    folder.with_name(f".{folder.name}.process-2").mkdir()  # as of a killed process of an earlier number
    where = hosts() if count == 2 else None
    for code, _, said in finish([start(where, k, "resume", folder) for k in range(count)]):
        assert code == 0, said
    models = [load_file(left / name / "models" / "ditto-0.safetensors") for name in ("alone", folder.name)]
    for name, values in models[0].items():
        np.testing.assert_allclose(models[1][name], values, atol=1e-6)
    told = [
        json.loads((left / name / "record.json").read_text())["methods"]["ditto"] for name in ("alone", folder.name)
    ]
    assert told[0]["seeds"][0]["costs"]["visits"] == told[1]["seeds"][0]["costs"]["visits"] == 300
    strays = [path.name for path in folder.rglob("*") if ".rows" in path.name or "safetensors.0of2" in path.name]
    assert [name for name in strays if not name.startswith("ditto-0-end")] == []
    assert not list(left.glob(f".{folder.name}.process-*"))


def test_half_given_hosts_are_refused_before_anything_is_written(tmp_path):
    for words, said in (
        (["run", "ditto", "--process", "1"], "give --hosts, too"),
        (["run", "ditto", "--hosts", "a,b", "--process", "1"], "--hosts needs --out"),
        (["run", "ditto", "--hosts", "slurm", "--out", tmp_path / "x"], "SLURM_JOB_NODELIST is not set"),
    ):
        ((code, _, err),) = finish([start(None, 0, *words)])
        assert code != 0 and said in " ".join(err.split()) and "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
