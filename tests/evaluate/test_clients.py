"""Rows to clients: against a loop, with empty clients everywhere, and at a million clients."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.errors import UserError
from apiece.evaluate import per_client, sizes_of


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_per_client_equals_a_loop_with_empty_clients_anywhere(sizes, seed):
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values = np.random.default_rng(seed).normal(size=(2, offsets[-1]))
    loop = [[row[a:b].mean() if b > a else np.nan for a, b in itertools.pairwise(offsets)] for row in values]
    np.testing.assert_allclose(per_client(values, offsets), loop, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(sizes_of(offsets), sizes)


def test_a_federation_without_rows_has_only_empty_clients():
    assert np.isnan(per_client([], [0, 0, 0])).all()
    assert per_client([], [0]).shape == (0,)


def test_a_million_clients_take_no_loop():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 8, 1_000_000)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    start = time.perf_counter()
    means = per_client(np.repeat(np.arange(1_000_000.0), sizes), offsets)
    assert time.perf_counter() - start < 5  # A loop needs longer; this takes a tenth of a second.
    np.testing.assert_array_equal(means[sizes > 0], np.flatnonzero(sizes > 0))
    assert np.isnan(means[sizes == 0]).all()


@pytest.mark.parametrize(
    ("offsets", "complaint"),
    [([1, 3], "starts at 0"), ([0, 2, 1, 3], "client 1"), ([0, 2], "end at row 2"), ([], "starts")],
)
def test_wrong_offsets_are_named(offsets, complaint):
    with pytest.raises(UserError, match=complaint):
        per_client([1.0, 2.0, 3.0], offsets)
