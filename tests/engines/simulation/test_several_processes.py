"""Two and four real processes make one run: the numbers of one, each its own rows, and what a kill leaves."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from one_of_several import OFFSETS, SIZES, make, resumed_run, whole_run

SCRIPT = Path(__file__).with_name("one_of_several.py")
pytestmark = pytest.mark.thorough


def run_several(folder, count, word):
    """What each of `count` processes wrote; None of one that died."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    out = [folder / f"{word}-{k}.json" for k in range(count)]
    running = []
    try:
        for k, file in enumerate(out):
            command = [sys.executable, SCRIPT, file, coordinator, count, k, folder, word]
            with file.with_suffix(".log").open("w") as log:
                running.append(subprocess.Popen(list(map(str, command)), stderr=log, env=dict(os.environ)))
        for process in running:
            process.wait(timeout=300)
    finally:
        for process in running:
            process.kill()
            process.wait(timeout=60)
    logs = "".join(file.with_suffix(".log").read_text()[-2000:] for file in out)
    assert [p.returncode for p in running[:-1]] == [0] * (count - 1), logs
    return [json.loads(file.read_text()) if file.exists() else None for file in out], running[-1].returncode


@pytest.fixture(scope="module")
def alone():
    return {kind: whole_run(make(kind)) for kind in ("ditto", "scaffold")}


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Four processes, of which the last dies in its second run; and the folder that they leave."""
    folder = tmp_path_factory.mktemp("four")
    return *run_several(folder, 4, "killed"), folder


@pytest.fixture(scope="module")
def two(four, tmp_path_factory):
    folder = shutil.copytree(four[2], tmp_path_factory.mktemp("two") / "copy")
    return run_several(folder, 2, "resumed")


@pytest.mark.parametrize("kind", ["ditto", "scaffold"])
def test_two_and_four_processes_give_the_numbers_of_one(alone, two, four, kind):
    for said in (*two[0], *four[0][:3]):
        np.testing.assert_allclose(said[kind], alone[kind], atol=1e-6)


@pytest.mark.parametrize("kind", ["ditto", "scaffold"])
def test_each_process_reads_the_rows_of_its_own_clients_alone(two, four, kind):
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    halves = [set(said[f"{kind}_read"]) for said in two[0]]
    assert not halves[0] & halves[1] and halves[0] | halves[1] == set(range(OFFSETS[-1]))
    assert [sorted({int(owner[row]) for row in half}) for half in halves] == [
        [0, 1, 2, 3, 4, 5, 12],
        [6, 7, 8, 9, 10, 11, 13],
    ]
    quarters = [set(said[f"{kind}_read"]) for said in four[0][:3]]
    clients = [{int(owner[row]) for row in quarter} for quarter in quarters]
    assert clients == [{0, 1, 2, 12}, {3, 4, 5}, {6, 7, 8, 13}]
    assert all(len(quarter) == SIZES[sorted(who)].sum() for quarter, who in zip(quarters, clients, strict=True))


def test_a_lost_process_ends_the_others_in_words(four):
    said, died, _ = four
    assert died == -9 and said[3] is None
    assert "process 3 is gone; this process cannot go on alone" in said[0]["lost"]
    assert all("is gone" in one["lost"] and "apiece resume" in one["lost"] for one in said[:3])


def test_what_a_kill_left_goes_on_with_two_processes_or_one(alone, two, four, tmp_path):
    for said in two[0]:
        np.testing.assert_allclose(said["resumed"], alone["ditto"], atol=1e-6)
    for states in ("disk", "memory"):
        folder = shutil.copytree(four[2], tmp_path / states)
        np.testing.assert_allclose(resumed_run(make("ditto", states=states), folder), alone["ditto"], atol=1e-6)
