"""Replies one by one: the right reply, from the right version of the server, at the right time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.world.arrivals import Delays, Recorded, Speeds
from apiece.engines.world.pace import Pace
from apiece.errors import UserError
from apiece.methods import ditto, fed_avg, local
from apiece.models import objective, quadratic

CLIENTS, SIZE = 6, 3
RNG = np.random.default_rng(5)
ROOT = RNG.normal(size=(CLIENTS, SIZE, SIZE))
H = (np.einsum("ijk,ilk->ijl", ROOT, ROOT) / SIZE + np.eye(SIZE)).astype(np.float32)
B = RNG.normal(size=(CLIENTS, SIZE)).astype(np.float32)
MODEL = quadratic(SIZE)
LOSS = objective(MODEL, "custom").loss
HALF_SLOW = Pace("given", times=(1.0,) * 3 + (10.0,) * 3, jitter="exponential")


def engine_of(arrivals, factory=fed_avg, **how):
    build = lambda hyper, round: factory(LOSS, steps=1, batch=0, **hyper)
    return Asynchronous(build, H, B, np.arange(CLIENTS + 1), arrivals=arrivals, **how)


def run_of(engine, rounds, seed=0, **hyper):
    return engine.advance(engine.start(MODEL.init, seed, hyper), rounds)


def by_hand(journal, merges, lr):
    """The same run as a loop over jobs: a reply is computed from the model of its version, and merged when due."""
    versions = [np.zeros(SIZE)]
    for v in range(merges):
        due = np.flatnonzero(journal.merge == v)
        assert len(due)
        work = [-lr * (H[i] @ versions[s] - B[i]) for i, s in zip(journal.client[due], journal.start[due], strict=True)]
        versions.append(versions[-1] + np.mean(work, 0))
    return versions[-1]


@pytest.mark.parametrize(
    "arrivals",
    [
        Speeds(active=4, pace=HALF_SLOW),
        Speeds(active=6, buffer=3, policy="same", pace=Pace("lognormal", jitter="exponential")),
        Speeds(active=3, buffer=2, pace=Pace("zipf")),
        Delays((0, 3, 1, 5)),
        Delays((2, 0, 1), clients=(4, 4, 1), buffer=2),
    ],
    ids=lambda arrivals: f"{type(arrivals).__name__}-{arrivals.buffer}-{getattr(arrivals, 'policy', '')}",
)
def test_a_run_is_the_run_that_a_loop_over_jobs_makes(arrivals):
    run = run_of(engine_of(arrivals, weights="uniform"), 40, lr=0.1)
    np.testing.assert_allclose(run.server, by_hand(arrivals.journal(0, CLIENTS, 40), 40, 0.1), atol=2e-6)
    assert run.round == 40


def test_a_recorded_log_is_followed_and_does_not_go_on_for_ever():
    log = Recorded(client=(3, 1, 3, 0), began=(0.0, 0.0, 2.5, 4.5), ended=(2.0, 7.0, 4.0, 6.0))
    engine = engine_of(log)
    run = run_of(engine, 4, lr=0.1)
    np.testing.assert_allclose(run.server, by_hand(log.journal(0, CLIENTS, 4), 4, 0.1), atol=1e-6)
    assert run.clock == 7.0
    with pytest.raises(UserError, match="ends after 4 merges"):
        engine.advance(run, 1)


@pytest.mark.parametrize("weights", ["uniform", [1.0] * CLIENTS])
def test_a_client_without_examples_does_nothing_and_its_place_among_the_replies_does_not_count(weights):
    # Client 0 has no example. A slot that it "fills" still holds the reply of whoever had it before.
    offsets = np.array([0, 0, 1, 2, 3, 4, 5])
    arrivals = Delays((0,), clients=(3, 0, 5, 0, 0, 4), buffer=2)
    build = lambda hyper, round: fed_avg(LOSS, steps=1, batch=0, **hyper)
    run = run_of(Asynchronous(build, H, B, offsets, arrivals=arrivals, weights=weights), 3, lr=0.1)
    x = np.zeros(SIZE)
    for i in (3, 5, 4):
        x = x - 0.1 * (H[i - 1] @ x - B[i - 1])
    np.testing.assert_allclose(run.server, x, atol=1e-6)


def test_delays_are_told_to_the_merge_in_server_versions():
    """A server that sums delays, beside one that counts merges."""

    def counting(loss, *, lr=0.1, steps=1, batch=0):
        base = fed_avg(loss, lr=lr, steps=steps, batch=batch)

        def merge(state, replies, cohort, key):
            return state[0], state[1] + jnp.where(cohort.weight > 0, cohort.delay, 0).sum(), cohort.ids

        init = lambda params, key: (params, jnp.int32(0), jnp.zeros(2, jnp.int32))
        return base._replace(init=init, merge=merge, message=lambda state, i: state[0])

    arrivals = Speeds(active=4, buffer=2, pace=HALF_SLOW)
    journal = arrivals.journal(0, CLIENTS, 30)
    done = journal.merge < 30
    server = run_of(engine_of(arrivals, counting), 30, lr=0.1).server
    assert server[1] == (journal.merge - journal.start)[done].sum() > 30
    assert sorted(np.asarray(server[2])) == sorted(journal.client[journal.merge == 29])


@pytest.mark.parametrize("how", [{}, {"stateless": True}, {"block": 3}, {"mode": "vmap"}])
def test_a_run_may_be_cut_anywhere(how):
    engine = engine_of(Speeds(active=4, buffer=2, pace=HALF_SLOW), ditto, **how)
    whole = run_of(engine, 17, lr=0.1, lam=0.3)
    parts = engine.start(MODEL.init, 0, {"lr": 0.1, "lam": 0.3})
    for rounds in (1, 5, 0, 10, 1):
        parts = engine.advance(parts, rounds)
    assert (parts.round, parts.clock) == (whole.round, whole.clock)
    for name in ("server", "rows", "known", "flight"):
        jax.tree.map(np.testing.assert_array_equal, getattr(whole, name), getattr(parts, name))


def test_a_long_run_compiles_the_first_version_and_all_others_once_each():
    engine = engine_of(Speeds(active=6, buffer=2, pace=HALF_SLOW), block=8)
    for seed, lr in ((0, 0.1), (1, 0.2)):
        run_of(engine, 30, seed, lr=lr)
    assert engine._block._cache_size() == 2


def test_slow_clients_answer_less_often_when_the_same_client_goes_on():
    counts = {}
    for policy in ("new", "same"):
        engine = engine_of(Speeds(active=6, policy=policy, pace=HALF_SLOW))
        counts[policy] = engine.visited(run_of(engine, 300, lr=0.01))
    slow = {policy: count[3:].sum() / count.sum() for policy, count in counts.items()}
    assert slow["same"] < 0.2 < 0.4 < slow["new"] < 0.6


def test_visits_are_counted_by_client():
    engine = engine_of(Delays((0,), clients=(4, 4, 1)), local)
    run = run_of(engine, 6, lr=0.1)
    assert engine.visited(run).tolist() == [0, 2, 0, 0, 4, 0]
    assert engine.visited(engine.start(MODEL.init, 0, {"lr": 0.1})).sum() == 0
    assert np.flatnonzero(run.known).tolist() == [1, 4]


def test_a_client_that_starts_twice_from_one_version_works_on_and_draws_anew():
    """Two visits of one client in one merge: Local then makes two visits' steps, each with its own batches."""
    x, y = np.zeros((8, 1), np.float32), np.arange(8, dtype=np.float32)
    loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum()
    arrivals = Delays((0, 0), clients=(0,), buffer=2)
    build = lambda hyper, round: local(loss, steps=1, lr=1.0, batch=1)
    engine = Asynchronous(build, x, y, np.array([0, 8]), arrivals=arrivals)
    once = Asynchronous(build, x, y, np.array([0, 8]), arrivals=Delays((0,), clients=(0,)))
    ends = lambda engine: [
        float(engine.advance(engine.start(lambda key: jnp.zeros(()), seed), 1).rows[0]) for seed in range(4)
    ]
    assert ends(engine) != ends(once)  # a step of size 1 on one example ends at that example's y
    assert engine.visited(engine.advance(engine.start(lambda key: jnp.zeros(()), 0), 1)).tolist() == [2]


