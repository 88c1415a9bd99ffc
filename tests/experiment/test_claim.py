"""Two processes and one run folder: one writes, the other is told; a killed one claims nothing."""

import signal
import subprocess
import sys

import pytest

import apiece
from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import compare, resume
from apiece.experiment.claim import CLAIM, claim_folder, claim_new_folder
from apiece.methods import fed_avg

FEDERATION = digits(clients=4)
SMALL = dict(rounds=1, seeds=1, tune=1, baselines=False)
HOLD = """
import runpy, sys, time
from pathlib import Path
with runpy.run_path(sys.argv[2])["claim_folder"](Path(sys.argv[1])):  # by itself: it need not wait for JAX
    print("mine", flush=True)
    time.sleep(60)
"""


def test_who_comes_second_is_refused_and_writes_nothing(tmp_path):
    out, said = tmp_path / "run", []

    def meanwhile(what, done, total):
        if not said:
            before = sorted(path.name for path in out.rglob("*"))
            with pytest.raises(UserError, match=r"another process \(\d+\) is at work in .*run'; nothing was written"):
                resume(out)
            said.append(before == sorted(path.name for path in out.rglob("*")))

    compare(FEDERATION, ["fed_avg"], **SMALL, out=out, watch=meanwhile)
    assert said == [True] and not (out / CLAIM).exists()
    with claim_folder(out):  # a finished one is only read
        assert list(resume(out).record.methods) == ["fed_avg"]


def test_a_killed_process_claims_nothing(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path), apiece.experiment.claim.__file__]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "mine\n"
        with pytest.raises(UserError, match=rf"another process \({holder.pid}\)"), claim_folder(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        holder.wait()
        holder.stdout.close()
    assert (tmp_path / CLAIM).exists()
    with claim_new_folder(tmp_path):  # what it left is in nobody's way
        assert (tmp_path / CLAIM).exists()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_filled_meanwhile_is_not_used(tmp_path, monkeypatch):
    claim = claim_folder

    def late(folder):
        (folder / "spec.toml").write_text("another run, begun and done")
        return claim(folder)

    monkeypatch.setattr(apiece.experiment.claim, "claim_folder", late)
    with pytest.raises(UserError, match="already exists; nothing was written"), claim_new_folder(tmp_path / "run"):
        pass


def test_a_system_without_locks_goes_without(tmp_path, monkeypatch):
    for name in ("fcntl", "msvcrt"):
        monkeypatch.setitem(sys.modules, name, None)
    with claim_folder(tmp_path), claim_folder(tmp_path):
        pass


def test_a_finished_run_does_not_try_again_what_failed(tmp_path):
    tried = []

    def broken(loss, *, lr: float = 0.1):
        def merge(x, replies, cohort, key):
            if len(cohort.ids) > 2:
                tried.append(lr)
                raise RuntimeError("too many clients")
            return x

        return fed_avg(loss, lr=lr, steps=1, batch=4)._replace(merge=merge)

    run = dict(**SMALL, out=tmp_path / "run")
    first = compare(FEDERATION, {"fed_avg": {}, "mine": broken}, **run)
    before = len(tried)
    again = resume(tmp_path / "run", given={"mine": broken})
    assert before and len(tried) == before
    assert again.failed == first.failed and "too many clients" in again.failed["mine"]
    assert again.record.plain() == first.record.plain()
