"""Convergence in the record: what is asked of every method, and which verdicts wait."""

import numpy as np
import pytest
from experiment_runs import DATA, SMALL, run

from apiece.evaluate import Interval
from apiece.experiment import read_record
from apiece.experiment.converge import convergence_of, edges
from apiece.experiment.judge import Outcome
from apiece.experiment.ranking import may_close_gap
from apiece.experiment.record import Convergence
from apiece.experiment.spec_tables import StopSpec, TrainSpec

ROUNDS = np.arange(5, 101, 5)


def outcome(losses, rounds=ROUNDS):
    """A trial with this curve."""
    curve = [{"round": int(r), "validation_loss": float(v)} for r, v in zip(rounds, losses, strict=True)]
    return Outcome(np.arange(4), {}, curve, {})


def judged(*outcomes, tried=({"options": {}},), chosen=0, **plan):
    by_seed = dict(enumerate(outcomes))
    return convergence_of(by_seed, tried, chosen, TrainSpec(rounds=100, **plan))


def test_a_method_is_judged_by_all_seeds_and_each_seed_alone():
    falling, flat = outcome(0.5 + 0.98**ROUNDS), outcome(np.full(20, 0.5))
    found = judged(falling, flat)
    assert (found.state, found.rounds, found.looks) == ("improving", 100, 5)
    assert found.by_seed == {0: "improving", 1: "resting"}
    assert found.change.high < 0 < found.gain


def test_a_run_that_was_stopped_has_rested_and_one_that_was_not_is_asked():
    stop = StopSpec()
    early = outcome(0.5 + 0.98 ** ROUNDS[:10], rounds=ROUNDS[:10])
    whole = outcome(0.5 + 0.98**ROUNDS)
    assert judged(early, stop=stop).state == "resting"
    assert judged(early, whole, stop=stop).by_seed == {0: "resting", 1: "improving"}


def test_what_grows_after_the_best_round_that_was_kept_is_at_rest():
    growing = outcome(0.5 + 0.01 * ROUNDS)
    assert judged(growing).state == "rising"
    assert judged(growing, stop=StopSpec(patience=100)).state == "resting"


def test_what_is_solved_at_once_is_at_rest_and_what_only_sends_nothing_is_asked():
    once = lambda **spent: Outcome(np.arange(4), {}, [{"round": 1, "validation_loss": 0.5}],
                                   {"bytes_up": 0, "bytes_down": 0, "gradients": 0} | spent)  # fmt: skip
    assert judged(once()).state == "resting"
    assert judged(once(gradients=20)).state == judged(once(bytes_down=4)).state == "unknown"


def test_an_edge_is_an_end_of_several_values():
    tried = [{"options": {"lr": lr, "lam": lam, "part": part}} for lr, lam, part in
             [(0.1, 1.0, "a"), (1.0, 0.1, "b"), (3.0, 0.5, "c"), (0.5, 0.7, "d")]]  # fmt: skip
    assert [(edge.option, edge.value, edge.end) for edge in edges(tried, 1)] == [("lam", 0.1, "lowest")]
    assert [(edge.option, edge.end) for edge in edges(tried, 2)] == [("lr", "highest")]
    assert edges(tried, 3) == []
    assert edges(tried[:2], 1) == [], "one of two is always an end"


def method(loss, gain=None):
    """A method with this validation loss, which is expected to fall by so much if it still improves."""
    state, nothing = "resting" if gain is None else "improving", Interval(*[0.0] * 4)
    return Convergence(state=state, by_seed={}, rounds=100, looks=5, change=nothing, gain=gain or 0.0, loss=loss,
                       edges=[])  # fmt: skip


def test_who_still_improves_may_close_a_gap_that_is_not_too_wide():
    best = method(1.0)
    assert not may_close_gap(best, method(1.1)), "it rests"
    assert may_close_gap(best, method(1.1, gain=0.05))
    assert not may_close_gap(best, method(2.0, gain=0.05)), "twenty such gains would be needed"
    assert may_close_gap(best, method(0.9, gain=0.05)), "by loss it is ahead already"
    assert may_close_gap(best, method(float("nan"), gain=0.05)), "nobody knows"
    assert not may_close_gap(method(1.0, gain=0.5), method(1.1)), "the best can only move further ahead"
    assert not may_close_gap(best, None) and not may_close_gap(None, method(1.1, gain=0.05)), "an older record"


@pytest.fixture(scope="module")
def moving(tmp_path_factory):
    """A run of steps so small that everybody still improves."""
    values = {**SMALL, "train": {"rounds": 20}, "every": {"lr": 0.03, "steps": 2}, "tune": 1, "baselines": False}
    values |= {"methods": {"local": {}, "fed_avg": {}}, "data": {**DATA, "new_clients": 0.0}}
    return run(values, tmp_path_factory.mktemp("moving") / "run").folder


def test_a_run_that_still_improves_says_so_and_proves_nothing(moving):
    found = read_record(moving)
    assert [(one.convergence.state, one.convergence.looks) for one in found.methods.values()] == [("improving", 5)] * 2
    assert found.methods["fed_avg"].harm.so_far
    (gap,) = found.ranking.behind.values()
    assert not gap.told_apart and gap.so_far == (gap.interval.low > 0)
    assert found.plain()["methods"]["local"]["convergence"]["by_seed"] == {"0": "improving", "1": "improving"}
