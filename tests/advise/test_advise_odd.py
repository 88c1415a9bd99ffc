"""Bad or odd federations: sensible advice, or a refusal that says what to do."""

import numpy as np
import pytest

import apiece
from apiece.advise import advise
from apiece.data import from_rows
from apiece.errors import UserError
from apiece.models import mlp

CLIENTS, ROWS = 9, 10
OWNER = np.repeat(np.arange(CLIENTS), ROWS)
TRAIN = np.zeros(CLIENTS * ROWS, int)


def rows(seed=0):
    return np.random.default_rng(seed).normal(size=(CLIENTS * ROWS, 2)).astype(np.float32)


def numbers(x, seed=0):
    return (x @ [1.0, -1.0] + 0.3 * np.random.default_rng([seed, 1]).normal(size=len(x))).astype(np.float32)


def test_one_client_is_refused():
    x = rows()[:10]
    with pytest.raises(UserError, match="has one client that trains: there is nobody to share with"):
        advise(from_rows(x, numbers(x), np.zeros(10, int), split=np.zeros(10, int)))


def test_constant_labels_are_refused():
    x = rows()
    with pytest.raises(UserError, match=r"all training labels of .* are the same class"):
        advise(from_rows(x, np.zeros(len(x), int), OWNER, split=TRAIN, classes=("a", "b")))
    with pytest.raises(UserError, match=r"all training targets of .* are the same number"):
        advise(from_rows(x, np.full(len(x), 3.0), OWNER, split=TRAIN))


def test_a_network_a_task_or_a_budget_that_advice_does_not_know_is_refused():
    with pytest.raises(UserError, match=r"looks at what the last layer of a network sees, and .* does not tell"):
        advise("digits", mlp((64,), 10, hidden=(3,))._replace(features=None))
    with pytest.raises(UserError, match="a budget of 5 gradients is too small: a network's pilot takes up to"):
        advise("digits", "mlp", budget=5)
    with pytest.raises(UserError, match=r"the task of .* is 'custom'"):
        advise("quadratics")
    with pytest.raises(UserError, match="a budget of 5 gradients is too small"):
        advise("digits", budget=5)
    with pytest.raises(UserError, match="budget = 'soon'"):
        advise("digits", budget="soon")
    with pytest.raises(UserError, match="folds = 7"):
        advise("digits", folds=7)


def test_identical_clients_are_told_to_share_and_nothing_but_training_rows_is_read():
    x = np.tile(rows()[:ROWS], (CLIENTS, 1))
    federation = from_rows(x, np.tile(numbers(x[:ROWS]), CLIENTS), OWNER, split=TRAIN)  # no validation, no test
    found = apiece.advise(federation, folds=1)  # the room is its function
    assert found.kind == "shared" and found.method == "fed_avg", found.answer
    assert found.answer[0] == "Share one model: do not personalize." and found.heterogeneity.z < 2


@pytest.mark.thorough
def test_a_client_of_one_example_is_advised_as_everybody():
    rng = np.random.default_rng(2)
    owner = np.repeat(np.arange(12), [1, *[24] * 11])
    x = rng.normal(size=(len(owner), 3)).astype(np.float32)
    y = (x @ [1.0, 2, 0] + 0.5 * rng.normal(size=len(x))).astype(np.float32)
    found = advise(from_rows(x, y, owner, split=np.zeros(len(x), int)), folds=1)
    assert found.errors["advised"].mean < 20 and "0" not in [one.client for one in found.degree.clients]
    assert found.errors["advised"].mean < found.errors["local"].mean


@pytest.mark.thorough
def test_clients_of_one_example_and_outliers_are_advised_as_everybody():
    rng = np.random.default_rng(0)
    sizes = np.array([1, 1, 2, 3, *[30] * 8])
    owner = np.repeat(np.arange(12), sizes)
    x = rng.normal(size=(len(owner), 3)).astype(np.float32)
    y = (x @ [1.0, 2, 0] + 0.5 * rng.normal(size=len(x))).astype(np.float32)
    y[::50] += 1000  # a few targets are wild
    found = advise(from_rows(x, y, owner, split=np.zeros(len(x), int)), folds=1)
    assert np.isfinite(found.errors["advised"].mean) and found.method in ("fed_avg", "rtfa", "local_ridge", "stack")
    assert any("no held-out example" in doubt for doubt in found.doubts)


@pytest.mark.thorough
def test_two_hundred_classes_are_advised():
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(200, 8)) * 3
    y = rng.integers(0, 200, 10 * 40)
    x = (centre[y] + rng.normal(size=(400, 8))).astype(np.float32)
    classes = tuple(map(str, range(200)))
    found = advise(from_rows(x, y, np.repeat(np.arange(10), 40), split=np.zeros(400, int), classes=classes), folds=1)
    assert found.errors["advised"].mean < found.errors["local"].mean < 100


@pytest.mark.slow
def test_a_hundred_thousand_clients_are_advised():
    """By the leanest pilot, as the budget has it; what the whole one takes is in ref-benchmarks."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(100_000), 8)
    x = rng.normal(size=(len(owner), 4)).astype(np.float32)
    y = (x @ [1.0, -1, 0, 0] + rng.normal(size=len(x)) > 0).astype(int)
    found = advise(from_rows(x, y, owner, split=np.zeros(len(x), int), classes=("no", "yes")), budget="60s")
    assert found.kind in ("shared", "path", "stack") and found.heterogeneity.clients == 100_000


def test_labels_that_are_nearly_all_alike_are_advised_on_without_a_metric():
    """Where one class has most of the labels, methods are ranked by AUC: advice must know that metric, too."""
    rng = np.random.default_rng(0)
    x, client = rng.normal(size=(240, 3)).astype(np.float32), np.repeat(np.arange(6), 40)
    y = (x[:, 0] > 1.1).astype(np.int32)
    assert 0.8 < (y == 0).mean() < 0.95
    found = advise(from_rows(x, y, client, classes=("no", "yes")))
    assert found.gains, "and what it is expected to bring is told"
