"""The key of a client's model after training: always the same one, and none that training has spent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_engine import MAKE

from apiece.protocol import Method

CLIENTS, ROUNDS = 3, 4


def spent(key):
    """What a key is, as numbers of a model: not so large that it counts as diverged."""
    return jax.random.key_data(key).astype(jnp.float32) / 2.0**32


def noting(hyper, round):
    """The server gathers the keys of all work; a client's model is the key that it is made with."""
    merge = lambda seen, replies, cohort, key: jnp.roll(seen, CLIENTS, 0).at[: len(replies)].set(replies)
    return Method(
        init=lambda params, key: jnp.zeros((CLIENTS * ROUNDS, 2)),
        message=lambda seen, i: jnp.zeros(()),
        merge=merge,
        enroll=lambda params, message, data, key: (),
        local=lambda client, message, data, key: (client, spent(key)),
        personal=lambda client, message, data, key: spent(key),
    )


@pytest.mark.parametrize("engine", MAKE)
def test_a_model_is_the_same_however_often_one_asks_and_spends_no_key_of_training(engine):
    y = np.zeros(CLIENTS, np.float32)
    made = MAKE[engine](noting, y, y, np.arange(CLIENTS + 1))
    run = made.advance(made.start(lambda key: jnp.zeros(2), 0), ROUNDS)
    everybody = np.arange(CLIENTS)
    models = np.asarray(made.personal(run, everybody))
    np.testing.assert_array_equal(models, made.personal(run, everybody))
    np.testing.assert_array_equal(models[1:2], made.personal(run, everybody[1:2]))
    trained = {tuple(row) for row in np.asarray(run.server) if row.any()}
    assert len(trained) >= ROUNDS and len({tuple(row) for row in models}) == CLIENTS
    assert trained.isdisjoint(map(tuple, models))
    later = made.personal(made.advance(run, 1), everybody)
    assert not (np.asarray(later) == models).all(axis=1).any(), "another round is another time"
