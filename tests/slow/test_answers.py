"""Verdicts of a run with default options stand beside those of a long, finely tuned run: one draw of each kind."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from apiece.experiment.check import check_spec
from apiece.experiment.spec import make_spec
from benchmarks import long_run
from benchmarks.answer_data import KINDS
from benchmarks.answers import one_draw, summed

pytestmark = [pytest.mark.slow, pytest.mark.optimized]
# Kinds of which the default run decided all of twenty draws; of others one draw may go either way.
ALWAYS = ("patients", "activity")


@pytest.mark.parametrize("kind", KINDS)
def test_no_verdict_of_a_default_run_is_contradicted_by_a_long_one(kind):
    found = one_draw(kind, 0)
    assert found["contradicted"] == []
    assert kind not in ALWAYS or not summed(kind, [found])["failed"]


@pytest.mark.parametrize("kind", ["regions", "patients"])
def test_the_ends_of_long_runs_are_those_of_scikit_learn(kind):
    place = check_spec(make_spec({}), KINDS[kind](0))
    numbers = place.federation.task == "regression"
    outputs = 1 if numbers else len(place.federation.classes)
    rows = long_run._rows(np.asarray(place.x), np.asarray(place.y), place.offsets, outputs, numbers)
    pull = 0.1
    ours = next(iter(long_run._path(rows, np.array([pull]), numbers)))[0]
    x, y = (np.asarray(values)[: place.offsets[1]] for values in (place.x, place.y))
    x = x.reshape(len(x), -1).astype(float)
    if numbers:  # sum of squares + alpha |w|^2, against half their mean + pull/2 |w|^2
        theirs = Ridge(alpha=pull * len(y), tol=1e-10).fit(x, y).predict(x)
        said = x @ ours[:-1, 0] + ours[-1, 0]
    else:  # two columns w and -w: each of half the strength, pulled by half as much
        theirs = LogisticRegression(C=2 / (pull * len(y)), tol=1e-8, max_iter=5000).fit(x, y).decision_function(x)
        said = x @ (ours[:-1, 1] - ours[:-1, 0]) + ours[-1, 1] - ours[-1, 0]
    np.testing.assert_allclose(said, theirs, atol=2e-2)
