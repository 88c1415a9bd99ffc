"""Rounds "auto": a run ends where its validation has come to rest, by one rule for all methods."""

import numpy as np
import pytest
from experiment_runs import DATA, numbers_of

from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import converge as rule
from apiece.experiment import fit, make_spec, resume, run_spec
from apiece.experiment import spec_tables as tables
from apiece.experiment.converge import has_rested
from apiece.experiment.spec_tables import TrainSpec
from apiece.report.convergence import convergence

# Full batches: no noise. Steps that move nothing have arrived; small ones do not within these rounds.
STILL, SLOW = {"method": "local", "lr": 1e-6}, {"method": "local", "lr": 0.02}


@pytest.fixture
def stages(monkeypatch):
    """Stages that begin with 20 rounds: whatever is tested here does not depend on how long they are."""
    monkeypatch.setattr(tables, "FIRST_STAGE", 20)
    monkeypatch.setattr(rule, "FIRST_STAGE", 20)


def values(rounds, methods, **more):
    options = {"every": {"batch": 0, "steps": 1}, "baselines": False, "tune": 1, "seeds": [0]}
    data = {"data": {**DATA, "new_clients": 0.0}}
    return {**data, "train": {"rounds": rounds}, "methods": methods, **options, **more}


def curve(state, rounds):
    """Looks every five rounds at a loss that falls all the time, or has long arrived."""
    slowness = {"improving": rounds, "resting": 3.0}[state]
    return [{"round": r, "validation_loss": 0.5 + float(np.exp(-r / slowness))} for r in range(5, rounds + 1, 5)]


@pytest.mark.parametrize("rounds", [100, 200, 400, 800])
def test_a_run_is_asked_at_the_ends_of_stages_that_double(rounds):
    assert has_rested(curve("resting", rounds)) and not has_rested(curve("improving", rounds))
    assert not has_rested(curve("resting", rounds - 5)) and not has_rested(curve("resting", rounds + 5))


def test_looks_that_do_not_meet_the_end_of_a_stage_are_asked_behind_it():
    looks = [{"round": r, "validation_loss": 0.5} for r in range(7, 200, 7)]
    assert [look["round"] for k, look in enumerate(looks) if has_rested(looks[: k + 1])] == [105]


def test_the_words_of_the_spec():
    assert (TrainSpec(rounds="auto").rounds, TrainSpec(rounds="auto").until_rest) == (1000, True)
    assert TrainSpec(rounds="auto:300") == TrainSpec(rounds=300, until_rest=True)
    assert TrainSpec(rounds="auto:300").look_every == 5, "twenty looks by the end of the first stage"
    for wrong in ("automatic", "auto:", "auto:many", "50"):
        with pytest.raises(UserError, match=r"'train\.rounds' = .* is wrong"):
            make_spec({"train": {"rounds": wrong}})


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"stop": {"patience": 2}}, "train.until_rest and train.stop both say when"),
        ({"schedule": "cosine"}, "is planned"),
    ],
)
def test_two_plans_for_the_end_exclude_each_other(train, said):
    with pytest.raises(UserError, match=said):
        make_spec({"train": {"rounds": "auto", **train}})


def test_without_validation_nobody_can_see_rest(tmp_path):
    bare = values("auto", {"slow": SLOW}) | {"data": {"options": {"shares": [0.8, 0.0, 0.2]}}}
    with pytest.raises(UserError, match="has no validation examples to see on whether a run has come to rest"):
        run_spec(make_spec(bare), tmp_path / "run")


def test_every_method_has_the_rounds_it_needs_and_the_record_says_how_many(stages, tmp_path):
    found = run_spec(make_spec(values("auto:60", {"still": STILL, "slow": SLOW})), tmp_path / "run").record
    rest, creeps = (found.methods[name].convergence for name in ("still", "slow"))
    assert (rest.state, rest.rounds) == ("resting", 20)
    assert (creeps.state, creeps.rounds) == ("improving", 60)
    assert found.methods["still"].costs["rounds"] == rest.rounds
    told = convergence(found)
    assert told[0] == f"Rounds until validation rests, at most 60: still {rest.rounds} and slow 60."
    assert "Still improving: slow." in told[1] and "--rounds 120" in told[1]


def test_a_run_until_rest_goes_on_where_it_had_to_end_and_only_there(stages, tmp_path):
    run_spec(make_spec(values("auto:40", {"still": STILL, "slow": SLOW})), tmp_path / "mine")
    found = resume(tmp_path / "mine", rounds=60).record
    run_spec(make_spec(values("auto:60", {"still": STILL, "slow": SLOW})), tmp_path / "whole")
    assert numbers_of(tmp_path / "mine") == numbers_of(tmp_path / "whole")
    assert found.methods["still"].convergence.rounds < found.methods["slow"].convergence.rounds == 60


def test_settings_are_tried_for_the_first_stage_alone(stages, tmp_path):
    done = []
    methods = {"fast": {"method": "local", "lr": {"grid": [0.5, 2.0]}}}
    spec = make_spec(values("auto:60", methods))
    found = run_spec(spec, tmp_path / "run", lambda what, now, total: done.append((what, now, total))).record
    tuning = [now for what, now, _ in done if "tuning" in what]
    assert max(tuning) == 40 and done[-1][1:] == (100, 100), "two trials of 20 rounds, and at most 60"
    assert found.methods["fast"].options["lr"] in (0.5, 2.0)


def test_fit_rests_too(stages):
    result = fit("local", federation=digits(clients=4), rounds="auto:60", options={"lr": 2.0, "batch": 0, "steps": 1})
    assert result.costs["rounds"] == result.curve[-1]["round"] <= 60
