"""An option of one's own: every client has its strength of the pull, and the optimum is the one of these strengths."""

import jax.numpy as jnp
import numpy as np
import pytest

from apiece.data import digits
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.experiment import fit, make_spec
from apiece.methods import CATALOG
from apiece.methods.bind import bind

# Scalar quadratics L_i(w) = a_i (w - b_i)^2 / 2, one example each: x = a, y = b.
A, B = np.array([1.0, 2.0, 0.5, 1.5], np.float32), np.array([1.0, -1.0, 2.0, 0.3], np.float32)
LAMS = [0.0, 0.3, 1.0, 4.0]


def loss(w, batch, key):
    return (batch.weight * batch.x * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


def ended(engine, name, lam, rounds, **options):
    build, hyper = bind(name, loss, {"lam": lam, "lr": 0.2, "batch": 0, **options}, population=len(A))
    made = engine(build, A, B, np.arange(len(A) + 1))
    run = made.advance(made.start(lambda key: jnp.zeros(()), 0, hyper), rounds)
    return np.asarray(run.server), np.asarray(made.personal(run, np.arange(len(A))))


@pytest.mark.parametrize("name", ["ditto", "fed_clup"])
@pytest.mark.optimized
def test_everybodys_model_is_the_one_of_its_own_pull(name):
    lam = np.array(LAMS)
    # Ditto: x is FedAvg's. FedCLUP: the best x for all, each client counting by its envelope's curvature.
    weight = A if name == "ditto" else A * lam / (A + lam)
    x = (weight * B).sum() / weight.sum()
    server, models = ended(Vectorized, name, LAMS, 300, steps=1 if name == "ditto" else 20)
    np.testing.assert_allclose(server, x, atol=1e-4)
    np.testing.assert_allclose(models, (A * B + lam * x) / (A + lam), atol=1e-4)


@pytest.mark.parametrize("name", ["ditto", "fed_clup"])
def test_a_list_of_one_strength_is_that_strength_and_bytes_carry_it(name):
    one, each = (ended(Vectorized, name, lam, 3) for lam in (0.3, [0.3] * len(A)))
    for mine, theirs in zip(one, each, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    for mine, theirs in zip(*(ended(engine, name, LAMS, 3) for engine in (Vectorized, Remote)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_strengths_come_from_a_list_or_a_file_and_are_not_tuned(tmp_path):
    (tmp_path / "lam.csv").write_text("0.5\n1\n2\n")
    spec = make_spec({"methods": {"ditto": {"lam": {"file": str(tmp_path / "lam.csv")}}}})
    assert "lam" not in CATALOG.ranges("ditto", fixed=spec.rows["ditto"].options)
    found = fit("ditto", federation=digits(clients=3), rounds=1, options=spec.rows["ditto"].options)
    assert found.costs["bytes_down"] > fit("ditto", federation=digits(clients=3), rounds=1).costs["bytes_down"]


@pytest.mark.parametrize(
    ("lam", "words"),
    [
        ([0.1, 0.2], "option 'lam' of method 'ditto' has 2 values for 4 clients that train"),
        ([0.1, -1.0, 0.1, 0.1], "option 'lam' of method 'ditto', number 2, must be at least 0"),
        ([], "finite number"),
    ],
)
def test_wrong_strengths_are_refused_by_name(lam, words):
    with pytest.raises(UserError, match=words):
        ended(Vectorized, "ditto", lam, 1)
    with pytest.raises(UserError, match="theory's steps are for one 'lam'"):
        CATALOG["fed_clup"](loss, lam=(0.1, 0.2), smoothness=1.0, convexity=0.1)
