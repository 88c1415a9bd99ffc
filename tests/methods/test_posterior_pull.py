"""Self-FL by default: the posterior mean, to 1e-6 where everything is known; and what that is worth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import fit
from apiece.data import digits
from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.estimate.spread import Slope
from apiece.methods import posterior_pull as file
from apiece.methods.posterior_pull import Centre, Prior, posterior_pull, pull_of
from apiece.methods.self_fl import self_fl
from apiece.protocol import Cohort, Data
from apiece.theory.self_fl import posterior
from benchmarks.self_fl import NOISES, two_level


def squares(w, batch, key):
    return jnp.sum(batch.weight * jnp.square(batch.x @ w - batch.y)) / 2 / batch.weight.sum()


def test_a_pull_to_the_mean_of_all_is_the_posterior_mean():
    """x + s0 / (s0 + s_m) (z_m - x), without leaving oneself out: what theory says in other words."""
    z, s, s0 = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 2.0]), 0.25
    weight = 1 / (s0 + s)
    x = weight @ z / weight.sum()
    np.testing.assert_allclose(x + s0 / (s0 + s) * (z - x), posterior(z, s, s0)[0], atol=1e-12)


def test_a_client_finds_its_ridge_solution(x64, monkeypatch):
    """Direction by direction: (H + lam I)^-1 (H z + lam x), lam = f / (n s0), f its own alone."""
    monkeypatch.setattr(file, "BORROWED", 0.0)
    rng = np.random.default_rng(0)
    a, n, s0 = rng.standard_normal((40, 3)) * [1.0, 0.5, 0.2], 40, 0.3
    y = a @ [1.0, -2.0, 0.5] + 0.7 * rng.standard_normal(n)
    method = posterior_pull(squares, batch=0, tune_lr=0.5, tune_steps=3000, population=2)
    x = jnp.array([0.5, 0.5, 0.5])
    prior = Prior(x, jnp.asarray(s0), jnp.zeros(2))
    data = Data(jnp.asarray(a), jnp.asarray(y), 0, n, n)
    found = jax.jit(method.personal)((), prior, data, jax.random.key(0))
    each = a * (a @ np.asarray(x) - y)[:, None]
    h = a.T @ a / n
    lam = each.var(0, ddof=1).sum() / np.trace(h) / (n * s0)
    wanted = np.linalg.solve(h + lam * np.eye(3), a.T @ y / n + lam * np.asarray(x))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    shared = jax.jit(method.personal)((), prior._replace(spread=jnp.asarray(0.0)), data, jax.random.key(0))
    np.testing.assert_allclose(shared, x, atol=2e-4)  # nothing between clients: nothing of one's own


def test_the_server_weighs_clients_by_how_sure_they_are(x64):
    method = posterior_pull(squares, population=3)
    server = method.init(jnp.zeros(1), None)
    s = np.array([0.5, 1.0, 2.0])
    ones = np.ones(3)
    # Squared distances from the mean of 5, and a variance s: n = 1 / s examples of noise 1.
    slopes = Slope(*(jnp.asarray(each) for each in (5 * ones, s, ones, ones, ones, 1 / s)))
    updates = jnp.array([[3.0], [-1.0], [-1.0]])
    cohort = Cohort(jnp.arange(3), jnp.ones(3), jnp.zeros(3, int), 3)
    after = jax.jit(method.merge)(server, (updates, slopes), cohort, jax.random.key(0))
    spread = float(after.spread)
    # By hand: the root of sum (5 common 3/2 - s - s0) / (s0 + s)^2, clients weighed by the spread known before, 0.
    share = s**-1 / np.sum(1 / s)
    chance = np.sum(share**2)
    common = (np.sum(share * updates[:, 0]) ** 2 / np.sum(share * updates[:, 0] ** 2) - chance) / (1 - chance)
    away = 5 * (1 - max(common, 0)) * 3 / 2
    assert np.sum((away - s - spread) / (spread + s) ** 2) == pytest.approx(0, abs=1e-3)
    weight = 1 / (spread + s)
    np.testing.assert_allclose(after.x, weight @ np.asarray(updates) / weight.sum(), rtol=1e-6)
    told = method.report(after)
    np.testing.assert_allclose(told["own"], spread / (spread + s), rtol=1e-6)
    np.testing.assert_allclose(told["pulls"], pull_of(slopes, after.usual, after.spread), rtol=1e-6)


def test_who_tells_nothing_counts_as_the_others_do():
    method = posterior_pull(squares, population=2)
    blank = Slope(*(jnp.zeros(2) for _ in Slope._fields))
    cohort = Cohort(jnp.arange(2), jnp.array([3.0, 1.0]), jnp.zeros(2, int), 2)
    updates = jnp.array([[1.0], [0.0]])
    after = jax.jit(method.merge)(method.init(jnp.zeros(1), None), (updates, blank), cohort, jax.random.key(0))
    assert isinstance(after, Centre)
    assert after.x.tolist() == [0.75]  # by their numbers of examples


def test_clients_that_do_not_differ_share_one_model():
    rng = np.random.default_rng(2)
    x = rng.standard_normal((400, 2)).astype(np.float32)
    y = (x @ [1.0, 2.0] + rng.standard_normal(400)).astype(np.float32)
    build = lambda hyper, round: posterior_pull(squares, population=20, steps=5, tune_steps=50)
    engine = Vectorized(build, x, y, np.arange(0, 401, 20), block=10)
    run = engine.advance(engine.start(lambda key: jnp.zeros(2), 0, {}), 40)
    own = engine.personal(run, np.arange(20))
    alone = np.array([np.linalg.lstsq(x[k : k + 20], y[k : k + 20])[0] for k in range(0, 400, 20)])
    error = lambda found: np.mean(np.sum((found - [1.0, 2.0]) ** 2, axis=1))
    assert error(own) < 0.35 * error(alone)


def test_by_default_it_is_within_15_percent_of_bayes_and_not_above_alone():
    """Two levels, spread 1; the benchmark has 20 draws and 60 rounds."""
    for noise, found in two_level(draws=4, rounds=25, noises=(0.1, 10.0)).items():
        assert found["self_fl"] <= 1.15 * found["bayes"], noise
        assert found["self_fl"] <= 1.001 * found["local"], noise


@pytest.mark.thorough
def test_by_default_it_is_within_15_percent_of_bayes_at_every_noise():
    for noise, found in two_level(draws=20, rounds=60, noises=NOISES).items():
        assert found["self_fl"] <= 1.15 * found["bayes"], noise
        assert found["self_fl"] <= found["local"], noise


@pytest.mark.thorough
def test_on_the_digits_it_is_above_fed_avg_and_the_published_rule():
    federation = digits(clients=30)
    how = dict(federation=federation, rounds=60, evaluate_every=60)
    settings = {"posterior": {}, "bayes": {"rule": "bayes"}}
    got = {name: fit("self_fl", options=options, **how).evaluate() for name, options in settings.items()}
    got["fed_avg"] = fit("fed_avg", **how).evaluate()
    accuracy = {name: found["test"]["accuracy"]["mean"] for name, found in got.items()}
    assert accuracy["posterior"] > accuracy["fed_avg"]
    assert accuracy["posterior"] > accuracy["bayes"] + 0.02


def test_what_each_client_does_is_seen_look_by_look():
    found = fit("self_fl", federation=digits(clients=4), rounds=2, options={"tune_steps": 2})
    last = found.curve[-1]
    for name in ("own", "pulls", "variances"):
        assert len(last[f"reported_{name}"]) == 4
    assert all(0 <= own <= 1 for own in last["reported_own"])


def test_options_of_another_rule_are_not_passed_over():
    with pytest.raises(UserError, match=r"option 'clusters'.*name another rule"):
        self_fl(squares, clusters=(0, 1))
    with pytest.raises(UserError, match="option 'summed'"):
        self_fl(squares, summed=True)
    with pytest.raises(UserError, match="give option 'population'"):
        self_fl(squares).init(jnp.zeros(1), None)
