"""Private methods: the law of clip and noise, the accountant's epsilon, what one client can move, the contract."""

import math
import sys

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from dp_accounting import rdp
from scipy import optimize, stats

from apiece.errors import UserError
from apiece.methods import ditto, fed_avg, fed_per, scaffold
from apiece.protocol import Cohort, Data
from apiece.testing import check_method
from apiece.wrap import private, robust, server_optimized, staged
from apiece.wrap.accountant import ORDERS, Draw, epsilon_of, noise_for, slack_of, split_noise
from apiece.wrap.private import averages_replies

KEY = jax.random.key(0)
WIDE = 20_000  # coordinates, so that a law can be tested on one draw


def loss(w, batch, key):
    return (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


def still(w, batch, key):
    return 0.0 * w.sum()


def cohort(weight, ids=None, population=None):
    ids = jnp.arange(len(weight)) if ids is None else jnp.asarray(ids)
    population = jnp.int32(population or len(weight))
    return Cohort(ids, jnp.asarray(weight, jnp.float32), jnp.zeros(len(weight), jnp.int32), population)


def merged(method, replies, weight, key=KEY, ids=None):
    x = jnp.zeros(jax.tree.leaves(replies)[0].shape[1:])
    return method.merge(method.init(x, KEY), replies, cohort(weight, ids), key)


# The law.


def test_the_servers_noise_is_gaussian_with_the_claimed_deviation():
    method = private(fed_avg(loss), noise=1.7, clip=0.3, expected=8)
    drawn = np.asarray(merged(method, jnp.zeros((5, WIDE)), np.ones(5)).inner) * 8 / (1.7 * 0.3)
    assert stats.kstest(drawn, "norm").pvalue > 0.01
    # 20,000 draws: the deviation is known to 0.5 %.
    assert abs(drawn.std() - 1) < 4 / math.sqrt(2 * WIDE)


def test_the_noise_of_clients_adds_up_to_the_claimed_one_whoever_answers():
    method = private(fed_avg(still, steps=1), noise=2.0, clip=0.5, expected=4, at="clients")
    x, data = jnp.zeros(WIDE), Data(jnp.zeros(1), jnp.zeros(1), 0, 1, 1)
    server = method.init(x, KEY)
    work = lambda i: method.local((), method.message(server, i), data, jax.random.fold_in(KEY, i))[1]
    replies = jax.vmap(work)(jnp.arange(6))
    alone = np.asarray(replies[0][0]) / (2.0 * 0.5 / math.sqrt(4))
    assert stats.kstest(alone, "norm").pvalue > 0.01
    for there, deviation in ((4, 1.0), (2, 1.0), (6, math.sqrt(6 / 4))):  # two are missing: the server adds theirs
        after = method.merge(server, replies, cohort(np.arange(6) < there), jax.random.key(9))
        drawn = np.asarray(after.inner) * 4 / (2.0 * 0.5 * deviation)
        assert stats.kstest(drawn, "norm").pvalue > 0.01, there
    broken = jax.tree.map(lambda leaf: leaf.at[:2].set(jnp.nan), replies)  # and what broke on its way has lost its own
    drawn = np.asarray(method.merge(server, broken, cohort(np.arange(6) < 4), jax.random.key(9)).inner) * 4
    assert stats.kstest(drawn, "norm").pvalue > 0.01


def test_no_client_moves_the_sum_by_more_than_the_clip_whatever_it_sends():
    method = private(scaffold(loss), noise=1e-9, clip=0.7, expected=4)
    usual = (0.1 * jnp.ones((4, 3)), -0.2 * jnp.ones((4, 3)))
    moved = lambda replies: jnp.concatenate(merged(method, replies, np.ones(4)).inner)
    without = moved(jax.tree.map(lambda leaf: leaf.at[2].set(0), usual))
    for wild in (1e-3, 1.0, 1e12, -1e30, np.inf, np.nan):  # in one of two arrays: they are clipped together
        sent = (usual[0].at[2].set(wild), usual[1])
        assert jnp.linalg.norm(moved(sent) - without) * 4 <= 0.7 + 1e-5
    short = (usual[0].at[2].set(1e-3), usual[1].at[2].set(0))
    np.testing.assert_allclose((moved(short) - without)[:3] * 4, 1e-3, rtol=1e-2)  # and within the clip nothing is lost


def test_the_merge_learns_nothing_of_who_came_how_many_and_how_large_they_are():
    method = private(scaffold(loss), noise=1.0, expected=3)
    replies = (jnp.array([[1.0], [2.0], [0.0], [0.0]]), jnp.array([[0.5], [0.1], [0.0], [0.0]]))
    one = merged(method, replies, [9.0, 1.0, 0.0, 0.0])
    other = merged(method, replies, [1.0, 1.0, 1.0, 1.0], ids=[7, 5, 1, 0])  # two more, who send zeros
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), one, other)


