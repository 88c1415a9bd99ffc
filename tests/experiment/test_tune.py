"""Points that tuning tries, and which of them wins."""

import math

from hypothesis import given
from hypothesis import strategies as st

from apiece.experiment import ranking, tune
from apiece.experiment.record import Candidate


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
    assert tune.best([None, 0.5, math.nan, 0.4, 0.4]) == 3
    assert tune.best([math.inf, None]) == tune.best([None]) == 0


def test_the_record_names_the_candidate_that_ran():
    tried = [Candidate(options={}, validation_loss=loss) for loss in (math.nan, 0.5, 0.4)]
    assert ranking.chosen_candidate(tried) == tune.best([one.validation_loss for one in tried]) == 2
    assert ranking.chosen_candidate(tried[:1]) is None
