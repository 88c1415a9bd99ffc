"""A full disk: the file and what it needs are named, nothing of it is left, and the run goes on when there is room."""

import errno
import os

import numpy as np
import pytest

from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import RunFolder, compare, resume
from apiece.files import PART, fill_folder, write_arrays, write_json, write_rows

FEDERATION = digits(clients=4)
HOW = dict(rounds=1, seeds=1, tune=1, baselines=False)


@pytest.fixture
def disk(monkeypatch):
    """A disk that is full as soon as a file whose name ends so is to be made safe on it."""
    full = []

    def fsync(handle):
        being_written = os.readlink(f"/proc/self/fd/{handle}").removesuffix(PART).rpartition(".")[0]
        if any(being_written.endswith(name) for name in full):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    return full


linux = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="asks /proc for the name of a file")


@linux
@pytest.mark.parametrize(
    "name", ["fed_avg-0.safetensors", "fed_avg-0-done.safetensors", "clients.parquet", "record.json"]
)
def test_a_run_that_finds_no_room_says_so_and_goes_on_later(name, disk, tmp_path):
    out = tmp_path / "run"
    disk.append(name)
    with pytest.raises(
        UserError, match=rf"the disk is full: .*{name} .* are free there; make room, and continue with: "
    ):
        compare(FEDERATION, ["fed_avg"], **HOW, out=out)
    assert not list(out.rglob(".*")) and not RunFolder(out).is_finished
    disk.clear()
    assert list(resume(out).record.methods) == ["fed_avg"]


@linux
def test_before_there_is_a_run_nothing_is_to_be_resumed(disk, tmp_path):
    disk.append("spec.toml")
    with pytest.raises(
        UserError, match=r"spec.toml cannot be written, [\d,.]+ MB are free there; make room, and try again"
    ):
        compare(FEDERATION, ["fed_avg"], **HOW, out=tmp_path / "run")


@pytest.mark.parametrize(
    "told", [OSError(errno.ENOSPC, "full"), OSError("IO error: os error 28")], ids=["number", "text"]
)
def test_what_is_needed_is_told_where_it_is_known(told, tmp_path, monkeypatch):
    def refuse(handle):
        raise told

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(UserError, match=r"a needs 4\.0 MB, and [\d,.]+ MB are free"):
        write_arrays(tmp_path / "a", {"w": np.zeros(1_000_000, np.float32)}, {})
    with (
        pytest.raises(UserError, match=r"b needs 4\.0 MB, and"),
        write_rows(tmp_path / "b", {"w": np.empty(1_000_000, np.float32)}, {}),
    ):
        pass
    with pytest.raises(UserError, match=r"the disk is full: .*d cannot be written"), fill_folder(tmp_path / "d"):
        raise told
    assert not list(tmp_path.iterdir())


def test_another_failure_of_the_disk_is_not_taken_for_it(tmp_path, monkeypatch):
    def refuse(handle):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="broken"):
        write_json(tmp_path / "a.json", {})
