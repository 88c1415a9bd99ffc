"""The fast engine: one compile, the right rows, the work divided, and any way of cutting a run the same run."""

import dataclasses
from collections import Counter
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from apiece import tree
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.errors import UserError
from apiece.methods import ditto, fed_avg, local, scaffold
from apiece.models import linear, objective, quadratic, softmax

SIZES = np.array([1, 3, 7, 20, 2, 9])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
RNG = np.random.default_rng(0)
X = RNG.normal(size=(SIZES.sum(), 3)).astype(np.float32)
Y = RNG.normal(size=SIZES.sum()).astype(np.float32)
MODEL = linear((3,))
JUDGE = objective(MODEL, "regression")
EVERYBODY = np.arange(len(SIZES))


def engine_of(factory=ditto, options=None, **how):
    options = dict(steps=2, batch=4) if options is None else options
    build = lambda hyper, round: factory(JUDGE.loss, **options, **hyper)
    return Vectorized(build, X, Y, OFFSETS, **how)


def same(a, b):
    return all(np.array_equal(p, q) for p, q in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.fixture(scope="module")
def engine():
    return engine_of(participation=Participation(size=3), block=4)


def test_a_run_compiles_once_whatever_seeds_hyper_parameters_and_blocks(engine):
    for seed, lr, rounds in ((0, 0.1, 4), (0, 0.1, 10), (1, 0.2, 3), (2, 0.01, 1)):
        run = engine.advance(engine.start(MODEL.init, seed, {"lr": lr, "lam": lr}), rounds)
        assert run.round == rounds
        engine.personal(run, EVERYBODY)
        engine.personal(run, EVERYBODY[:2])
    assert engine._block._cache_size() == 1
    assert engine._small_personal._cache_size() == 1


def test_probabilities_and_empty_places_compile_once_too():
    engine = engine_of(participation=Participation(probability=0.4), block=3)
    engine.advance(engine.start(MODEL.init, 0, {"lr": 0.1}), 8)
    assert engine._block._cache_size() == 1


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(engine):
    runs = [engine.advance(engine.start(MODEL.init, seed, {"lr": 0.1, "lam": 0.1}), 6) for seed in (0, 0, 1)]
    assert same(runs[0].server, runs[1].server) and same(runs[0].rows, runs[1].rows)
    assert not same(runs[0].server, runs[2].server)


def test_a_run_may_be_cut_anywhere(engine):
    hyper = {"lr": 0.1, "lam": 0.1}
    whole = engine.advance(engine.start(MODEL.init, 0, hyper), 9)
    parts = engine.start(MODEL.init, 0, hyper)
    for rounds in (1, 4, 0, 3, 1):
        parts = engine.advance(parts, rounds)
    assert parts.round == 9
    assert same(whole.server, parts.server) and same(whole.rows, parts.rows) and same(whole.known, parts.known)


def test_a_run_does_not_depend_on_how_many_rounds_a_block_has(engine):
    """A block of one round holds the rows of few clients, so a client's row is not its number there."""
    hyper, short = {"lr": 0.1, "lam": 0.1}, engine_of(participation=Participation(size=3), block=1)
    assert short.working_rows(1) < len(SIZES) == engine.working_rows(4)
    runs = [e.advance(e.start(MODEL.init, 0, hyper), 5) for e in (engine, short)]
    assert runs[0].known.tolist() == runs[1].known.tolist()
    for a, b in ((runs[0].server, runs[1].server), (runs[0].rows, runs[1].rows)):
        jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, atol=1e-6), a, b)


def test_hyper_parameters_that_are_traced_are_the_ones_that_are_used(engine):
    traced = engine.advance(engine.start(MODEL.init, 0, {"lr": 0.05, "lam": 0.3}), 3)
    fixed = engine_of(options=dict(steps=2, batch=4, lr=0.05, lam=0.3), participation=Participation(size=3), block=4)
    run = fixed.advance(fixed.start(MODEL.init, 0), 3)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), traced.server, run.server)


# Quadratic clients: everything that a run does, in a NumPy loop.

