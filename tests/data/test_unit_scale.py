"""What is far from unit scale is found from sums over clients, and brought there; the rest stays as it is."""

import dataclasses

import numpy as np
import pytest

from apiece.data import Federation, digits, from_rows, source
from apiece.data.unit_scale import find_unit_scale, scale_warnings

RNG = np.random.default_rng(0)
CLIENT = np.repeat(np.arange(4), 10)


def made(x, y=None, **about) -> Federation:
    return from_rows(np.asarray(x, np.float32), RNG.normal(size=40) if y is None else y, CLIENT, **about)


@pytest.mark.parametrize("scale, shift", [(1e3, 0), (1e-3, 0), (1, 1e3), (1e-3, 1e-3)])
def test_features_of_any_scale_come_to_mean_0_and_spread_1(scale, shift):
    x = RNG.normal(size=(40, 3)) * [scale, 1, 1] + [shift, 0, 0]
    federation = made(x)
    found = find_unit_scale(federation)
    scaled = federation.rescaled(*found)
    np.testing.assert_allclose(scaled.train.x.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(scaled.train.x.std(0), 1, atol=1e-3)
    assert "number 0" in scaled.notes[0] and "standardize = false" in scaled.notes[0]
    back = scaled.test.x * scaled.scaling.spread + scaled.scaling.mean
    np.testing.assert_allclose(back, federation.test.x, rtol=1e-4, atol=1e-4 * scale)


def test_columns_of_0_and_1_stay():
    x = np.column_stack([RNG.normal(size=40) * 50, np.arange(40) == 5])
    federation = made(x)
    scaled = federation.rescaled(*find_unit_scale(federation))
    np.testing.assert_array_equal(scaled.train.x[:, 1], federation.train.x[:, 1])
    assert "but for 1 of 0 and 1" in scaled.notes[0]


@pytest.mark.parametrize("federation", [
    made(RNG.normal(size=(40, 2))),
    digits(clients=4),
    source("linear", clients=4, features=3),
    source("quadratics"),
    dataclasses.replace(made(100 * RNG.normal(size=(40, 2))), truth={"center": np.zeros(2)}),
    made(100 * RNG.normal(size=(40, 2))).standardized(),
], ids=["unit", "bytes", "generated", "custom", "truth", "scaled before"])  # fmt: skip
def test_these_stay_as_they_are(federation):
    assert find_unit_scale(federation) is None


def test_whoever_refuses_is_warned_and_whoever_wants_it_has_it():
    federation = made(100 * RNG.normal(size=(40, 2)))
    assert find_unit_scale(federation, wanted=False) is None
    assert "may crawl or diverge" in scale_warnings(federation)[0]
    near = made(2 * RNG.normal(size=(40, 2)))
    assert find_unit_scale(near) is None and not scale_warnings(near)
    np.testing.assert_allclose(find_unit_scale(near, wanted=True).scaling.spread, near.train.x.std(0), rtol=1e-5)


def test_signals_are_scaled_by_one_number_for_all_places():
    x = 100 * RNG.normal(size=(40, 5, 2))
    x[:, 0] *= 1e-3  # hardly ever speaks
    scaling = find_unit_scale(made(x)).scaling
    assert len(np.unique(scaling.spread)) == 1 and scaling.mean.shape == (5, 2)


def test_targets_far_from_unit_scale_are_trained_on_at_unit_scale():
    y = 29 + 11 * RNG.normal(size=40)
    federation = made(RNG.normal(size=(40, 2)), y)
    scaled = federation.rescaled(*find_unit_scale(federation))
    assert abs(scaled.train.y.mean()) < 1e-5 and abs(scaled.train.y.std() - 1) < 1e-5
    np.testing.assert_allclose(scaled.scaling.in_own_units(scaled.test.y), federation.test.y, rtol=1e-5)
    np.testing.assert_array_equal(scaled.train.x, federation.train.x)
    assert find_unit_scale(federation, targets=False) is None
    assert find_unit_scale(scaled) is None  # once is enough
