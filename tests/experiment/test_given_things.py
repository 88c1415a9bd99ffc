"""What a user hands over: rows of a newcomer, an objective, a schedule; what does not fit is said before it is used."""

import jax
import numpy as np
import pytest

from apiece.data import from_rows
from apiece.errors import UserError
from apiece.experiment import compare, fit
from apiece.methods import fed_avg
from apiece.models import Objective, objective

X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
FEDERATION = from_rows(X, np.arange(30) % 2, np.arange(30) % 3, classes=("no", "yes"))


@pytest.fixture(scope="module")
def result():
    return fit("fed_avg", federation=FEDERATION, rounds=1)


def test_a_newcomer_may_name_its_classes(result):
    by_name, by_number = result.onboard(X[:4], np.array(["no", "yes"] * 2)), result.onboard(X[:4], np.array([0, 1] * 2))
    jax.tree.map(np.testing.assert_array_equal, by_name, by_number)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (X[:4], [0, 1, 7, 0], r"y\[2\] is 7, and no class: there are 2, numbered from 0 \('no', 'yes'\)"),
        (X[:4], [0, -1, 0, 0], r"y\[1\] is -1, and no class"),
        (X[:4], [0.5, 0, 1, 0], r"y\[0\] is 0.5, and no class"),
        (X[:4], [0, 1, np.nan, 0], r"y\[2\] is nan, and no class"),
        (X[:4], ["no", "yess", "no", "no"], r"y\[1\] is 'yess', and no class: did you mean 'yes'\?"),
        (X[:4], [[0, 1]] * 4, r"got x \(4, 3\) and y \(4, 2\)"),
        (X[:4].astype(str), [0, 1, 0, 1], "x holds <U32, not numbers"),
        (np.full((4, 3), np.nan), [0, 1, 0, 1], r"x\[0, 0\] is nan, no finite number"),
    ],
)
def test_rows_that_do_not_fit_are_named(result, x, y, said):
    with pytest.raises(UserError, match=said):
        result.onboard(np.asarray(x), np.asarray(y))


def test_a_newcomer_is_compiled_for_once(result):
    result.onboard(X[:5], np.array([0, 1, 0, 1, 0]))
    compiled = result.engine._newcomer._cache_size()
    result.onboard(X[5:10], np.array([1, 1, 0, 1, 0]))
    assert result.engine._newcomer._cache_size() == compiled


def test_a_method_is_not_made_again_at_every_look():
    made = []

    def counted(loss, *, lr: float = 0.1):
        made.append(lr)
        return fed_avg(loss, lr=lr, steps=1)

    often = lambda rounds: (made.clear(), fit(counted, federation=FEDERATION, rounds=rounds, evaluate_every=1))
    often(2)
    often(2)  # what was compiled for it serves again
    few = len(made)
    often(6)
    assert len(made) == few


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda known: {"outcomes": lambda p, b: (*known.outcomes(p, b), b.weight)},
            r"shapes \(2,\), \(2,\), \(2,\); ",
        ),
        (lambda known: {"outcomes": lambda p, b: known.outcomes(p, b)[0]}, r"shapes \(2,\); \(2,\), \(2,\) are needed"),
        (lambda known: {"outcomes": lambda p, b: (b.x, b.x)}, r"shapes \(2, 3\), \(2, 3\); "),
        (lambda known: {"loss": lambda p, b, k: b.weight}, r"loss of a batch has shape \(2,\); one number"),
    ],
)
def test_an_objective_of_other_shapes_is_refused(change, said):
    def own(model):
        known = objective(model, "classification")
        return Objective(known.loss, known.outcomes)._replace(**change(known))

    with pytest.raises(UserError, match=said):
        fit("fed_avg", federation=FEDERATION, rounds=1, objective=own)


def stubborn(loss, *, steps: int = 2):
    """A method without a step size."""
    return fed_avg(loss, lr=0.1, steps=steps)


def test_a_schedule_that_finds_no_step_size_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match=r"'stubborn' has no step size 'lr'.* leave the schedule constant, or"):
        compare(FEDERATION, [stubborn], rounds=1, seeds=1, tune=1, schedule="linear", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
