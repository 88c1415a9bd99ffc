"""All-for-one and all-for-all: traces, identities, what step sizes must be, and estimating a hundred means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import B, H, local_optima, random_problem
from golden_similar import (
    afa,
    balanced_mixture,
    coins,
    error,
    largest,
    neighbours,
    phases,
    running_means,
    wga,
)  # fmt: skip
from quadratic_runs import ENGINES, trace

from apiece.engines.simulation.vectorized import Vectorized
from apiece.errors import UserError
from apiece.estimate import similarity
from apiece.methods.all_for_all import all_for_all
from apiece.methods.all_for_one import all_for_one
from apiece.methods.naive_all_for_all import naive_all_for_all
from apiece.protocol import Cohort, Data
from apiece.testing.clients import Chosen
from apiece.theory import formulas

pytestmark = pytest.mark.usefixtures("x64")

PAIR = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1.0]])  # clients 0 and 1 together, 2 alone
EVERYBODY = [(0, 1, 2)] * 3
PAIR_PRINTED = [(0.1, 0.075), (0.183125, 0.14), (0.252156, 0.196422)]
H6, B6 = random_problem(seed=5, clients=6, examples=30, features=4, mu=0.2, smoothness=1.0, radius=1.0)


def close(actual, expected, atol=1e-6):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def digits(actual, printed):
    close(actual, printed, 1.5e-6)


# Traces.


@pytest.mark.parametrize("engine", ENGINES)
def test_all_for_one(engine):
    got = trace(engine, "all_for_one", H, B, 3, mixture=[0.5, 0.5, 0.0], lr=0.1)
    close(got.server, wga(H, B, (0.5, 0.5, 0), 3, 0.1))
    digits(got.server, PAIR_PRINTED)
    close(got.models[-1], np.tile(got.server[-1], (3, 1)))


@pytest.mark.parametrize("engine", ENGINES)
def test_all_for_all_synchronous(engine):
    got = trace(engine, "all_for_all", H, B, 3, steps=1, clusters=[0, 0, 1], lr=0.1)
    close(got.models, afa(H, B, PAIR, EVERYBODY, 0.1))
    digits(got.models[:, 0], PAIR_PRINTED)
    digits(got.models[:, 1], PAIR_PRINTED)
    digits(got.models[:, 2], [(-0.1, 0.3), (-0.19, 0.51), (-0.271, 0.657)])


@pytest.mark.parametrize("engine", ENGINES)
def test_all_for_all_one_client_at_a_time(engine):
    schedule = ((0,), (1,), (2,))
    got = trace(
        engine, "all_for_all", H, B, 3, steps=1, clusters=[0, 0, 1], lr=0.1, participation=Chosen(schedule=schedule)
    )
    close(got.models, afa(H, B, PAIR, schedule, 0.1))
    digits(got.models[:, 0], [(0.1, 0.05), (0.09375, 0.07), (0.09375, 0.07)])
    digits(got.models[:, 1], got.models[:, 0])
    digits(got.models[:, 2], [(0, 0), (0, 0), (-0.1, 0.3)])


def last(name, rounds, h=H6, b=B6, **options):
    return trace("vectorized", name, h, b, rounds, every=rounds, **options).models[-1]


# Where methods meet.


def test_apart_everybody_trains_alone():
    got = last("all_for_all", 200, steps=1, clusters=range(6), lr=1.0)
    close(got, local_optima(H6, B6))


def test_together_all_share_one_model_moved_by_the_mean_gradient():
    got = last("all_for_all", 20, steps=1, clusters=[0] * 6, lr=0.5)
    close(got, np.tile(wga(H6, B6, np.ones(6) / 6, 20, 0.5)[-1], (6, 1)), 1e-12)
    close(got[0], last("all_for_one", 20, population=6, lr=0.5)[0], 1e-12)
    close(got, last("fed_avg", 20, steps=1, lr=0.5), 1e-9)


def test_with_more_steps_apart_is_local_and_together_is_fed_avg_of_equal_clients():
    work = dict(steps=5, lr=0.3)
    close(last("all_for_all", 4, clusters=range(6), **work), last("local", 4, **work), 1e-12)
    close(last("all_for_all", 4, clusters=[0] * 6, **work), last("fed_avg", 4, **work), 1e-12)


def test_within_a_cluster_all_for_all_is_all_for_one():
    got = last("all_for_all", 20, steps=1, clusters=[0, 1, 1, 0, 1, 2], lr=0.5)
    for members in ((0, 3), (1, 2, 4), (5,)):
        share = np.isin(np.arange(6), members) / len(members)
        expected = wga(H6, B6, share, 20, 0.5)[-1]
        for i in members:
            close(got[i], expected, 1e-12)


def test_the_row_of_b_filters_as_the_mixture_it_means():
    b = np.array([[0.0, 0.3, 0.1, 0.6, 0.5, 9.0]])
    got = last("all_for_one", 5, bias=b[0], eps=1.0, lr=0.5)
    close(got, last("all_for_one", 5, mixture=[0.25, 0.25, 0.25, 0, 0.25, 0], lr=0.5), 1e-14)
    whole = np.full((6, 6), 5.0)
    whole[2] = [0.1, 0.2, 7.0, 0.9, 0.9, 0.9]  # on the diagonal b is 0, whatever stands there
    got = last("all_for_one", 5, bias=whole, agent=2, eps=0.5, lr=0.5)
    close(got, last("all_for_one", 5, mixture=[1 / 3, 1 / 3, 1 / 3, 0, 0, 0], lr=0.5), 1e-14)


def test_naive_all_for_all_is_all_for_one_for_everybody():
    b = np.random.default_rng(0).random((6, 6))
    got = last(naive_all_for_all, 10, bias=b, eps=0.8, lr=0.5)
    for i, share in enumerate(neighbours(b, 0.8)):
        close(got[i], wga(H6, B6, share, 10, 0.5)[-1], 1e-12)


def test_steps_are_those_of_gradient_descent_on_the_mixed_objective():
    """x = Lambda y: everybody at once is a step of N lr on f(y) = mean_i f_i((Lambda y)_i), one client a step of lr."""
    rng = np.random.default_rng(1)
    b = rng.random((6, 6))
    filter = neighbours(b, 0.9)
    lr, top = 0.3, largest(filter)
    y = np.zeros((6, 4))
    for cohort in (range(6), [2], [4]):
        x = filter @ y
        g = np.array([H6[j] @ x[j] - B6[j] if j in cohort else np.zeros(4) for j in range(6)])
        scale = 6 if len(cohort) == 6 else 1  # the gradient of f has 1/N; one client, drawn, stands for all
        y = y - scale * (lr / top) * filter.T @ g / (6 if len(cohort) == 6 else 1)
    schedule = (tuple(range(6)), (2,), (4,))
    got = last("all_for_all", 3, steps=1, bias=b, eps=0.9, lr=lr, participation=Chosen(schedule=schedule))
    close(got, filter @ y, 1e-12)


def test_all_for_one_takes_the_step_of_everybody_in_expectation():
    """One client drawn uniformly counts N times: the mean over who is drawn is the step of all."""
    share = np.array([0.5, 0.2, 0.1, 0.1, 0.1, 0.0])
    steps = [last("all_for_one", 1, mixture=share, lr=0.1, participation=Chosen(schedule=((j,),)))[0] for j in range(6)]
    close(np.mean(steps, 0), wga(H6, B6, share, 1, 0.1)[0], 1e-12)


# Step sizes.


def star(clients):
    b = np.full((clients, clients), 10.0)
    b[0] = b[:, 0] = 0
    return b


def test_on_a_star_the_printed_step_diverges_and_the_corrected_one_does_not():
    h, b, top = np.ones((100, 1, 1)), np.zeros((100, 1)), largest(neighbours(star(100), 1.0))
    assert top == pytest.approx(25.0, abs=0.05)
    risk = lambda lr: np.mean(last("all_for_all", 30, h, b, steps=1, bias=star(100), lr=lr, start=np.ones(1)) ** 2) / 2
    assert risk(0.5 * top) == pytest.approx(2e63, rel=0.3)  # lr is divided by 25: this is the step 1/(2L)
    assert risk(0.5) == pytest.approx(4.6e-3, rel=0.02)


def test_with_theory_the_step_and_the_phases_are_the_theorys():
    """Alike for eps = 1/2, and not for 1/4: lr = 1/(2L) for ceil(ln 4 / (mu lr)) = 12 rounds, then each alone."""
    b = np.full((6, 6), 0.2)
    options = dict(bias=b, eps=0.5, smoothness=1.0, convexity=0.25, noise=0.5)
    rounds = int(np.ceil(np.log(4) / (0.25 * 0.5)))
    assert rounds == 12
    shared = last("all_for_all", rounds, steps=1, **options)
    close(shared, np.tile(wga(H6, B6, np.ones(6) / 6, rounds, 0.5)[-1], (6, 1)), 1e-12)
    lr = 0.25 * 0.25 * 6 / (2 * 0.5 * 6)
    after = last("all_for_all", rounds + 1, steps=1, **options)
    close(after, shared - lr * np.array([H6[i] @ shared[i] - B6[i] for i in range(6)]), 1e-12)


def test_eps_halves_as_often_as_asked():
    b = np.full((6, 6), 0.2)
    shared = last("all_for_all", 3, steps=1, bias=b, eps=0.5, halve_every=3, lr=0.5)
    close(shared, np.tile(shared[0], (6, 1)), 1e-14)
    after = last("all_for_all", 4, steps=1, bias=b, eps=0.5, halve_every=3, lr=0.5)
    close(after, shared - 0.5 * np.array([H6[i] @ shared[i] - B6[i] for i in range(6)]), 1e-12)
    never = last("all_for_all", 4, steps=1, bias=b, eps=0.5, lr=0.5)
    close(never, np.tile(never[0], (6, 1)), 1e-14)


def absolute(w, batch, key):
    return jnp.abs(w)


def test_one_clients_own_gradients_need_the_number_of_clients_in_the_bound():
    """f = |x|, N = 100, K = 1000, only one's own gradients: .325, where .0447 was promised; with N it is .3354."""
    clients, rounds, repeats = 100, 1000, 200
    rng = np.random.default_rng(0)
    drawn = np.array([[rng.integers(clients) for _ in range(rounds)] for _ in range(repeats)])
    method = all_for_one(absolute, mixture=np.eye(clients)[0], lr=np.sqrt(1 / (2 * rounds * clients)), batch=0)
    nothing = Data(jnp.zeros(1), jnp.zeros(1), 0, 1, 1)

    def round(x, i):
        g = method.local((), method.message(x, i), nothing, jax.random.key(0))[1]
        cohort = Cohort(i[None], jnp.ones(1), jnp.zeros(1, int), clients)
        return method.merge(x, g[None], cohort, jax.random.key(0)), jnp.abs(x)

    run = jax.jit(jax.vmap(lambda who: jax.lax.scan(round, jnp.ones(()), who)[1].mean()))
    measured = float(run(drawn).mean())
    assert measured == pytest.approx(0.3250, abs=5e-5)
    assert np.sqrt(2 / rounds) == pytest.approx(0.0447, abs=5e-5)
    bound = np.sqrt(clients / rounds) * (1 / np.sqrt(2) + 1 / (2 * np.sqrt(2)))
    assert measured < bound == pytest.approx(0.3354, abs=5e-5)


