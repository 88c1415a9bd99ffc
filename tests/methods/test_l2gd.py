"""L2GD and AL2SGD+: by recorded coins to 1e-6, and by their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_runs import engine_of, on_quadratics
from golden import B, H, centre_problem, random_problem
from golden_clup import al2sgd as al2sgd_program
from golden_clup import al2sgd_coins, l2gd_alpha
from golden_clup import l2gd as l2gd_program

from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.methods.al2sgd import al2sgd
from apiece.methods.l2gd import l2gd, rounds_of
from apiece.models import objective, quadratic
from apiece.protocol import Cohort
from apiece.theory import clup

COINS = (0, 0, 1, 0, 1)
U3 = np.ones(3) / 3
H6, B6 = random_problem(seed=5, clients=6, examples=30, features=4, mu=0.2, smoothness=1.0, radius=1.0)
H10, B10 = random_problem(seed=0, clients=10, examples=60, features=8, mu=0.1, smoothness=1.0, radius=0.5)

pytestmark = pytest.mark.usefixtures("x64")


def close(actual, expected, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def alone():
    return Cohort(jnp.zeros(1, jnp.int32), jnp.ones(1, jnp.float32), jnp.zeros(1, jnp.int32), jnp.int32(1))


def no_change():
    return jnp.zeros((1, 1)), jnp.zeros(1, jnp.float32)


def squared_error(models, solution):
    return np.mean(np.sum((models - solution) ** 2, axis=-1), axis=-1)


def test_l2gd_follows_the_recorded_coins():
    options = dict(lam=0.5, p=0.5, smoothness=3.0, batch=0, coins=COINS)
    got = on_quadratics(l2gd, H, B, [1, 1], counts=(2, 1, 1), **options)  # every client counts once
    assert l2gd_alpha(3, 3.0, 0.5, 0.5) == 0.25
    expected, asked = l2gd_program(H, B, lam=0.5, p=0.5, alpha=0.25, coins=COINS)
    close(got.models, expected[[2, 4]])  # a model is looked at with the pulls of the coming round
    close(got.models[-1], [(0.628361, 0.434504), (-0.005502, 0.251106), (-0.354115, 0.830948)], 1.5e-6)
    close(got.models[0], [(0.516011, 0.313657), (0.000386, 0.173611), (-0.273341, 0.721065)], 1.5e-6)
    assert got.server[-1].iterations == 4 and got.server[-1].communications == 2 == asked[-1]
    close(got.server[-1].x, expected[3].mean(0))


def test_the_step_size_is_the_inverse_of_the_printed_constant():
    """For clients ten times as steep the printed step, max(L/(1 - p), lam/p) / 2M, grows, and the run explodes."""
    coins = np.random.default_rng(0).random(300) < 0.5
    right, wrong = l2gd_alpha(3, 30.0, 0.5, 0.5), max(30.0 / 0.5, 0.5 / 0.5) / (2 * 3)
    options = dict(lam=0.5, p=0.5, batch=0, coins=coins.astype(float))
    rounds = [len(rounds_of(coins)) - 1]
    given = on_quadratics(l2gd, 10 * H, 10 * B, rounds, lr=right / 3, **options).models[-1]
    assert np.abs(given).max() < 2
    with np.errstate(all="ignore"):
        assert not np.abs(l2gd_program(10 * H, 10 * B, 0.5, 0.5, wrong, coins)[0][-1]).max() < 1e6


def test_a_constant_step_stops_in_a_neighbourhood():
    lam, p = 0.5, 1 / 3
    alpha = l2gd_alpha(6, 1.0, lam, p)
    coins = np.random.default_rng(0).random(6000) < p
    models, asked = l2gd_program(H6, B6, lam, p, alpha, coins)
    _, solution = centre_problem(H6, B6, np.ones(6) / 6, lam)
    error = squared_error(models, solution)
    assert error[0] == pytest.approx(1.6, abs=0.05)
    assert error[-2000:].mean() == pytest.approx(5.0e-2, abs=0.05e-2)

    plan = rounds_of(coins)
    rounds, ends = len(plan) - 1, np.cumsum(plan.sum(1))
    legs = [rounds // 5] * 5
    got = on_quadratics(l2gd, H6, B6, legs, lam=lam, p=p, smoothness=1.0, batch=0, coins=coins.astype(float))
    looks = np.cumsum(legs)
    # The last iteration before a look: all of its rounds, and the pulls of the next.
    at = ends[looks - 1] + plan[looks, 0] - 1
    close(got.models, models[at], 1e-9)
    assert [s.iterations for s in got.server] == ends[looks - 1].tolist()
    assert got.server[-1].communications == asked[at[-1]]


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_l2gd_communicates_p_times_one_minus_p_per_iteration(p):
    method, rounds = l2gd(lambda params, batch, key: 0.0, p=p), 4000

    def step(server, r):
        return method.merge(server, no_change(), alone(), jax.random.key(r)), server.counts

    server, counts = jax.lax.scan(step, method.init(jnp.zeros(1), jax.random.key(rounds)), jnp.arange(rounds))
    # Four standard errors: the variance of a geometric number is (1 - q) / q^2.
    spread = 4 * np.sqrt((p / (1 - p) ** 2 + (1 - p) / p**2) / rounds)
    assert server.communications == rounds
    assert server.iterations / rounds == pytest.approx(1 / (p * (1 - p)), abs=spread)
    assert counts[1:].min() >= 1
    assert np.mean(counts[1:, 0] == 1) == pytest.approx(1 - p, abs=0.05)
    assert np.mean(counts[1:, 1] == 1) == pytest.approx(p, abs=0.05)


def test_the_servers_mean_is_that_of_everybody_who_has_joined_though_few_take_part():
    loss = objective(quadratic(4), "custom").loss
    options = dict(lam=0.5, p=0.4, lr=0.3, batch=0)
    engine = engine_of(l2gd, loss, H6, B6, np.ones(6, int), 1, options, participation=Participation(size=2))
    run = engine.start(lambda key: jnp.ones(4), 0)
    for _ in range(12):
        run = engine.advance(run, 1)
        close(np.asarray(run.server.x), run.rows[0][run.known].mean(0), 1e-12)
        assert run.server.joined == run.known.sum()
    assert run.known.all()


def test_l2gd_draws_coins_of_its_own_once_the_recorded_ones_are_played():
    method = l2gd(lambda params, batch, key: 0.0, p=0.5, coins=[0, 1])
    server = method.init(jnp.zeros(1), jax.random.key(0))
    counts = [server.counts.tolist()]
    for r in range(12):
        server = method.merge(server, no_change(), alone(), jax.random.key(r))
        counts.append(server.counts.tolist())
    assert counts[:2] == [[0, 1], [1, 0]]
    assert min(map(min, counts[2:])) >= 1 and max(map(max, counts[2:])) > 1


@pytest.mark.parametrize("coins", [[0, 2], [[0, 1], [1, 0]]])
def test_l2gd_says_what_coins_are(coins):
    with pytest.raises(UserError, match="'coins' of method 'l2gd'"):
        l2gd(lambda params, batch, key: 0.0, coins=np.array(coins, float))


@pytest.mark.parametrize("p", [0, 1.0])
def test_l2gd_needs_both_sides_of_the_coin(p):
    with pytest.raises(UserError, match="strictly between 0 and 1"):
        l2gd(lambda params, batch, key: 0.0, p=p)


# lam -> the first iterate (counted from 0) within 1e-8 of the first one's error, and the communications until then
PUBLISHED = [
    pytest.param(0.1, 329, 50, 18, dict(smoothness=1.0), id="lam-0.1"),
    pytest.param(1.0, 188, 96, 38, dict(lr=1.0), id="lam-1-by-step-size"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("lam", "iterations", "communications", "clup_rounds", "steep"), PUBLISHED)
def test_al2sgd_reaches_the_solution_as_fast_as_published(lam, iterations, communications, clup_rounds, steep):
    coins = al2sgd_coins(0, lam / (lam + 1.0), 400)
    expected, asked = al2sgd_program(H10, B10, lam, 0.1, 1.0, coins)
    _, solution = centre_problem(H10, B10, np.ones(10) / 10, lam)
    legs = [1] * (iterations + 1)
    got = on_quadratics(al2sgd, H10, B10, legs, lam=lam, convexity=0.1, coins=coins, **steep)
    close(got.models, expected[: iterations + 1], 1e-10)
    error = squared_error(got.models, solution)
    assert np.argmax(error < 1e-8 * error[0]) == iterations
    assert got.server[-1].communications == communications == asked[iterations]
    assert got.server[-1].iterations == iterations + 1
    close(got.server[-1].w, solution.mean(0), 1e-3)
    # The same problem takes FedCLUP fewer rounds, and more gradients in each.
    assert clup_rounds < communications
    assert clup_rounds * clup.constants(lam, 1.0, 0.1).steps > iterations


def test_al2sgd_converges_linearly_by_coins_of_its_own():
    _, solution = centre_problem(H6, B6, np.ones(6) / 6, 0.5)
    got = on_quadratics(al2sgd, H6, B6, [100] * 4, lam=0.5, smoothness=1.0, convexity=0.2)
    error = squared_error(got.models, solution)
    assert (error[1:] < 0.05 * error[:-1]).all()
    assert error[-1] < 1e-8
    share = got.server[-1].communications / 400
    p = 1 / 3
    # A renewal, or a pull after a local step: p (1 - p) each.
    assert share == pytest.approx(2 * p * (1 - p), abs=0.1)


@pytest.mark.parametrize("coins", [[0, 1, 1], [[0, 1], [2, 0]], [[0], [1], [1]]])
def test_al2sgd_says_what_coins_are(coins):
    with pytest.raises(UserError, match="'coins' of method 'al2sgd'"):
        al2sgd(lambda params, batch, key: 0.0, coins=np.array(coins, float))
