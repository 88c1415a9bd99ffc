"""The parts of an advice against plain NumPy programs: folds, pooled fits, the path, EM, kappa, the grid, intervals."""

import jax
import numpy as np
import pytest

from apiece.advise import questions as q
from apiece.advise import stacking
from apiece.advise.choose import choose
from apiece.advise.folds import ask_by_size, settings_of, size_buckets
from apiece.advise.foresee import foresee
from apiece.advise.keep import Kept
from apiece.advise.pilot import Asked as Clients
from apiece.advise.pilot import ask_scores, cluster_means, fit_shared, run_pilot
from apiece.advise.recipe import best_pull
from apiece.client.linear import deal_folds
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
    found = fit_shared(asked, of, place.model.init(jax.random.key(0)), settings, 1.0, SEED)
    for at, setting in enumerate(settings):
        keep = np.concatenate([~np.isin(folds_of(i, 18), setting) for i in range(6)])
        x, y = with_ones(np.asarray(federation.train.x))[keep], np.asarray(federation.train.y)[keep]
        best = np.linalg.solve(x.T @ x / len(y) + 1e-4 * np.eye(4), x.T @ y / len(y))
        one = jax.tree.map(lambda leaf: leaf[at], found)  # noqa: B023 (used at once)
        np.testing.assert_allclose(flat(one), best, atol=2e-3)


def test_scores_are_those_of_the_path_and_local_models_without_the_fold(clients):
    federation, _, asked, of = clients
    shared = {"w": np.full((1, 1, 3), 0.5, np.float32), "b": np.zeros((1, 1), np.float32)}
    scores = q.Scores(*ask_scores(asked, of, ((1,),), shared, np.array([18.0, 1.8]), np.array([0.5]), None, SEED))
    center = np.array([0.5, 0.5, 0.5, 0.0])
    for i in range(6):
        x, y = federation.train.client(i)
        out = folds_of(i, 18) == 1
        kept, target, n = with_ones(x[~out]), y[~out], int((~out).sum())
        models = [center]
        for pull in (18.0, 1.8):
            lam = pull / n
            models.append(np.linalg.solve(kept.T @ kept / n + lam * np.eye(4), kept.T @ target / n + lam * center))
        ridge = np.diag([0.5, 0.5, 0.5, 0.0])
        models.append(np.linalg.solve(kept.T @ kept / n + ridge, kept.T @ target / n))
        expected = y[out][:, None] - with_ones(x[out]) @ np.stack(models).T
        there = scores.present[i, 0] > 0
        got = scores.said[i, 0][there][:, [0, 2, 3, 4], 0]
        order = lambda rows: rows[np.argsort(rows[:, 0])]
        np.testing.assert_allclose(order(got), order(expected), atol=5e-3)


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


def told(p, present=None):
    """Held-out densities of two classes: [clients, examples, candidates] of the true one."""
    said = np.log(np.stack([p, 1 - p], axis=-1))
    return stacking.held_losses(
        2, said[:, None], np.ones((len(p), 1, p.shape[1])) if present is None else present[:, None]
    )


def densities(clients=30, examples=8, seed=0):
    """The first candidate is good for two thirds of the clients, the second for the others."""
    rng = np.random.default_rng(seed)
    good = np.where((np.arange(clients) % 3 == 0)[:, None, None], [0.3, 0.8], [0.8, 0.3])
    return np.clip(good + 0.1 * rng.normal(size=(clients, examples, 2)), 0.05, 0.95)


def test_pooled_and_own_weights_are_those_of_plain_em():
    p = densities()
    present = (np.random.default_rng(1).random(p.shape[:2]) < 0.8).astype(float)
    present[4] = 0
    held = told(p, present)
    w = np.array([0.5, 0.5])
    for _ in range(60):
        means = [np.mean([p[i, e] * w / (p[i, e] @ w) for e in np.flatnonzero(present[i])], axis=0)
                 for i in range(len(p)) if present[i].any()]  # fmt: skip
        w = np.mean(means, axis=0)
    pooled = stacking.pooled_weights(held)
    np.testing.assert_allclose(pooled, w, rtol=1e-9)
    own = pooled
    for _ in range(25):
        r = np.array([p[3, e] * own / (p[3, e] @ own) for e in np.flatnonzero(present[3])])
        own = (r.sum(axis=0) + 10 * pooled) / (len(r) + 10)
    np.testing.assert_allclose(stacking.own_weights(held, pooled, 10.0)[3], own, rtol=1e-9)
    np.testing.assert_allclose(stacking.own_weights(held, pooled, 10.0)[4], pooled)


