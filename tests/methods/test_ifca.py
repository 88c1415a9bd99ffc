"""IFCA: its golden trace, two groups that are found exactly, and where it meets FedAvg."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import pooled_optimum
from golden_groups import B6, COUNTS, GROUP, H6, choose, ifca
from quadratic_runs import ENGINES, trace

from apiece import fit, methods, tree
from apiece.data import digits
from apiece.engines.costs import costs
from apiece.methods.ifca import start_apart
from apiece.protocol import Cohort, Data

close = lambda actual, expected, tolerance=1e-6: np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)


def run(engine, rounds, **options):
    return trace(engine, "ifca", H6, B6, rounds, counts=COUNTS, **options)


def a_start(**options):
    return run("vectorized", 0, **options).server[0]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("groups", [2, 3])
def test_ifca_follows_its_trace(engine, groups):
    got = run(engine, 3, groups=groups, steps=2, lr=0.1)
    expected, _ = ifca(H6, B6, COUNTS, a_start(groups=groups), 3, 2, 0.1)
    close(got.server, expected)
    close(got.models[-1], [expected[-1][choose(h, b, expected[-1])] for h, b in zip(H6, B6, strict=True)])


@pytest.mark.usefixtures("x64")
def test_two_obvious_groups_are_found_and_each_ends_at_the_optimum_of_its_own():
    got = run("vectorized", 200, steps=1, lr=0.5, every=200)
    for group in (0, 1):
        mine = group == GROUP
        optimum = pooled_optimum(H6[mine], B6[mine], COUNTS[mine] / COUNTS[mine].sum())
        close(got.models[-1][mine], np.tile(optimum, (mine.sum(), 1)), 1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
def test_one_group_is_fed_avg_to_the_last_digit(engine):
    ours = run(engine, 3, groups=1, steps=2, lr=0.1, server_lr=0.7)
    theirs = trace(engine, "fed_avg", H6, B6, 3, counts=COUNTS, steps=2, lr=0.1, server_lr=0.7)
    np.testing.assert_array_equal(np.array(ours.server)[:, 0], theirs.server)
    np.testing.assert_array_equal(ours.models, theirs.models)


def test_one_group_draws_the_batches_of_fed_avg():
    clients = digits(clients=6)
    ours, theirs = (
        fit(name, federation=clients, rounds=3, options=given)
        for name, given in (("ifca", {"groups": 1}), ("fed_avg", {}))
    )
    jax.tree.map(np.testing.assert_array_equal, ours.personal("3"), theirs.personal("3"))


def squares(w, batch, key):
    return (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


MINE = Data(x=jnp.zeros(3), y=jnp.array([2.0, 4.0, 3.0]), start=0, size=3, capacity=3)
KEY = jax.random.key(0)


def test_the_names_of_the_groups_do_not_matter():
    method, x, turned = methods.ifca(squares, groups=3), jnp.array([-5.0, 2.5, 9.0]), jnp.array([2, 0, 1])
    (_, (chosen, update)), (_, (elsewhere, same)) = (
        method.local((), x[at], MINE, KEY) for at in (jnp.arange(3), turned)
    )
    assert chosen.tolist() == [0, 1, 0] and elsewhere.tolist() == chosen[turned].tolist() and update == same
    assert method.personal((), x, MINE, KEY) == method.personal((), x[turned], MINE, KEY) == 2.5
    replies, cohort = (jnp.eye(3), jnp.array([1.0, 2.0, 3.0])), Cohort(jnp.arange(3), jnp.ones(3), jnp.zeros(3, int), 3)
    merged = method.merge(x, replies, cohort, KEY)
    other = method.merge(x[turned], (replies[0][:, turned], replies[1]), cohort, KEY)
    np.testing.assert_array_equal(other, merged[turned])


def test_a_group_that_nobody_chose_stays_and_one_that_diverged_is_not_chosen():
    method, x = methods.ifca(squares, groups=3), jnp.array([1.0, jnp.nan, 7.0])
    cohort = Cohort(jnp.arange(2), jnp.array([1.0, 3.0]), jnp.zeros(2, int), 2)
    chosen = jax.nn.one_hot(jnp.array([0, 0]), 3)
    after = method.merge(x, (chosen, jnp.array([4.0, 8.0])), cohort, KEY)
    np.testing.assert_array_equal(after, [8.0, np.nan, 7.0])
    assert method.local((), x, MINE, KEY)[1][0].tolist() == [1, 0, 0]


def test_groups_start_around_the_initial_model_as_far_as_its_numbers_scatter():
    params = {"w": 5 + 3 * jax.random.normal(KEY, (40, 50)), "b": jnp.zeros(1000)}
    x = start_apart(params, KEY, groups=4, apart=0.1)
    for leaf, scatter in (("w", 3.0), ("b", 1.0)):
        close(x[leaf].mean(0), params[leaf], 1e-5)
        # The mean of four is taken off each: a factor sqrt(3/4).
        away = np.asarray(x[leaf] - params[leaf]).std(axis=tuple(range(1, x[leaf].ndim)))
        np.testing.assert_allclose(away, 0.1 * scatter * np.sqrt(3 / 4), rtol=0.05)
    jax.tree.map(np.testing.assert_array_equal, tree.take(start_apart(params, KEY, 1, 0.1), 0), params)


def test_to_choose_costs_no_gradients():
    example = jnp.zeros((1, 2)), jnp.zeros(1)
    ours, theirs = (
        costs(method, jnp.zeros(()), example, 40)
        for method in (methods.ifca(squares, groups=3, steps=5), methods.fed_avg(squares, steps=5))
    )
    assert (ours.gradients, ours.gradients_personal) == (theirs.gradients, theirs.gradients_personal) == (5, 0)
    assert (ours.bytes_down, ours.bytes_up, ours.bytes_kept) == (3 * 4, 4 + 3 * 4, 0)
