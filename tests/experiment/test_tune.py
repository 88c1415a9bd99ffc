"""Points that tuning tries, and which of them wins."""

import math

from hypothesis import given
from hypothesis import strategies as st

from apiece.experiment import tune


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
    lost = lambda *losses: [{"validation_loss": loss} for loss in losses]
    assert tune.best(lost(None, 0.5, math.nan, 0.4, 0.4)) == 3
    assert tune.best(lost(math.inf, None)) == tune.best(lost(None)) == 0


def test_what_is_chosen_by_may_be_better_when_more_but_never_of_a_diverged_trial():
    tried = [
        {"validation_loss": loss, "validation_f1": f1} for loss, f1 in ((1, 0.5), (2, 0.7), (None, 0.9), (3, None))
    ]
    assert tune.best(tried, "validation_f1", higher=True) == 1
    assert tune.best(tried, "validation_f1", higher=False) == 0