def test_clients_have_weights_of_their_own_where_held_out_halves_confirm_them_and_not_for_noise():
    differ, alike = told(densities(clients=60)), told(np.random.default_rng(1).uniform(0.05, 0.95, (300, 8, 2)))
    assert stacking.choose_kappa(differ, stacking.pooled_weights(differ)) == 10.0
    assert stacking.choose_kappa(alike, stacking.pooled_weights(alike)) >= 100.0
    assert stacking.choose_kappa(differ.of(np.arange(5)), np.array([0.5, 0.5])) == np.inf, "too few clients"


def test_weights_of_an_example_never_come_from_its_own_half():
    held = told(densities(clients=20))
    pooled = stacking.pooled_weights(held)
    other = held.log_density.copy()
    other[:, ::2] = other[:, ::2, ::-1]
    before, after = (stacking.cross_fitted(h, pooled, 10.0) for h in (held, held._replace(log_density=other)))
    np.testing.assert_array_equal(before[:, ::2], after[:, ::2])
    assert (before[:, 1::2] != after[:, 1::2]).any()


NAMES = ["shared", "frequencies", "path 0", "path 1", "local 0", "2 groups"]


def scored(levels, clients=40, examples=10, noise=0.03, seed=0):
    p = np.clip(
        np.asarray(levels) + noise * np.random.default_rng(seed).normal(size=(clients, examples, len(levels))),
        0.02,
        0.98,
    )
    return told(p)


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
    assert choose(scored(levels), NAMES).named == named


def test_a_mixture_is_named_where_clients_want_different_candidates():
    p = np.full((40, 10, 6), 0.4)
    p[::2, :, 0], p[1::2, :, 4] = 0.9, 0.9
    assert choose(told(p), NAMES).named == "stack"


def test_gains_are_extrapolated_to_all_data_and_their_interval_holds_the_truth():
    # Errors of models on 3/4 and 1/2 of the data: risk = a + b/n, so that all data have 1.5 e75 - 0.5 e50.
    rng = np.random.default_rng(0)
    risk = lambda a, b, share: a + b / share
    inside = 0
    for _ in range(40):
        law = ((0.2, 0.0), (0.2, 0.0), (0.1, 0.01), (0.1, 0.01), (0.1, 0.06), (0.3, 0.0))
        drawn = lambda share: np.stack([rng.random((60, 30)) < risk(a, b, share) for a, b in law], axis=-1)  # noqa: B023
        wrong = {share: drawn(share) for share in (0.75, 0.5)}
        held, less = (told(np.where(wrong[share], 0.3, 0.7)) for share in (0.75, 0.5))
        found = foresee(choose(held, NAMES)._replace(named="path"), held, less, 1.0).gains["local"]
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
    pilot = run_pilot(asked.engine, of, place.model.init(jax.random.key(0)), folds=1, seed=0, groups=False,
                      kept=Kept(None, ""), tell=lambda what, share: None)  # fmt: skip
    grid = np.log10(pilot.pulls)
    choice = choose(stacking.held_losses(0, pilot.scores.said[:, :1], pilot.scores.present[:, :1]), pilot.names)
    bowl = {f"path {k}": (g - grid[1] + 0.2) ** 2 for k, g in enumerate(grid)}
    scores = np.array([bowl.get(name, 9.0) for name in pilot.names])
    found = best_pull(choice._replace(path=1, scores=scores), pilot)
    assert np.log10(found) == pytest.approx(grid[1] - 0.2, abs=1e-9)
