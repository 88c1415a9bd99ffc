"""FFGG and Local FFGG: traces, the envelope theorem, the published least-squares example, and what is sent."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_partial import (
    TOY,
    Problem,
    best_private,
    conjugated,
    descended,
    descended_at_once,
    envelope,
    example_1,
    felt,
    transposed,
    worth,
)  # fmt: skip
from golden_partial import ffgg as golden_ffgg
from golden_partial import local_ffgg as golden_local_ffgg
from partial_runs import ENGINES, examples, loss, run, start_of

from apiece.errors import UserError
from apiece.methods import fed_avg, scaffold
from apiece.methods.ffgg import ffgg, starts
from apiece.methods.local_ffgg import local_ffgg
from apiece.models import mlp, objective
from apiece.models.adapter import adapted
from apiece.protocol import Data
from apiece.split import paths, split
from apiece.testing import check_method

ROUNDS = (0, 10, 100, 300, 600, 1000)
LEGS = (10, 90, 200, 300, 400)
EXACT = dict(private="w", solver="cg", start="zero")
STEPS = dict(private="w", solver="gradient", start="zero")
TUNED = dict(tune_epochs=None, tune_steps=100, tune_lr=0.25)


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def digits(actual, *printed):
    """Six printed digits: half a unit of the last, and the 1e-6 that is asked of us."""
    np.testing.assert_allclose(actual, np.array(printed), rtol=0, atol=1.5e-6)


def thetas(seen):
    return np.array([server["theta"] for server, _ in seen])


def reply_of(factory, f, i, theta, **options):
    x, y = (jax.tree.map(jnp.asarray, part) for part in examples(f))
    method, key = factory(loss, batch=0, **options), jax.random.key(0)
    message = {"theta": jnp.asarray(theta), "w": None}
    data = Data(x, y, i, 1, 1)
    return method.local(method.enroll(start_of(f, theta), message, data, key), message, data, key)[1]["theta"]


# Two clients, one shared and one private number.


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("engine", ENGINES)
class TestTraces:
    def test_exact_inner_solves(self, engine):
        seen = run(ffgg, TOY, (1, 1, 1), engine=engine, inner_steps=1, lr=0.2, **EXACT, **TUNED)
        close(thetas(seen), golden_ffgg(TOY, 3, 0.2, functools.partial(best_private, TOY)))
        digits(thetas(seen)[:, 0], -0.05, -0.0775, -0.092625)
        close(seen[-1][1]["theta"], np.tile(thetas(seen)[-1], (2, 1)))
        close(seen[-1][1]["w"], best_private(TOY, thetas(seen)[-1]))

    def test_two_gradient_steps_from_zero(self, engine):
        seen = run(ffgg, TOY, (1, 1, 1), engine=engine, inner_steps=2, inner_lr=0.25, lr=0.2, **STEPS)
        tuned = lambda theta: descended(TOY, theta, np.zeros((2, 1)), 2, 0.25)
        close(thetas(seen), golden_ffgg(TOY, 3, 0.2, tuned))
        digits(thetas(seen)[:, 0], 0.2125, 0.257656, 0.267252)

    def test_local_ffgg(self, engine):
        seen = run(local_ffgg, TOY, (1, 1, 1), engine=engine, inner_steps=1, inner_lr=0.25, steps=2, lr=0.1, **EXACT)
        exact = functools.partial(best_private, TOY)
        close(thetas(seen), golden_local_ffgg(TOY, 3, steps=2, lr=0.1, inner_lr=0.25, private=exact))
        digits(thetas(seen)[:, 0], -0.029375, -0.049001, -0.062114)


@pytest.mark.usefixtures("x64")
def test_the_gradients_at_zero():
    replies = [reply_of(ffgg, TOY, i, np.zeros(1), inner_steps=1, **EXACT)[0] for i in (0, 1)]
    digits(replies, -0.5, 1.0)
    close(replies, felt(TOY, np.zeros(1))[:, 0])


@pytest.mark.usefixtures("x64")
def test_local_ffgg_with_one_step_on_theta_alone_is_ffgg():
    once = run(local_ffgg, TOY, (3,), inner_steps=1, inner_lr=0.0, steps=1, lr=0.2, **EXACT)
    close(thetas(once), thetas(run(ffgg, TOY, (3,), inner_steps=1, lr=0.2, **EXACT)))


@pytest.mark.usefixtures("x64")
def test_clients_that_forget_change_nothing_unless_they_keep_w():
    options = dict(private="w", inner_steps=2, inner_lr=0.25, lr=0.2)
    for start, same in (("zero", True), ("initial", True), ("kept", False)):
        usual, forgot = (
            thetas(run(ffgg, TOY, (3,), stateless=stateless, start=start, **options)) for stateless in (False, True)
        )
        assert (np.abs(usual - forgot).max() < 1e-12) == same


@pytest.mark.usefixtures("x64")
def test_a_kept_w_removes_the_floor_of_few_inner_steps():
    optimum = np.linalg.solve(*(part.mean(0) for part in envelope(TOY)))
    options = dict(private="w", inner_steps=1, inner_lr=0.25, lr=0.1)
    kept, zero = (thetas(run(ffgg, TOY, (400,), start=start, **options))[0] for start in ("kept", "zero"))
    assert np.abs(kept - optimum) < 1e-8 < 1e-2 < np.abs(zero - optimum)


@pytest.mark.usefixtures("x64")
def test_the_inner_step_is_set_by_the_curvature_in_w():
    # Curvature 4 in w, but a cross term of 0.5 only: a step of 1 over the latter runs away.
    f = Problem(*(np.array(part) for part in ([[[2.0]]], [[[0.5]]], [[[4.0]]], [[1.0]], [[1.0]])))
    errors = [
        abs(
            reply_of(ffgg, f, 0, np.ones(1), inner_steps=40, inner_lr=1 / scale, **STEPS)[0] - felt(f, np.ones(1))[0, 0]
        )
        for scale in (4.0, 0.5)
    ]
    assert errors[0] < 1e-12 < 1e6 < errors[1]


# The published example: 32 clients, 100 shared and 50 private parameters.


@functools.cache
def example(n=1000, consistent=True):
    f, theta, phi = example_1(n, consistent)
    j, c = envelope(f)
    smoothness = np.linalg.eigvalsh(j)
    return f, theta, phi, (j.mean(0), c.mean(0)), smoothness[:, -1].max(), np.linalg.eigvalsh(f.B)[:, -1].max()


def whitened(f):
    """The same clients in private coordinates of curvature 1, where one gradient step of size 1 is exact."""
    inverse = np.linalg.inv(np.linalg.cholesky(f.B))
    same = np.broadcast_to(np.eye(f.B.shape[1]), f.B.shape).copy()
    return Problem(f.P, f.C @ transposed(inverse), same, f.t, np.matmul(inverse, f.r[..., None])[..., 0])


def lengths(n, consistent, found):
    j, c = example(n, consistent)[3]
    return np.array([np.linalg.norm(j @ theta - c) for theta in found])


def agree_with(n, consistent, got, golden, printed, atol=1e-6):
    np.testing.assert_allclose(got, golden, rtol=0, atol=atol)
    measured = lengths(n, consistent, got)
    np.testing.assert_allclose(measured, lengths(n, consistent, golden), rtol=1e-5)
    np.testing.assert_allclose(measured, printed, rtol=6e-4)


def test_the_example_is_the_published_one():
    f, theta, phi, (j, c), smoothness, private = example()
    assert smoothness == pytest.approx(2.545968, abs=5e-7)
    assert np.linalg.eigvalsh(envelope(f)[0])[:, 0].min() == pytest.approx(0.009460, abs=5e-7)
    assert private == pytest.approx(5.1001, abs=5e-5)
    np.testing.assert_allclose(np.linalg.solve(j, c), theta, atol=1e-8)
    assert np.linalg.norm(c) == pytest.approx(13.87, rel=5e-4)  # |F| before the first round
    # The printed constant, twice the larger of the two curvatures, is only an upper bound.
    top = lambda matrices: np.linalg.eigvalsh(matrices)[:, -1].max()
    printed = 2 * max(top(phi), top(envelope(f)[0] - phi))
    assert printed == pytest.approx(5.0470, abs=5e-5)
    assert smoothness < printed


@pytest.mark.usefixtures("x64")
def test_the_reply_is_the_gradient_of_what_is_left_after_tuning():
    f = example()[0]
    theta, direction = np.random.default_rng(1).random(100), np.random.default_rng(2).standard_normal(100)
    slope_of_worth = (worth(f, theta + 1e-4 * direction)[0] - worth(f, theta - 1e-4 * direction)[0]) / 2e-4
    assert slope_of_worth == pytest.approx(0.08761377, abs=1e-8)
    reply = reply_of(ffgg, f, 0, theta, inner_steps=50, **EXACT)
    assert float(reply @ direction) == pytest.approx(slope_of_worth, abs=1e-7)


@pytest.mark.thorough
@pytest.mark.optimized
@pytest.mark.usefixtures("x64")
def test_exact_ffgg_on_the_example():
    f, _, _, _, smoothness, _ = example()
    options = dict(private="w", start="zero", inner_steps=1, inner_lr=1.0, lr=1 / smoothness)
    got = thetas(run(ffgg, whitened(f), LEGS, **options))
    golden = golden_ffgg(f, 1000, 1 / smoothness, functools.partial(best_private, f))[np.array(ROUNDS[1:]) - 1]
    agree_with(1000, True, got, golden, [0.04611, 0.02592, 0.007234, 0.001075, 8.586e-5])


@pytest.mark.usefixtures("x64")
def test_gradient_steps_on_the_example_follow_the_program():
    f, _, _, _, smoothness, private = example()
    got = thetas(run(ffgg, f, (10,), inner_steps=100, inner_lr=1 / private, lr=1 / smoothness, **STEPS))
    golden = golden_ffgg(f, 10, 1 / smoothness, descended_at_once(f, 100, 1 / private))[-1:]
    agree_with(1000, True, got, golden, [0.04606])


AFTER_1000 = [(100, 1.033e-3), (200, 5.627e-4), (500, 1.241e-4)]


@pytest.mark.parametrize(("steps", "printed"), AFTER_1000)
def test_more_inner_steps_lower_the_floor_by_the_program(steps, printed):
    f, _, _, _, smoothness, private = example()
    golden = golden_ffgg(f, 1000, 1 / smoothness, descended_at_once(f, steps, 1 / private))[-1:]
    np.testing.assert_allclose(lengths(1000, True, golden), printed, rtol=6e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("steps", "printed"), AFTER_1000[:1])
def test_gradient_steps_on_the_example(steps, printed):
    f, _, _, _, smoothness, private = example()
    got = thetas(run(ffgg, f, (1000,), inner_steps=steps, inner_lr=1 / private, lr=1 / smoothness, **STEPS))
    golden = golden_ffgg(f, 1000, 1 / smoothness, descended_at_once(f, steps, 1 / private))[-1:]
    agree_with(1000, True, got, golden, [printed])


@pytest.mark.usefixtures("x64")
def test_conjugate_gradients_leave_a_floor_that_falls_with_each_step():
    f, theta, _, _, smoothness, _ = example()
    floors = []
    for steps in (1, 3):
        got = thetas(run(ffgg, f, (20,), theta=theta, inner_steps=steps, lr=1 / smoothness, **EXACT))
        close(got, golden_ffgg(f, 20, 1 / smoothness, lambda t: conjugated(f, t, steps), theta)[-1:])  # noqa: B023
        floors.append(lengths(1000, True, got)[0])
    assert floors[1] < floors[0] / 5


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_baselines_on_the_example():
    f, _, _, _, _, _ = example()
    whole = np.concatenate([np.concatenate([f.P, f.C], 2), np.concatenate([transposed(f.C), f.B], 2)], 1)
    lr = 1 / (np.linalg.eigvalsh(whole)[:, -1].max() * 100)
    for factory, options, printed in (
        (fed_avg, {}, [0.04051, 0.02751, 0.01549, 0.007468]),
        (scaffold, {"server_lr": 0.5}, [0.04463, 0.03677, 0.02752, 0.01877]),
    ):
        seen = run(factory, f, (100, 200, 300, 400), steps=100, lr=lr, **options)
        got = [(server[0] if factory is scaffold else server)["theta"] for server, _ in seen]
        np.testing.assert_allclose(lengths(1000, True, got), printed, rtol=6e-4)


FULL = [
    (True, 25.375420, [0.56166, 0.47307, 0.26137, 0.069955, 0.0096965], [3.66e-4, 2.05e-5]),
    (False, 25.378428, [0.53767, 0.19655, 0.10853, 0.029009, 0.0040127], [5.69e-4, 4.56e-5]),
]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("consistent", "constant", "exact", "floors"), FULL)
def test_the_example_at_full_size(consistent, constant, exact, floors):
    f, _, _, (j, c), smoothness, _ = example(10000, consistent)
    assert smoothness == pytest.approx(constant, abs=5e-7)
    options = dict(private="w", start="zero", inner_steps=1, inner_lr=1.0, lr=1 / smoothness)
    got = thetas(run(ffgg, whitened(f), (1, 9, 90, 200, 300), **options))
    np.testing.assert_allclose(lengths(10000, consistent, got), exact, rtol=6e-5)
    optimum = np.linalg.solve(j, c)
    inexact = functools.partial(run, ffgg, f, theta=optimum, lr=1 / smoothness, **EXACT)
    for steps, floor in zip((2, 3), floors, strict=True):
        got = thetas(inexact((300,), inner_steps=steps))
        assert lengths(10000, consistent, got)[0] == pytest.approx(floor, rel=1e-2)
    # With a single product, targets that are noise leave no floor but a chaos: rounding decides its numbers.
    last = lengths(10000, consistent, thetas(inexact((292, *(1,) * 8), inner_steps=1)))
    if consistent:
        assert last[-1] == pytest.approx(5.0e-3, rel=1e-2)
    assert (last.max() > 3 * last.min()) == (not consistent)
    assert (np.linalg.norm(felt(f, optimum), axis=1).max() < 1e-9) == consistent


# What leaves a client.


@pytest.mark.parametrize("factory", [ffgg, local_ffgg])
@pytest.mark.parametrize("private", ["output", "input", "adapter", "not output", "model/out/b"])
def test_nothing_private_is_sent(factory, private):
    model = adapted(mlp((6,), 3, hidden=(5,)), rank=2)
    params = model.init(jax.random.key(0))
    judge = objective(model, "classification")
    key, data = jax.random.key(0), Data(jnp.ones((4, 6)), jnp.zeros(4, int), 0, 4, 4)
    method = factory(judge.loss, private=private, inner_steps=2, tune_epochs=1)
    message = jax.eval_shape(lambda: method.message(method.init(params, key), 0))
    client = jax.eval_shape(method.enroll, params, message, data, key)
    client, reply = jax.eval_shape(method.local, client, message, data, key)
    shared, own = split(params, private)
    assert paths(message) == paths(reply) == paths(shared)
    assert not set(paths(own)) & set(paths(reply))
    assert paths(jax.eval_shape(method.personal, client, message, data, key)) == paths(params)


def test_a_random_start_has_the_law_of_the_initial_values():
    kept = {"b": None, "w": jnp.arange(12.0).reshape(3, 4)}
    first, second = (starts("ffgg", "random")(kept, jax.random.key(k))["w"] for k in (0, 1))
    assert first.shape == (3, 4)
    assert sorted(first.ravel().tolist()) == list(range(12))
    assert (first != second).any()


def test_a_wrong_word_is_named():
    with pytest.raises(UserError, match=r"'start' of method 'ffgg'.*did you mean 'zero'"):
        ffgg(loss, start="zeros")
    with pytest.raises(UserError, match="unknown solver 'adm': did you mean 'adam'"):
        reply_of(ffgg, TOY, 0, np.zeros(1, np.float32), private="w", solver="adm")


@pytest.mark.parametrize("solver", ["cg", "adam"])
def test_other_solvers_keep_shapes_and_dtypes(solver):
    checks = ["states_keep_their_shapes", "hyper_parameters_may_be_traced"]
    options = dict(solver=solver, inner_steps=2, start="kept")
    assert len(check_method(ffgg, engines=(), options=options, checks=checks)) == 2
