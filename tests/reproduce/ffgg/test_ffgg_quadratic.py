"""FFGG's example: its clients, and the runs on them against NumPy programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.protocol import Batch
from apiece.reproduce.ffgg.example import Rivals, case, example, fine_tuned_first, whole_loss
from apiece.reproduce.ffgg.private_quadratics import around, from_grams, loss
from apiece.reproduce.ffgg.quadratic import replies

pytestmark = pytest.mark.usefixtures("x64")

SMALL = dict(clients=3, shared=4, private=3)


def rows_of(consistent, n=20):
    """The clients' rows, drawn as the example draws them."""
    rng = np.random.default_rng(0)
    theta, clients = rng.random(4), []
    for _ in range(3):
        h, a, b, w = rng.random((n, 4)) / 4, rng.random((n, 4)) / 4, rng.random((n, 3)) / 3, rng.random(3)
        clients.append((h, a, b, *((h @ theta, a @ theta + b @ w) if consistent else (rng.random(n), rng.random(n)))))
    return clients


def best_private(client, theta):
    _, a, b, _, y = client
    return np.linalg.lstsq(b, y - a @ theta, rcond=None)[0]


def slope(client, theta, w):
    h, a, b, target, y = client
    return h.T @ (h @ theta - target) + a.T @ (a @ theta + b @ w - y)


@pytest.mark.parametrize("consistent", [True, False])
def test_the_products_say_what_the_rows_say(consistent):
    made, clients = example(20, consistent, **SMALL), rows_of(consistent)
    theta = np.random.default_rng(1).standard_normal(4)
    pulls = np.array([slope(client, theta, best_private(client, theta)) for client in clients])
    j, c = made.f.tuned()
    np.testing.assert_allclose(j @ theta - c, pulls, atol=1e-12)
    np.testing.assert_allclose(replies(made.f.whitened(), theta), pulls, atol=1e-12)
    assert (np.abs(j @ made.theta - c).max() < 1e-12) == consistent


def test_the_whole_loss_has_the_gradient_of_both_parts():
    made, client = example(20, False, **SMALL), rows_of(False)[1]
    x = np.random.default_rng(1).standard_normal(7)
    batch = Batch(jnp.asarray(made.curvature[1:2]), jnp.asarray(made.force[1:2]), jnp.ones(1))
    _, a, b, _, y = client
    expected = np.concatenate([slope(client, x[:4], x[4:]), b.T @ (a @ x[:4] + b @ x[4:] - y)])
    np.testing.assert_allclose(jax.grad(whole_loss)(jnp.asarray(x), batch, None), expected, atol=1e-12)


@pytest.mark.parametrize(("solver", "steps"), [("gradient", 0), ("gradient", 7), ("cg", 2)])
def test_a_run_is_that_of_the_rows(solver, steps):
    problem, clients = case(example(20, False, **SMALL).f), rows_of(False)
    lr, inner_lr, theta = 1 / problem.smoothness, 1 / problem.private_smoothness, np.zeros(4)

    def tuned(client):
        _, a, b, _, y = client
        if not steps:
            return best_private(client, theta)
        w, left = np.zeros(3), b.T @ (y - a @ theta)
        along = left
        for _ in range(steps):
            if solver == "gradient":
                w = w + inner_lr * b.T @ (y - a @ theta - b @ w)
                continue
            curved = b.T @ b @ along
            size = left @ left / (along @ curved)
            w, new = w + size * along, left - size * curved
            along, left = new + new @ new / (left @ left) * along, new
        return w

    for _ in range(5):
        theta = theta - lr * np.mean([slope(client, theta, tuned(client)) for client in clients], axis=0)
    course = fine_tuned_first([problem, problem.from_optimum()], 5, steps, solver)
    assert course.length[0, 5] == pytest.approx(problem.length(theta), rel=1e-8)
    assert course.length[1, 0] < 1e-12  # the second one starts at the optimum, and leaves it unless solves are exact
    assert (course.length[1, 5] < 1e-12) == (not steps)


def test_private_coordinates_may_be_scaled_and_the_start_moved():
    f, theta = example(20, False, **SMALL).f, np.random.default_rng(1).standard_normal(4)
    j, c = f.tuned()
    for same in (f.whitened(), f.moved(theta)):
        np.testing.assert_allclose(same.tuned()[0], j, atol=1e-12)
    np.testing.assert_allclose(f.moved(theta).tuned()[1], c - j @ theta, atol=1e-12)
    slopes = (f.worth(theta + 1e-5) - f.worth(theta - 1e-5)) / 2e-5
    np.testing.assert_allclose(slopes, (j @ theta - c).sum(-1), atol=1e-8)


def test_the_loss_is_the_one_of_the_full_private_curvature():
    rng = np.random.default_rng(0)
    root, theta, w = rng.standard_normal((5, 5)), rng.standard_normal(3), rng.standard_normal(2)
    gram, force = root @ root.T, rng.standard_normal(5)
    turn = np.linalg.eigh(gram[3:, 3:])[1]
    f = from_grams(gram[:3, :3], gram[:3, 3:], gram[3:, 3:], force[:3], force[3:])
    batch = Batch(*jax.tree.map(jnp.asarray, f.examples()), jnp.ones(1))
    x = np.concatenate([theta, w])
    found = loss({"theta": jnp.asarray(theta), "w": jnp.asarray(turn.T @ w)}, batch, None)
    assert float(found) == pytest.approx(x @ gram @ x / 2 - force @ x, rel=1e-12)


def test_clients_around_an_optimum_pull_towards_it():
    rng = np.random.default_rng(0)
    j, optimum, theta = np.diag([1.0, 2.0]), rng.standard_normal(2), rng.standard_normal(2)
    found, c = around(optimum, j, rng.standard_normal((2, 3))).tuned()
    np.testing.assert_allclose(found @ theta - c, j @ (theta - optimum), atol=1e-12)


def test_the_published_constants_at_a_thousand_rows():
    problem = case(example(1000, True).f)
    assert problem.smoothness == pytest.approx(2.545968, abs=5e-7)
    assert np.linalg.norm(problem.c.mean(0)) == pytest.approx(13.87, rel=5e-4)


def test_a_rival_shares_the_private_part_too():
    made = example(20, False, **SMALL)
    whole = Rivals(made.curvature, made.force)
    lr, x = 1 / whole.smoothness, np.zeros(7)
    for _ in range(4):
        x = x - lr * (made.curvature @ x - made.force).mean(0)
    found = whole.thetas(whole.engine("fed_avg", block=2, steps=1, lr=lr), lambda server: server, 4)
    np.testing.assert_allclose(found[-1], x, atol=1e-12)  # seven parameters: all of them are within the first hundred
