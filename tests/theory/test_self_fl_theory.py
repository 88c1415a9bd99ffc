"""Self-FL's hierarchy: the worked example, what a simulation of it measures, and where the printed claims fail."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.methods.self_fl import leave_out
from apiece.theory import formulas, self_fl

Z, VARIANCE, SPREAD = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.0, 2.0]), 0.25


def near(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=6e-7)


def test_the_worked_example():
    h = self_fl.hierarchy(VARIANCE, SPREAD)
    near(h.precision, (1.333333, 0.8, 0.444444))
    near(h.others, (1.244444, 1.777778, 2.133333))
    near(self_fl.global_estimate(Z, VARIANCE, SPREAD), (1.827586, 0.387931))
    near(self_fl.others_mean(Z, VARIANCE, SPREAD), (2.714286, 1.75, 1.375))
    near(self_fl.posterior(Z, VARIANCE, SPREAD, "paper")[0], (1.657534, 1.84, 1.873418))
    near(self_fl.posterior(Z, VARIANCE, SPREAD, "paper")[1], (0.308219, 0.36, 0.379747))
    near(self_fl.posterior(Z, VARIANCE, SPREAD)[0], (1.551724, 1.862069, 2.068966))
    near(self_fl.posterior(Z, VARIANCE, SPREAD)[1], (0.339080, 0.448276, 0.528736))
    near(self_fl.gain(VARIANCE, SPREAD, "paper"), (1.622222, 2.777778, 5.266667))
    pull = self_fl.hierarchy(VARIANCE, SPREAD, "paper").pull
    near(self_fl.steps(VARIANCE, pull, 0.05 / VARIANCE), (9.095010, 8.700691, 8.316864))
    assert self_fl.whole_steps(VARIANCE, pull, 0.05 / VARIANCE).tolist() == [9, 9, 8]


def test_the_table_of_steps():
    variance = np.array([1.0, 0.1, 0.02, 0.011, 0.01])
    found = self_fl.steps(variance, 10.0, np.minimum(0.01 / variance, 1))
    near(found, (9.483283, 6.578813, 2.584963, 0.964027, 1.0))
    assert self_fl.whole_steps(variance, 10.0, 0.01 / variance).tolist() == [9, 7, 3, 1, 1]
    assert self_fl.whole_steps(1.0, 1e-9, 0.01) == 40


@pytest.mark.parametrize("rule", self_fl.RULES)
def test_the_methods_arithmetic_is_the_same(rule):
    """From one's own estimate and the mean of all, as a client has them."""
    weight = formulas.precision(SPREAD, np.array(VARIANCE))
    others = weight.sum() - weight
    pull = formulas.pull(others, SPREAD, rule)
    shared = np.sum(weight * Z) / weight.sum()
    start = np.array([leave_out(shared, z, w, a) for z, w, a in zip(Z, weight, others, strict=True)])
    total = 1 / np.array(VARIANCE) + pull
    mean = (np.array(Z) / VARIANCE + pull * start) / total
    np.testing.assert_allclose(self_fl.posterior(Z, VARIANCE, SPREAD, rule), (mean, 1 / total), rtol=1e-12)
    np.testing.assert_allclose(self_fl.gain(VARIANCE, SPREAD, rule), 1 + np.array(VARIANCE) * pull, rtol=1e-12)


def rounds(z, variance, spread, count, whole=None):
    """Algorithm 1 from zero, a step size of 0.05 if the numbers of steps are whole."""
    h = self_fl.hierarchy(variance, spread, "paper")
    part = (
        h.borrowed
        if whole is None
        else (1 - whole / variance) ** self_fl.whole_steps(variance, h.pull, whole / variance)
    )
    theta, x, seen = np.zeros_like(z), 0.0, []
    for _ in range(count):
        init = x - h.precision / h.others * (theta - x)
        theta = (1 - part) * z + part * init
        x = np.sum(h.precision * theta) / np.sum(h.precision)
        seen.append((*theta, x))
    return np.array(seen)


def test_the_iterates_of_algorithm_1_and_where_it_ends():
    seen = rounds(Z, VARIANCE, SPREAD, 2000)
    near(seen[0], (0.616438, 0.72, 0.759494, 0.673243))
    near(seen[1], (0.898013, 1.137409, 1.290349, 1.039952))
    near(seen[2], (1.073656, 1.357502, 1.559726, 1.245551))
    near(rounds(Z, VARIANCE, SPREAD, 1, 0.05)[0], (0.612580, 0.739501, 0.733393, 0.672799))
    near(rounds(Z, VARIANCE, SPREAD, 3, 0.05)[2], (1.073725, 1.364586, 1.542389, 1.244796))
    personal, server = self_fl.fixed_point(Z, VARIANCE, SPREAD)
    near(personal, (1.282223, 1.640608, 1.907133))
    near(server, 1.501189)
    np.testing.assert_allclose(seen[-1], (*personal, server), rtol=1e-12)


