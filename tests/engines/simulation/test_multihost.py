"""Two real processes make one run: the numbers of one process, and each does its part of the work."""

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from apiece.engines.simulation.multihost import join
from apiece.errors import UserError

SCRIPT = Path(__file__).with_name("one_of_two.py")


def start(file, *arguments):
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]  # one device each
    env = {**os.environ, "XLA_FLAGS": " ".join(flags)}
    with file.with_suffix(".log").open("w") as log:
        return subprocess.Popen([sys.executable, SCRIPT, file, *map(str, arguments)], stderr=log, env=env)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    files = [folder / name for name in ("alone", "first", "second")]
    running = [start(files[0])] + [start(file, coordinator, k) for k, file in enumerate(files[1:])]
    try:
        for process, file in zip(running, files, strict=True):
            assert process.wait(timeout=300) == 0, file.with_suffix(".log").read_text()[-3000:]
    finally:
        for process in running:
            process.kill()
            process.wait(timeout=60)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


@pytest.mark.thorough
@pytest.mark.parametrize("run", ["ditto", "late"])
def test_two_processes_give_the_numbers_of_one(results, run):
    alone, first, second = results
    assert (alone["devices"], first["devices"], second["devices"]) == (1, 2, 2)
    assert first[run]["numbers"] == second[run]["numbers"]
    np.testing.assert_allclose(first[run]["numbers"], alone[run]["numbers"], atol=2e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("run", ["ditto", "late"])
def test_each_of_two_processes_does_half_of_the_work_and_no_work_is_done_twice(results, run):
    alone, first, second = (Counter(result[run]["worked"]) for result in results)
    assert first + second == alone
    uneven = 1 if run != "late" else 5  # replies come in twos, but now and then a step starts one client alone
    assert abs(first.total() - second.total()) <= uneven


@pytest.mark.parametrize(
    ("coordinator", "processes", "process", "words"),
    [("127.0.0.1:1", 2, 2, "numbered from 0 to 1"), ("somewhere", 2, 0, "host:port")],
)
def test_a_wrong_invitation_is_refused_in_words(coordinator, processes, process, words):
    with pytest.raises(UserError, match=words):
        join(coordinator, processes, process)
