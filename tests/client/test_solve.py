"""Inner solvers: each finds the minimum of a bowl, counts its gradients, and refuses an unknown name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.client.descend import descend
from apiece.client.solve import alternate, conjugate_gradients, optimizer_named, optimizers, slopes, solve
from apiece.engines.costs import gradients_in
from apiece.errors import UserError
from apiece.protocol import Data

KEY = jax.random.key(0)
CURVES = jnp.array([1.0, 3.0, 10.0])
Y = jax.random.normal(KEY, (5, 3))
DATA = Data(jnp.zeros(5), Y, np.int32(0), np.int32(4), 5)
MEAN = Y[:4].mean(0)


def loss(w, batch, key):
    """Curvatures 1, 3 and 10 around the client's mean; the dot product couples nothing."""
    return (batch.weight * ((w - batch.y) ** 2 @ CURVES) / 2).sum() / batch.weight.sum()


@pytest.mark.parametrize(("solver", "steps", "lr"), [("gradient", 200, 0.1), ("cg", 3, 9.9), ("adam", 300, 0.1)])
def test_every_solver_finds_the_minimum(solver, steps, lr):
    got = solve(loss, jnp.ones(3), DATA, KEY, solver=solver, steps=steps, lr=lr, batch=0)
    np.testing.assert_allclose(got, MEAN, atol=1e-4)


def test_conjugate_gradients_stay_where_they_arrived():
    for start, steps in ((jnp.ones(3), 30), (MEAN, 3)):
        np.testing.assert_allclose(conjugate_gradients(loss, start, DATA, KEY, steps=steps), MEAN, atol=1e-5)


def test_conjugate_gradients_go_through_many_examples():
    y = jax.random.normal(KEY, (600, 3))
    many = Data(jnp.zeros(600), y, np.int32(0), np.int32(590), 600)
    np.testing.assert_allclose(conjugate_gradients(loss, jnp.ones(3), many, KEY, steps=3), y[:590].mean(0), atol=1e-4)


def test_conjugate_gradients_do_not_move_where_nothing_bends_up():
    for shape in (lambda w, batch, key: w.sum(), lambda w, batch, key: -(w**2).sum()):
        assert (conjugate_gradients(shape, jnp.ones(3), DATA, KEY, steps=3) == 1).all()


def test_conjugate_gradients_on_a_batch_use_one_batch():
    flat = Data(jnp.zeros(2), jnp.array([[0.0] * 3, [1.0] * 3]), 0, 2, 2)
    got = conjugate_gradients(loss, jnp.full(3, 5.0), flat, KEY, steps=3, batch=1)
    assert any(np.allclose(got, y, atol=1e-5) for y in (0, 1))


@pytest.mark.parametrize(("solver", "count"), [("gradient", 3), ("cg", 4), ("adam", 3)])
def test_gradients_are_counted(solver, count):
    work = lambda w: solve(loss, w, DATA, KEY, solver=solver, steps=3, lr=0.1, batch=0)
    assert gradients_in(jax.make_jaxpr(work)(jnp.ones(3)).jaxpr) == count


def test_slopes_draw_what_descend_draws():
    for how in ({}, {"epochs": 1}):
        slope, w = slopes(DATA, KEY, batch=2, **how), jnp.ones(3)
        for k in range(2):
            w = w - 0.1 * slope(k, loss, w)
        np.testing.assert_allclose(w, descend(loss, jnp.ones(3), DATA, KEY, steps=2, lr=0.1, batch=2, **how), rtol=1e-6)


def test_alternation_steps_on_the_new_own_part():
    bowl = lambda p, batch, key: (p["a"] + 2 * p["b"] - 1) ** 2 / 2
    shared, own = {"a": jnp.float32(0), "b": None}, {"a": None, "b": jnp.float32(0)}
    shared, own = alternate(bowl, shared, own, DATA, KEY, steps=2, lr=0.5, own_lr=0.1, batch=0)
    a = b = 0.0
    for _ in range(2):
        b -= 0.1 * 2 * (a + 2 * b - 1)
        a -= 0.5 * (a + 2 * b - 1)
    np.testing.assert_allclose([shared["a"], own["b"]], [a, b], rtol=1e-6)


def test_known_optimizers_are_optaxs_that_need_a_learning_rate_alone():
    known = optimizers()
    assert {"adam", "adamw", "sgd", "rmsprop", "lion"} <= set(known)
    assert not {"lbfgs", "polyak_sgd", "chain", "clip", "noisy_sgd"} & set(known)


@pytest.mark.parametrize("name", ["lbfgs", "no such thing", "chain", "__name__"])
def test_an_unknown_solver_is_refused(name):
    with pytest.raises(UserError, match="unknown solver"):
        optimizer_named(name)