def test_everybody_has_a_model_at_any_time():
    engine = engine_of(Speeds(active=3, pace=HALF_SLOW), ditto, population=5)
    models = engine.personal(run_of(engine, 7, lr=0.1, lam=0.3), np.arange(CLIENTS))
    assert models.shape == (CLIENTS, SIZE) and np.isfinite(models).all()


def test_devices_divide_the_replies_of_a_buffer():
    arrivals = Speeds(active=4, buffer=4, pace=HALF_SLOW)
    one, two = (run_of(engine_of(arrivals, ditto, devices=jax.devices()[:n]), 10, lr=0.1, lam=0.3) for n in (1, 2))
    np.testing.assert_allclose(one.server, two.server, atol=1e-6)
    np.testing.assert_allclose(one.rows, two.rows, atol=1e-6)


def test_times_follow_their_law():
    typical = Pace("lognormal", spread=0.5).typical(0, 4000)
    assert abs(np.log(typical).std() - 0.5) < 0.02 and abs(np.median(typical) - 1) < 0.05
    assert sorted(Pace("zipf", spread=2.0).typical(1, 3)) == [1.0, 4.0, 9.0]
    assert Pace().typical(0, 3).tolist() == [1, 1, 1]
    drawn = Pace(jitter="exponential").draw(np.random.default_rng(0), np.full(4000, 3.0))
    assert abs(drawn.mean() - 3) < 0.15


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Speeds(active=0), "active must be at least 1"),
        (lambda: Speeds(active=2, policy="sam"), "did you mean 'same'"),
        (lambda: Speeds(active=9).journal(0, 4, 1), "lower 'active'"),
        (lambda: Delays((1, -1)), "at least 0"),
        (lambda: Delays((1,), clients=(7,)).journal(0, 4, 1), "client 7 is not one of the 4"),
        (lambda: Recorded((0,), (2.0,), (1.0,)), "job 0 ends before it begins"),
        (lambda: Recorded((0,), (2.0, 3.0), (1.0,)), "for every job"),
        (lambda: Pace("lognormale"), "did you mean 'lognormal'"),
        (lambda: Pace("given"), "one typical time per client"),
        (lambda: Pace("given", times=(1.0, 0.0)), "above 0"),
        (lambda: Pace("given", times=(1.0,)).typical(0, 2), "give one per client"),
        (lambda: Pace("zipf", spread=-1.0), "at least 0"),
    ],
)
def test_nonsense_is_refused_in_words(make, words):
    with pytest.raises(UserError, match=words):
        make()


