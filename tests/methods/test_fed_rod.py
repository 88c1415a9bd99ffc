"""Fed-RoD: its golden numbers, FedAvg where classes are balanced and heads stay, and what two heads say together."""

import golden_classes as golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from class_runs import ENGINES, LOSS, NETWORK, run

from apiece import methods, tree
from apiece.engines.costs import costs
from apiece.errors import UserError
from apiece.methods.fed_rod import count_classes
from apiece.models import char_lstm, linear, mlp, quadratic
from apiece.protocol import Data

KEY = jax.random.key(0)
close = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
def test_fed_rod_follows_its_program(engine):
    server, models, rows = run(engine, methods.fed_rod, 3, model=NETWORK, steps=2, lr=0.2, head_lr=0.3)
    (a, w), own = golden.fed_rod(3, 2, 0.2, 0.3)
    close(server["hidden"]["w"], a)
    close(server["out"]["w"], w)
    close(rows["out"]["w"], own)
    close(models["hidden"]["w"], np.tile(a, (3, 1, 1)))
    close(models["out"]["w"], w + np.array(own))


@pytest.mark.usefixtures("x64")
def test_where_classes_are_balanced_and_heads_stay_it_is_fed_avg_to_the_last_digit():
    labels = np.array([0, 1, 0, 1] + [2, 2, 2] + [1, 1, 0, 0, 3, 3])
    options = dict(steps=2, lr=0.2, batch=2, server_lr=0.7, y=labels)
    ours = run("vectorized", methods.fed_rod, 3, model=NETWORK, head_lr=0.0, **options)[:2]
    theirs = run("vectorized", methods.fed_avg, 3, **options)[:2]
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_a_class_counts_as_much_however_few_its_examples_are():
    """An example ten times is that example once, for the shared model; one's own head sees the difference."""
    network = mlp((4,), 3, hidden=(5,))
    rng = np.random.default_rng(0)
    x, y = jnp.array(rng.normal(size=(3, 4)), jnp.float32), jnp.array([0, 1, 2])
    often = jnp.array([0] * 10 + [1, 2])
    few, many = Data(x, y, 0, 3, 3), Data(x[often], y[often], 0, 12, 12)
    loss = lambda params, batch, key: (
        -(batch.weight * jax.nn.log_softmax(network.apply(params, batch.x))[jnp.arange(len(batch.y)), batch.y]).sum()
        / batch.weight.sum()
    )
    method, params = methods.fed_rod(loss, model=network, steps=3, batch=0), network.init(KEY)
    v = method.enroll(params, params, few, KEY)
    (mine, update), (other, same) = (method.local(v, params, data, KEY) for data in (few, many))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), update, same)
    assert float(tree.norm(tree.sub(mine, other))) > 1e-3


def test_a_client_predicts_by_the_sum_of_both_heads():
    network = mlp((4,), 3, hidden=(5,))
    params = network.init(KEY)
    own = {"w": jnp.ones((3, 5)) * jnp.arange(3)[:, None], "b": jnp.array([0.5, 0.0, -0.5])}
    mine = methods.fed_rod(LOSS, model=network).personal(
        {"hidden0": {"w": None, "b": None}, "out": own}, params, None, KEY
    )
    x = jnp.array(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
    expected = network.apply(params, x) + network.features(params, x) @ own["w"].T + own["b"]
    np.testing.assert_allclose(network.apply(mine, x), expected, rtol=1e-5, atol=1e-5)


def test_classes_are_counted_in_chunks():
    y = np.random.default_rng(0).integers(0, 5, 900)
    found = count_classes(Data(x=None, y=jnp.array(y), start=100, size=599, capacity=700), 6)
    assert found.tolist() == np.bincount(y[100:699], minlength=6).tolist()


def test_the_own_head_is_kept_and_not_sent():
    network = mlp((4,), 3, hidden=(5,))
    params = network.init(KEY)
    loss = lambda params, batch, key: 0.0 * batch.weight.sum()
    example = np.zeros((1, 4), np.float32), np.zeros(1, int)
    found = costs(methods.fed_rod(loss, model=network, steps=5), params, example, 40)
    whole, head = 4 * (4 * 5 + 5 + 5 * 3 + 3), 4 * (5 * 3 + 3)
    assert found == (whole, whole, head, 2 * 5, 0, 0)


@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        (linear((4,)), np.zeros((2, 4), np.float32), np.zeros(2, np.float32)),
        (char_lstm(5, embed=2, width=3, layers=1), np.zeros((2, 4), int), np.zeros((2, 4), int)),
        (quadratic(4), np.zeros((2, 4, 4), np.float32), np.zeros((2, 4), np.float32)),
    ],
)
def test_what_has_no_class_is_refused(model, x, y):
    params = model.init(KEY)
    with pytest.raises(UserError, match="method 'fed_rod' is for examples of one class each"):
        methods.fed_rod(LOSS, model=model).enroll(params, params, Data(jnp.array(x), jnp.array(y), 0, 2, 2), KEY)
