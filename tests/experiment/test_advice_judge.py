"""The judge of advice: it owns the test data, counts what is spent, and tells regret, harm and coverage."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import apiece
from apiece.data import source
from apiece.experiment.advice_judge import BudgetSpent, Swept, judge_advice, metered, summarize_judged
from apiece.experiment.advice_judge.sweep import cost_of_sweep, winner_of


@pytest.fixture(scope="module")
def few():
    return source("linear", clients=6, examples=12, features=3, held_out=4)


def swept(federation, name, validation, errors, passes=1000.0):
    every = np.broadcast_to(np.float64(errors), (federation.test.rows,))
    return Swept(name, {"lr": 0.1}, validation, float(every.mean()), passes, every.tolist())


@pytest.fixture(scope="module")
def known(few):
    told = {"local": (0.5, 60.0), "fed_avg": (0.4, 50.0), "ftfa": (0.3, 41.0), "ditto": (0.31, 40.0)}
    return {name: swept(few, name, *numbers) for name, numbers in told.items()}


def advisor(method="ftfa", **more):
    return lambda federation, model=None, seed=0: SimpleNamespace(method=method, options={"lr": 0.1}, **more)


@pytest.mark.parametrize("batch", [0, 6])
def test_rounds_are_counted_in_passes_whatever_the_batch(few, batch):
    with metered(few) as meter:
        apiece.fit("fed_avg", federation=few, rounds=5, options={"steps": 4, "batch": batch, "lr": 0.1})
    share = 1.0 if batch == 0 else batch / 12
    # Five rounds of four gradients on so much of everybody's rows.
    assert meter.passes == pytest.approx(5 * 4 * share, rel=0.1)


def test_who_spends_too_much_is_stopped_and_gets_the_worst(few, known):
    with pytest.raises(BudgetSpent, match="passes over the data were spent, and 3 are allowed"), metered(few, limit=3):
        apiece.fit("fed_avg", federation=few, rounds=5, options={"steps": 4, "batch": 0, "lr": 0.1})

    def dear(federation, model=None, seed=0):
        apiece.fit("fed_avg", federation=federation, rounds=5, options={"steps": 4, "batch": 0, "lr": 0.1})

    found = judge_advice(few, dear, swept=known, limit=0.001)
    assert "are allowed" in found.note and found.points == 60.0 and found.regret == pytest.approx(19.0)


def test_the_advisor_has_no_test_examples_and_other_ones_change_nothing(few, known):
    seen = []

    def look(federation, model=None, seed=0):
        seen.append((federation.test.rows, federation.truth, federation.train.y.tobytes()))
        return advisor()(federation)

    other = dataclasses.replace(few, test=dataclasses.replace(few.test, y=few.test.y[::-1].copy()))
    for federation in (few, other):
        judge_advice(federation, look, swept=known)
    assert seen[0] == seen[1] and seen[0][:2] == (0, {})


def test_regret_is_against_the_winner_on_validation_and_the_oracle_on_test(few, known):
    assert winner_of(known).method == "ftfa" and cost_of_sweep(known) == (4000.0, 3000.0)
    found = judge_advice(few, advisor("fed_avg"), swept=known, name="always fed_avg")
    assert (found.winner, found.regret, found.regret_of_oracle) == ("ftfa", 9.0, 10.0)
    assert found.passes == found.cost_ratio == 0.0 and found.advisor == "always fed_avg" and found.gain == 10.0


def test_whom_it_hurts_is_judged_beside_local(few, known):
    worse = {**known, "fed_avg": swept(few, "fed_avg", 0.4, 90.0)}
    assert judge_advice(few, advisor("fed_avg"), swept=worse).hurt_expected > 0.99
    assert judge_advice(few, advisor(), swept=known).hurt_expected < 0.01


@pytest.mark.parametrize(("low", "high", "covered"), [(15.0, 22.0, True), (20.0, 22.0, False)])
def test_a_predicted_interval_holds_what_was_found_or_pays_for_it(few, known, low, high, covered):
    gains = {"local": SimpleNamespace(mean=(low + high) / 2, low=low, high=high)}
    found = judge_advice(few, advisor(gains=gains), swept=known)
    assert found.gain == pytest.approx(19.0) and found.covered is covered
    assert found.interval_score == pytest.approx(high - low + (0 if covered else 20 * 1.0))


def test_the_table_ends_with_its_numbers(few, known):
    rows = [judge_advice(few, advisor(name), swept=known) for name in ("ftfa", "fed_avg", "local")]
    found = summarize_judged(rows)
    assert found["mean_regret"] == pytest.approx(28 / 3) and found["median_regret"] == 9.0
    assert found["max_regret"] == 19.0 and found["coverage"] is None and found["federations"] == 3


def test_it_is_found_among_the_tools_for_strangers():
    assert apiece.testing.judge_advice is judge_advice
