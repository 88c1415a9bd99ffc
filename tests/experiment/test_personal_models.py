"""Personal models that are more than parameters, and messages that are more than a model: judged, saved, served."""

from functools import lru_cache

import jax
import numpy as np
import pytest
from experiment_runs import DATA, federation, run

from apiece import fit
from apiece.errors import UserError
from apiece.models import Objective, mlp

PLAN = {"rounds": 3, "cohort": 5, "evaluate_every": 3}
METHODS = {
    "knn_per": {"steps": 3, "lr": 0.1, "neighbours": 3},
    "ifca": {"steps": 3, "lr": 0.1, "groups": 3},
    "fed_em": {"steps": 3, "lr": 0.1, "components": 2, "pi_steps": 3},
    "fed_proto": {"steps": 3, "lr": 0.1, "lam": 0.1, "nearest": True},
}


SOON = ("knn_per", "ifca")  # a memory beside a model, and several models; the others are more of the second kind
ALL = [pytest.param(name, marks=() if name in SOON else pytest.mark.thorough) for name in METHODS]


def compared(folder, engine, names=tuple(METHODS)):
    """The mixture of `knn_per` is tuned: it is traced, and part of the model that is judged."""
    methods = {name: METHODS[name] for name in names}
    values = {"data": DATA, "baselines": False, "tune": 2, "seeds": [3], "methods": methods}
    return run({**values, "train": {**PLAN, "engine": engine}}, folder)


@pytest.fixture(scope="module")
def found_of(tmp_path_factory):
    """The comparison in which a method stands."""

    @lru_cache
    def found(soon):
        names = [name for name in METHODS if (name in SOON) == soon]
        return compared(tmp_path_factory.mktemp("vectorized") / "run", "vectorized", names)

    return lambda name: found(name in SOON)


def fitted(found, method):
    options = found.record.methods[method].options
    given = {name: options[name] for name in (*METHODS[method], *(["mix"] if method == "knn_per" else []))}
    return fit(method, found.place.model, federation(), seed=3, options=given, **PLAN)


@pytest.mark.thorough
def test_both_engines_judge_them_alike(found_of, tmp_path):
    there = compared(tmp_path / "run", "remote")
    for method in METHODS:
        found = found_of(method)
        here, far = found.trials[method][3], there.trials[method][3]
        assert found.record.methods[method].options == there.record.methods[method].options
        for name, scores in here.arrays.items():
            np.testing.assert_allclose(far.arrays[name], scores, rtol=1e-5, atol=1e-5, err_msg=f"{method} {name}")


@pytest.mark.parametrize("method", ALL)
def test_saved_models_are_those_of_fit_and_say_the_same(found_of, method):
    found = found_of(method)
    result = fitted(found, method)
    for name in (str(federation().ids[2]), str(federation().new.ids[0])):
        kept, here = found.personal(method, name), result.personal(name)
        assert jax.tree.structure(kept) == jax.tree.structure(here)
        jax.tree.map(np.testing.assert_array_equal, kept, here)
        x = federation().test.x[:4]
        np.testing.assert_array_equal(result.predict(kept, x), result.predict(name, x))


@pytest.mark.parametrize("method", ALL)
def test_they_are_judged_by_what_they_predict(found_of, method):
    found = found_of(method)
    result, clients = fitted(found, method), federation()
    errors, offsets = found.trials[method][3].scores("test", "error")
    for i in (0, 4):
        x, y = (
            leaf[clients.test.offsets[i] : clients.test.offsets[i + 1]] for leaf in (clients.test.x, clients.test.y)
        )
        wrong = result.predict(str(clients.ids[i]), x).argmax(1) != y
        np.testing.assert_array_equal(errors[offsets[i] : offsets[i + 1]], wrong)


@pytest.mark.parametrize("engine", ["vectorized", "remote"])
def test_a_newcomer_remembers_its_own_examples(engine):
    clients = federation()
    x, y = clients.new.train.x[:6], clients.new.train.y[:6]
    result = fit("knn_per", mlp((64,), 10, hidden=(8,)), clients, engine=engine, options=METHODS["knn_per"], **PLAN)
    model = result.onboard(x, y)
    assert model.features.shape == (6, 8) and model.labels.tolist() == y.tolist()
    certain = model._replace(mix=np.float32(1))
    alone = result.predict(certain._replace(weight=np.array([0, 0, 0, 1, 0, 0], np.float32)), x)
    assert (alone.argmax(1) == y[3]).all()


def test_an_objective_of_ones_own_cannot_judge_them():
    def mine(params, batch):
        raise AssertionError("never asked")

    with pytest.raises(UserError, match="this method predicts in a way of its own"):
        fit("knn_per", federation=federation(), rounds=1, objective=Objective(lambda params, batch, key: 0.0, mine))


def test_a_method_that_does_not_fit_the_labels_is_refused_before_anything_is_written(tmp_path):
    bowls = {"data": {"source": "quadratics"}, "methods": {"knn_per": {}}, "tune": 1, "seeds": [0], "baselines": False}
    with pytest.raises(UserError, match="'knn_per' mixes the class or the numbers of an example"):
        run(bowls, tmp_path / "run")
    assert not (tmp_path / "run").exists()
