"""Fine-tuning: of any method, with and without a ridge, and nothing else changed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.methods import ditto, fed_avg, ftfa, rtfa
from apiece.protocol import Data
from apiece.wrap import fine_tuned

DATA = Data(jnp.zeros(3), jnp.array([0.0, 3.0, 6.0]), np.int32(0), np.int32(3), 3)
KEY = jax.random.key(0)


def loss(w, batch, key):
    return (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


@pytest.mark.parametrize("lam", [0.0, 0.5, 4.0])
def test_the_ridge_holds_the_model_where_it_started(lam):
    tuned = fine_tuned(fed_avg(loss), loss, epochs=None, steps=200, lr=0.2, batch=0, lam=lam)
    np.testing.assert_allclose(tuned.personal((), jnp.float32(10), DATA, KEY), (3 + lam * 10) / (1 + lam), rtol=1e-5)


def test_the_ridge_may_be_traced():
    run = lambda lam: fine_tuned(fed_avg(loss), loss, epochs=None, steps=200, lr=0.2, batch=0, lam=lam).personal(
        (), jnp.float32(10), DATA, KEY
    )
    np.testing.assert_allclose(jax.jit(jax.vmap(run))(jnp.array([0.0, 4.0])), [3, 43 / 5], rtol=1e-5)


def test_epochs_rule_over_steps():
    tuned = fine_tuned(fed_avg(loss), loss, epochs=1, steps=99, lr=0.5, batch=0)
    np.testing.assert_allclose(tuned.personal((), jnp.float32(10), DATA, KEY), 3 + 7 / 2, rtol=1e-6)


def test_fine_tuning_starts_from_the_model_the_method_would_have_used():
    tuned = fine_tuned(ditto(loss), loss, epochs=0)
    assert tuned.personal(jnp.float32(7), jnp.float32(1), DATA, KEY) == 7


def test_training_itself_is_not_changed():
    base = fed_avg(loss, steps=2, batch=0)
    assert fine_tuned(base, loss)._replace(personal=None) == base._replace(personal=None)


def test_the_catalogs_two_are_made_of_it():
    by_hand = fine_tuned(fed_avg(loss), loss, epochs=4, lr=0.3, batch=2, lam=0.7)
    catalog = rtfa(loss, lam=0.7, tune_epochs=4, tune_lr=0.3, batch=2)
    plain = ftfa(loss, tune_epochs=4, tune_lr=0.3, batch=2)
    at = ((), jnp.float32(10), DATA, KEY)
    assert by_hand.personal(*at) == catalog.personal(*at)
    assert plain.personal(*at) == fine_tuned(fed_avg(loss), loss, epochs=4, lr=0.3, batch=2).personal(*at)
