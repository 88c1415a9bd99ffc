"""Everybody's states: where they lie, and how many are copied at a time. Neither changes a number."""

import os

import jax
import numpy as np
import pytest

from apiece.engines import states
from apiece.engines.row_store import RowsOnDisk
from apiece.engines.simulation import base as simulation
from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.score import Examples
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Speeds
from apiece.engines.world.cohort import Participation
from apiece.methods import ditto
from apiece.models import mlp, objective

SHAPES = {"w": jax.ShapeDtypeStruct((50,), np.float32), "b": jax.ShapeDtypeStruct((), np.float32)}
MODEL = mlp((4,), 3, hidden=(5,))
JUDGE = objective(MODEL, "classification")
OFFSETS = np.array([0, 3, 10, 11, 40, 44, 50, 53, 57, 60])


def kinds(rows):
    return {type(leaf) for leaf in jax.tree.leaves(rows)}


def test_states_lie_on_disk_when_all_leaves_together_would_fill_the_memory(monkeypatch):
    monkeypatch.setattr(states, "memory", lambda: 4 * 1000 * 204)
    assert kinds(states.blank_rows(SHAPES, 1000)) == {np.ndarray}
    assert kinds(states.blank_rows(SHAPES, 1001)) == {RowsOnDisk}


@pytest.mark.parametrize("most", [0, 1 << 40], ids=["on disk", "in memory"])
@pytest.mark.parametrize("small", [0, 1 << 30], ids=["pages of its own", "small"])
def test_rows_start_as_zeros_and_keep_what_is_put_back(monkeypatch, most, small):
    monkeypatch.setattr(states, "memory", lambda: most)
    monkeypatch.setattr(states, "SMALL", small)
    leaf = states.blank_rows(SHAPES, 9)["w"]
    states.commit_rows(leaf, np.array([7, 2]), np.full((3, 50), 3.0))
    assert states.lend_rows(leaf, np.array([2, 5]), 3)[:, 0].tolist() == [3, 0, 0, 0]
    outside = states.look_up_rows(leaf, np.array([7, 9]), np.array([True, False]), 4)
    assert outside[:, 49].tolist() == [3, 0, 0, 0]
    assert states.look_up_rows(leaf, np.array([3, 7]), np.array([True, True]), 2)[:, 0].tolist() == [0, 3]


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="asks Linux what the process holds")
def test_rows_on_disk_are_not_kept_in_this_process(monkeypatch):
    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    monkeypatch.setattr(states, "memory", lambda: 0)
    leaf = states.blank_rows({"w": jax.ShapeDtypeStruct((1 << 20,), np.float32)}, 40)["w"]
    before = resident()
    for i in range(40):
        states.commit_rows(leaf, np.array([i]), np.ones((1, 1 << 20), np.float32))
    assert resident() - before < 40 << 20 and sum(leaf[i].sum(dtype=np.float64) for i in range(40)) == 40 << 20


def numbers(kind):
    """Everybody's outcomes and models after five rounds of clients of very different sizes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 3, 60).astype(np.int32)
    build = lambda hyper, round: ditto(JUDGE.loss, steps=2, batch=4)
    if kind == "rounds":
        engine = Vectorized(build, x, y, OFFSETS, participation=Participation(size=3), population=8)
    else:
        engine = Asynchronous(build, x, y, OFFSETS, arrivals=Speeds(active=3, buffer=2), population=8)
    run = engine.advance(engine.start(MODEL.init, 0), 5)
    split = engine.examples(x, y, OFFSETS)
    found = engine.outcomes(run, np.arange(9), JUDGE.outcomes, {"test": split})["test"]
    return (*found, *jax.tree.leaves(engine.personal(run, np.arange(9)))), kinds(run.rows)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["rounds", "replies"])
def test_large_states_give_the_same_numbers_as_small_ones(monkeypatch, kind):
    plain, where = numbers(kind)
    assert where == {np.ndarray}
    monkeypatch.setattr(states, "memory", lambda: 0)
    monkeypatch.setattr(states, "AT_ONCE", 2000)  # four models at once
    monkeypatch.setattr(Examples, "chunk", 2)
    large, where = numbers(kind)
    assert where == {RowsOnDisk}
    for a, b in zip(plain, large, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_few_models_are_made_at_a_time_when_they_are_large(monkeypatch):
    engine = Vectorized(lambda hyper, round: ditto(JUDGE.loss), np.zeros((60, 4), np.float32),
                        np.zeros(60, np.int32), OFFSETS)  # fmt: skip
    run = engine.start(MODEL.init, 0)
    widths = lambda: [len(who) for _, who in engine.personal_groups(run, np.arange(9))]
    assert widths() == [9]
    size = 2 * states.bytes_of_a_row(run.rows)  # a state and the model made of it
    monkeypatch.setattr(states, "AT_ONCE", 4 * size)
    assert widths() == [4, 4, 1]
    assert engine._at_once(run, 10, width=1) == 8 and engine._at_once(run, 10, width=9) == 10
    for most in ("GROUP", "MORE"):
        monkeypatch.setattr(simulation, most, 2)
    assert widths() == [2, 2, 2, 2, 1]
