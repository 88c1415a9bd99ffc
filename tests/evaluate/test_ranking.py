"""Who is best: the order, and which gaps to the best count."""

import math

import numpy as np
import pytest

from apiece.evaluate import excludes_tie, gap_to_best, half_over_clients, ranked

STEADY = {seed: 0.9 for seed in range(3)}
WORSE = {seed: 0.89 for seed in range(3)}
SIZES = np.full(12, 10)


def test_what_diverged_stands_last_whichever_way_is_better():
    scores = {"gone": math.nan, "low": 0.1, "high": 0.9, "too": 0.1}
    assert ranked(scores, higher_is_better=True) == ["high", "low", "too", "gone"]
    assert ranked(scores, higher_is_better=False) == ["low", "too", "high", "gone"]


def test_steady_seeds_do_not_tell_methods_apart_that_differ_by_one_test_example():
    score = np.full(12, 0.9)
    one_less = score - 0.12 * (np.arange(12) == 3)
    everywhere = score - 0.01 - 0.001 * (np.arange(12) % 2)
    for theirs, apart in ((one_less, False), (everywhere, True)):
        found = gap_to_best(STEADY, WORSE, half_over_clients(score, theirs, SIZES))
        assert found.mean == pytest.approx(0.01)
        assert excludes_tie(found) == apart


def test_the_interval_over_clients_is_student_s_of_the_paired_differences_when_sizes_are_equal():
    rng = np.random.default_rng(0)
    ours, theirs = rng.random((2, 12))
    half = 2.200985 * np.std(ours - theirs, ddof=1) / 12**0.5  # eleven degrees of freedom
    assert half_over_clients(ours, theirs, SIZES) == pytest.approx(half, rel=1e-6)


def test_clients_without_examples_or_without_a_score_do_not_count():
    ours, theirs = np.array([0.9, 0.8, 0.7, 0.1, np.nan]), np.array([0.8, 0.9, 0.7, 0.9, 0.5])
    expected = half_over_clients(ours[:3], theirs[:3], [10, 20, 30])
    assert half_over_clients(ours, theirs, [10, 20, 30, 0, 10]) == expected > 0
    assert half_over_clients(ours[:1], theirs[:1], [10]) == 0


def test_one_seed_tells_nothing_apart():
    found = gap_to_best({0: 0.9}, {0: 0.1}, over_clients=0.01)
    assert found.mean == pytest.approx(0.8) and math.isnan(found.half_width) and not excludes_tie(found)


def test_seeds_that_only_one_of_them_has_are_left_out():
    assert gap_to_best({0: 0.9, 1: 0.5}, {0: 0.8, 2: 0.0}).mean == pytest.approx(0.1)
    assert gap_to_best({0: 0.9}, {1: 0.8}) is None
