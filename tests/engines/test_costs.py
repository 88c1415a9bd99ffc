"""Costs: gradients counted in the traced program, bytes from shapes."""

import math

import jax
import jax.numpy as jnp
import pytest

from apiece import tree
from apiece.engines.costs import costs
from apiece.methods import fed_avg, ftfa, pfedme, scaffold

PARAMS = {"w": jnp.zeros((3, 2)), "b": jnp.zeros(2)}
BYTES = 4 * 8
EXAMPLE = (jnp.zeros((1, 3)), jnp.zeros(1))
LOSS = lambda p, batch, key: (p["b"] * batch.weight.sum()).sum() + p["w"].sum()


@pytest.mark.parametrize(("size", "batch", "passes"), [(31, 32, 1), (32, 32, 1), (33, 32, 2), (5, 0, 1), (70, 10, 7)])
def test_an_epoch_costs_as_many_gradients_as_it_has_batches(size, batch, passes):
    assert costs(fed_avg(LOSS, epochs=3, batch=batch), PARAMS, EXAMPLE, size).gradients == 3 * passes
    assert costs(fed_avg(LOSS, steps=3, batch=batch), PARAMS, EXAMPLE, size).gradients == 3


def test_gradients_of_nested_loops_multiply():
    assert costs(pfedme(LOSS, steps=4, prox_steps=3), PARAMS, EXAMPLE, 50).gradients == 12


def test_a_full_gradient_counts_once_however_many_chunks_it_takes():
    assert costs(fed_avg(LOSS, steps=2, batch=0), PARAMS, EXAMPLE, 1000).gradients == 2


def test_fine_tuning_is_paid_at_the_end_and_not_at_each_visit():
    found = costs(ftfa(LOSS, steps=2, tune_epochs=3), PARAMS, EXAMPLE, 70)
    assert (found.gradients, found.gradients_personal) == (2, 9)
    assert costs(ftfa(LOSS, tune_epochs=None, tune_steps=7), PARAMS, EXAMPLE, 70).gradients_personal == 7


def test_what_is_sent_and_kept_is_weighed():
    found = costs(scaffold(LOSS), PARAMS, EXAMPLE, 10)
    assert (found.bytes_down, found.bytes_up, found.bytes_kept) == (2 * BYTES, 2 * BYTES, BYTES)
    assert tree.size_in_bytes(PARAMS) == BYTES


def test_a_number_of_steps_known_only_at_run_time_is_not_made_up():
    loop = lambda x: jax.lax.while_loop(lambda i: i < x, lambda i: i + 1, 0)
    method = fed_avg(LOSS)
    unknown = method._replace(local=lambda c, x, data, key: method.local(c, tree.scale(loop(x["b"][0]), x), data, key))
    assert costs(unknown, PARAMS, EXAMPLE, 10).gradients == 20, "a loop without gradients does not matter"

    def local(c, x, data, key):
        return jax.lax.while_loop(lambda s: s[1]["b"][0] < 1, lambda s: method.local(s[0], s[1], data, key), (c, x))

    assert math.isnan(costs(method._replace(local=local), PARAMS, EXAMPLE, 10).gradients)