# Estimating the means of a hundred coins. A round's data is that round's sample, so the rounds are played here as an
# engine plays them: everybody is shown its view, works, and the answers are merged.

TIMES = np.array([10, 30, 100, 300, 1000])
CHANCES = [np.random.default_rng(100 + r).random(100) for r in range(10)]


def half_square(w, batch, key):
    return (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()


def played(build, server, samples):
    """Everybody's model after each round; `build(round)` is the method."""
    clients = samples.shape[1]
    ids, key = jnp.arange(clients), jax.random.key(0)
    everybody = Cohort(ids, jnp.ones(clients), jnp.zeros(clients, int), clients)

    def round(server, now):
        t, sample = now
        method = build(t)
        view = jax.vmap(method.message, in_axes=(None, 0))
        work = lambda message, i: method.local((), message, Data(sample, sample, i, 1, 1), key)[1]
        server = method.merge(server, jax.vmap(work)(view(server, ids), ids), everybody, key)
        mine = Data(sample, sample, 0, 1, 1)  # nobody here is new: it is not read
        models = jax.vmap(lambda message: method.personal((), message, mine, key))(view(server, ids))
        return server, models

    return jax.lax.scan(round, server, (jnp.arange(len(samples)), samples))[1]


@jax.jit
def golden_schedule(samples, b):
    """Runs in one compile: b may be traced. The theory's phases, L = mu = 1, sigma^2 = 1/4, eps_0 = 1/2, from 1/2."""

    def one(samples, b):
        method = all_for_all(half_square, steps=1, bias=b, eps=0.5, smoothness=1.0, convexity=1.0, noise=0.25)
        return played(lambda t: method, method.init(jnp.array(0.5), None), samples)

    return jax.lax.map(lambda run: one(*run), (samples, b))


def runs(noise, repeats):
    every = [coins(r, CHANCES[r], 1000, noise) for r in range(repeats)]
    samples, b = (np.stack(column) for column in zip(*every, strict=True))
    models = np.asarray(golden_schedule(samples, b))
    return samples, b, np.stack([error(models[r], CHANCES[r]) for r in range(repeats)])


@pytest.mark.optimized
def test_a_hundred_means_are_found_sooner_together_than_alone_or_as_one():
    samples, b, errors = runs(0.0, 10)
    close(errors, [phases(samples[r], b[r], CHANCES[r]) for r in range(10)], 1e-9)
    found = errors.mean(0)
    digits(found[TIMES - 1], [0.001270, 0.000419, 0.000164, 0.000081, 0.000038])
    local = np.mean([error(running_means(samples[r]), CHANCES[r]) for r in range(10)], 0)
    digits(local[TIMES - 1], [0.008513, 0.002760, 0.000941, 0.000285, 0.000085])
    one = lambda r: running_means(samples[r].mean(1, keepdims=True))
    single = np.mean([error(one(r), CHANCES[r]) for r in range(10)], 0)
    digits(single[TIMES - 1], [0.041068, 0.040954, 0.040957, 0.040950, 0.040948])
    assert (found[9:] < np.minimum(local, single)[9:]).all()
    np.testing.assert_allclose((local / found)[TIMES - 1], [6.7, 6.6, 5.7, 3.5, 2.2], rtol=0.3)
    naive = np.mean([error(balanced_mixture(samples[r], b[r]), CHANCES[r]) for r in range(10)], 0)
    digits(naive[TIMES - 1], [0.000986, 0.000388, 0.000218, 0.000096, 0.000038])


NOISY = [
    (0.02, (0.001445, 0.000491, 0.000209, 0.000128, 0.000071)),
    (0.08, (0.002444, 0.001260, 0.000915, 0.000751, 0.000615)),
    (0.18, (0.005860, 0.004190, 0.003577, 0.003094, 0.002583)),
    (0.32, (0.012619, 0.010749, 0.009568, 0.008578, 0.007267)),
    (0.5, (0.020697, 0.018062, 0.015994, 0.014321, 0.012269)),
]


@pytest.mark.optimized
@pytest.mark.parametrize(("noise", "printed"), NOISY)
def test_a_noisy_b_helps_early_and_loses_to_training_alone_later(noise, printed):
    samples, _, errors = runs(noise, 10)
    found = errors.mean(0)
    digits(found[TIMES - 1], printed)
    local = np.mean([error(running_means(samples[r]), CHANCES[r]) for r in range(10)], 0)
    if noise >= 0.08:
        assert (found[119:] > local[119:]).all()  # from t of about 100 on
    if noise <= 0.18:
        assert found[9] < local[9]


def test_naive_all_for_all_with_steps_one_over_t_mixes_running_means():
    samples, b = coins(0, CHANCES[0], 40)
    build = lambda t: naive_all_for_all(half_square, bias=b, eps=0.01, lr=1 / (t + 1.0))
    server = build(0.0).init(jnp.array(0.5), None)
    models = jax.jit(lambda samples: played(build, server, samples))(samples)
    close(models, running_means(samples) @ neighbours(b, 0.01).T, 1e-12)


def test_on_an_engine_with_samples_drawn_at_random_the_claim_holds_too():
    """The engine holds a thousand samples of each and draws one a round: for t far below a thousand, nearly fresh."""
    samples, b = coins(0, CHANCES[0], 1000)
    y = np.ascontiguousarray(samples.T).reshape(-1)
    options = dict(steps=1, bias=b, eps=0.5, smoothness=1.0, convexity=1.0, noise=0.25, batch=1)
    build = lambda hyper, round: all_for_all(half_square, **options)
    engine = Vectorized(build, y, y, np.arange(0, 100_001, 1000), block=100)
    run = engine.start(lambda key: jnp.array(0.5), seed=0)
    for rounds, t in ((10, 10), (20, 30), (70, 100)):
        run = engine.advance(run, rounds)
        found = error(engine.personal(run, np.arange(100)), CHANCES[0])
        assert found < 0.5 * np.mean(CHANCES[0] * (1 - CHANCES[0])) / (2 * t)


# Where the models start, when b is estimated from the very samples they learn from.


def estimated(chances, seed, how, restart, warm=5, eps=0.125, common=True, rounds=1000):
    """Phases with b estimated anew at each, from all samples so far; the last error."""
    samples, true = coins(seed, chances, rounds)
    sums, clients = np.cumsum(samples, 0), len(chances)
    t, q = warm, 0
    x = np.full(clients, sums[t - 1].mean() / t) if common else sums[t - 1] / t
    while t < rounds:
        mean = sums[t - 1] / t
        errors = np.maximum(mean * (1 - mean), 0.5 / t) / (t - 1)
        b = true if how == "oracle" else np.asarray(similarity.gradient_bias(mean, errors, how=how))
        filter = np.asarray(similarity.neighbours(b, eps / 2**q))
        w = formulas.mixing(filter)
        lonely, top = float(formulas.loneliness(filter)), float(similarity.largest_eigenvalue(filter))
        lr = min(0.5 / top, eps / 2**q * clients / (0.5 * lonely))
        if restart:
            x = np.asarray(similarity.combine(filter, mean))
        for _ in range(min(int(np.ceil(np.log(4) / lr)), rounds - t)):
            x = x - lr * w @ (x - samples[t])
            t += 1
        q += 1
    return error(x, chances)


def mean_error(how, restart, chances=None, **options):
    every = range(6)
    return np.mean([estimated(CHANCES[r] if chances is None else chances, r, how, restart, **options) for r in every])


def test_models_that_start_apart_keep_what_mixing_never_contracts():
    assert mean_error("oracle", False, common=False) == pytest.approx(0.0118, rel=0.01)
    assert mean_error("oracle", False) == pytest.approx(0.000035, abs=0.5e-6)


@pytest.mark.thorough
@pytest.mark.optimized
def test_whoever_estimates_again_must_start_again_from_mixed_local_models():
    kept, restarted = mean_error("unbiased", False), mean_error("unbiased", True)
    assert kept == pytest.approx(6.1e-3, rel=0.01)
    assert restarted == pytest.approx(1.39e-4, rel=0.01)
    assert kept > 40 * restarted
    assert mean_error("plain", True) == pytest.approx(1.28e-4, rel=0.01)
    assert mean_error("upper", True) == pytest.approx(9.3e-5, rel=0.01)
    assert mean_error("oracle", True) == pytest.approx(3.2e-5, rel=0.02)


@pytest.mark.thorough
@pytest.mark.optimized
def test_with_separate_clusters_every_estimate_beats_training_alone():
    chances = np.repeat([0.1, 0.35, 0.65, 0.9], 25)
    alone = np.mean(chances * (1 - chances)) / 2000
    assert alone == pytest.approx(7.9e-5, abs=1e-6)
    found = [mean_error(how, True, chances, warm=10) for how in ("plain", "unbiased", "upper", "oracle")]
    np.testing.assert_allclose(found, [4.0e-5, 2.6e-5, 7.3e-5, 4e-6], rtol=0.02, atol=0.5e-6)
    assert max(found) < alone


# b measured on the way.


def regressions(clients=12, examples=20, features=5, noise=1.0, seed=2):
    """Two kinds of clients, in turn."""
    rng = np.random.default_rng(seed)
    kinds = rng.standard_normal((2, features))
    x = rng.standard_normal((clients, examples, features))
    truth = kinds[np.arange(clients) % 2]
    y = np.einsum("inf,if->in", x, truth) + noise * rng.standard_normal((clients, examples))
    return x.reshape(-1, features), y.reshape(-1), truth


def squares(w, batch, key):
    miss = jnp.square(batch.x @ w - batch.y) / 2
    return (batch.weight * miss).sum() / batch.weight.sum()


def fitted(x, y, clients, rounds, participation=None, **options):
    build = lambda hyper, round: all_for_all(squares, population=clients, **{"steps": 1, "batch": 0, **options})
    offsets = np.arange(clients + 1) * (len(y) // clients)
    engine = Vectorized(build, x, y, offsets, participation=participation, block=rounds)
    run = engine.advance(engine.start(lambda key: jnp.zeros(x.shape[1]), seed=0), rounds)
    return run.server, engine.personal(run, np.arange(clients))


def test_with_default_options_two_kinds_of_clients_are_told_apart_and_each_kind_learns_together():
    x, y, truth = regressions()
    server, models = fitted(x, y, 12, 120, lr=0.3)
    kinds = np.arange(12) % 2
    same, near = kinds[:, None] == kinds[None], np.asarray(server.mixing.w) > 0
    assert not near[~same].any()
    assert near[same].mean() > 0.85
    risk = lambda models: np.mean(np.sum((models - truth) ** 2, 1))
    solve = lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0]
    alone = np.array([solve(x[20 * i : 20 * i + 20], y[20 * i : 20 * i + 20]) for i in range(12)])
    assert risk(models) < 0.5 * risk(alone)
    assert risk(models) < 0.1 * risk(solve(x, y))


def test_with_default_options_clients_of_one_kind_stay_together():
    """By gradients, chance alone parts a pair now and then, one in twelve here; the fewer the dimensions, the more."""
    problem = dict(examples=60, features=30)
    x, y, truth = regressions(**problem)
    y = y - np.einsum("nf,nf->n", x, np.repeat(truth, 60, axis=0))  # nothing is left but noise
    server, _ = fitted(x, y, 12, 80, lr=0.3, by="gradients")
    assert (np.asarray(server.b) <= 0.5).mean() > 0.85
    server, _ = fitted(x, y, 12, 120, lr=0.3)
    assert (np.asarray(server.mixing.w) > 0).all()


def test_in_the_warm_up_all_share_one_model_and_b_is_the_largest_unbiased_distance():
    x, y, _ = regressions(clients=4)
    server, models = fitted(x, y, 4, 2, lr=0.3, by="gradients", warmup=2, convexity=0.5)
    close(models, np.tile(models[0], (4, 1)), 1e-14)
    w, expected = np.zeros(5), np.full((4, 4), -np.inf)
    for _ in range(2):
        single = ((x @ w - y)[:, None] * x).reshape(4, 20, 5)
        g = single.mean(1)
        squared = ((g[:, None] - g[None]) ** 2).sum(-1)
        # What is taken off is an estimate from eight random chunks: only its order is known here.
        errors = single.var(1, ddof=1).sum(-1) / 20
        expected = np.maximum(expected, squared - errors[:, None] - errors[None])
        w = w - 0.3 * g.mean(0)
    close(models[0], w, 1e-9)
    off = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(np.asarray(server.b)[off], expected[off].clip(0), rtol=0.5, atol=1.0)
    assert int(server.phase) == 0 and int(server.spent) == 0


def test_clients_that_were_never_seen_together_are_apart():
    x, y, _ = regressions(clients=4)
    schedule = Chosen(schedule=((0, 2), (1, 3), (0, 1, 2, 3)))
    server, _ = fitted(x, y, 4, 3, schedule, lr=0.3, by="gradients", warmup=2, eps=100.0)
    expected = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]) / 2
    close(server.mixing.w, expected, 1e-12)


