"""Mean, spread and median of all clients' rows from sums and counts equal those of the rows in one place."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from apiece.data import from_rows, statistics


def mean_and_spread(x, offsets):
    return statistics.mean_and_spread(statistics.ask_rows(x, offsets))


def test_sums_of_clients_give_the_mean_and_spread_of_all_rows():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(1000, 4)) * [1, 10, 1e-3, 1e5] + [0, 5, 1e3, -1e6]).astype(np.float32)
    offsets = np.concatenate([[0], np.sort(rng.integers(0, 1001, 9)), [1000]])
    mean, spread = mean_and_spread(x, offsets)
    pooled = StandardScaler().fit(x.astype(np.float64))
    np.testing.assert_allclose(mean, pooled.mean_, rtol=1e-12)
    np.testing.assert_allclose(spread, pooled.scale_, rtol=1e-9)


def test_what_clients_send_one_by_one_adds_up_to_what_they_send_together(monkeypatch):
    rng = np.random.default_rng(1)
    x, offsets = rng.normal(size=(40, 3)), np.array([0, 5, 5, 17, 40])
    x[3, 1] = np.nan
    pieces = [x[a:b] for a, b in pairwise(offsets) if b > a]
    asks = [statistics.ask_rows(piece) for piece in pieces]
    count, total = (sum(parts) for parts in zip(*(ask(statistics.COUNT_AND_SUM) for ask in asks), strict=True))
    mean = total / count
    squares = sum(ask(statistics.SQUARED_DISTANCES, mean) for ask in asks)
    for block in (1, 1 << 22):  # many blocks of one client, or one block
        monkeypatch.setattr(statistics, "BLOCK", block)
        found = mean_and_spread(x, offsets)
        np.testing.assert_allclose(found[0], np.nanmean(x, axis=0), rtol=1e-12)
        np.testing.assert_allclose(found[0], mean, rtol=1e-12)
        np.testing.assert_allclose(found[1], np.sqrt(squares / count), rtol=1e-12)


def test_a_constant_feature_has_no_spread_however_large_or_small_it_is():
    x = np.tile(np.array([0.1, 1e30, 1e-30, -7.0, 0.0], np.float32), (999, 1))
    assert (mean_and_spread(x, np.array([0, 333, 999]))[1] == 0).all()


def test_numbers_large_beside_their_spread_keep_their_digits():
    x = np.float32(2**23) + np.arange(100, dtype=np.float32)[:, None]
    spread = mean_and_spread(x, np.array([0, 50, 100]))[1]
    assert spread[0] == pytest.approx(np.arange(100).std(), rel=1e-9)


finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(finite, max_size=6), min_size=1, max_size=5).filter(any))
def test_the_median_from_counts_is_the_median_of_all_values(clients):
    held = [np.array(values, np.float32) for values in clients]
    together = np.concatenate(held)
    asked = []

    def count(t):
        asked.append(t)
        return sum(int((values <= t).sum()) for values in held)

    assert statistics.median(count, len(together)) == np.median(together.astype(np.float64))
    assert len(asked) <= 66  # a count for each bit, of one or two values


def test_standardizing_leaves_named_features_alone():
    x = np.array([[1.0, 0.0], [3.0, 1.0], [5.0, 1.0], [7.0, 0.0]], np.float32)
    federation = from_rows(x, np.arange(4.0), np.array([0, 0, 1, 1]), shares=(1, 0, 0), features=("age", "town=oslo"))
    scaled = federation.standardized(keep=["town=oslo"]).train.x
    assert scaled[:, 1].tolist() == [0, 1, 1, 0]
    assert abs(scaled[:, 0].mean()) < 1e-6 and scaled[:, 0].std() == pytest.approx(1)
