"""The two-stage method: its traces by NumPy, and the methods that its stages are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_runs import on_quadratics
from golden import B, H, centre_problem, fed_clup, pooled_optimum, prox, random_problem
from golden_clup import chen

from apiece.methods.chen_two_stage import chen_two_stage
from apiece.methods.fed_clup import fed_clup as fed_clup_method
from apiece.models import objective, quadratic
from apiece.protocol import Cohort, Data

pytestmark = pytest.mark.usefixtures("x64")

STAGE_1 = dict(steps=3, lr=1 / 3.5, lam=0.5, gamma=3.5 / 3)
SOLVED = dict(tune_epochs=None, tune_steps=200, tune_lr=0.3)


def close(actual, expected, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def test_without_ball_and_decay_the_first_stage_is_fed_clup():
    """The same centre, round by round; the personal models are another matter: stage 2 starts from the centre."""
    got = on_quadratics(chen_two_stage, H, B, [1] * 3, batch=0, decay=0.0, tune_lam=1.5, **STAGE_1, **SOLVED)
    centres = [x for x, _ in got.server]
    close(centres, fed_clup(H, B, 3, **STAGE_1)[0])
    close(centres, [(0.037982, 0.325397), (0.030882, 0.536886), (0.015362, 0.668352)], 1.5e-6)
    close(centres, on_quadratics(fed_clup_method, H, B, [1] * 3, batch=0, **STAGE_1).server, 1e-12)
    close(got.models[-1], [prox(H[i], B[i], 1.5, centres[-1]) for i in range(3)])
    assert got.server[-1][1] == 3


@pytest.mark.parametrize("radius", [None, 0.5])
def test_steps_become_smaller_and_end_inside_the_ball(radius):
    options = dict(decay=0.5, radius=radius, **STAGE_1)
    got = on_quadratics(chen_two_stage, H, B, [1] * 4, batch=0, **options)
    expected = chen(H, B, 4, **options)
    centres = np.array([x for x, _ in got.server])
    close(centres, expected)
    beyond = np.linalg.norm(chen(H, B, 4, **(options | dict(radius=None)))[-1])
    assert (np.linalg.norm(centres[-1]) < 0.5) == (radius is not None) and beyond > 0.5


def test_without_a_server_step_given_the_centre_is_the_mean_of_the_clients_models():
    options = dict(lam=0.5, steps=3, lr=1 / 3.5, decay=0.0)
    got = on_quadratics(chen_two_stage, H, B, [2], batch=0, **options)
    close(got.server[-1][0], chen(H, B, 2, gamma=2.0, radius=None, **options)[-1])


def test_the_second_stage_from_the_pooled_optimum_is_ridge_tuning():
    erm = pooled_optimum(H, B, np.array([0.5, 0.25, 0.25]))
    loss = lambda w, batch, key: jnp.vdot(w, batch.x[0] @ w) / 2 - batch.y[0] @ w
    method = chen_two_stage(loss, tune_lam=0.5, batch=0, **SOLVED)
    message = method.message((jnp.asarray(erm), jnp.int32(7)), 0)
    data = [Data(jnp.asarray(H), jnp.asarray(B), i, 1, 1) for i in range(3)]
    tuned = [method.personal(jnp.zeros(2), message, mine, jax.random.key(0)) for mine in data]
    close(tuned, [prox(H[i], B[i], 0.5, erm) for i in range(3)])
    close(tuned, [(0.885315, 0.960373), (-0.075175, 0.652098), (-0.524476, 0.983017)], 1.5e-6)


def test_a_start_outside_the_ball_is_brought_in_and_zero_stays_where_it_is():
    method = chen_two_stage(lambda w, batch, key: 0.0, radius=1.0)
    close(method.init(jnp.array([3.0, 4.0]), None)[0], [0.6, 0.8])
    close(method.init(jnp.zeros(2), None)[0], [0.0, 0.0])


def test_fed_clups_local_errors_depend_on_how_far_the_centre_was():
    """A printed bound by the local models' first errors alone is false: they start at the solution, and leave it."""
    h, b = random_problem(seed=0, clients=10, examples=60, features=8, mu=0.1, smoothness=1.0, radius=0.5)
    solution, own = centre_problem(h, b, np.ones(10) / 10, 1.0)
    method = fed_clup_method(objective(quadratic(8), "custom").loss, lam=1.0, smoothness=1.0, convexity=0.1, batch=0)
    client = lambda w, x, i: method.local(w, x, Data(jnp.asarray(h), jnp.asarray(b), i, 1, 1), jax.random.key(0))
    everybody = jax.jit(jax.vmap(client, in_axes=(0, None, 0)))
    cohort = Cohort(jnp.arange(10), jnp.ones(10), jnp.zeros(10, jnp.int32), 10)
    x, w, errors = jnp.asarray(solution + 5), jnp.asarray(own), []
    for _ in range(3):
        w, replies = everybody(w, x, jnp.arange(10))
        x = method.merge(x, replies, cohort, None)
        errors.append(float(np.max(np.sum((w - own) ** 2, axis=1))))
    np.testing.assert_allclose(errors, (151.8, 82.5, 45.1), rtol=0, atol=0.051)
