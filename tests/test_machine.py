"""Cores and memory, on systems that tell and on those that do not (which are made by taking the functions away)."""

import math
import os
import subprocess
import sys

import pytest

from apiece import machine

# What macOS or Windows lack, taken away before anything of apiece, or of what it stands on, is imported.
ELSEWHERE = """
import mmap, os, pkgutil, sys
for name in ("resource", "fcntl", "pwd", "grp", "termios"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "sched_setaffinity", "sysconf", "sysconf_names"):
    delattr(os, name)
for name in [name for name in dir(mmap) if name.startswith("MADV_")]:
    delattr(mmap, name)

import apiece
from apiece.cli import main
for found in pkgutil.walk_packages(apiece.__path__, "apiece."):
    if not found.name.startswith(("apiece.models.torch", "apiece.cli.__main__")):
        try:
            __import__(found.name)
        except apiece.UserError as error:
            if "apiece[flower]" not in str(error):  # an extra, which need not be there
                raise
main()
"""


def test_a_run_needs_nothing_that_only_linux_has(tmp_path):
    arguments = ("run", "ditto", "--data", "digits", "--rounds", "1", "--out", "run", "-D", "clients=4")
    command = [sys.executable, "-c", ELSEWHERE, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "ditto" in done.stdout and (tmp_path / "run" / "report.html").exists()


def test_cores_are_those_that_this_process_may_use_or_all(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 6}, raising=False)
    assert machine.count_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert machine.count_cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.count_cores() == 1


def test_a_containers_limit_counts_as_memory(monkeypatch, tmp_path):
    (tmp_path / "max").write_text("4096\n")
    (tmp_path / "none").write_text("max\n")
    whole = machine.memory()
    monkeypatch.setattr(machine, "LIMITS", (str(tmp_path / "none"), str(tmp_path / "absent")))
    assert machine.memory() >= whole
    monkeypatch.setattr(machine, "LIMITS", (str(tmp_path / "none"), str(tmp_path / "max")))
    assert machine.memory() == 4096


def unknown_name(name):
    raise ValueError("unrecognized configuration name")


@pytest.mark.parametrize("sysconf", [None, unknown_name, lambda name: -1], ids=["no sysconf", "no name", "no answer"])
def test_memory_that_the_system_does_not_tell_is_assumed(monkeypatch, sysconf):
    monkeypatch.setattr(machine, "LIMITS", ())
    if sysconf is None:
        monkeypatch.delattr(os, "sysconf", raising=False)
    else:
        monkeypatch.setattr(os, "sysconf", sysconf, raising=False)
    assert machine.memory() == machine.ASSUMED


def test_peak_memory_is_in_megabytes_on_every_system(monkeypatch):
    class Resource:
        RUSAGE_SELF = 0
        getrusage = staticmethod(lambda who: type("Usage", (), {"ru_maxrss": 3 << 20}))

    monkeypatch.setitem(sys.modules, "resource", Resource)
    monkeypatch.setattr(sys, "platform", "linux")
    assert machine.peak_memory_mb() == 3 << 10
    monkeypatch.setattr(sys, "platform", "darwin")
    assert machine.peak_memory_mb() == 3
    monkeypatch.setitem(sys.modules, "resource", None)
    assert math.isnan(machine.peak_memory_mb())
