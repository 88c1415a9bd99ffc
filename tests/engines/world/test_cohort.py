"""Who takes part: without replacement, the same for every engine, never nobody."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from apiece.engines.world.cohort import Participation
from apiece.errors import UserError


@given(st.integers(1, 200), st.data(), st.integers(0, 2**31), st.integers(0, 10**6))
def test_a_cohort_is_drawn_without_replacement(population, data, seed, round):
    size = data.draw(st.integers(1, population))
    drawn = Participation(size=size).draw(seed, round, population)
    assert len(drawn) == size == len(set(drawn.tolist()))
    assert (np.sort(drawn) == drawn).all()
    assert 0 <= drawn.min() <= drawn.max() < population
    np.testing.assert_array_equal(drawn, Participation(size=size).draw(seed, round, population))


def test_everybody_takes_part_by_default():
    np.testing.assert_array_equal(Participation().draw(0, 3, 7), np.arange(7))


def test_every_client_is_drawn_equally_often_and_every_pair():
    draws = np.array([Participation(size=3).draw(1, r, 6) for r in range(4000)])
    assert stats.chisquare(np.bincount(draws.ravel(), minlength=6)).pvalue > 1e-3
    together = np.bincount((draws[:, :1] * 6 + draws[:, 1:2]).ravel(), minlength=36)
    sets = np.bincount([2**a + 2**b + 2**c for a, b, c in draws])
    assert stats.chisquare(sets[sets > 0]).pvalue > 1e-3
    assert (sets > 0).sum() == 20
    assert together.sum() == 4000


def test_seeds_and_rounds_draw_different_cohorts():
    draws = {tuple(Participation(size=5).draw(seed, r, 1000)) for seed in range(4) for r in range(50)}
    assert len(draws) == 200


@pytest.mark.parametrize("probability", [0.02, 0.1, 0.5, 1.0])
def test_a_participation_probability_has_the_right_mean_and_never_nobody(probability):
    population, rounds = 200, 1500
    counts = np.array([len(Participation(probability=probability).draw(2, r, population)) for r in range(rounds)])
    mean = population * probability
    error = np.sqrt(mean * (1 - probability) / rounds)
    nobody = (1 - probability) ** population  # these rounds have one client instead
    assert abs(counts.mean() - mean - nobody) <= 4 * error + 1e-12
    assert counts.min() >= 1
    assert counts.max() <= Participation(probability=probability).places(population)


def test_rounds_that_would_be_empty_have_one_client():
    counts = {len(Participation(probability=0.01).draw(0, r, 5)) for r in range(300)}
    assert min(counts) == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (dict(size=3, probability=0.5), "not both"),
        (dict(size=0), "at least one"),
        (dict(probability=0.0), "above 0"),
        (dict(probability=1.5), "above 0"),
    ],
)
def test_nonsense_is_refused(options, complaint):
    with pytest.raises(UserError, match=complaint):
        Participation(**options)


def test_a_cohort_larger_than_the_population_is_refused():
    with pytest.raises(UserError, match="10 clients is more than the 4"):
        Participation(size=10).draw(0, 0, 4)
