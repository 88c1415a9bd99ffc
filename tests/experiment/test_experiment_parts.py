"""Small parts of experiments: options and tuning points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.experiment import tune
from apiece.methods import CATALOG, fed_avg
from apiece.methods.options import SEARCH, bind, checked, options_of, tunable

LOSS = lambda p, batch, key: (p["b"] * batch.weight.sum()).sum() + p["w"].sum()


# Options.


def test_all_options_of_the_catalog_pass_their_own_check():
    for name in CATALOG:
        own = checked(name, {k: v for k, v in options_of(name).items() if v is not None})
        assert {k: np.asarray(v).tolist() for k, v in checked(name, {}).items()} == {
            k: np.asarray(v).tolist() for k, v in own.items()
        }


def test_counts_are_whole_numbers_even_when_written_as_fractions():
    assert checked("fed_avg", {"steps": 3.0})["steps"] == 3 and isinstance(
        checked("fed_avg", {"steps": 3.0})["steps"], int
    )


def test_what_the_user_sets_is_not_tuned_and_the_rest_is():
    for name in CATALOG:
        space = tunable(name, {})
        assert space and set(space) <= set(SEARCH) and set(space) <= set(options_of(name))
        assert tunable(name, dict.fromkeys(space, 1.0)) == {}


def test_only_fractions_are_traced():
    for name in CATALOG:
        build, hyper = bind(name, LOSS, {}, population=3)
        assert hyper and all(isinstance(value, float) for value in hyper.values())
        assert not {"steps", "epochs", "batch", "tune_steps"} & set(hyper)
        assert build(hyper, 0)._fields[0] == "init"


def test_a_schedule_touches_the_clients_step_size_and_nothing_else():
    seen = {}

    def spy(loss, *, lr: float = 0.5, server_lr: float = 1.0):
        seen.update(lr=lr, server_lr=server_lr)
        return fed_avg(loss)

    build, hyper = bind(spy, LOSS, {}, schedule=lambda r: 0.1 * r)
    build(hyper, 2)
    assert seen == {"lr": pytest.approx(0.1), "server_lr": 1.0}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("all_for_all", {"bias": "near"}, "list of numbers"),
        ("all_for_all", {"clusters": [[0, 1], [2]]}, "equally long"),
        ("all_for_all", {"halve_every": -1}, "at least 0"),
        ("self_fl", {"l_max": 0}, "at least 1"),
        ("self_fl", {"augmented": 1}, "true or false"),
        ("l2gd", {"p": 0}, "above 0"),
    ],
)
def test_lists_counts_and_switches_are_checked_by_their_default(name, options, words):
    with pytest.raises(UserError, match=words):
        checked(name, options)


def test_a_matrix_may_be_written_as_lists_and_the_population_is_filled_in():
    assert checked("all_for_all", {"bias": [[0, 1], [1, 0]]})["bias"].shape == (2, 2)
    seen = {}

    def spy(loss, *, lr: float = 0.5, population: int = 0):
        seen.update(population=population)
        return fed_avg(loss)

    build, hyper = bind(spy, LOSS, {}, population=7)
    build(hyper, 0)
    assert seen == {"population": 7}


# Tuning.


@given(st.integers(1, 20), st.integers(1, 3))
def test_every_method_gets_as_many_points_as_asked_inside_the_space_defaults_first(trials, options):
    space = {f"o{k}": (0.01 * 10**k, 3.0 * 10**k) for k in range(options)}
    defaults = dict.fromkeys(space, 0.1)
    points = tune.candidates(space, defaults, trials)
    assert len(points) == trials and points[0] == defaults
    for point in points[1:]:
        assert all(low * 0.99 <= point[name] <= high * 1.01 for name, (low, high) in space.items())
    assert len({tuple(p.values()) for p in points[1:]}) == trials - 1, "no point twice"


def test_more_trials_begin_with_the_same_points():
    space, defaults = {"lr": (0.01, 3.0), "lam": (0.01, 10.0)}, {"lr": 0.1, "lam": 0.1}
    assert tune.candidates(space, defaults, 9)[:4] == tune.candidates(space, defaults, 4)


def test_without_anything_to_tune_there_is_one_point():
    assert tune.candidates({}, {"lr": 1.0}, 8) == [{}]


def test_a_diverged_trial_never_wins_and_of_equals_the_first_does():
    trials = [{"validation_loss": loss, "at": at} for at, loss in enumerate([None, 0.5, 0.4, 0.4])]
    assert tune.best(trials)["at"] == 2
    assert tune.best(trials[:1])["at"] == 0
