"""A personal model that is more than the parameters of one model: two models, whose outputs are mixed."""

import jax
import numpy as np
import pytest

from apiece.data import digits
from apiece.errors import UserError
from apiece.experiment import fit, make_spec, run_spec
from apiece.methods import ditto
from apiece.models import objective, softmax


def stacked(loss, *, share=0.25, lam=0.1, steps=2):
    """Ditto, but a client uses both models: it mixes their outputs, not their parameters."""
    base = ditto(loss, lam=lam, steps=steps)

    def predict(apply, both, x):
        mine, ours = (jax.nn.softmax(apply(both[name], x)) for name in ("mine", "ours"))
        return jax.numpy.log(share * mine + (1 - share) * ours)

    return base._replace(personal=lambda v, x, data, key: {"mine": v, "ours": x}, predict=predict)


FEDERATION = digits(clients=12).hold_out_clients(0.1)
MODEL = softmax((64,), 10)


@pytest.fixture(scope="module", params=["vectorized", "remote"])
def result(request):
    return fit(stacked, MODEL, FEDERATION, rounds=3, engine=request.param)


def mixed(both, x):
    mine, ours = (
        np.asarray(jax.nn.softmax(MODEL.apply(both[name], jax.numpy.asarray(x)))) for name in ("mine", "ours")
    )
    return 0.25 * mine + 0.75 * ours


def test_a_client_predicts_as_its_method_says(result):
    both, (x, _) = result.personal("3"), FEDERATION.test.client(3)
    np.testing.assert_allclose(np.exp(result.predict("3", x)), mixed(both, x), rtol=1e-5)
    assert np.abs(both["mine"]["w"] - both["ours"]["w"]).max() > 1e-3


def test_clients_are_judged_by_what_they_predict(result):
    right = [mixed(result.personal(name), FEDERATION.test.client(i)[0]).argmax(1) == FEDERATION.test.client(i)[1]
             for i, name in enumerate(FEDERATION.ids)]  # fmt: skip
    found = result.evaluate()["test"]["accuracy"]["mean_weighted"]
    assert found == pytest.approx(np.concatenate(right).mean())


def test_a_newcomer_gets_both_models(result):
    both = result.onboard(*FEDERATION.new.train.client(0))
    assert result.predict(both, FEDERATION.new.test.client(0)[0]).shape[1] == 10


def test_both_models_are_kept_in_the_run_folder(tmp_path):
    name = f"{__name__}:stacked"
    plan = {"methods": {name: {}}, "train": {"rounds": 2}, "seeds": [0], "tune": 1, "baselines": False}
    found = run_spec(make_spec(plan), tmp_path / "run")
    assert found.personal(name, "3")["mine"]["w"].shape == (10, 64)
    assert found.record.methods[name].statistic("test", "accuracy", "mean_weighted") is not None


def test_an_objective_of_ones_own_cannot_judge_it():
    mine = objective(MODEL, "classification")
    with pytest.raises(UserError, match="leave the objective out"):
        fit(stacked, MODEL, FEDERATION, rounds=1, objective=mine)