def test_a_clip_that_follows_finds_the_quantile_of_the_lengths():
    lengths = np.linspace(1, 3, 200)
    replies = jnp.asarray(lengths[:, None] * np.array([0.6, 0.8]), jnp.float32)
    method = private(fed_avg(loss), noise=0.5, clip=0.1, expected=200, quantile=0.25)
    server, merge = method.init(jnp.zeros(2), KEY), jax.jit(method.merge)
    seen = []
    for round in range(80):
        server = merge(server, replies, cohort(np.ones(200)), jax.random.fold_in(KEY, round))
        seen.append(float(server.clip))
    assert np.mean(seen[-20:]) == pytest.approx(1.5, abs=0.1)  # noise 10 in the count of 200: 0.1 in length
    assert method.report(server)["clip"] == server.clip


def test_a_round_of_nobody_leaves_the_server_as_it_was():
    method = private(fed_avg(loss), noise=1.0, expected=2, quantile=0.5)
    server = method.init(jnp.ones(2), KEY)
    after = method.merge(server, jnp.full((3, 2), jnp.nan), cohort(np.zeros(3)), KEY)
    jax.tree.map(np.testing.assert_array_equal, after, server)


def test_secret_noise_is_another_each_time_and_open_noise_the_same():
    for secret in (False, True):
        method = private(fed_avg(loss), noise=1.0, expected=2, secret=secret)
        merge = jax.jit(lambda key, method=method: merged(method, jnp.zeros((2, 3)), np.ones(2), key).inner)
        assert bool((merge(KEY) == merge(KEY)).all()) is not secret


def test_what_a_method_keeps_to_itself_is_not_noised_and_what_it_does_not_send_costs_nothing():
    params = {"hidden": jnp.ones(3), "out": jnp.ones(2)}
    own = lambda p, batch, key: 0.0 * p["hidden"].sum() + 0.0 * p["out"].sum()
    method = private(fed_per(own, private="out"), noise=9.0, expected=1, at="clients")
    server, data = method.init(params, KEY), Data(jnp.zeros(1), jnp.zeros(1), 0, 1, 1)
    client = method.enroll(params, method.message(server, 0), data, KEY)
    after, (sent, _) = method.local(client, method.message(server, 0), data, KEY)
    assert sent["out"] is None and jnp.abs(sent["hidden"]).max() > 1
    np.testing.assert_array_equal(after["out"], params["out"])


# Which methods.


def test_methods_that_do_not_average_replies_are_found_out():
    x = jnp.zeros(3)
    average = lambda method, reply=x: averages_replies(method, x, reply, 10)
    assert average(fed_avg(loss)) and average(ditto(loss)) and average(scaffold(loss), (x, x))
    assert average(server_optimized(fed_avg(loss), optax.adam(0.1)))
    assert not average(robust(fed_avg(loss), "median"))


def test_a_reply_that_cannot_be_noised_is_refused():
    method = private(staged(fed_avg(still), ditto(still), 3), noise=1.0, expected=2)
    server, data = method.init(jnp.zeros(2), KEY), Data(jnp.zeros(1), jnp.zeros(1), 0, 1, 1)
    client = method.enroll(jnp.zeros(2), method.message(server, 0), data, KEY)
    reply = method.local(client, method.message(server, 0), data, KEY)[1]
    with pytest.raises(UserError, match="bool in it beside real numbers"):
        method.merge(server, jax.tree.map(lambda leaf: leaf[None], reply), cohort([1.0]), KEY)


@pytest.mark.parametrize(
    "wrong",
    [
        dict(noise=0.0),
        dict(clip=-1.0),
        dict(expected=0),
        dict(at="both"),
        dict(quantile=1.0),
        dict(rate=math.inf),
    ],
)
def test_wrong_options_are_named(wrong):
    with pytest.raises(UserError, match="private: "):
        private(fed_avg(loss), **{"noise": 1.0, "expected": 2, **wrong})


