"""Masked replies between real processes on loopback: the numbers of a simulation. Needs the extra `flower`."""

import numpy as np
import pytest

import apiece
from apiece.data import digits

pytest.importorskip("flwr")
from on_loopback import LIMIT, flat, models, rounds_of, spec_of

from apiece.deploy.local import run_local

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]
METHODS = {"ditto": {"steps": 2}}
CLIENTS, ROUNDS = 3, 2


def test_sites_with_masked_replies_have_the_models_of_a_simulation(tmp_path):
    federation = digits(clients=CLIENTS)
    run_local(tmp_path / "project", federation, spec_of(METHODS, ROUNDS, secure={"least": 0.67}), LIMIT)
    simulated = apiece.compare(federation, METHODS, rounds=ROUNDS, seeds=1, tune=1, baselines=False,
                               out=tmp_path / "simulated", evaluate_every=ROUNDS)  # fmt: skip
    wanted = np.stack([flat(simulated.personal("ditto", str(i))) for i in range(CLIENTS)])
    np.testing.assert_allclose(models(tmp_path / "project", METHODS)["ditto"], wanted, atol=1e-4)
    assert [line["answers"] for line in rounds_of(tmp_path / "project", "ditto~0")] == [CLIENTS] * ROUNDS
