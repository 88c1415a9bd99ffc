"""Compressed replies: what comes through, what the client remembers, bytes, the contract."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.costs import costs
from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.methods import ditto, fed_avg, scaffold
from apiece.protocol import Data
from apiece.testing import check_method
from apiece.wrap import compressed

KEY = jax.random.key(0)
DATA = Data(jnp.zeros(1), jnp.zeros(1), 0, 1, 1)
SLOPE = jnp.array([3.0, -2.0, 1.0, 0.5])


def steep(w, batch, key):
    return (w * SLOPE).sum()


def test_top_k_sends_the_largest_and_the_rest_comes_later():
    method = compressed(fed_avg(steep, steps=1, lr=1.0), "top_k", share=0.5)
    x = jnp.zeros(4)
    client, got = method.enroll(x, x, DATA, KEY), np.zeros(4)
    for visit in range(1, 7):
        client, reply = method.local(client, x, DATA, KEY)
        assert reply.values.shape == (2,)
        got[np.asarray(reply.where)] += np.asarray(reply.values)
        # Nothing is lost: what came through and what is remembered are all that was ever found.
        np.testing.assert_allclose(got + client[1], -visit * SLOPE, rtol=1e-6)
    assert (got != 0).all()


def test_a_share_of_all_is_the_method_itself_and_halves_are_near_it():
    y = np.array([0.0, 3.0, 3.0, 1.0], np.float32)
    loss = lambda w, batch, key: (batch.weight * ((w - batch.y[:, None]) ** 2).sum(1) / 2).sum() / batch.weight.sum()

    def trained(wrap, rounds=5):
        engine = Vectorized(lambda hyper, round: wrap(scaffold(loss, steps=2, batch=0)), y, y, np.array([0, 1, 3, 4]))
        return engine.advance(engine.start(lambda key: jnp.zeros(3), seed=0), rounds=rounds).server[0]

    plain = trained(lambda method: method)
    np.testing.assert_allclose(trained(lambda method: compressed(method, "top_k", share=1.0)), plain, rtol=1e-5)
    np.testing.assert_allclose(trained(lambda method: compressed(method, "bfloat16")), plain, rtol=1e-2)
    far = trained(lambda method: compressed(method, "top_k", share=0.2), rounds=400)
    np.testing.assert_allclose(far, np.full(3, 4 / 3), atol=0.05)  # the clients' plain mean of (0, 3, 1)


def test_bytes_are_those_on_the_way():
    params, example = jnp.zeros(1000), (jnp.zeros((1, 2)), jnp.zeros(1))
    loss = lambda w, batch, key: (w * batch.weight.sum()).sum()
    up = lambda method: costs(method, params, example, size=4).bytes_up
    plain = ditto(loss, steps=1)
    assert up(plain) == 4000
    assert up(compressed(plain, "bfloat16")) == 2000
    assert up(compressed(plain, "top_k", share=0.05)) == 50 * (4 + 4)


def test_wrong_options_are_named():
    with pytest.raises(UserError, match="did you mean 'top_k'"):
        compressed(fed_avg(steep), "topk")
    with pytest.raises(UserError, match="above 0 and at most at 1"):
        compressed(fed_avg(steep), "top_k", share=0.0)


FUNCTIONS = [
    "states_keep_their_shapes",
    "hyper_parameters_may_be_traced",
    "message_and_reply_are_the_only_channel",
    "nothing_leaks_out_of_a_trace",
    "replies_of_weight_zero_never_matter",
]


def largest(loss, *, steps=2, lr=0.1, batch=8):
    return compressed(scaffold(loss, steps=steps, lr=lr, batch=batch), "top_k", share=0.3)


def largest_beside_progress(loss, *, steps=2, lr=0.1, batch=8):
    return compressed(ditto(loss, steps=steps, lr=lr, batch=batch), "top_k", share=0.3)


def halves(loss, *, steps=2, lr=0.1, batch=8):
    return compressed(fed_avg(loss, steps=steps, lr=lr, batch=batch), "bfloat16")


@pytest.mark.thorough
@pytest.mark.parametrize("factory", [largest, largest_beside_progress, halves])
def test_a_compressed_method_keeps_the_contract(factory):
    assert len(check_method(factory, checks=FUNCTIONS)) == len(FUNCTIONS)
    assert check_method(factory, engines=("vectorized", "remote"), checks=["engines_agree"])
