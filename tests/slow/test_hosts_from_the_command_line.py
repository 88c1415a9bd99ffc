"""`apiece run --hosts`: two real processes, one of them killed in the middle, and the run finished by two or by one."""

import json
import os
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


def start(hosts, process, *words, **env):
    command = [sys.executable, "-c", "from apiece.cli import main; main()", *map(str, words)]
    command += ["--hosts", hosts] + ([] if env else ["--process", str(process)]) if hosts else []
    how = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
    return subprocess.Popen(command, **how)


def environment(way, first, count, process):
    """What a cluster's scheduler tells one of several processes; `first` is where process 0 listens."""
    if way == "slurm":  # whose list of nodes has no ports
        return {"SLURM_JOB_NODELIST": "127.0.0.1,127.0.0.2", "SLURM_NTASKS": str(count), "SLURM_PROCID": str(process),
                "APIECE_COORDINATOR": first}  # fmt: skip
    return {"APIECE_COORDINATOR": first, "APIECE_PROCESSES": str(count), "JOB_COMPLETION_INDEX": str(process)}


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


@pytest.mark.parametrize(("count", "way"), [(2, "slurm"), (2, "kubernetes"), (1, None)])
def test_a_killed_run_of_two_processes_is_finished_with_the_numbers_of_one(left, count, way):
    folder = shutil.copytree(left / "killed", left / f"by-{count}-{way}")
    folder.with_name(f".{folder.name}.process-2").mkdir()  # as of a killed process of an earlier number
    first = hosts().partition(",")[0]
    told = [environment(way, first, count, k) if way else {} for k in range(count)]
    running = [start(way, k, "resume", folder, **env) for k, env in enumerate(told)]
    for code, _, said in finish(running):
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
