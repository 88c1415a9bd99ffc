"""Stopping by validation, the best round, what a method reports, and weights of one's own."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import apiece
from apiece.data import digits
from apiece.errors import UserError
from apiece.evaluate import per_client
from apiece.experiment.best import best_look
from apiece.methods import fed_avg

FEW = digits(clients=4)


def worse_and_worse(loss, *, lr=0.1):
    """Steps that grow: its first rounds are its best."""
    return fed_avg(loss, lr=lr, steps=2, batch=8)


def test_a_run_stops_and_goes_back_to_its_best_round():
    grow = lambda round: 30.0**round  # soon far too long
    how = dict(federation=FEW, rounds=8, evaluate_every=1, schedule=grow, options={"lr": 0.05})
    stopped = apiece.fit(worse_and_worse, **how, stop={"patience": 2})
    looks = [point["validation_loss"] for point in stopped.curve]
    best = best_look(stopped.curve, "validation_loss", higher=False)
    assert len(looks) == best + 3 < 8
    assert stopped.run.round == stopped.curve[best]["round"] and stopped.costs["rounds"] == len(looks)
    until = apiece.fit(worse_and_worse, **how | {"rounds": int(stopped.run.round)})
    np.testing.assert_array_equal(stopped.personal("0")["w"], until.personal("0")["w"])


def test_a_stopped_comparison_is_resumed_to_the_same_numbers(tmp_path):
    grow = {"schedule": "exponential", "schedule_options": {"every": 1}}
    how = dict(rounds=6, seeds=1, tune=1, evaluate_every=1, baselines=False, stop={"patience": 1, "least": 10.0},
               data_options={"clients": 4}, checkpoint_seconds=0.0)  # fmt: skip
    found = apiece.compare("digits", {"fed_avg": {"steps": 1}}, **how, **grow, out=tmp_path / "run")
    assert pq.read_table(tmp_path / "run" / "rounds.parquet")["round"].to_pylist() == [1, 2]  # nothing improves so much
    assert found.record.methods["fed_avg"].seeds[0].costs["rounds"] == 2
    assert not list((tmp_path / "run" / "checkpoints").glob("*.best"))


def test_local_counts_at_its_best_round_in_a_comparison_and_no_other_method_does(tmp_path):
    grow = lambda round: 30.0**round
    how = dict(rounds=4, seeds=1, tune=1, evaluate_every=1, schedule=grow, baselines=False, newcomer_examples=[])
    found = apiece.compare(FEW, ["local", "fed_avg"], **how, out=tmp_path / "run")
    for name, outcomes in found.trials.items():
        outcome = outcomes[0]
        looks = [point["validation_loss"] for point in outcome.curve]
        assert len(looks) == 4 and np.argmin(looks) < 3
        judged = per_client(*outcome.scores("validation", "loss")).mean()
        np.testing.assert_allclose(judged, min(looks) if name == "local" else looks[-1], rtol=1e-6)


def test_a_method_reports_what_it_does_round_by_round(tmp_path):
    how = dict(rounds=2, seeds=1, tune=1, evaluate_every=1, baselines=False, data_options={"clients": 4})
    options = {"all_for_all": {"warmup": 1}, "dynamic_lambda": {"alone_steps": 2, "steps": 2}}
    apiece.compare("digits", options, **how, out=tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "rounds.parquet").to_pylist()
    mixing = [row["reported_w"] for row in rows if row["method"] == "all_for_all"]
    assert len(mixing[-1]) == 16 and np.isclose(np.reshape(mixing[-1], (4, 4)).sum(1), 1).all()
    assert [row["reported_lam"] for row in rows if row["method"] == "dynamic_lambda"][-1] == [pytest.approx(0.01)]
    assert all(row["reported_w"] is None for row in rows if row["method"] == "dynamic_lambda")


@pytest.mark.parametrize("engine", ["vectorized", "remote"])
def test_weights_may_be_given(engine):
    run = lambda weights: apiece.fit("fed_avg", federation=FEW, rounds=1, weights=weights, engine=engine,
                                     options={"steps": 1, "batch": 0})  # fmt: skip
    sizes = FEW.train.sizes.astype(float).tolist()
    np.testing.assert_allclose(run(sizes).personal("0")["w"], run("examples").personal("0")["w"], atol=1e-7)
    one = run([1.0, 1e-9, 1e-9, 1e-9]).personal("0")["w"]
    alone = apiece.fit("local", federation=FEW, rounds=1, engine=engine, options={"steps": 1, "batch": 0})
    np.testing.assert_allclose(one, alone.personal("0")["w"], atol=1e-6)


@pytest.mark.parametrize(
    ("weights", "said"),
    [([1.0], "1 weights for 4 clients"), ([1.0, 1, 1, 0], "greater than 0"), ("size", "weights")],
)
def test_wrong_weights_are_named(weights, said):
    with pytest.raises(UserError, match=said):
        apiece.fit("fed_avg", federation=FEW, rounds=1, weights=weights)
