"""Summaries over clients and intervals over seeds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.evaluate import interval, paired_interval, r2, summarize

client = st.tuples(st.floats(0, 1), st.integers(0, 50), st.integers(0, 50))
federation = st.lists(client, min_size=1, max_size=40).filter(lambda rows: any(size for _, size, _ in rows))


def columns(rows):
    score, sizes, train = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    train = train + 1  # A client that trained on nothing could have no weight at all among the largest.
    return np.where(sizes > 0, score, np.nan), sizes, train


@given(federation, st.booleans(), st.randoms(use_true_random=False))
def test_the_order_of_the_clients_never_matters(rows, higher, random):
    score, sizes, train = columns(rows)
    shuffled = list(range(len(rows)))
    random.shuffle(shuffled)
    before = summarize(score, sizes, higher, train_sizes=train)
    after = summarize(score[shuffled], sizes[shuffled], higher, train_sizes=train[shuffled])
    assert before == pytest.approx(after, abs=1e-12)


@given(federation)
def test_the_worst_tenth_is_between_the_worst_client_and_the_mean(rows):
    score, sizes, _ = columns(rows)
    up, down = summarize(score, sizes, True), summarize(score, sizes, False)
    tiny = 1e-12
    assert up["min"] - tiny <= up["worst10"] <= up["mean"] + tiny
    assert down["mean"] - tiny <= down["worst10"] <= down["max"] + tiny
    for name in ("mean", "mean_weighted", "median", "top10_by_samples"):
        assert up["min"] - tiny <= up[name] <= up["max"] + tiny
    assert 0 <= up["spread"] <= (up["max"] - up["min"]) / 2 + tiny
    assert 0 <= up["iqr"] <= up["max"] - up["min"] + tiny


@given(federation, st.integers(1, 5))
def test_empty_clients_are_counted_and_otherwise_unseen(rows, more):
    score, sizes, train = columns(rows)
    without = summarize(score, sizes, True, train_sizes=train)
    nothing = np.full(more, np.nan), np.zeros(more), np.full(more, 99)
    added = [np.concatenate(pair) for pair in zip((score, sizes, train), nothing, strict=True)]
    with_them = summarize(added[0], added[1], True, train_sizes=added[2])
    assert with_them.pop("clients_empty") == without.pop("clients_empty") + more
    assert with_them == without


@given(federation)
def test_the_other_direction_is_the_mirror_image(rows):
    score, sizes, train = columns(rows)
    up, down = summarize(score, sizes, True, train_sizes=train), summarize(-score, sizes, False, train_sizes=train)
    for name in ("mean_weighted", "mean", "median", "worst10", "top10_by_samples"):
        assert up[name] == pytest.approx(-down[name], abs=1e-12)


@pytest.mark.parametrize(("clients", "worst"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_the_worst_tenth_rounds_up_and_has_at_least_one_client(clients, worst):
    score = np.arange(1.0, clients + 1)
    assert summarize(score, np.ones(clients), True)["worst10"] == score[:worst].mean()
    assert summarize(score, np.ones(clients), False)["worst10"] == score[-worst:].mean()


def test_the_largest_tenth_goes_by_training_samples_and_weighs_by_test_examples():
    score, tests = np.linspace(0, 1, 20), np.ones(20)
    tests[3], train = 3, np.arange(20.0)
    train[[3, 7]] = 100
    found = summarize(score, tests, True, train_sizes=train)["top10_by_samples"]
    assert found == pytest.approx((3 * score[3] + score[7]) / 4)


def test_a_diverged_client_is_never_dropped():
    found = summarize([0.5, math.nan], [3, 3], True)
    assert math.isnan(found["mean"]) and math.isnan(found["worst10"]) and found["clients"] == 2


def test_no_clients_at_all_is_nan_and_not_an_error():
    found = summarize([math.nan], [0], True)
    assert math.isnan(found["mean"]) and (found["clients"], found["clients_empty"]) == (0, 1)


def test_r2_is_one_for_no_error_and_zero_for_the_mean():
    target = np.array([1.0, 4.0, 7.0])
    assert r2(np.zeros(3), target) == 1
    assert r2((target - target.mean()) ** 2, target) == 0
    assert math.isnan(r2([1.0, 1.0], [2.0, 2.0]))


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    for seeds in (2, 3, 5):
        runs = rng.normal(1.0, 2.0, size=(2000, seeds))
        hits = np.mean([found.low <= 1.0 <= found.high for found in map(interval, runs)])
        assert abs(hits - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_what_seeds_share_cancels_in_a_paired_interval():
    shared = np.array([0.0, 50.0, -30.0])
    found = paired_interval(shared + [1.0, 1.1, 0.9], shared)
    assert found.mean == pytest.approx(1.0) and found.half_width < 0.3
    assert found == pytest.approx(interval([1.0, 1.1, 0.9]))


def test_one_seed_has_no_interval_and_no_seed_is_an_error():
    found = interval([3.0])
    assert found.mean == 3 and all(math.isnan(x) for x in found[1:])
    with pytest.raises(UserError, match="at least one seed"):
        interval([])
    with pytest.raises(UserError, match="same seeds"):
        paired_interval([1.0, 2.0], [1.0])
