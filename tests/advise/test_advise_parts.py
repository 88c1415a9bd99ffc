"""The parts of an advice against plain NumPy programs: folds, pooled fits, the path, EM, kappa, the grid, intervals."""

import jax
import numpy as np
import pytest

from apiece.advise import questions as q
from apiece.advise import stacking
from apiece.advise.choose import choose, pick_candidates
from apiece.advise.folds import ask_by_size, settings_of, size_buckets
from apiece.advise.foresee import foresee
from apiece.advise.keep import Kept
from apiece.advise.pilot import (
    DECAYS,
    RIDGE,
    Pilot,
    choose_decay,
    cluster_means,
    fit_shared,
    keep_candidates,
    run_pilot,
    score_by_size,
    tell_all,
)
from apiece.advise.pilot import Asked as Clients
from apiece.advise.recipe import best_pull, make_recipe
from apiece.advise.weigh import KAPPAS, WIDTH, HeldOut, Inquiry, Told, tell_sums
from apiece.client.linear import deal_folds
from apiece.data import from_rows
from apiece.data.sources.synthetic import linear as linear_federation
from apiece.experiment import build as setup
from apiece.experiment.spec_tables import ModelSpec, TrainSpec
from apiece.protocol import Question

SEED = 5


@pytest.fixture(scope="module")
def clients():
    federation = linear_federation(clients=6, examples=18, features=3, seed=1)
    place = setup.arena(federation, setup.model_of(ModelSpec(), federation))
    engine = setup.engine_of(place, "fed_avg", {}, TrainSpec())[0]
    of = q.Linear(place.objective.loss, place.model.apply, 0)
    return federation, place, Clients(engine, np.asarray(engine.sizes)), of


def with_ones(x):
    return np.hstack([x, np.ones((len(x), 1))])


def folds_of(i, rows):
    key = jax.random.fold_in(jax.random.fold_in(jax.random.fold_in(jax.random.key(0), i), 0x666F6C64), SEED)
    return np.asarray(deal_folds(key, rows))


def flat(model):
    return np.append(np.asarray(model["w"])[0], np.asarray(model["b"])).astype(np.float64)


def test_shared_models_of_all_settings_are_least_squares_without_the_held_out_rows(clients):
    federation, place, asked, of = clients
    settings = settings_of(2)
    start = jax.tree.map(lambda leaf: np.zeros((len(settings), *leaf.shape)), place.model.init(jax.random.key(0)))
    found = fit_shared(asked, of, start, settings, 1e-4, SEED)
    for at, setting in enumerate(settings):
        keep = np.concatenate([~np.isin(folds_of(i, 18), setting) for i in range(6)])
        x, y = with_ones(np.asarray(federation.train.x))[keep], np.asarray(federation.train.y)[keep]
        best = np.linalg.solve(x.T @ x / len(y) + 1e-4 * np.eye(4), x.T @ y / len(y))
        one = jax.tree.map(lambda leaf: leaf[at], found)  # noqa: B023 (used at once)
        np.testing.assert_allclose(flat(one), best, atol=2e-3)


def test_clients_tell_summed_scores_of_the_path_and_local_models_without_the_fold(clients):
    federation, place, asked, of = clients
    shared = {"w": np.full((2, 1, 3), 0.5, np.float32), "b": np.zeros((2, 1), np.float32)}
    settings, pulls, ridges = ((1,), (0, 1)), np.array([18.0, 1.8]), np.array([0.5])
    held = keep_candidates(place, asked, of, settings, shared, pulls, ridges, None, SEED)
    told = tell_all(asked, held, settings, pulls, ridges)
    center = np.array([0.5, 0.5, 0.5, 0.0])
    for i in range(6):
        x, y = federation.train.client(i)
        for at, setting in enumerate(settings):
            out = np.isin(folds_of(i, 18), setting)
            kept, target, n = with_ones(x[~out]), y[~out], int((~out).sum())
            models = [center]
            for pull in pulls:
                lam = pull / n
                models.append(np.linalg.solve(kept.T @ kept / n + lam * np.eye(4), kept.T @ target / n + lam * center))
            ridge = np.diag([0.5, 0.5, 0.5, 0.0])
            models.append(np.linalg.solve(kept.T @ kept / n + ridge, kept.T @ target / n))
            square = (y[out][:, None] - with_ones(x[out]) @ np.stack(models).T) ** 2
            assert told.count[i, at] == out.sum()
            np.testing.assert_allclose(told.every[i, at][[0, 2, 3, 4]], square.sum(axis=0), rtol=2e-2, atol=2e-2)
    # Nothing that a client says has a place for an example; what it keeps has.
    said, kept = (jax.tree.map(lambda leaf: leaf.shape, each) for each in (told, tuple(held._run.rows)))
    every, many = 5, WIDTH + len(KAPPAS)
    assert said == Told((6, 2), (6, 2, every), *[(6, 2, many)] * 2, *[(6, many, many)] * 2)
    assert kept == ((6, 2, 10, every, 1), (6, 2, 10)), "of at most ten held-out examples"


