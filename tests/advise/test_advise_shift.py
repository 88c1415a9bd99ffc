"""Labels, inputs or meaning: what explains that clients differ is told apart on held-out rows."""

import numpy as np
import pytest

from apiece.advise import questions as q
from apiece.advise.pilot import Asked
from apiece.advise.shift import measure_shift
from apiece.data import from_rows
from apiece.experiment import build as setup
from apiece.experiment.spec_tables import ModelSpec, TrainSpec

CLIENTS, ROWS = 10, 80


def losses(kind):
    """Of a shared model that is right but for what differs: an offset of targets, of inputs, or another slope."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(CLIENTS), ROWS)
    own, x = 2 * rng.normal(size=CLIENTS), rng.normal(size=(len(owner), 2))
    y = x @ [1.0, -1] + 0.1 * rng.normal(size=len(x))
    if kind == "inputs":
        x[:, 0] += own[owner]
    if kind == "targets":
        y += own[owner]
    if kind == "meaning":
        y += own[owner] * x[:, 0]
    federation = from_rows(x.astype(np.float32), y.astype(np.float32), owner, split=np.zeros(len(x), int))
    place = setup.arena(federation, setup.model_of(ModelSpec(), federation))
    engine = setup.engine_of(place, "fed_avg", {}, TrainSpec())[0]
    shared = {"w": np.array([[[1.0, -1]]], np.float32), "b": np.zeros((1, 1), np.float32)}
    asked = Asked(engine, np.asarray(engine.sizes))
    sums = asked.ask(lambda most: q.rows_question(0, most), (), 1)
    of = q.Linear(place.objective.loss, place.model.apply, 0)
    return measure_shift(asked, of, shared, ((0,),), sums, 0)


@pytest.mark.parametrize(("kind", "label", "feature"), [("targets", True, False), ("inputs", True, True),
                                                        ("meaning", False, False)])  # fmt: skip
def test_what_differs_is_what_explains_held_out_losses(kind, label, feature):
    """A mean input that is moved back shows as an offset of targets as well: the intercept repairs both."""
    shared, frequencies, inputs = losses(kind)
    assert (frequencies < 0.3 * shared) == label and (inputs < 0.3 * shared) == feature