H = np.array([m @ m.T / 2 + np.eye(2) / 2 for m in RNG.normal(size=(9, 2, 2))])
B = RNG.normal(size=(9, 2))
STEPS, LR, LAM = 2, 0.2, 0.5


def quadratic_engine(factory, build=None, **how):
    loss = objective(quadratic(2), "custom").loss
    pull = {"lam": LAM} if factory is ditto else {}
    build = build or (lambda hyper, round: factory(loss, steps=STEPS, lr=LR, batch=0, **pull))
    return Vectorized(build, H, B, np.arange(10), **how)


def descend(i, w, lr=LR, lam=0.0, center=0.0):
    for _ in range(STEPS):
        w = w - lr * (H[i] @ w - B[i] + lam * (w - center))
    return w


@pytest.mark.parametrize("block", [1, 2, 5])
@pytest.mark.parametrize("mode", ["sequential", "vmap"])
def test_each_client_has_its_own_row(x64, block, mode):
    """Blocks of one and two rounds touch fewer rows than there are clients; five rounds may touch all."""
    rounds, who = 8, Participation(size=3)
    engine = quadratic_engine(ditto, participation=who, block=block, mode=mode)
    run = engine.advance(engine.start(quadratic(2).init, 3), rounds)

    x, v, known = np.zeros(2), np.zeros((9, 2)), np.zeros(9, bool)
    for r in range(rounds):
        cohort = who.draw(3, r, 9)
        for i in cohort:
            v[i] = descend(i, v[i] if known[i] else x, lam=LAM, center=x)
        known[cohort] = True
        x = np.mean([descend(i, x) for i in cohort], axis=0)
    assert not known.all(), "somebody never takes part, or the test says nothing about newcomers"
    np.testing.assert_array_equal(run.known, known)
    np.testing.assert_allclose(run.server, x, atol=1e-7)
    np.testing.assert_allclose(run.rows, v, atol=1e-7)

    models = engine.personal(run, np.arange(9), group=4)
    visits = round(rounds * 3 / 9)
    for i in range(9):
        expected = v[i]
        if not known[i]:  # enrolls with the server's model and makes as many visits as others have made on average
            expected = x
            for _ in range(visits):
                expected = descend(i, expected, lam=LAM, center=x)
        np.testing.assert_allclose(models[i], expected, atol=1e-7)


def test_clients_that_forget_begin_anew_each_round(x64):
    engine = quadratic_engine(ditto, stateless=True, block=3)
    run = engine.advance(engine.start(quadratic(2).init, 0), 4)
    x = np.zeros(2)
    for _ in range(4):
        x = np.mean([descend(i, x) for i in range(9)], axis=0)
    np.testing.assert_allclose(run.server, x, atol=1e-7)
    assert run.rows.shape == (0, 2) and not run.known.any()


def test_a_client_that_forgets_enrolls_from_the_message_of_the_round(x64):
    """Scaffold without memory: every c_i is zero when the round begins."""
    engine = quadratic_engine(scaffold, stateless=True)
    run = engine.advance(engine.start(quadratic(2).init, 0), 3)
    x, c = np.zeros(2), np.zeros(2)
    for _ in range(3):
        y = np.tile(x, (9, 1))
        for _ in range(STEPS):
            y = np.array([y[i] - LR * (H[i] @ y[i] - B[i] + c) for i in range(9)])
        change = -c + (x - y) / (STEPS * LR)
        x, c = x + (y - x).mean(0), c + change.mean(0)
    np.testing.assert_allclose(run.server[0], x, atol=1e-6)
    np.testing.assert_allclose(run.server[1], c, atol=1e-6)


