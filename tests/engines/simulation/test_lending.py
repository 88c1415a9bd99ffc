"""Examples that stay on the host: the numbers of those on the devices, and only a cohort's rows are read."""

import jax
import numpy as np
import pytest
from one_of_several import EVERYBODY, JUDGE, MODEL, OFFSETS, SIZES, TOTAL, Watched

from apiece.engines.simulation import lending
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.methods import ditto


def make(x, y, **how):
    build = lambda hyper, round: ditto(JUDGE.loss, steps=2, batch=4, lr=0.1)
    return Vectorized(build, x, y, OFFSETS, participation=Participation(size=3), block=2, **how)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(SIZES.sum(), 3)).astype(np.float32), rng.normal(size=SIZES.sum()).astype(np.float32)


def test_lent_examples_give_the_numbers_of_those_on_the_devices(rows):
    there, lent = make(*rows), make(*rows, examples="host")
    assert lent.train.lent and not there.train.lent
    runs = [engine.advance(engine.start(MODEL.init, 0), 5) for engine in (there, lent)]

    def told(engine, run):
        split = {"train": engine.train}
        judged = [engine.outcomes(run, EVERYBODY, JUDGE.outcomes, split, most)["train"] for most in (None, 2)]
        return jax.tree.leaves((run.server, run.rows, engine.personal(run, EVERYBODY), judged, engine.ask(TOTAL, 2.0)))

    for a, b in zip(told(there, runs[0]), told(lent, runs[1]), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_round_reads_the_rows_of_its_cohort_and_no_others(rows):
    engine = make(rows[0].view(Watched), rows[1], examples="host")
    run = engine.start(MODEL.init, 0)
    Watched.read.clear()
    engine.advance(run, 1)
    cohort = engine.participation.draw(0, 0, len(SIZES))
    assert Watched.read == {row for i in cohort for row in range(OFFSETS[i], OFFSETS[i + 1])}


def test_examples_stay_on_the_host_when_every_device_would_have_too_many(monkeypatch):
    x = np.zeros(1000, np.uint8)
    monkeypatch.setattr(lending, "memory", lambda: 4 * 1000 * len(jax.local_devices()))
    assert not lending.stay_on_host(x)
    assert lending.stay_on_host(np.zeros(1001, np.uint8)) and not lending.stay_on_host(np.zeros(1001), "devices")
