"""Dynamic lambda: the published table through the engine, and the climb, event by event."""

import copy
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_runs import engine_of, follow, half_squared_error
from golden_clup import CLIENTS, FEATURES, GRID, HELD, MU, TRAIN, L, dynamic, federation, fixed

from apiece.errors import UserError
from apiece.methods.dynamic_lambda import Kept, News, Own, dynamic_lambda
from apiece.protocol import Cohort, Data

pytestmark = pytest.mark.usefixtures("x64")

ROUNDS = (1, 2, 5, 10, 20, 40, 60)
SEEDS = 8
BY_THEORY = dict(smoothness=L, convexity=MU, validation=1 / 3, alone_steps=700, batch=0)

# radius -> the best fixed lam, its errors at ROUNDS as far as published, and those of dynamic lambda
PUBLISHED = {
    0.1: (5.0, (0.0521, 0.0422, 0.0291, 0.0250, 0.0251, 0.0253, 0.0253), (0.866, 0.866, 0.475, 0.175) + (0.0253,) * 3),
    1.0: (0.2, (0.308, 0.304, 0.299, 0.298, 0.298), (0.870, 0.869, 0.511, 0.301, 0.323, 0.323, 0.323)),
    3.0: (0.05, (0.785, 0.785, 0.786), (0.896, 0.896, 0.785, 1.298, 0.786, 0.786, 0.786)),
}


def half_a_digit(values):
    """Half a unit of the last printed digit (the third, the fourth of small numbers), and a little."""
    return [0.51e-4 if value < 0.1 else 0.51e-3 for value in values]


def engine_on(x, y, **options):
    sizes = np.full(CLIENTS, TRAIN + HELD)
    flat = x.reshape(-1, FEATURES), y.reshape(-1)
    return engine_of(dynamic_lambda, half_squared_error, *flat, sizes, 20, BY_THEORY | options)


@pytest.fixture(scope="module")
def runs():
    """radius -> (true models, models of the engine, of the NumPy program, of each fixed lam): [seed, ROUNDS, ...]."""
    with jax.enable_x64(True):
        engine, found = None, {}
        at = np.array(ROUNDS) - 1
        legs = np.diff([-1, *ROUNDS]).tolist()  # one round more: at first everybody trains alone
        for radius in PUBLISHED:
            x, y, w = (np.array(part) for part in zip(*(federation(s, radius) for s in range(SEEDS)), strict=True))
            engine = engine or engine_on(x[0], y[0])
            got, expected = [], []
            for s in range(SEEDS):
                here = copy.copy(engine)  # shares the compiled programs
                here.train = engine.examples(x[s].reshape(-1, FEATURES), y[s].reshape(-1), 60 * np.arange(CLIENTS + 1))
                got.append(follow(here, jnp.zeros(FEATURES), legs).models)
                expected.append(dynamic(x[s], y[s], max(ROUNDS))[0][at])
            one = {lam: np.moveaxis(fixed(x, y, lam, max(ROUNDS))[at], 1, 0) for lam in GRID}
            found[radius] = w[:, None], np.array(got), np.array(expected), one
        return found


def error(models, truth):
    """Per round: the mean squared distance over clients and seeds."""
    return np.mean(np.sum((models - truth) ** 2, axis=-1), axis=(0, 2))


@pytest.mark.thorough
@pytest.mark.optimized
@pytest.mark.parametrize("radius", PUBLISHED)
def test_the_engine_runs_the_published_steps(runs, radius):
    truth, got, expected, one = runs[radius]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)
    best, fixed_errors, dynamic_errors = PUBLISHED[radius]
    gap = np.abs(error(got, truth) - dynamic_errors)
    assert (gap <= half_a_digit(dynamic_errors)).all(), gap
    gap = np.abs(error(one[best], truth)[: len(fixed_errors)] - fixed_errors)
    assert (gap <= half_a_digit(fixed_errors)).all(), gap


@pytest.mark.thorough
@pytest.mark.parametrize(("lam", "printed"), [(0.01, (0.866,)), (1.0, (0.065, 0.057, 0.047, 0.044, 0.044))])
def test_smaller_fixed_lams_share_too_little_where_clients_are_alike(runs, lam, printed):
    truth, _, _, one = runs[0.1]
    np.testing.assert_allclose(error(one[lam], truth)[: len(printed)], printed, rtol=0, atol=0.51e-3)


