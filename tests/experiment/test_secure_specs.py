"""[train.secure]: what is refused with its reason, and a run whose numbers are those of a plain one."""

import numpy as np
import pytest

import apiece
from apiece.data import source
from apiece.errors import UserError
from apiece.experiment.secure import secure_of
from apiece.experiment.spec_tables import TrainSpec

LINEAR = dict(clients=6, examples=12, features=2)


def fitted(method="fed_avg", **how):
    plan = {"rounds": 2, "engine": "remote", "secure": {}, **how}
    return apiece.fit(method, federation=source("linear", **LINEAR), **plan)


@pytest.mark.parametrize(
    "method, how, says",
    [
        ("fed_avg", dict(engine="vectorized"), "take engine = 'remote'"),
        ("fed_avg", dict(defence={"rule": "median"}), "robust rules and bounds look at single replies"),
        ("fed_avg", dict(defence={"most": 3.0}), "robust rules and bounds look at single replies"),
        ("fed_avg", dict(arrivals={}, engine="vectorized"), "goes with rounds"),
        ("fed_avg", dict(attack={"name": "sign_flip", "share": 0.2}), "train.attack"),
        ("fed_avg", dict(faults={"corrupt": 0.1}), "faults.corrupt"),
        ("fed_avg", dict(compress={}), "a masked number has 64 bits"),
        ("fed_avg", dict(private={"noise": 1.0, "delta": 0.01}), "private.at = 'clients'"),
        ("fed_avg", dict(cohort=2), "needs 3 clients in a round"),
        ("all_for_all", {}, "its merge is no average"),
        ("ifca", {}, "beside real numbers|no weighted mean"),
        ("scaffold", {}, "set train.weights = 'uniform'"),
    ],
)
def test_what_needs_single_replies_is_refused_with_the_reason(method, how, says):
    with pytest.raises(UserError, match=says):
        fitted(method, **how)


def test_the_share_that_must_stay_is_more_than_half():
    with pytest.raises(UserError, match="least"):
        fitted(secure={"least": 0.5})


def test_everybody_counts_alike_under_noise():
    assert secure_of(TrainSpec(secure={}), 3).weights is None
    noised = TrainSpec.model_validate({"secure": {}, "private": {"noise": 1.0, "at": "clients"}})
    assert secure_of(noised, 3).weights == {0: 1.0, 1: 1.0, 2: 1.0}
    given = TrainSpec.model_validate({"secure": {}, "weights": [1.0, 2.0, 3.0]})
    assert secure_of(given, 3).weights[2] == 3.0


def test_noise_of_clients_adds_up_under_masks():
    private = {"noise": 0.5, "delta": 0.01, "clip": 0.5, "at": "clients"}
    masked, plain = fitted(private=private), fitted(private=private, secure=None)
    for i in range(3):
        np.testing.assert_allclose(masked.personal(str(i))["w"], plain.personal(str(i))["w"], atol=1e-4)
    assert masked.privacy.epsilon == plain.privacy.epsilon