def test_a_newcomer_is_shown_the_mean_of_all_models():
    got = trace("vectorized", "all_for_all", H, B, 3, steps=1, clusters=[0, 0, 1], lr=0.1)
    method = all_for_all(half_square, clusters=[0, 0, 1])
    for server, models in zip(got.server, got.models, strict=True):
        close(method.message(server, jnp.int32(3)).x, models.mean(0), 1e-12)
        close(method.message(server, jnp.int32(7)).x, models.mean(0), 1e-12)


# What is refused.

WRONG = [
    (all_for_all, {}, "give 'population'"),
    (all_for_all, dict(population=3, clusters=[0, 1]), "a label for each of 3 clients"),
    (all_for_all, dict(bias=[[0.0, 1.0]]), "'bias' is a 1 x 1 matrix"),
    (all_for_all, dict(bias=[[0.0, -1.0], [1.0, 0.0]]), "numbers from 0"),
    (all_for_all, dict(bias=np.zeros((2, 2)), clusters=[0, 1]), "not both"),
    (
        all_for_all,
        dict(population=3, by="gradients"),
        "by = 'gradients' is for a single gradient a round: give steps = 1",
    ),
    (all_for_all, dict(clusters=[0, 1], bound=1.0, distance=1.0), "theory's steps are for a single gradient"),
    (all_for_all, dict(clusters=[0, 1], smoothness=1.0), "all of 'smoothness', 'convexity' and 'noise'"),
    (all_for_all, dict(population=3, by="trial"), "'by' is not 'trial': did you mean 'trials'"),
    (all_for_all, dict(population=3, candidates=0), "'by' = 'trials' needs 'candidates' of 1 or more"),
    (naive_all_for_all, dict(population=3), "give 'bias' or 'clusters'"),
    (all_for_one, {}, "give 'population'"),
    (all_for_one, dict(population=3, mixture=[0.5, 0.5]), "a number for each of 3 clients"),
    (all_for_one, dict(mixture=[0.5, 0.2]), "sums to 0.7"),
    (all_for_one, dict(mixture=[1.5, -0.5]), "below 0"),
    (all_for_one, dict(population=2, agent=2), "no 'agent' 2"),
    (all_for_one, dict(mixture=[1.0], bias=[0.0]), "not both"),
]


@pytest.mark.parametrize(("factory", "options", "message"), WRONG)
def test_a_wrong_option_is_named(factory, options, message):
    with pytest.raises(UserError, match=message):
        factory(half_square, **options)