@pytest.mark.parametrize(("radius", "ratio"), [(0.1, 1.00), (1.0, 1.08), (3.0, 1.00)])
def test_the_final_error_is_within_a_tenth_of_the_best_fixed_lam(runs, radius, ratio):
    truth, got, _, one = runs[radius]
    final = {lam: error(models, truth)[-1] for lam, models in one.items()}
    assert min(final, key=final.get) == PUBLISHED[radius][0]
    found = error(got, truth)[-1] / min(final.values())
    assert found == pytest.approx(ratio, abs=0.0051)
    assert found < 1.1


def test_on_the_way_it_is_not_the_best_of_the_fixed_lams(runs):
    truth, got, _, one = runs[0.1]
    envelope = np.min([error(models, truth) for models in one.values()], axis=0)
    ratio = (error(got, truth) / envelope)[[0, 2, 3]]  # rounds 1, 5 and 10
    np.testing.assert_allclose(ratio, (16.6, 16.3, 7.0), atol=0.06)


def test_one_value_of_the_grid_is_fed_clup_on_the_examples_that_are_not_held_out():
    x, y, _ = federation(0, 1.0)
    legs = [2, 4]
    got = follow(engine_on(x, y, grid=(0.2,), patience=100), jnp.zeros(FEATURES), legs)
    np.testing.assert_allclose(got.models, fixed(x, y, 0.2, 5)[[0, 4]], rtol=0, atol=1e-9)
    # ... of which nothing is read but for the judgement.
    method = dynamic_lambda(half_squared_error, **BY_THEORY)
    server = method.init(jnp.ones(FEATURES), None)
    view = lambda y: Data(jnp.asarray(x.reshape(-1, FEATURES)), jnp.asarray(y.reshape(-1)), 60, 60, 60)
    other = y.copy()
    other[1, TRAIN:] += 1.0
    work = lambda y: method.local(
        method.enroll(server.x, method.message(server, 1), view(y), None),
        method.message(server, 1),
        view(y),
        jax.random.key(0),
    )
    (own, (_, value, counted)), (own_2, (_, value_2, _)) = work(y), work(other)
    assert (own.w == own_2.w).all() and value != value_2 and counted == 1
    held = 0.5 * np.mean((x[1, TRAIN:] @ own.w - y[1, TRAIN:]) ** 2)
    assert float(value) == pytest.approx(float(held), rel=1e-12)


# The climb, event by event: a model of one number, and replies written down.

CLIMB = dict(grid=(0.1, 1.0, 10.0), patience=2, improvement=0.05)


def cohort(count):
    return Cohort(jnp.arange(count), jnp.ones(count, jnp.float32), jnp.zeros(count, jnp.int32), jnp.int32(count))


def climb_in_words(values, moves):
    """(x, place on the grid, over?) after each round, by lists and loops; the first round is everybody alone."""
    x, best, below, stale, j, over, trace = moves[0], math.inf, None, 0, 1, False, []
    for v, move in zip(values, moves[1:], strict=True):
        if not over:
            x, stale = x + move, (0 if v < 0.95 * best else stale + 1)
            if v < best:
                best, kept = v, x
            if stale >= 2:
                if below is not None and best > 1.05 * below[0]:
                    x, j, over = below[1], j - 1, True
                elif j < 3:
                    below, best, stale, j = (best, kept), math.inf, 0, j + 1
                else:
                    over = True
        trace.append((x, j, over))
    return trace


def test_the_server_climbs_and_goes_back_as_written():
    method = dynamic_lambda(half_squared_error, **CLIMB)
    merge = jax.jit(method.merge)
    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        values, moves = np.exp(rng.normal(0, 0.15, 14)), rng.standard_normal(15)
        server, trace = method.init(jnp.zeros(1), None), []
        for v, move in zip([9.0, *values], moves, strict=True):
            # Half of it from a client that holds nothing out, and so has no say in v.
            away = jnp.array([[-move], [-move]])
            server = merge(server, (away, jnp.array([v, 1e9]), jnp.array([1.0, 0.0], jnp.float32)), cohort(2), None)
            trace.append((float(server.x[0]), int(server.stage), bool(server.stopped)))
        expected = climb_in_words(values, moves)
        assert [t[1:] for t in trace[1:]] == [t[1:] for t in expected]
        np.testing.assert_allclose([t[0] for t in trace[1:]], [t[0] for t in expected], atol=1e-12)
        seen.add((bool(server.restored), int(server.stage)))
    assert {(True, 1), (True, 2), (False, 3)} <= seen  # it went back from both places, and reached the end


