"""Ask and tell, without anything that is trained: budgets, strategies, several processes, one that is gone."""

import math

import pytest

from apiece.errors import UserError
from apiece.experiment.tuning import plan_search
from apiece.experiment.tuning.search import Budget, SpreadOut, Trial, first_points
from apiece.experiment.tuning.tpe import SPREAD_FIRST, Tpe
from apiece.experiment.tuning.workers import Worker
from apiece.experiment.variant import variant_of

COST = 10.0
ROW = variant_of("ditto", {"lr": 0.1})


def loss_of(options):
    """Made up, least at lam = 0.3."""
    return (math.log(options["lam"]) - math.log(0.3)) ** 2 + 0.1


def told(asked, value=None, state="finished"):
    value = loss_of(asked.options) if value is None else value
    return Trial(asked.number, asked.options, state, {"validation_loss": value}, 8, COST, 0.1)


def tpe(folder, worker, gradients=140.0, trials=40, **how):
    given = dict(ranges={"lam": (0.01, 10.0)}, grid={}, stands={}, by=("validation_loss", False), seed=0)
    given |= dict(points=first_points(ROW, None, SPREAD_FIRST), budget=Budget(gradients, trials, lambda options: COST))
    return Tpe(folder / "study.sqlite", worker, "ditto", **(given | how))


@pytest.fixture
def worker(tmp_path):
    mine = Worker(tmp_path / "workers")
    yield mine
    mine.leave()


def run_all(search, most=4):
    while asked := search.ask(most):
        search.tell([told(one) for one in asked])
    return search.trials()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"trials": 0}, "trials = 0: a whole number of trials for each method is needed, at least 1"),
        ({"gradients": 0}, "gradients = 0: what each method may spend is a number of gradient evaluations above 0"),
        ({"gradients": math.nan}, "gradients = nan: "),
        ({"strategy": "tep"}, "strategy = 'tep' is unknown: did you mean 'tpe'?"),
        ({"trials": 20, "pruner": "medan"}, "pruner = 'medan' is unknown: did you mean 'median'?"),
        ({"strategy": "spread", "trials": 20, "pruner": "median"}, "pruner = 'median': few trials are spread out"),
    ],
)
def test_a_wrong_word_or_number_is_named(given, text):
    with pytest.raises(UserError) as error:
        plan_search(**given)
    assert str(error.value).startswith(text)


def test_few_trials_are_spread_out_and_more_are_searched():
    assert [plan_search(trials=n).strategy for n in (1, 8, 9)] == ["spread", "spread", "tpe"]
    assert plan_search(trials=9, strategy="spread").strategy == "spread"
    assert plan_search(gradients=1e6).strategy == "tpe" and plan_search().trials == 8


def test_without_optuna_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"trials = 9 is searched by Optuna.*pip install 'apiece\[tune\]'.*spread"):
        plan_search(trials=9)
    assert plan_search(trials=8).strategy == "spread", "few trials need no Optuna"


def test_points_are_all_different_and_a_written_grid_is_tried_as_it_is():
    points = first_points(variant_of("fed_avg", {}), None, 8)
    assert len(points) == 8 and len({point["lr"] for point in points}) == 8 and points[0] == {"lr": 0.1}
    grid = variant_of("ditto", {"lam": {"grid": [3.0, 1.0, 2.0]}})
    assert first_points(grid, None, 8) == [{"lam": 3.0}, {"lam": 1.0}, {"lam": 2.0}]
    assert len({point["lam"] for point in first_points(grid, None, 2)}) == 2


def test_spread_out_points_stay_within_the_budget_and_go_on_from_their_file(tmp_path):
    points = first_points(ROW, None, 9)
    make = lambda: SpreadOut(tmp_path / "a.json", points, Budget(7 * COST, 40, lambda options: COST))
    first = make()
    first.tell([told(one) for one in first.ask(3)])
    trials = run_all(make())
    assert [trial.options for trial in trials] == points[:7] and sum(trial.gradients for trial in trials) == 7 * COST


def test_a_dearer_setting_of_a_grid_takes_its_share_of_the_budget(tmp_path):
    steps = [{"steps": count} for count in (5, 20, 5, 20)]
    search = SpreadOut(tmp_path / "a.json", steps, Budget(50.0, 40, lambda options: 2.0 * options["steps"]))
    assert [one.options["steps"] for one in search.ask(8)] == [5, 20], "10 + 40, and nothing is left"


