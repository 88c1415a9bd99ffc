"""FedALA: its golden numbers, fine-tuned FedAvg where its weights stay at 1, and where weights go."""

import golden_classes as golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from class_runs import ENGINES, LOSS, run, start

from apiece import methods
from apiece.engines.costs import costs
from apiece.errors import UserError
from apiece.methods.fed_ala import Own
from apiece.protocol import Data

KEY = jax.random.key(0)
close = lambda actual, expected: np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
def test_fed_ala_follows_its_program(engine):
    options = dict(steps=2, lr=0.5, ala_steps=3, ala_lr=20.0, ala_share=0.6)
    server, models, rows = run(engine, methods.fed_ala, 3, **options)
    (a, w), own, weights, used = golden.fed_ala(3, **options)
    assert 0 < np.mean(weights) < 1  # some were learned
    close(server["hidden"]["w"], a)
    close(server["out"]["w"], w)
    close(rows.v["out"]["w"], own)
    close(rows.w["out"]["w"], weights)
    close(models["hidden"]["w"], [ya for ya, _ in used])
    close(models["out"]["w"], [yw for _, yw in used])


@pytest.mark.usefixtures("x64")
def test_with_weights_that_stay_at_one_it_is_fine_tuned_fed_avg_to_the_last_digit():
    options = dict(steps=2, lr=0.2, batch=2)
    ours = run("vectorized", methods.fed_ala, 3, ala_lr=0.0, **options)[:2]
    theirs = run("vectorized", methods.ftfa, 3, tune_epochs=None, tune_steps=2, tune_lr=0.2, **options)[:2]
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def squares(p, batch, key):
    away = (p["a"] - 1) ** 2 + (p["b"] - batch.y) ** 2
    return (batch.weight * away).sum() / batch.weight.sum()


MINE = Data(x=jnp.zeros(4), y=jnp.array([4.0, 4.0, 4.0, 9.0]), start=0, size=4, capacity=4)


@pytest.mark.parametrize(("own", "weight"), [(4.0, 0.0), (-4.0, 1.0), (8.0, 0.5)])
def test_weights_go_where_the_first_examples_are_best_met_and_stay_within_zero_and_one(own, weight):
    """The shared number is 0 and 4 is wanted: an own 4 is taken, an own -4 is left, of an own 8 it is half."""
    method = methods.fed_ala(squares, adaptive="b", ala_lr=0.01, ala_steps=300, ala_share=0.75, batch=0, steps=1)
    own = Own({"a": None, "b": jnp.array(own)}, {"a": None, "b": jnp.array(1.0)})
    after, _ = method.local(own, {"a": jnp.array(0.0), "b": jnp.array(0.0)}, MINE, KEY)
    np.testing.assert_allclose(after.w["b"], weight, atol=1e-3)


def test_all_of_a_model_may_be_adaptive_and_a_part_that_it_has_not_is_refused():
    everything = methods.fed_ala(LOSS, adaptive="hidden, out").enroll(start(), start(), None, KEY)
    assert jax.tree.structure(everything.w) == jax.tree.structure(start())
    with pytest.raises(UserError, match=r"no parameter is adaptive under adaptive = 'outptu' \(did you mean 'output'"):
        methods.fed_ala(LOSS, adaptive="outptu").enroll(start(), start(), None, KEY)


def test_it_costs_a_gradient_for_each_step_on_weights_too():
    example = jnp.array(golden.X[:1], jnp.float32), jnp.array(golden.Y[:1])
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), start())
    found = costs(methods.fed_ala(LOSS, ala_steps=4, steps=5), params, example, 40)
    whole, upper = 4 * (golden.A.size + golden.W.size), 4 * golden.W.size
    assert found == (whole, whole, 2 * upper, 9, 9, 0)