def test_scaffold_knows_what_share_of_the_population_answered(x64):
    who = Participation(size=4)
    engine = quadratic_engine(scaffold, participation=who)
    run = engine.advance(engine.start(quadratic(2).init, 1), 5)
    x, c, own = np.zeros(2), np.zeros(2), np.zeros((9, 2))
    for r in range(5):
        moved, change = [], []
        for i in who.draw(1, r, 9):
            y = x
            for _ in range(STEPS):
                y = y - LR * (H[i] @ y - B[i] - own[i] + c)
            moved.append(y - x)
            change.append(-c + (x - y) / (STEPS * LR))
            own[i] = own[i] + change[-1]
        x, c = x + np.mean(moved, axis=0), c + 4 / 9 * np.mean(change, axis=0)
    np.testing.assert_allclose(run.server[0], x, atol=1e-6)
    np.testing.assert_allclose(run.server[1], c, atol=1e-6)
    np.testing.assert_allclose(run.rows, own, atol=1e-6)


def test_a_schedule_is_a_method_that_depends_on_the_round(x64):
    loss = objective(quadratic(2), "custom").loss
    build = lambda hyper, round: fed_avg(loss, steps=STEPS, lr=hyper["lr"] / (1 + round), batch=0)
    engine = quadratic_engine(None, build=build, block=3)
    run = engine.advance(engine.start(quadratic(2).init, 0, {"lr": 0.3}), 5)
    x = np.zeros(2)
    for r in range(5):
        x = np.mean([descend(i, x, lr=0.3 / (1 + r)) for i in range(9)], axis=0)
    np.testing.assert_allclose(run.server, x, atol=1e-7)
    assert engine._block._cache_size() == 1


def mean_of_labels(weights):
    """The server's model after one round in which each client answers the mean of its labels."""

    def mean_label(loss):
        def answer(client, x, data, key):
            at = data.start + jnp.arange(data.capacity)
            mine = jnp.arange(data.capacity) < data.size
            return client, jnp.where(mine, data.y[jnp.where(mine, at, data.start)], 0).sum() / data.size

        return fed_avg(loss)._replace(local=answer)

    engine = engine_of(mean_label, {}, weights=weights)
    return float(engine.advance(engine.start(lambda key: jnp.zeros(()), 0), 1).server)


def test_a_reply_counts_by_examples_or_by_client():
    means = [Y[a:b].mean() for a, b in pairwise(OFFSETS)]
    assert mean_of_labels("examples") == pytest.approx(Y.mean(), abs=1e-6)
    assert mean_of_labels("uniform") == pytest.approx(np.mean(means), abs=1e-6)


def spied(calls):
    """A method whose clients tell the host which device ran whom."""

    def method(loss):
        def answer(client, x, data, key):
            jax.debug.callback(
                lambda device, start: calls.append((int(device), int(start))), lax.axis_index("clients"), data.start
            )
            return client, tree.zeros(x)

        return fed_avg(loss)._replace(local=answer)

    return method


@pytest.mark.parametrize(("cohort", "shares"), [(None, (3, 3)), (4, (2, 2)), (3, (2, 1)), (1, (1, 0))])
def test_the_clients_are_divided_over_the_devices_and_each_runs_once(cohort, shares):
    assert len(jax.devices()) == 2
    calls = []
    who = Participation(size=cohort)
    engine = engine_of(spied(calls), {}, participation=who, block=3, mode="sequential")
    engine.advance(engine.start(MODEL.init, 0), 2)
    jax.effects_barrier()
    drawn = [int(OFFSETS[i]) for r in range(2) for i in who.draw(0, r, len(SIZES))]
    assert sorted(start for _, start in calls) == sorted(drawn), "each of the cohort once a round, and nobody else"
    by_device = Counter(device for device, _ in calls)
    assert (by_device[0], by_device[1]) == (2 * shares[0], 2 * shares[1])


def test_the_compiled_program_holds_half_of_the_cohort_on_each_device():
    engine = engine_of(participation=Participation(size=6), options=dict(steps=2, batch=4), mode="vmap", block=2)
    seen = []
    block = engine._block
    engine._block = lambda *given: seen.append(given) or block(*given)
    engine.advance(engine.start(MODEL.init, 0, {"lr": 0.1}), 2)
    program = block.lower(*seen[0]).compile().as_text()
    assert "num_partitions=2" in program
    assert "f32[3,4,3]" in program, "batches of 4 examples of 3 features, for 3 clients a device"
    assert "f32[6,4,3]" not in program, "and nowhere for all 6"


