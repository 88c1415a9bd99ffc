"""What a client does with its data: which examples are drawn, how often, and what is made of them."""

import dataclasses
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from apiece.client.descend import descend, full_gradient, steps_taken, toward
from apiece.client.draw import draw, shuffler, whole
from apiece.protocol import Data

SIZES = (1, 3, 7, 20)
START = 4


def client(size, capacity=None, dtype=np.float32):
    """Examples numbered 0..size-1 between rows that are not a number; as many rows for all small clients."""
    y = np.full(START + max(*SIZES, size) + 40, np.nan, dtype)
    y[START : START + size] = np.arange(size)
    return Data(jnp.asarray(y)[:, None], jnp.asarray(y), np.int32(START), np.int32(size), capacity)


def squares(w, batch, key):
    """Half the mean squared distance to the labels: its gradient is w minus their mean."""
    safe = jnp.where(batch.weight > 0, batch.y, 0)
    return (batch.weight * (w - safe) ** 2 / 2).sum() / batch.weight.sum()


@functools.partial(jax.jit, static_argnames=("batch", "steps", "epochs"))
def counted(data, seed, **how):
    def loss(counts, drawn, key):
        return -(drawn.weight * counts[drawn.y.astype(int)]).sum()

    return descend(loss, jnp.zeros(20), data, jax.random.key(seed), lr=1.0, **how)


def noted(count, size, batch, seed=0):
    """How often each example was used by `descend`: the loss is linear in a table of counts."""
    return np.asarray(counted(client(size), seed, batch=batch, **count))[:size]


@pytest.mark.parametrize("batch", [1, 3, 8, 32])
@pytest.mark.parametrize("size", SIZES)
def test_every_epoch_uses_every_example_exactly_once(size, batch):
    np.testing.assert_array_equal(noted({"epochs": 1}, size, batch), np.ones(size))
    np.testing.assert_array_equal(noted({"epochs": 3}, size, batch, seed=1), np.full(size, 3.0))


@pytest.mark.parametrize("size", SIZES)
def test_a_step_never_uses_an_example_twice(size):
    counts = noted({"steps": 1}, size, 8)
    assert set(counts) <= {0.0, 1.0}
    assert counts.sum() == min(size, 8)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_client_smaller_than_a_batch_gives_each_example_once_and_the_right_mean(size):
    data = client(size, capacity=20)
    drawn = draw(data, shuffler(jax.random.key(0), data.size), 8)
    assert sorted(drawn.y[drawn.weight > 0].tolist()) == list(range(size))
    assert not np.isnan(drawn.y).any(), "absent places read the client's own rows only"
    g = jax.grad(squares)(jnp.float32(0), drawn, None)
    np.testing.assert_allclose(g, -(size - 1) / 2, rtol=1e-6)


def test_each_step_and_each_epoch_draws_anew():
    data = client(20)
    drawn = jax.jit(lambda order: draw(data, shuffler(jax.random.key(0), data.size), 8, order=order).y)
    firsts = {tuple(drawn(order).tolist()) for order in range(30)}
    assert len(firsts) == 30


@jax.jit
def first_300(seed, size, order):
    return shuffler(jax.random.key(seed), size)(order, jnp.arange(300) % size)


@given(st.integers(1, 300), st.integers(0, 2**31 - 1), st.integers(0, 1000))
def test_a_shuffle_is_a_permutation(size, seed, order):
    np.testing.assert_array_equal(np.sort(first_300(seed, size, order)[:size]), np.arange(size))


def mixed(word):
    word = (word ^ (word >> 16)) * 0x85EBCA6B % 2**32
    return (word ^ (word >> 13)) * 0xC2B2AE35 % 2**32


def swap_or_not(seeds, size, order, x):
    """The shuffle of Hoang, Morris and Rogaway, a position and a round at a time, in whole numbers of any size."""
    for offset, coin in seeds.T.tolist():
        offset, coin = (mixed((seed + order * 0x9E3779B9) % 2**32) for seed in (offset, coin))
        partner = (offset - x) % size
        x = partner if mixed(max(x, partner) ^ coin) >> 31 else x
    return x


