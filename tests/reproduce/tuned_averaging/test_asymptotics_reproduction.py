"""The simulation of linear clients is that of the closed forms, on data with the stated covariance."""

import numpy as np
import pytest

from apiece.data.sources import synthetic
from apiece.reproduce.tuned_averaging.asymptotics import SETTINGS, UNLIKE
from apiece.reproduce.tuned_averaging.linear_clients import Setting, risks, unlike_risks
from apiece.theory import asymptotics, linear

FEATURES, CLIENTS, ALPHA = 12, 9, 0.05
THREE = SETTINGS[3]


def clients_of(setting, seed):
    """(xs, ys, truth) that `risks` draws for this seed."""
    n = round(FEATURES / setting.gamma)
    made = synthetic.linear(
        CLIENTS, n, FEATURES, setting.radius, setting.noise, setting.norm, setting.eigenvalues(FEATURES), held_out=0,
        dtype="float64", seed=seed,
    )  # fmt: skip
    return np.split(made.train.x, CLIENTS), np.split(made.train.y, CLIENTS), made.truth


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_estimator_is_its_closed_form(setting):
    xs, ys, truth = clients_of(setting, seed=5)
    found = risks(setting, FEATURES, CLIENTS, seed=5, alpha=ALPHA)
    values, personal, lam = setting.eigenvalues(FEATURES), truth["personal"], setting.lam
    best = setting.noise**2 * setting.gamma / np.array([setting.radius, setting.rho]) ** 2
    each = lambda tune, *rest: np.array([tune(x, y, *rest) for x, y in zip(xs, ys, strict=True)])
    expected = {
        "fed_avg": linear.fed_avg(xs, ys),
        "ftfa": linear.ftfa(xs, ys),
        "rtfa": linear.rtfa(xs, ys, lam),
        "maml_fl": each(linear.fine_tuned, linear.maml(xs, ys, ALPHA)),
        "pfedme": linear.centre(xs, ys, lam)[1],
        "local": linear.local(xs, ys),
        "local_ridge": linear.local_ridge(xs, ys, lam),
        "true_ftfa": each(linear.fine_tuned, truth["center"]),
        "true_rtfa": each(linear.ridge_tuned, truth["center"], lam),
        "true_best_rtfa": each(linear.ridge_tuned, truth["center"], best[0]),
        "best_rtfa": linear.rtfa(xs, ys, best[0]),
        "best_local_ridge": linear.local_ridge(xs, ys, best[1]),
    }
    assert found.keys() == expected.keys()
    for name, models in expected.items():
        np.testing.assert_allclose(found[name], (models - personal) ** 2 @ values, rtol=1e-8, err_msg=name)


def test_eigenvalues_come_as_often_as_their_weights_say():
    values, counts = np.unique(THREE.eigenvalues(400), return_counts=True)
    assert values.tolist() == [0.2, 1.0, 3.0] and counts.tolist() == [120, 160, 120]
    assert len(THREE.eigenvalues(7)) == 7


def test_the_smallest_setting_already_knows_the_formula_from_the_misprint():
    """1.5 is right, 3.0 is printed; a hundred clients with sixty features tell them apart."""
    found = risks(Setting("", 2.0, 2.0, 1.0, 1.0), 60, 100, seed=0)["true_ftfa"]
    error = found.std(ddof=1) / 10
    assert abs(found.mean() - 1.5) < 3 * error < 0.3


def test_unlike_clients_have_the_mean_risk_of_their_kinds_by_plain_numpy():
    """Covariance, size, radius and noise differ: pseudo-inverses on data drawn here, against the formula."""
    rng, d, each, total = np.random.default_rng(0), 120, 60, 0.0
    kinds = [(60, np.ones(d), 1.0, 1.0), (30, np.repeat([0.5, 2.0], d // 2), 2.0, 0.5)]
    centre, found = np.ones(d) / np.sqrt(d), []
    for n, values, radius, noise in kinds:
        for _ in range(each):
            away = rng.standard_normal(d)
            theta = centre + radius * away / np.linalg.norm(away)
            x = rng.standard_normal((n, d)) * np.sqrt(values)
            y = x @ theta + noise * rng.standard_normal(n)
            tuned = centre + np.linalg.pinv(x) @ (y - x @ centre)
            found.append(values @ (tuned - theta) ** 2)
    spread = asymptotics.Spectrum.of([0.5, 2.0], [0.5, 0.5])
    theory = asymptotics.risks_of_kinds(
        [asymptotics.Kind(0.5, 2.0, 1.0, 1.0, 2**0.5), asymptotics.Kind(0.5, 4.0, 2.0, 0.5, 5**0.5, spread)], 1.0
    )
    total = theory["ftfa"].total
    assert np.mean(found) == pytest.approx(total, rel=0.05) and total == pytest.approx(2.5, abs=0.4)


def test_kinds_are_dealt_as_they_are_described():
    kinds = UNLIKE["all differ"]
    found = unlike_risks(kinds, 40, 50, seed=1)
    assert {values.shape for values in found.values()} == {(2, 50)}
    weaker, stronger = found["fed_avg"].mean(1)  # radius 0.7 and 1.8
    assert stronger > 3 * weaker