def shared_or_not(shared, seed=0, d=10, n=16):
    """Sixteen clients of random rank. In the first case one point is everybody's best."""
    rng = np.random.default_rng(seed)
    h = []
    for _ in range(n):
        q, _ = np.linalg.qr(rng.standard_normal((d, d)))
        h.append(q @ np.diag(np.where(rng.random(d) < 0.5, rng.uniform(0.05, 1, d), 0)) @ q.T)
    best = rng.standard_normal(d)
    best = np.array([best + (0 if shared else 0.5) * rng.standard_normal(d) for _ in range(n)])
    return np.array(h), np.einsum("ijk,ik->ij", np.array(h), best)


@pytest.mark.parametrize("policy", ["new", "same"])
def test_a_shared_optimum_is_reached_whatever_the_delays_and_without_one_progress_stalls(policy, x64):
    """Gradient steps, applied as they arrive, of 8 clients at work; half of all are ten times slower."""
    pace = Pace("given", times=(1.0,) * 8 + (10.0,) * 8, jitter="exponential")
    ends = {}
    for shared in (True, False):
        h, b = shared_or_not(shared)
        loss = objective(quadratic(10), "custom").loss
        build = lambda hyper, round, loss=loss: fed_avg(loss, steps=1, batch=0, lr=0.1)
        arrivals = Speeds(active=8, policy=policy, pace=pace)
        engine = Asynchronous(build, h, b, np.arange(17), arrivals=arrivals, block=500)
        run = engine.advance(engine.start(quadratic(10).init, 0), 4000)
        ends[shared] = np.linalg.norm(np.mean(h, 0) @ np.asarray(run.server) - b.mean(0))
        journal = arrivals.journal(0, 16, 4000)
        assert (journal.merge - journal.start)[journal.merge < 4000].max() > 20
    assert ends[True] < 1e-12
    assert ends[False] > 0.03


def test_a_run_of_the_engine_can_be_saved_and_taken_up_again():
    engine = engine_of(Speeds(active=3, pace=HALF_SLOW), ditto)
    run = run_of(engine, 5, lr=0.1, lam=0.3)
    flight = jax.tree.map(jnp.array, run.flight)
    copy = dataclasses.replace(run, rows=np.array(run.rows), known=run.known.copy(), flight=flight)
    again = engine_of(Speeds(active=3, pace=HALF_SLOW), ditto)
    here, there = engine.advance(run, 9), again.advance(copy, 9)
    np.testing.assert_array_equal(here.server, there.server)
    np.testing.assert_array_equal(here.rows, there.rows)
