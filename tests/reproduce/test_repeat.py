"""Repetitions side by side give the numbers of an engine that runs them one after the other."""

import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.simulation.vectorized import Vectorized
from apiece.methods import CATALOG
from apiece.reproduce.repeat import repeated
from apiece.testing.clients import Chosen

pytestmark = pytest.mark.usefixtures("x64")

CLIENTS, EXAMPLES, FEATURES, ROUNDS = 4, 5, 3, 4


def loss(w, batch, key):
    return (batch.weight * (batch.x @ w - batch.y) ** 2).sum() / (2 * batch.weight.sum())


def federations(count):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, CLIENTS, EXAMPLES, FEATURES))
    sizes = rng.permuted(np.tile([2, 5, 3, 4], (count, 1)), axis=1)  # the same in all: one engine runs them
    return x, rng.standard_normal((count, CLIENTS, EXAMPLES)), sizes


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ditto", "scaffold"])
def test_a_repetition_is_a_run_of_the_engine(name):
    x, y, sizes = federations(2)
    build = lambda hyper, round: CATALOG[name](loss, lr=hyper["lr"], batch=2)
    weight = sizes.astype(float)
    look = lambda server, models, given: models
    got = repeated(
        build, jnp.zeros(FEATURES), x, y, look, rounds=ROUNDS, every=2, sizes=sizes, weight=weight,
        hyper={"lr": np.array([0.1, 0.05])},
    )  # fmt: skip
    engine = None
    for r in range(2):
        inside = np.arange(EXAMPLES) < sizes[r][:, None]
        rows = x[r][inside], y[r][inside], np.concatenate([[0], np.cumsum(sizes[r])])
        engine = engine.moved(*rows) if engine else Vectorized(build, *rows, block=2)
        run = engine.start(lambda key: jnp.zeros(FEATURES), r, {"lr": (0.1, 0.05)[r]})
        for leg in range(ROUNDS // 2):
            run = engine.advance(run, 2)
            np.testing.assert_allclose(got[r, leg], engine.personal(run, np.arange(CLIENTS)), atol=1e-12)


def test_who_is_absent_neither_works_nor_counts():
    x, y, sizes = federations(1)
    schedule = ((0, 1), (2,), (0, 3), (1, 2))
    present = np.zeros((1, ROUNDS, CLIENTS), bool)
    for r, ids in enumerate(schedule):
        present[0, r, list(ids)] = True
    build = lambda hyper, round: CATALOG["fed_clup"](loss, batch=0)
    look = lambda server, models, given: (models, given)
    models, given = repeated(
        build, jnp.zeros(FEATURES), x, y, look, rounds=ROUNDS, every=ROUNDS, sizes=sizes, weight=sizes, present=present,
        given=np.array([7.0]),
    )  # fmt: skip
    inside = np.arange(EXAMPLES) < sizes[0][:, None]
    offsets = np.concatenate([[0], np.cumsum(sizes[0])])
    engine = Vectorized(
        build, x[0][inside], y[0][inside], offsets, participation=Chosen(schedule=schedule), block=ROUNDS
    )
    run = engine.advance(engine.start(lambda key: jnp.zeros(FEATURES), 0), ROUNDS)
    np.testing.assert_allclose(models[0, -1], engine.personal(run, np.arange(CLIENTS)), atol=1e-12)
    assert given.tolist() == [[7.0]]
