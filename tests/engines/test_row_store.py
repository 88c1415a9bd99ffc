"""States in a file: read after write, never lost by a kill, refused where there is no room, the same numbers."""

import errno
import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiece.engines import row_store
from apiece.engines.engine import ROWS, forget_checkpoint
from apiece.engines.row_store import RowStore
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.states import store_of
from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.files import DiskFull
from apiece.methods import ditto
from apiece.models import linear, objective

SHAPES = {"w": jax.ShapeDtypeStruct((3,), np.float32), "n": jax.ShapeDtypeStruct((), np.int16)}
MODEL = linear((3,))
JUDGE = objective(MODEL, "regression")
SIZES = np.array([1, 3, 7, 20, 2, 9, 4, 5])


def states(*numbers):
    many = np.array(numbers)
    return {"w": np.repeat(many[:, None], 3, 1).astype(np.float32), "n": many.astype(np.int16)}


def seen(store, who):
    found = store.fetch(np.array(who), len(who)).result()
    assert (found["w"] == found["n"][:, None]).all()
    return found["n"].tolist()


STEPS = st.lists(
    st.one_of(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True), st.sampled_from(["save", "kill"])),
    max_size=12,
)


@settings(max_examples=20)
@given(STEPS)
def test_after_any_kill_all_states_are_those_of_the_last_checkpoint(steps):
    with tempfile.TemporaryDirectory() as folder:
        path, count = Path(folder, "run.rows"), 0
        store, now = RowStore(SHAPES, 6, Path(folder)), [0] * 6
        saved = (np.zeros(0, int), np.zeros(0, int), [0] * 6)
        for step in steps:
            if step == "save":
                store.keep_beside(path)
                who = np.flatnonzero(store.at >= 0)
                saved = (who, store.at[who], list(now))
                store.protect()
            elif step == "kill":  # all that is left is the file and what the checkpoint says
                store, now = RowStore(SHAPES, 6, Path(folder)), list(saved[2])
                if path.exists():
                    store.reopen(path, saved[0], saved[1], store.width)
            else:
                count += 1
                store.put(np.array(step), states(*[count * 10 + i for i in step]))
                for i in step:
                    now[i] = count * 10 + i
            assert seen(store, range(6)) == now
        assert len(store.kept) <= 12  # a place that nobody names is used again


def engine(**how):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(SIZES.sum(), 3)).astype(np.float32), rng.normal(size=SIZES.sum()).astype(np.float32)
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    build = lambda hyper, round: ditto(JUDGE.loss, steps=2, batch=4, lr=0.1)
    return Vectorized(build, x, y, offsets, participation=Participation(size=3), **{"block": 2, **how})


@pytest.fixture(scope="module")
def engines():
    return {where: engine(states=where) for where in ("memory", "disk")}


def same(one, other):
    for a, b in zip(jax.tree.leaves((one.server, one.rows, one.known)),
                    jax.tree.leaves((other.server, other.rows, other.known)), strict=True):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_states_on_disk_give_the_numbers_of_states_in_memory_to_the_last_digit(engines):
    runs = [engines[where].advance(engines[where].start(MODEL.init, 0), 9) for where in ("memory", "disk")]
    assert store_of(runs[0].rows) is None and store_of(runs[1].rows) is not None
    same(*runs)


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_run_that_was_killed_goes_on_from_the_states_beside_its_checkpoint(engines, tmp_path, where):
    disk, other = engines["disk"], engines[where]
    run, path = disk.start(MODEL.init, 0), tmp_path / "run.safetensors"
    for rounds in (2, 2):  # the second one is written where the first is
        run = disk.advance(run, rounds)
        disk.save(run, path, {"seconds": 1.0}, beside=True)
    assert path.with_name(path.name + ROWS).stat().st_size >= int(run.known.sum()) * store_of(run.rows).width
    disk.advance(run, 3)  # work that the kill takes, and that must not be seen
    store_of(run.rows).settle()
    again, about = other.restore(path, other.start(MODEL.init, 0))
    assert again.round == 4 and about == {"seconds": 1.0}
    same(other.advance(again, 5), engines["memory"].advance(engines["memory"].start(MODEL.init, 0), 9))
    forget_checkpoint(path)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_states_on_disk_writes_what_changed_and_not_everything(engines, tmp_path):
    store = RowStore({"w": jax.ShapeDtypeStruct((1000,), np.float32)}, 500, tmp_path)
    store.put(np.arange(500), {"w": np.ones((500, 1000), np.float32)})
    store.keep_beside(tmp_path / "a.rows")
    store.protect()
    store.put(np.arange(10), {"w": np.full((10, 1000), 2, np.float32)})
    store.keep_beside(tmp_path / "a.rows")
    store.protect()
    assert (tmp_path / "a.rows").stat().st_size == 510 * 4000 and len(store.free) == 10


def test_a_disk_without_room_is_refused_before_anything_is_written(engines, monkeypatch):
    run = engines["disk"].start(MODEL.init, 0)
    monkeypatch.setattr(row_store.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 100}))
    with pytest.raises(UserError, match=r"states of 8 more clients, .* nothing was written. .* TMPDIR"):
        engines["disk"].advance(run, 9)
    assert (store_of(run.rows).at < 0).all() and run.round == 0


def test_nobody_may_be_asked_for(tmp_path):
    store = RowStore(SHAPES, 6, tmp_path)
    nobody = np.zeros(0, int)
    store.put(nobody, states(*[]))
    assert store.fetch(nobody, 0).result()["w"].shape == (0, 3) and store.leaves["w"][nobody].shape == (0, 3)


class Full:
    """A file on a disk that is full."""

    def seek(self, place):
        pass

    def write(self, rows):
        raise OSError(errno.ENOSPC, "no space left")


def test_a_disk_that_fills_up_ends_the_run_in_words(tmp_path):
    store = RowStore(SHAPES, 6, tmp_path)
    store.file = Full()
    store.put(np.array([1]), states(5))
    with pytest.raises(DiskFull, match="the disk is full"):
        store.settle()


def test_a_states_file_that_is_gone_short_or_of_another_model_is_refused(tmp_path):
    store = RowStore(SHAPES, 6, tmp_path)
    given = np.array([1]), np.array([3])
    with pytest.raises(UserError, match=r"cannot be opened .* Put it back"):
        store.reopen(tmp_path / "gone.rows", *given, store.width)
    (tmp_path / "short.rows").write_bytes(b"0" * store.width)
    with pytest.raises(UserError, match="shorter than the checkpoint beside it says"):
        store.reopen(tmp_path / "short.rows", *given, store.width)
    with pytest.raises(UserError, match="of another method or model"):
        store.reopen(tmp_path / "short.rows", *given, store.width + 8)