def test_clients_beyond_the_population_never_take_part_but_have_a_model():
    engine = engine_of(local, dict(steps=2, lr=0.1, batch=0), population=4)
    run = engine.advance(engine.start(MODEL.init, 0), 3)
    assert run.known.tolist() == [True] * 4 and len(run.rows["b"]) == 4
    models = engine.personal(run, EVERYBODY)
    assert models["w"].shape == (6, 1, 3)
    for i in EVERYBODY:  # a newcomer to `local` trains alone for as many rounds as everybody did
        x, y = np.c_[X[OFFSETS[i] : OFFSETS[i + 1]], np.ones(SIZES[i])], Y[OFFSETS[i] : OFFSETS[i + 1]]
        w = np.zeros(4)
        for _ in range(6):
            w = w - 0.1 * x.T @ (x @ w - y) / SIZES[i]
        np.testing.assert_allclose(np.r_[models["w"][i, 0], models["b"][i]], w, atol=1e-5)


@pytest.mark.parametrize("group", [2, 64])
def test_outcomes_are_each_clients_own_examples_under_its_own_model(engine, group):
    sizes = np.array([2, 0, 1, 30, 0, 4])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x, y = RNG.normal(size=(37, 3)).astype(np.float32), RNG.normal(size=37).astype(np.float32)
    run = engine.advance(engine.start(MODEL.init, 0, {"lr": 0.1, "lam": 0.1}), 5)
    who = np.array([5, 0, 1, 3])
    models = engine.personal(run, who)
    splits = {"test": engine.examples(x, y, offsets), "train": engine.train}
    found = engine.outcomes(run, who, JUDGE.outcomes, splits, group=group)
    for name, (xs, ys, at) in {"test": (x, y, offsets), "train": (X, Y, OFFSETS)}.items():
        error = []
        for k, i in enumerate(who):
            rows = slice(at[i], at[i + 1])
            error.append((xs[rows] @ models["w"][k, 0] + models["b"][k, 0] - ys[rows]) ** 2)
        error = np.concatenate(error)
        np.testing.assert_allclose(found[name][1], error, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found[name][0], error / 2, rtol=1e-4, atol=1e-6)


def test_a_newcomer_catches_up_with_as_many_visits_as_others_made():
    def visits(rounds, **who):
        engine = engine_of(participation=Participation(**who))
        return engine.visits(dataclasses.replace(engine.start(MODEL.init, 0, {"lr": 0.1}), round=rounds))

    assert visits(10) == 10
    assert visits(10, size=3) == 5
    assert visits(50, probability=0.1) == 5
    assert visits(0, probability=0.1) == 1


@pytest.mark.parametrize("wrong", [{"weights": "uniformly"}, {"mode": "sequentiall"}])
def test_an_unknown_word_is_refused_with_the_nearest_one(wrong):
    build = lambda hyper, round: fed_avg(objective(linear((1,)), "regression").loss)
    with pytest.raises(UserError, match="did you mean"):
        Vectorized(build, np.zeros((1, 1), np.float32), np.zeros(1, np.float32), np.array([0, 1]), **wrong)


def test_small_clients_are_judged_in_one_call_with_the_numbers_of_several():
    rng, clients = np.random.default_rng(0), 130
    x, y = rng.normal(size=(2 * clients, 3)).astype(np.float32), rng.integers(0, 2, 2 * clients).astype(np.int32)
    offsets, model = 2 * np.arange(clients + 1), softmax((3,), 2)
    judge = objective(model, "classification")
    build = lambda hyper, round: local(judge.loss, steps=1, batch=0)
    engine = Vectorized(build, x, y, offsets, held_out={"test": (x, y, offsets)})
    run, who = engine.advance(engine.start(model.init, 0), 1), np.arange(clients)
    models = [len(who) for _, who in engine.personal_groups(run, who)]
    assert models == [clients]
    whole, parts = (engine.outcomes(run, who, judge.outcomes, ("test",), group=group)["test"] for group in (None, 64))
    np.testing.assert_array_equal(whole, parts)