# The contract.

FUNCTIONS = [
    "states_keep_their_shapes",
    "message_and_reply_are_the_only_channel",
    "nothing_leaks_out_of_a_trace",
    "replies_of_weight_zero_never_matter",
]


def at_the_server(loss, *, steps=2, lr=0.1, batch=8):
    return private(scaffold(loss, steps=steps, lr=lr, batch=batch), noise=0.1, expected=3, quantile=0.5)


def at_the_clients(loss, *, steps=2, lr=0.1, batch=8):
    return private(ditto(loss, steps=steps, lr=lr, batch=batch), noise=0.1, expected=3, at="clients", quantile=0.5)


@pytest.mark.thorough
@pytest.mark.parametrize("factory", [at_the_server, at_the_clients])
def test_a_private_method_keeps_the_contract(factory):
    assert len(check_method(factory, checks=FUNCTIONS)) == len(FUNCTIONS)
    assert check_method(factory, engines=("vectorized", "remote"), checks=["engines_agree"])


# The budget.


def gaussian_epsilon(noise, delta):
    """Of one Gaussian mechanism, exactly (Balle and Wang 2018)."""
    law = lambda e: stats.norm.cdf(0.5 / noise - e * noise) - math.exp(e) * stats.norm.cdf(-0.5 / noise - e * noise)
    return optimize.brentq(lambda e: law(e) - delta, 0, 100)


@pytest.mark.parametrize("noise", [0.7, 1.0, 4.0])
def test_one_round_spends_what_the_gaussian_mechanism_spends_and_little_more(noise):
    exact = gaussian_epsilon(noise, 1e-5)
    assert exact <= epsilon_of(noise, 1e-5, 1, Draw("everybody", 10)) <= 1.2 * exact


def test_rounds_of_everybody_add_up_as_one_with_less_noise():
    many = epsilon_of(6.0, 1e-5, 9, Draw("everybody", 10))
    assert many == pytest.approx(epsilon_of(2.0, 1e-5, 1, Draw("everybody", 10)), rel=1e-9)


def test_epsilon_is_the_accountants():
    one = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.1))
    accountant = rdp.RdpAccountant(ORDERS).compose(one, 50)
    assert epsilon_of(1.1, 1e-5, 50, Draw("poisson", 200, 0.1)) == pytest.approx(accountant.get_epsilon(1e-5))
    # A client is replaced by another: the sum moves by two clips, so the noise of 3 clips is 1.5 of what it hides.
    one = dp_accounting.SampledWithoutReplacementDpEvent(200, 20, dp_accounting.GaussianDpEvent(1.5))
    accountant = rdp.RdpAccountant(ORDERS, dp_accounting.NeighboringRelation.REPLACE_ONE).compose(one, 50)
    assert epsilon_of(3.0, 1e-5, 50, Draw("fixed", 200, 0.1)) == pytest.approx(accountant.get_epsilon(1e-5))


def test_noise_for_an_epsilon_is_enough_and_hardly_more():
    draw = Draw("poisson", 100, 0.2)
    noise = noise_for(3.0, 1e-4, 40, draw)
    assert epsilon_of(noise, 1e-4, 40, draw) <= 3 < epsilon_of(0.99 * noise, 1e-4, 40, draw)
    with pytest.raises(UserError, match="no noise is enough"):
        noise_for(1e-6, 1e-4, 40, draw)


def test_the_noise_of_sum_and_count_spends_what_the_whole_spends():
    of_sum, of_count = split_noise(1.3, expected=50)
    assert of_sum**-2 + (2 * of_count) ** -2 == pytest.approx(1.3**-2)
    assert of_sum < 1.1 * 1.3  # the count takes little of it


def test_a_cut_of_the_draw_is_counted():
    assert slack_of(Draw("poisson", 40, 0.5), places=39, rounds=10) == pytest.approx(10 * 0.5**40)
    assert slack_of(Draw("fixed", 40, 0.5), places=20, rounds=10) == 0


def test_without_the_accountant_nothing_is_promised(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(UserError, match=r"pip install 'apiece\[privacy\]'"):
        epsilon_of(1.23456, 1e-5, 7, Draw("everybody", 10))
