"""FedEM: its golden numbers, what one component is, which models move, and how a mixture predicts."""

from functools import partial

import golden_mixture as golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_runs import half_squared_error

from apiece import methods
from apiece.engines.costs import costs
from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.methods.fed_em import Mixture
from apiece.protocol import Data

KEY = jax.random.key(0)
ENGINES = {"vectorized": partial(Vectorized, block=1), "remote": Remote}
EVERYBODY = np.arange(len(golden.SIZES))
close = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def run(engine, method, rounds, **options):
    """(The server after each round, the engine, where it stands.)"""
    build = lambda hyper, round: getattr(methods, method)(half_squared_error, **({"batch": 0} | options))
    machine = ENGINES[engine](build, golden.X, golden.Y, golden.OFFSETS)
    state, servers = machine.start(lambda key: jnp.array([0.5, 0.2]), 0), []
    for _ in range(rounds):
        state = machine.advance(state, 1)
        servers.append(np.asarray(state.server))
    return servers, machine, state


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
def test_fed_em_follows_its_trace(engine):
    options = dict(components=3, apart=1.0, steps=2, lr=0.2, pi_steps=4)
    start = run("vectorized", "fed_em", 0, **options)[2].server
    got, machine, state = run(engine, "fed_em", 3, **options)
    expected, kept, used = golden.fed_em(np.asarray(start), 3, 2, 0.2, 4)
    close(got, expected)
    close(state.rows, kept)
    personal = machine.personal(state, EVERYBODY)
    close(personal.pi, used)
    close(personal.models, np.tile(expected[-1], (3, 1, 1)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("engine", "batch"), [("vectorized", 2), ("remote", 0)])
def test_one_component_is_fed_avg_to_the_last_digit_with_the_same_batches(engine, batch):
    options = dict(steps=2, lr=0.2, batch=batch, server_lr=0.7)
    ours, machine, state = run(engine, "fed_em", 3, components=1, **options)
    theirs, _, _ = run(engine, "fed_avg", 3, **options)
    np.testing.assert_array_equal(np.array(ours)[:, 0], theirs)
    np.testing.assert_array_equal(machine.personal(state, EVERYBODY).pi, 1)


@pytest.mark.usefixtures("x64")
def test_the_lines_behind_the_examples_are_found_and_everybodys_shares_of_them():
    options = dict(components=2, apart=1.0, steps=5, lr=0.3, pi_steps=30)
    _, machine, state = run("vectorized", "fed_em", 60, **options)
    order = np.argsort(-np.asarray(state.server)[:, 0])
    np.testing.assert_allclose(np.asarray(state.server)[order], golden.LINES, atol=0.2)
    # Which line an example is from can be told by its distance to both, most of the time.
    far = np.abs(golden.X @ golden.LINES.T - golden.Y[:, None])
    nearer = far.argmin(1)
    shares = [np.bincount(mine, minlength=2) / len(mine) for mine in np.split(nearer, golden.OFFSETS[1:-1])]
    np.testing.assert_allclose(machine.personal(state, EVERYBODY).pi[:, order], shares, atol=0.25)


def squares(w, batch, key):
    return (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


MINE = Data(x=jnp.zeros(3), y=jnp.array([2.0, 4.0, 3.0]), start=0, size=3, capacity=5)


def test_a_model_that_explains_nothing_here_does_not_move_and_one_that_diverged_explains_nothing():
    method, third = methods.fed_em(squares), jnp.ones(3) / 3
    pi, update = method.local(third, jnp.array([1e3, 3.0, -1e3]), MINE, KEY)
    assert pi.tolist() == [0, 1, 0] and update.tolist() == [0, 0, 0]
    pi, update = method.local(third, jnp.array([1e3, 2.0, jnp.nan]), MINE, KEY)
    assert pi.tolist() == [0, 1, 0] and update[0] == 0 and update[1] > 0


def test_the_names_of_the_models_do_not_matter():
    method, x, turned = methods.fed_em(squares), jnp.array([1.0, 2.5, 4.0]), jnp.array([2, 0, 1])
    third = jnp.ones(3) / 3
    (pi, update), (elsewhere, same) = (method.local(third, x[at], MINE, KEY) for at in (jnp.arange(3), turned))
    np.testing.assert_allclose(elsewhere, pi[turned], rtol=1e-6)
    np.testing.assert_allclose(same, update[turned], rtol=1e-5)


def test_probabilities_of_classes_are_mixed_and_numbers_averaged():
    pi, outputs = jnp.array([0.2, 0.8]), jnp.array(np.random.default_rng(0).normal(size=(2, 4, 3)), jnp.float32)
    say = lambda label: methods.fed_em(squares).predict(lambda j, x: outputs[j], Mixture(jnp.arange(2), pi, label), ())
    each = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(say(jnp.int32(0))), 0.2 * each[0] + 0.8 * each[1], rtol=1e-5)
    mean = 0.2 * np.asarray(outputs[0]) + 0.8 * np.asarray(outputs[1])
    for numbers in (jnp.zeros(3), jnp.zeros(3, int)):  # counts are whole numbers, and no classes
        np.testing.assert_allclose(say(numbers), mean, rtol=1e-5)


def test_it_costs_gradients_and_bytes_for_each_model():
    method = methods.fed_em(squares, components=3, steps=5)
    found = costs(method, jnp.zeros(()), (jnp.zeros((1, 2)), jnp.zeros(1)), 40)
    assert found == (3 * 4, 3 * 4, 3 * 4, 3 * 5, 0, 0)


def test_a_client_of_unknown_size_is_refused():
    nobody = Data(MINE.x, MINE.y, 0, 3)
    with pytest.raises(UserError, match="'fed_em' has to know how many examples a client may have: give Data its capa"):
        methods.fed_em(squares).local(jnp.ones(3) / 3, jnp.zeros(3), nobody, KEY)