@pytest.mark.parametrize(("size", "order"), [(1, 0), (151, 5), (70_000, 2**31)])
def test_draws_are_those_of_the_published_shuffle(size, order):
    key, positions = jax.random.key(7), range(0, size, -(-size // 200))
    seeds = np.asarray(jax.random.bits(key, (2, 24), jnp.uint32))
    found = jax.jit(shuffler(key, size))(jnp.uint32(order), jnp.array(positions))
    assert found.tolist() == [swap_or_not(seeds, size, order, x) for x in positions]


ORDERS = 4000
SHUFFLED = 6


@pytest.fixture(scope="module")
def shuffles():
    """Where 4000 orders of one key, and the first order of 4000 keys, send six positions: [2, 4000, 6]."""
    positions = jnp.arange(SHUFFLED)
    by_order = jax.jit(jax.vmap(lambda k: shuffler(jax.random.key(3), SHUFFLED)(k, positions)))(jnp.arange(ORDERS))
    by_key = jax.jit(jax.vmap(lambda s: shuffler(jax.random.key(s), SHUFFLED)(0, positions)))(jnp.arange(ORDERS))
    return np.stack([by_order, by_key])


def test_every_position_goes_everywhere_equally_often(shuffles):
    for sample in shuffles:
        for position in range(SHUFFLED):
            assert stats.chisquare(np.bincount(sample[:, position], minlength=SHUFFLED)).pvalue > 1e-3


def test_every_pair_goes_everywhere_equally_often(shuffles):
    for sample in shuffles:
        for a, b in ((0, 1), (0, 5), (2, 3)):
            pairs = np.bincount(sample[:, a] * SHUFFLED + sample[:, b], minlength=SHUFFLED**2)
            apart = pairs.reshape(SHUFFLED, SHUFFLED)[~np.eye(SHUFFLED, dtype=bool)]
            assert pairs.sum() == apart.sum()
            assert stats.chisquare(apart).pvalue > 1e-3


def test_one_order_says_nothing_about_the_next(shuffles):
    sample = shuffles[0]
    table = np.bincount(sample[:-1, 0] * SHUFFLED + sample[1:, 0], minlength=SHUFFLED**2)
    assert stats.chisquare(table).pvalue > 1e-3


@pytest.mark.parametrize("capacity", [None, 20, 31])
@pytest.mark.parametrize("size", SIZES)
def test_the_full_gradient_is_over_all_examples_whatever_the_chunks(monkeypatch, size, capacity):
    monkeypatch.setattr(sys.modules[descend.__module__], "FULL_CHUNK", 8)
    g = full_gradient(squares, jnp.float32(5), client(size, capacity), jax.random.key(0))
    np.testing.assert_allclose(g, 5 - (size - 1) / 2, rtol=1e-6)


def test_chunks_are_one_gradient_also_when_the_size_is_traced():
    data = client(600, capacity=600)
    g = jax.jit(lambda d: full_gradient(squares, jnp.float32(0), d, jax.random.key(0)))(data)
    np.testing.assert_allclose(g, -299.5, rtol=1e-6)


def test_the_whole_view_is_padded_with_weight_zero():
    batch = whole(client(3, capacity=5))
    assert batch.weight.tolist() == [1, 1, 1, 0, 0]
    assert batch.y.tolist() == [0, 1, 2, 0, 0]


@pytest.mark.parametrize(("size", "batch", "taken"), [(70, 32, 6), (64, 32, 4), (1, 32, 2), (70, 0, 2)])
def test_epochs_are_counted_in_steps(size, batch, taken):
    assert steps_taken(client(size), 20, 2, batch) == taken
    assert steps_taken(client(size), 20, None, batch) == 20


def test_full_batches_by_steps_and_by_epochs_are_gradient_descent():
    data = client(7, capacity=7)
    for count in ({"steps": 5}, {"epochs": 5}):
        w = descend(squares, jnp.float32(10), data, jax.random.key(0), lr=0.5, batch=0, **count)
        np.testing.assert_allclose(w, 3 + 7 / 2**5, rtol=1e-6)


def test_the_number_of_steps_may_be_traced():
    data = client(7, capacity=7)
    go = jax.jit(
        lambda n, e: descend(squares, jnp.float32(10), data, jax.random.key(0), steps=n, epochs=e, lr=0.5, batch=0)
    )
    for n in (0, 1, 4):
        np.testing.assert_allclose(go(n, None), 3 + 7 / 2**n, rtol=1e-6)
        np.testing.assert_allclose(go(99, n), 3 + 7 / 2**n, rtol=1e-6)
    assert go._cache_size() == 2


@pytest.mark.parametrize("count", [{"steps": 5}, {"steps": 0}, {"epochs": 2}], ids=["steps", "none", "epochs"])
def test_draws_planned_ahead_are_the_draws_of_each_step(monkeypatch, count):
    data = dataclasses.replace(client(7), size=7)  # a size that is known: epochs are then a known number of steps too
    ahead, stepwise = [], []
    for result, planned in ((ahead, 1 << 16), (stepwise, 0)):
        monkeypatch.setattr(sys.modules[descend.__module__], "PLANNED_DRAWS", planned)
        result.append(descend(squares, jnp.float32(10), data, jax.random.key(0), lr=0.3, batch=3, **count))
    np.testing.assert_array_equal(ahead, stepwise)


def test_a_shift_adds_to_the_gradient():
    data = client(7, capacity=7)
    w = descend(
        squares, jnp.float32(0), data, jax.random.key(0), steps=200, lr=0.5, batch=0, shift=toward(jnp.float32(9), 2.0)
    )
    np.testing.assert_allclose(w, (3 + 2 * 9) / 3, rtol=1e-5)


@pytest.mark.parametrize("optimizer", [optax.scale_by_adam(), optax.trace(0.9)], ids=["adam", "momentum"])
def test_any_optax_transformation_is_applied_before_the_step(optimizer):
    data = client(7, capacity=7)
    got = descend(squares, jnp.float32(10), data, jax.random.key(0), steps=6, lr=0.1, batch=0, optimizer=optimizer)
    w = jnp.float32(10)
    memory = optimizer.init(w)
    for _ in range(6):
        update, memory = optimizer.update(w - 3, memory, w)
        w = w - 0.1 * update
    np.testing.assert_allclose(got, w, rtol=1e-5)


def test_the_loss_gets_a_new_key_at_every_step():
    def noisy(w, batch, key):
        return w * jax.random.normal(key, ())

    go = lambda steps: descend(noisy, jnp.float32(0), client(3, 3), jax.random.key(0), steps=steps, lr=1.0, batch=0)
    once, twice = go(1), go(2)
    assert abs(float(twice - 2 * once)) > 1e-3


def test_descent_keeps_the_dtype_of_the_model(x64):
    data = client(7, capacity=7)
    for dtype in (jnp.float32, jnp.float64):
        w = descend(squares, jnp.asarray(10, dtype), data, jax.random.key(0), steps=3, lr=jnp.float64(0.1), batch=4)
        assert w.dtype == dtype