def test_rounds_without_a_validation_loss_say_nothing():
    method = dynamic_lambda(half_squared_error, **CLIMB)
    server = method.init(jnp.zeros(1), None)
    nothing = (jnp.zeros((2, 1)), jnp.full(2, jnp.nan), jnp.zeros(2, jnp.float32))
    merge = jax.jit(method.merge)
    for _ in range(8):
        server = merge(server, nothing, cohort(2), None)
    assert (server.stage, server.stale, bool(server.stopped)) == (1, 0, False)


def falling(w, batch, key):
    return w.sum() * batch.weight.sum() / batch.weight.sum()


def mine():
    return Data(jnp.zeros((10, 1)), jnp.zeros(10), 0, 10, 10)


def news(stage=1, best=0, below=0, stopped=False, restored=False):
    numbers = (jnp.int32(number) for number in (stage, best, below))
    return News(jnp.zeros(1), *numbers, jnp.asarray(stopped), jnp.asarray(restored))


def test_a_client_that_is_often_absent_still_has_its_model_of_every_version_that_matters():
    method = dynamic_lambda(falling, steps=1, lr=1.0, batch=0)
    local, personal = jax.jit(method.local), jax.jit(method.personal)
    rng, key, data = np.random.default_rng(1), jax.random.key(0), mine()
    own = method.enroll(jnp.zeros(1), news(), data, key)
    history, best_at, below_at = [0.0], 0, 0  # its model as of each version
    for version in range(60):
        told = news(best=best_at, below=below_at)
        took_part = rng.random() < 0.4
        if took_part:
            own = local(own, told, data, key)[0]
            assert own.best.w.item() == history[best_at] and own.below.w.item() == history[below_at]
        history.append(own.w.item())
        if rng.random() < 0.5:
            best_at = version + 1
        if rng.random() < 0.3:
            below_at = best_at
        back = personal(own, news(best=best_at, below=below_at, stopped=True, restored=True), data, key)
        assert back.item() == history[below_at]
    assert len(set(history)) > 15


def test_after_the_end_only_newcomers_train():
    method, key, data = dynamic_lambda(falling, steps=1, lr=1.0, batch=0), jax.random.key(0), mine()
    over = news(best=7, below=3, stopped=True, restored=True)
    best, below = Kept(jnp.int32(7), jnp.ones(1)), Kept(jnp.int32(3), 5 * jnp.ones(1))
    known = Own(jnp.ones(1), best, below, jnp.asarray(False))
    known, _ = method.local(known, over, data, key)
    assert known.w.item() == 5.0 and method.personal(known, over, data, key).item() == 5.0
    newcomer = method.enroll(jnp.zeros(1), over, data, key)
    newcomer, _ = method.local(newcomer, over, data, key)
    assert newcomer.w.item() == method.personal(newcomer, over, data, key).item() == -1.0


@pytest.mark.parametrize(("size", "held"), [(1, 0), (2, 0), (3, 1), (10, 2)])
def test_small_clients_hold_out_what_a_share_of_theirs_rounds_to(size, held):
    """The loss is the mean of the examples' numbers, those of other clients being no numbers at all."""
    numbers = np.full(30, np.nan)
    numbers[5 : 5 + size] = np.arange(size)
    judged = lambda w, batch, key: (batch.weight * batch.x).sum() / batch.weight.sum() + 0 * w.sum()
    method = dynamic_lambda(judged, validation=0.2, batch=0)
    data = Data(jnp.asarray(numbers), jnp.zeros(30), 5, size, 20)
    own = method.enroll(jnp.zeros(1), news(), data, None)
    _, (_, value, counted) = method.local(own, news(), data, jax.random.key(0))
    assert counted == (held > 0)
    assert value == (np.arange(size)[size - held :].mean() if held else 0.0)


@pytest.mark.parametrize("grid", [(), (0.1, 0.1), (1.0, 0.5), (0.0, 1.0), np.ones((2, 2))])
def test_a_grid_ascends(grid):
    with pytest.raises(UserError, match="positive numbers that ascend"):
        dynamic_lambda(half_squared_error, grid=grid)


def test_theory_needs_both_constants():
    with pytest.raises(UserError, match="both 'smoothness' and 'convexity'"):
        dynamic_lambda(half_squared_error, smoothness=1.0)