def test_the_end_of_algorithm_1_is_not_the_posterior_but_near_it_with_many_clients():
    rng = np.random.default_rng(0)
    gaps = []
    for clients in (20, 100, 500):
        variance = rng.uniform(0.05, 0.15, clients)
        z = 1.6 + rng.standard_normal((20, clients)) * np.sqrt(0.5 + variance)
        gap = np.abs(self_fl.fixed_point(z, variance, 0.5)[0] - self_fl.posterior(z, variance, 0.5, "paper")[0])
        gaps.append(np.sqrt(clients) * gap.max(axis=-1).mean())
    assert min(gaps) > 0.05 and max(gaps) < 0.5


def test_the_predicted_errors_of_the_known_case():
    """100 clients, both variances 1: measured .998, .998, .978 (printed as .0198) and .5035."""
    found = self_fl.errors(np.ones(100), 1.0)
    for each, seen in zip(found[:4], (0.998, 0.998, 0.978, 0.5035), strict=True):
        assert each[0] == pytest.approx(seen, abs=5e-3)
    assert found.bayes[0] == pytest.approx(0.505, abs=5e-5)
    believed = self_fl.posterior(np.zeros(100), np.ones(100), 1.0, "paper")[1][0]
    assert believed == pytest.approx(0.0198, abs=5e-5)


@pytest.mark.parametrize("spread", [0.05, 0.25, 4.0])
def test_a_simulation_of_the_hierarchy_measures_the_predicted_errors(spread):
    rng = np.random.default_rng(1)
    draws = 40_000
    theta = 3 + np.sqrt(spread) * rng.standard_normal((draws, 3))
    z = theta + np.sqrt(VARIANCE) * rng.standard_normal((draws, 3))
    estimates = self_fl.Errors(
        local=z,
        centre=self_fl.global_estimate(z, VARIANCE, spread)[0][:, None],
        paper=self_fl.posterior(z, VARIANCE, spread, "paper")[0],
        bayes=self_fl.posterior(z, VARIANCE, spread)[0],
        fixed_point=self_fl.fixed_point(z, VARIANCE, spread)[0],
    )
    predicted = self_fl.errors(VARIANCE, spread)
    for name in self_fl.Errors._fields:
        square = (getattr(estimates, name) - theta) ** 2
        away = np.abs(square.mean(0) - getattr(predicted, name)) / (square.std(0) / np.sqrt(draws))
        assert (away < 4).all(), name


def test_the_posterior_is_the_best_of_all_and_knows_its_error():
    variance = np.random.default_rng(2).uniform(0.1, 3.0, (50, 7))
    spread = np.geomspace(0.01, 10, 50)
    found = self_fl.errors(variance, spread)
    assert all((found.bayes <= other * (1 + 1e-12)).all() for other in found)
    np.testing.assert_allclose(found.bayes, self_fl.posterior(variance, variance, spread)[1], rtol=1e-12)
    assert (self_fl.posterior(variance, variance, spread, "paper")[1] < found.paper).all()  # it believes too much


def test_clients_that_do_not_differ_share_one_model_and_very_different_ones_none():
    pooled = np.sum(Z / VARIANCE) / np.sum(1 / VARIANCE)
    for rule in self_fl.RULES:
        np.testing.assert_allclose(self_fl.posterior(Z, VARIANCE, 0.0, rule)[0], pooled)
        np.testing.assert_allclose(self_fl.posterior(Z, VARIANCE, 1e12, rule)[0], Z, rtol=1e-9)
    assert self_fl.global_estimate(Z, VARIANCE, 1e12)[0] == pytest.approx(Z.mean())


def test_the_printed_bound_on_the_gain_fails_and_the_corrected_one_holds():
    variance = np.array([0.01, 1.0])
    gain = self_fl.gain(variance, 1.0, "paper")[1]
    assert gain == pytest.approx(1.990, abs=5e-4)
    assert self_fl.printed_gain_bound(1.0, 0.01) == pytest.approx(100) and gain < 100
    rng = np.random.default_rng(3)
    own, other, spread = rng.uniform(0.01, 3, (3, 200))
    gains = self_fl.gain(np.stack([other, own], axis=-1), spread, "paper")[:, 1]
    assert (gains > self_fl.gain_bound(own, other, spread)).all()


def test_equal_clients_need_few_steps_times_step_size():
    """lr l tends to (spread + v^2/N) / M; printed without the v^2/N."""
    clients, spread, variance = 2000, 0.3, 0.1
    pull = self_fl.hierarchy(np.full(clients, variance), spread, "paper").pull[0]
    lr = 1e-6
    limit = (spread + variance) / clients
    assert lr * self_fl.steps(variance, pull, lr / variance) == pytest.approx(limit, rel=2e-3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: self_fl.hierarchy([0.5, 0.0], 1.0), "variance must be above 0"),
        (lambda: self_fl.hierarchy([0.5, 1.0], -1.0), "spread must be at least 0"),
        (lambda: self_fl.hierarchy([0.5], 1.0), "two at least"),
        (lambda: self_fl.hierarchy(0.5, 1.0), "two at least"),
        (lambda: self_fl.gain([0.5, 1.0], 1.0, "mean"), "bayes, paper"),
        (lambda: self_fl.steps(1.0, 1.0, 0.0), "rho must be above 0"),
        (lambda: self_fl.gain_bound(1.0, -1.0, 1.0), "other must be above 0"),
    ],
)
def test_an_assumption_that_fails_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()