def test_the_sampler_begins_with_the_spread_out_points_and_spends_all_of_the_budget(tmp_path, worker):
    trials = run_all(tpe(tmp_path, worker))
    assert [trial.options for trial in trials[:8]] == first_points(ROW, None, 8)
    assert len(trials) == 14 and sum(trial.gradients for trial in trials) == 140.0, "all of the budget, and no more"
    assert len({trial.options["lam"] for trial in trials}) == 14, "nothing is tried twice"


def test_pruned_trials_leave_budget_for_others(tmp_path, worker):
    search = tpe(tmp_path, worker, gradients=120.0)
    while asked := search.ask(1):
        cheap = asked[0].number >= 8
        search.tell([told(asked[0], state="pruned")._replace(gradients=2.0) if cheap else told(asked[0])])
    trials = search.trials()
    # What is left after eight whole ones is 40: a trial may begin while a whole one still fits.
    assert [trial.state for trial in trials[:8]] == ["finished"] * 8 and len(trials) == 8 + 16
    assert sum(trial.gradients for trial in trials) <= 120.0


def test_a_trial_that_is_behind_the_others_is_given_up(tmp_path, worker):
    search = tpe(tmp_path, worker)
    for one in search.ask(6):
        assert not any(search.enough(one, look, 1.0 / look) for look in range(1, 8))
        search.tell([told(one)])
    bad, good = search.ask(2)
    assert [search.enough(bad, look, 5.0) for look in (1, 2)] == [False, True]
    assert not any(search.enough(good, look, 0.5 / look) for look in range(1, 8))


def test_diverged_trials_are_told_like_others(tmp_path, worker):
    search = tpe(tmp_path, worker)
    while asked := search.ask(1):
        bad = asked[0].options["lam"] > 1
        search.tell([told(asked[0], math.nan if bad else None, "diverged" if bad else "finished")])
    trials = search.trials()
    assert len(trials) == 14 and {trial.state for trial in trials} == {"diverged", "finished"}
    assert all((trial.state == "diverged") == (trial.options["lam"] > 1) for trial in trials)


def test_a_grid_is_exhausted_and_then_there_is_nothing_left(tmp_path, worker):
    grid = {"lam": [0.1, 0.3, 1.0], "private": ["w", "b", "w,b"]}
    points = [{"lam": lam, "private": word} for lam in grid["lam"] for word in grid["private"]][:2]
    search = tpe(tmp_path, worker, gradients=1e9, ranges={}, grid=grid, points=points)
    found = {(trial.options["lam"], trial.options["private"]) for trial in run_all(search, 1)}
    assert 6 <= len(found) <= 9, "no endless loop, and most of it was seen"


@pytest.mark.parametrize("blocks", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_a_search_that_was_cut_off_goes_on_as_if_it_had_not_been(tmp_path, blocks):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
    mine = Worker(whole / "workers")
    expected = [trial.options for trial in run_all(tpe(whole, mine))]
    mine.leave()
    gone = Worker(cut / "workers")
    search = tpe(cut, gone)
    for _ in range(blocks):
        search.tell([told(one) for one in search.ask(4)])
    search.ask(4)  # begun, and never told
    assert search.running() == 4
    gone.leave()
    after = Worker(cut / "workers")
    trials = run_all(tpe(cut, after))
    after.leave()
    assert [trial.options for trial in trials if trial.state == "finished"] == expected
    assert sum(trial.state == "lost" for trial in trials) == 4


def test_several_processes_share_one_budget_and_try_nothing_twice(tmp_path, worker):
    other = Worker(tmp_path / "workers")
    first, second = tpe(tmp_path, worker), tpe(tmp_path, other)
    while True:
        mine = first.ask(2)
        theirs = second.ask(3)
        assert first.running() == len(mine) + len(theirs)
        if not mine and not theirs:
            break
        second.tell([told(one) for one in theirs])
        first.tell([told(one) for one in mine])
    other.leave()
    trials = first.trials()
    assert trials == second.trials() and len(trials) == 14 and len({trial.options["lam"] for trial in trials}) == 14


def test_a_process_that_is_at_work_keeps_what_it_began(tmp_path, worker):
    other = Worker(tmp_path / "workers")
    held = [one.options for one in tpe(tmp_path, other).ask(3)]
    search = tpe(tmp_path, worker)
    assert all(one.options not in held for one in search.ask(4)) and search.running() == 7
    other.leave()
    assert [one.options for one in search.ask(3)] == held, "now it is gone, and somebody else does it"