def test_clients_of_very_different_sizes_are_asked_in_buckets_and_answer_in_order():
    sizes = np.array([3, 700, 40, 5, 650])
    buckets = size_buckets(tuple(sizes.tolist()))
    assert sorted(np.concatenate([who for _, who in buckets]).tolist()) == [0, 1, 2, 3, 4]
    assert all(sizes[who].max() <= rows for rows, who in buckets) and buckets[0][0] == 700 > buckets[-1][0]

    def ask(question, message, ids):
        assert question.stacked
        return np.stack([np.full(question.answer(None, None, None), i) for i in ids])

    make = lambda rows: Question(lambda message, data, key: rows // 100 + 1, stacked=True)
    assert ask_by_size(ask, make, sizes, ())[:, 0].tolist() == [0, 1, 2, 3, 4]


def told(p, present=None, weights=None, less=None):
    """What clients tell of held-out densities of two classes, [clients, examples, candidates] of the true one."""
    present = np.ones(p.shape[:2]) if present is None else present
    count = p.shape[2]
    weights = np.full(count, 1 / count) if weights is None else weights
    asked = Inquiry((), np.int32([*range(count), *[0] * (WIDTH - count)]),
                    np.float32([np.append(weights, np.zeros(WIDTH - count))] * 2), np.ones(2, np.float32))  # fmt: skip
    asked = jax.tree.map(jax.numpy.asarray, asked)
    said = lambda p: np.log(np.stack([p, 1 - p], axis=-1)).astype(np.float32)
    parts = (said(p), np.float32(present)), (said(p if less is None else less), np.float32(present))
    return Told(*map(np.asarray, jax.vmap(lambda *parts: tell_sums(parts, asked, True))(*parts)))


def weights_by_engine(p, present):
    def score(given, data, key):
        rows = jax.lax.dynamic_slice_in_dim(data.x, data.start, p.shape[1])
        there = jax.lax.dynamic_slice_in_dim(data.y, data.start, p.shape[1])
        return q.Scores(np.stack([0, 0])[:, None, None, None] + rows[None], np.ones((2, 1)) * there[None])

    logs = np.log(np.stack([p, 1 - p], axis=-1)).astype(np.float32)  # rows are log densities already
    rows = (
        logs.reshape(-1, *logs.shape[2:]),
        np.float32(present).reshape(-1),
        np.arange(0, present.size + 1, p.shape[1]),
    )
    return HeldOut(rows, len(p), False, score, np.zeros(1, np.float32), 2, 1).weigh([0, 1], np.ones(2))


def densities(clients=30, examples=8, seed=0):
    """The first candidate is good for two thirds of the clients, the second for the others."""
    rng = np.random.default_rng(seed)
    good = np.where((np.arange(clients) % 3 == 0)[:, None, None], [0.3, 0.8], [0.8, 0.3])
    return np.clip(good + 0.1 * rng.normal(size=(clients, examples, 2)), 0.05, 0.95)


def test_pooled_and_own_weights_are_those_of_plain_em():
    p = densities()
    present = (np.random.default_rng(1).random(p.shape[:2]) < 0.8).astype(float)
    present[4] = 0
    w = np.array([0.5, 0.5])
    for _ in range(60):
        means = [np.mean([p[i, e] * w / (p[i, e] @ w) for e in np.flatnonzero(present[i])], axis=0)
                 for i in range(len(p)) if present[i].any()]  # fmt: skip
        w = np.mean(means, axis=0)
    pooled = weights_by_engine(p, present)
    np.testing.assert_allclose(pooled, [w, [1.0, 0.0]], rtol=1e-4, atol=1e-5)
    losses = told(p, present, w).loss[3, 0]
    there, mixed = np.flatnonzero(present[3]), 0.0
    for half in (0, 1):
        own = w
        for _ in range(25):
            r = np.array([p[3, e] * own / (p[3, e] @ own) for e in there if e % 2 != half])
            own = (r.sum(axis=0) + 10 * w) / (len(r) + 10)
        mixed -= sum(np.log(p[3, e] @ own) for e in there if e % 2 == half)
    np.testing.assert_allclose(losses[WIDTH], mixed, rtol=1e-5)
    np.testing.assert_allclose(losses[WIDTH + 3], -np.log(p[3, there] @ w).sum(), rtol=1e-5)
    np.testing.assert_allclose(losses[:2], -np.log(p[3, there]).sum(axis=0), rtol=1e-5)
    assert (told(p, present, w).loss[4] == 0).all(), "nobody held out, nothing told"


def test_clients_have_weights_of_their_own_where_held_out_halves_confirm_them_and_not_for_noise():
    differ, alike = told(densities(clients=60)), told(np.random.default_rng(1).uniform(0.05, 0.95, (300, 8, 2)))
    assert stacking.choose_kappa(differ) == 10.0
    assert stacking.choose_kappa(alike) >= 100.0
    assert stacking.choose_kappa(told(densities(clients=5))) == np.inf, "too few clients"


def test_what_is_told_of_two_predictors_gives_their_paired_difference():
    p = densities(clients=12)
    found = told(p, weights=np.array([0.9, 0.1]))
    total, square = stacking.paired(found.loss, found.loss_cross, 1, stacking.mixture_of(KAPPAS[-1]))
    difference = np.log(p @ [0.9, 0.1]) - np.log(p[..., 1])
    np.testing.assert_allclose(total, difference.sum(axis=1), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(square, (difference**2).sum(axis=1), rtol=1e-4, atol=1e-4)


def test_clients_of_all_sizes_score_on_as_many_rows_as_they_need():
    def make(rows):
        return lambda message, data, key: q.Scores(
            np.full((1, rows // 4), rows, np.float32), np.ones((1, rows // 4), np.float32))  # fmt: skip

    from apiece.protocol import Data

    score = score_by_size(make, np.array([800, 20, 3]))
    of = lambda size: jax.jit(lambda n: score((), Data(0, 0, 0, n, 800), None))(size)
    assert [float(of(size).said[0, 0]) for size in (800, 20)] == [800.0, 50.0]
    assert of(20).said.shape == of(800).said.shape and of(20).present.sum() == 50 // 4


NAMES = ["shared", "frequencies", "path 0", "path 1", "local 0", "2 groups"]


def scored(levels, clients=40, examples=10, noise=0.03, seed=0):
    p = np.clip(
        np.asarray(levels) + noise * np.random.default_rng(seed).normal(size=(clients, examples, len(levels))),
        0.02,
        0.98,
    )
    return p


def chosen_of(p):
    found = told(p)
    picked = pick_candidates(stacking.pooled_scores(found, 2), NAMES)
    weights = weights_by_candidates(p, picked.at)
    return choose(told(p[:, :, picked.at], weights=weights)._replace(every=found.every), picked, weights)


def weights_by_candidates(p, at):
    w = np.full(len(at), 1 / len(at))
    for _ in range(60):
        joint = p[:, :, at] * w
        w = (joint / joint.sum(axis=-1, keepdims=True)).mean(axis=(0, 1))
    return w


@pytest.mark.parametrize(
    ("levels", "named"),
    [
        ([0.8, 0.8, 0.7, 0.6, 0.5, 0.6], "shared"),
        ([0.6, 0.6, 0.7, 0.8, 0.5, 0.6], "path"),
        ([0.5, 0.5, 0.6, 0.7, 0.9, 0.6], "local"),
        ([0.5, 0.5, 0.6, 0.6, 0.5, 0.9], "groups"),
    ],
)
def test_the_best_candidate_is_named_where_a_mixture_adds_nothing(levels, named):
    assert chosen_of(scored(levels)).named == named


def test_a_mixture_is_named_where_clients_want_different_candidates():
    p = np.full((40, 10, 6), 0.4)
    p[::2, :, 0], p[1::2, :, 4] = 0.9, 0.9
    assert chosen_of(p).named == "stack"


def test_gains_are_extrapolated_to_all_data_and_their_interval_holds_the_truth():
    # Errors of models on 3/4 and 1/2 of the data: risk = a + b/n, so that all data have 1.5 e75 - 0.5 e50.
    rng = np.random.default_rng(0)
    risk = lambda a, b, share: a + b / share
    inside = 0
    for _ in range(40):
        law = ((0.2, 0.0), (0.2, 0.0), (0.1, 0.01), (0.1, 0.01), (0.1, 0.06), (0.3, 0.0))
        drawn = lambda share: np.stack([rng.random((60, 30)) < risk(a, b, share) for a, b in law], axis=-1)  # noqa: B023
        wrong = {share: drawn(share) for share in (0.75, 0.5)}
        held, less = (np.where(wrong[share], 0.3, 0.7) for share in (0.75, 0.5))
        choice = chosen_of(held)._replace(named="path")
        found = foresee(choice, told(held[:, :, choice.at], less=less[:, :, choice.at]), 1.0, True).gains["local"]
        inside += found.low <= 100 * (0.16 - 0.11) <= found.high
    assert 33 <= inside <= 40


def test_tight_groups_are_found_from_noisy_models():
    rng = np.random.default_rng(0)
    true = rng.normal(size=(3, 30)) * 2
    who = np.arange(60) % 3
    means = cluster_means(true[who] + rng.normal(size=(60, 30)), 3, rng)
    distance = ((means[:, None] - true[None]) ** 2).mean(axis=2)
    assert sorted(distance.argmin(axis=0).tolist()) == [0, 1, 2] and distance.min(axis=0).max() < 0.2


def test_the_pull_lies_where_a_parabola_through_three_points_is_least(clients):
    _, place, asked, of = clients
    pilot = run_pilot(place, asked.engine, of, place.model.init(jax.random.key(0)), folds=1, seed=0, groups=False,
                      kept=Kept(None, ""), tell=lambda what, share: None)  # fmt: skip
    grid = np.log10(pilot.pulls)
    choice = pick_candidates(stacking.pooled_scores(pilot.first, 0), pilot.names)
    bowl = {f"path {k}": (g - grid[1] + 0.2) ** 2 for k, g in enumerate(grid)}
    scores = np.array([bowl.get(name, 9.0) for name in pilot.names])
    found = best_pull(choice._replace(path=1, scores=scores), pilot)
    assert np.log10(found) == pytest.approx(grid[1] - 0.2, abs=1e-9)


def test_a_shared_model_gets_a_ridge_where_its_parameters_would_learn_the_rows_by_heart():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(6), 8)
    found = {}
    for name, y in (("noise", rng.normal(size=48)), ("signal", None)):
        x = rng.normal(size=(48, 12))
        federation = from_rows(x.astype(np.float32), x[:, 0] if y is None else y, owner, split=np.zeros(48, int))
        place = setup.arena(federation, setup.model_of(ModelSpec(), federation))
        engine = setup.engine_of(place, "fed_avg", {}, TrainSpec())[0]
        of = q.Linear(place.objective.loss, place.model.apply, 0)
        asked = Clients(engine, np.asarray(engine.sizes))
        init = place.model.init(jax.random.key(0))
        models, found[name] = choose_decay(asked, of, init, settings_of(4), 1.0, SEED)
        assert models["w"].shape[0] == len(settings_of(4))
    assert found["noise"] == max(DECAYS) and found["signal"] == RIDGE


def test_rtfa_is_advised_only_where_its_steps_come_to_rest_and_the_shared_model_needs_no_ridge():
    p = scored([0.6, 0.6, 0.7, 0.8, 0.5, 0.6])
    choice = chosen_of(p)
    told = dict(pulls=np.array([1.0, 0.1]), usual=10.0, names=NAMES, ridges=np.ones(1), decay=0.0)
    pilot = Pilot(**dict.fromkeys(Pilot._fields) | told)
    assert choice.named == "path"
    assert make_recipe(choice, pilot, 1.0).method == "rtfa"
    short = make_recipe(choice, pilot, 0.01)
    assert short.method == "stack" and short.options["on_path"] == 1 and "decay" not in short.options
    pilot = pilot._replace(decay=0.02)
    assert make_recipe(choice, pilot, 1.0).options["decay"] == 0.02
    shared = make_recipe(choice._replace(named="shared"), pilot, 1.0)
    assert shared.method == "stack" and shared.options["on_shared"] == 1
