"""AUC, false accepts, R2 and RMSE: as scikit-learn has them, pooled and by client, and honest about small clients."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score, roc_auc_score, roc_curve, root_mean_squared_error

from apiece.errors import UserError
from apiece.evaluate import (
    auc,
    binary_metrics,
    binary_per_client,
    false_accepts,
    r2_per_client,
    rates,
    regression_metrics,
    rmse,
    rmse_per_client,
    summarize_defined,
    threshold,
)

scored = st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60).filter(
    lambda rows: len({positive for _, positive in rows}) == 2
)


def columns(rows):
    score, positive = zip(*rows, strict=True)
    return np.array(score, float), np.array(positive)


@given(scored)
def test_auc_is_scikit_learns_ties_and_all(rows):
    score, positive = columns(rows)
    assert auc(score, positive) == pytest.approx(roc_auc_score(positive, score), abs=1e-12)
    assert auc(-score, ~positive) == pytest.approx(auc(score, positive), abs=1e-12)


@given(scored, st.sampled_from([0.0, 0.05, 0.1, 0.25, 0.5]))
def test_false_accepts_are_the_best_point_of_the_roc_curve_that_is_allowed(rows, share):
    score, positive = columns(rows)
    accepts, found, _ = roc_curve(positive, score, drop_intermediate=False)
    best = accepts[1 - found <= share + 1e-9].min()
    assert false_accepts(score, positive, share) == pytest.approx(best, abs=1e-12)
    wrong, missed = rates(score, positive, threshold(score, positive, share))
    assert missed <= share + 1e-9 and wrong == pytest.approx(best, abs=1e-12)


def test_twenty_positives_allow_one_rejection_and_nineteen_none():
    positive = np.ones(20, bool)
    assert threshold(np.arange(20.0), positive) == 1.0
    assert threshold(np.arange(19.0), positive[:19]) == 0.0


def test_a_threshold_of_validation_is_used_on_test():
    rng = np.random.default_rng(0)
    positive = rng.random(4000) < 0.3
    score = rng.normal(size=4000) + 2 * positive
    half = slice(0, 2000), slice(2000, 4000)
    at = threshold(score[half[0]], positive[half[0]], 0.1)
    assert rates(score[half[1]], positive[half[1]], at)[1] == pytest.approx(0.1, abs=0.03)


def test_one_class_or_a_diverged_model_has_no_auc():
    assert math.isnan(auc([1.0, 2.0], [1, 1])) and math.isnan(false_accepts([1.0, 2.0], [0, 0]))
    assert math.isnan(auc([1.0, math.nan], [0, 1])) and math.isnan(false_accepts([1.0, math.nan], [0, 1]))
    assert math.isnan(auc([], []))
    with pytest.raises(UserError, match="one score for each label"):
        auc([1.0], [0, 1])
    with pytest.raises(UserError, match="share of the positives"):
        threshold([1.0], [1], false_rejects=1.0)


def test_clients_with_one_class_are_left_out_of_means_and_counted():
    score, positive = np.array([0.1, 0.9, 0.3, 0.4, 0.2, 0.8, 0.7]), np.array([0, 1, 1, 1, 1, 0, 1], bool)
    offsets = [0, 2, 4, 4, 7]
    own = binary_per_client(score, positive, offsets)
    np.testing.assert_array_equal(own, [1.0, math.nan, math.nan, 0.0])
    found = binary_metrics(score, positive, offsets)
    row = found["auc"]
    assert (row["mean"], row["clients"], row["clients_undefined"], row["clients_empty"]) == (0.5, 2, 1, 1)
    assert found["auc_pooled"] == pytest.approx(roc_auc_score(positive, score))
    assert found["false_accepts"]["worst10"] == 1.0


def test_a_diverged_client_is_not_left_out():
    row = summarize_defined([0.9, math.nan], [5, 5], [True, True], higher_is_better=True)
    assert math.isnan(row["mean"]) and row["clients"] == 2 and row["clients_undefined"] == 0


def test_r2_and_rmse_are_scikit_learns():
    rng = np.random.default_rng(4)
    target, prediction = rng.normal(size=90), rng.normal(size=90)
    squared, offsets = np.square(target - prediction), np.array([0, 30, 30, 31, 90])
    target[31:60] += 3
    squared = np.square(target - prediction)
    found = regression_metrics(squared, target, offsets)
    assert found["r2"] == pytest.approx(r2_score(target, prediction))
    assert rmse(squared) == found["rmse_pooled"] == pytest.approx(root_mean_squared_error(target, prediction))
    for i, a, b in ((0, 0, 30), (3, 31, 90)):
        assert r2_per_client(squared, target, offsets)[i] == pytest.approx(r2_score(target[a:b], prediction[a:b]))
        own = root_mean_squared_error(target[a:b], prediction[a:b])
        assert rmse_per_client(squared, offsets)[i] == pytest.approx(own)
    assert (found["r2_clients"]["clients"], found["r2_clients"]["clients_undefined"]) == (2, 1)
    assert (found["rmse"]["clients"], found["rmse"]["clients_empty"]) == (3, 1)


def test_equal_targets_have_no_r2_and_several_targets_only_an_rmse():
    assert math.isnan(r2_per_client([1.0, 0.0], [2.0, 2.0], [0, 2])[0])
    assert set(regression_metrics([1.0, 4.0], np.zeros((2, 3)), [0, 2])) == {"rmse", "rmse_pooled"}
    assert math.isnan(rmse([]))
