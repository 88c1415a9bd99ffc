"""What goes wrong in a round, and that every engine sees the same of it."""

import jax
import numpy as np
import pytest

from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Availability, Participation
from apiece.engines.world.faults import Faults
from apiece.engines.world.pace import Pace
from apiece.errors import UserError
from apiece.methods import ditto
from apiece.models import linear, objective

SIZES = np.array([4, 3, 7, 5, 2, 9])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SIZES.sum(), 3)).astype(np.float32)
Y = RNG.normal(size=SIZES.sum()).astype(np.float32)
MODEL = linear((3,))
LOSS = objective(MODEL, "regression").loss
EVERYBODY = np.arange(6)
SLOW = Pace("given", times=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0))


def build(hyper, round):
    return ditto(LOSS, steps=2, batch=4, lr=0.1)


def vectorized(rounds, participation=None, faults=None, **how):
    engine = Vectorized(build, X, Y, OFFSETS, participation=participation, faults=faults, block=4, **how)
    return engine, engine.advance(engine.start(MODEL.init, 0), rounds)


def remote(rounds, participation, faults):
    engine = Remote(build, X, Y, OFFSETS, participation=participation, faults=faults)
    run = engine.start(MODEL.init, 0)
    for leg in (1, 2, rounds - 3):  # also across the borders of calls
        run = engine.advance(run, leg)
    return run


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("participation", "faults"),
    [
        (Participation(size=4), Faults(dropout=0.5)),
        (Participation(), Faults(deadline=2.5, pace=Pace("lognormal", jitter="exponential"))),
        (Participation(size=5), Faults(quorum=2, dropout=0.3, pace=SLOW)),
        (Participation(availability=Availability("daily", share=0.2, period=5)), Faults()),
    ],
    ids=["drop-outs", "deadline", "k of n", "few there"],
)
def test_engines_suffer_the_same_faults(participation, faults):
    engine, run = vectorized(8, participation, faults)
    there = remote(8, participation, faults)
    same = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6)
    jax.tree.map(same, (run.server, run.rows), (there.server, there.rows))
    assert run.known.tolist() == there.known.tolist() and run.clock == there.clock
    worked = [participation.draw(0, r, 6)[faults.draw(0, r, participation.draw(0, r, 6), 6).works] for r in range(8)]
    assert engine.visited(run).tolist() == np.bincount(np.concatenate(worked), minlength=6).tolist()


def test_who_drops_out_does_nothing_and_a_straggler_keeps_its_work():
    nobody_else = Participation(availability=Availability("given", given=((5,),)))
    _, dropped = vectorized(3, nobody_else, Faults(dropout=0.999))
    assert not dropped.known.any()
    engine, late = vectorized(3, nobody_else, Faults(deadline=5.5, pace=SLOW))
    assert late.known.tolist() == [False] * 5 + [True]
    start = engine.start(MODEL.init, 0)
    for run in (dropped, late):
        jax.tree.map(np.testing.assert_array_equal, run.server, start.server)
    assert any(np.any(leaf[5] != 0) for leaf in jax.tree.leaves(late.rows))


def test_a_round_takes_as_long_as_the_last_reply_the_deadline_or_the_quorum():
    draw = lambda faults: faults.draw(0, 0, EVERYBODY, 6)
    assert draw(Faults()).duration == 1
    assert draw(Faults(pace=SLOW)).duration == 6
    assert draw(Faults(pace=SLOW, deadline=3.5)).duration == 3.5
    assert draw(Faults(pace=SLOW, deadline=9.0)).duration == 6
    assert draw(Faults(pace=SLOW, quorum=2)).duration == 2
    assert draw(Faults(pace=SLOW, quorum=2)).counts.tolist() == [True, True, False, False, False, False]
    assert draw(Faults(pace=SLOW, quorum=9)).counts.all()
    _, run = vectorized(5, faults=Faults(pace=SLOW, quorum=4))
    assert run.clock == 20


def test_drop_outs_are_as_frequent_as_said_and_do_not_depend_on_the_cohort():
    faults = Faults(dropout=0.3)
    works = np.array([faults.draw(0, r, np.arange(50), 50).works for r in range(200)])
    assert abs(works.mean() - 0.7) < 0.02
    assert faults.draw(0, 7, np.array([3, 9]), 50).works.tolist() == works[7, [3, 9]].tolist()


def test_clients_come_when_they_are_there():
    daily = Participation(size=3, availability=Availability("daily", share=0.5, period=10))
    there = [set(daily.availability.there(0, r, 40)) for r in range(20)]
    assert there[0] == there[10] and there[0] != there[5]
    assert all(set(daily.draw(0, r, 40)) <= there[r] for r in range(20))
    often = np.bincount(np.concatenate([list(group) for group in there]), minlength=40)
    assert often.min() >= 8 and often.max() <= 12
    rate = [len(Availability("random", share=0.2).there(0, r, 1000)) / 1000 for r in range(5)]
    assert abs(np.mean(rate) - 0.6) < 0.03
    assert Participation(availability=Availability("given", given=((2, 1), ()))).draw(0, 3, 4).tolist() == []


def test_who_is_there_is_drawn_anew_in_every_round_also_in_the_one_numbered_like_the_population():
    # Chance and draw of a client once came from one stream there: then everybody passes.
    there = [len(Availability("random", share=0.2).there(seed, 1000, 1000)) / 1000 for seed in range(3)]
    np.testing.assert_allclose(there, 0.6, atol=0.06)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Faults(dropout=1.0), r"\[0, 1\)"),
        (lambda: Faults(deadline=0.0), "above 0"),
        (lambda: Faults(quorum=0), "at least 1"),
        (lambda: Availability("dayly"), "did you mean 'daily'"),
        (lambda: Availability(share=0.0), "above 0"),
        (lambda: Availability(period=0), "at least one round"),
        (lambda: Availability("given"), "needs it"),
        (lambda: Availability("given", given=((9,),)).there(0, 0, 4), "client 9"),
    ],
)
def test_nonsense_is_refused_in_words(make, words):
    with pytest.raises(UserError, match=words):
        make()
