"""A client whose state follows from the initial model keeps nothing: no rows, no bytes, and the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_engine import MAKE

from apiece import tree
from apiece.engines.costs import costs
from apiece.methods import fed_babu, ffgg, local_ffgg
from apiece.models import mlp, objective
from apiece.protocol import Data

MODEL = mlp((3,), 2, hidden=(4,))
LOSS = objective(MODEL, "classification").loss
SIZES = np.array([4, 2, 5, 1])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(SIZES.sum(), 3)).astype(np.float32), RNG.integers(0, 2, SIZES.sum()).astype(np.int32)
SMALL = dict(batch=4, tune_epochs=1)
METHODS = {
    "ffgg": lambda: ffgg(LOSS, inner_steps=2, **SMALL),
    "local_ffgg": lambda: local_ffgg(LOSS, inner_steps=2, steps=2, start="zero", **SMALL),
    "fed_babu": lambda: fed_babu(LOSS, steps=2, **SMALL),
}


def ended(engine, build):
    # The last client is known, and never takes part.
    made = MAKE[engine](build, X, Y, OFFSETS, population=3)
    run = made.advance(made.start(MODEL.init, 0), 3)
    return run, made.personal(run, np.arange(4))


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "engine"), [("ffgg", engine) for engine in MAKE] + [("fed_babu", "vectorized")])
def test_what_follows_from_the_initial_model_is_not_kept_and_changes_no_number(name, engine):
    run, models = ended(engine, lambda hyper, round: METHODS[name]())
    kept, same = ended(engine, lambda hyper, round: METHODS[name]()._replace(forgets=False))
    assert tree.size_in_bytes(run.rows) == 0 < tree.size_in_bytes(kept.rows)
    for mine, theirs in ((run.server, kept.server), (models, same)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), mine, theirs)


@pytest.mark.parametrize("name", METHODS)
def test_work_leaves_a_state_that_is_forgotten_as_it_was(name):
    method, params, key = METHODS[name](), MODEL.init(jax.random.key(0)), jax.random.key(1)
    found = costs(method, params, (X, Y), 4)
    assert method.forgets and found.bytes_kept == 0
    message = method.message(method.init(params, key), 0)
    data = Data(jnp.asarray(X), jnp.asarray(Y), 0, 4, 4)
    before = method.enroll(params, message, data, key)
    jax.tree.map(np.testing.assert_array_equal, method.local(before, message, data, key)[0], before)


def test_a_private_part_that_is_kept_is_kept():
    method = ffgg(LOSS, start="kept", **SMALL)
    assert not method.forgets and costs(method, MODEL.init(jax.random.key(0)), (X, Y), 4).bytes_kept > 0
