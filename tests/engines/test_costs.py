"""Costs: gradients counted in the traced program, bytes from shapes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import tree
from apiece.engines.costs import costs, visit_costs
from apiece.methods import fed_avg, ftfa, pfedme, scaffold
from apiece.wrap import staged

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


def either(dear, cheap, takes_dear):
    """A method whose clients go one of two ways."""
    local = lambda c, x, data, key: jax.lax.cond(
        takes_dear(data, key), lambda: dear.local(c, x, data, key), lambda: cheap.local(c, x, data, key)
    )
    return dear._replace(local=local)


DEAR, CHEAP = fed_avg(LOSS, steps=5), fed_avg(LOSS, steps=1)


def test_of_two_ways_the_one_is_counted_that_the_clients_size_tells():
    method = either(DEAR, CHEAP, lambda data, key: jnp.asarray(data.size) % 20 > 10)
    assert [costs(method, PARAMS, EXAMPLE, size).gradients for size in (5, 19, 25)] == [1, 5, 1]


def test_of_two_ways_the_dearer_one_is_counted_where_only_the_run_tells():
    by_coin = either(DEAR, CHEAP, lambda data, key: jax.random.bernoulli(key, 1e-9))
    assert costs(by_coin, PARAMS, EXAMPLE, 5).gradients == 5
    both = visit_costs(lambda hyper, round: either(DEAR, CHEAP, lambda data, key: round > 3), {}, PARAMS, EXAMPLE,
                       np.array([5]), {})  # fmt: skip
    assert both[5].gradients == 5, "a later round may go the other way"


def test_of_two_ways_the_one_is_counted_that_the_options_tell():
    build, known = lambda hyper, round: either(DEAR, CHEAP, lambda data, key: hyper["lam"] > 0.5), {}
    found = [visit_costs(build, {"lam": lam}, PARAMS, EXAMPLE, np.array([5]), known)[5] for lam in (0.1, 1.0, 0.1)]
    assert [each.gradients for each in found] == [1, 5, 1]


def test_nobody_works_in_two_stages_at_once():
    assert costs(staged(fed_avg(LOSS, steps=2), fed_avg(LOSS, steps=5), 3), PARAMS, EXAMPLE, 10).gradients == 5
