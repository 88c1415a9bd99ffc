"""Generators: the optima they promise are the optima; and the named sources."""

import time

import numpy as np
import pytest
from sklearn.datasets import load_digits

from apiece.data import source
from apiece.data.sources.catalog import MADE, digits
from apiece.data.sources.synthetic import (
    bernoulli_means,
    linear,
    linear_spectrum,
    logistic,
    many,
    quadratics,
    two_level_gaussian,
)
from apiece.errors import UserError


def fit(split, i):
    """Least squares on client i's examples."""
    x, y = split.client(i)
    return np.linalg.lstsq(x.astype(np.float64), y.astype(np.float64), rcond=None)[0]


def test_the_golden_quadratics_have_their_known_minima():
    toy = quadratics()
    assert toy.truth["center_p"] == pytest.approx([0.426573, 0.881119], abs=1e-6)
    assert toy.truth["center"] == pytest.approx([0.139241, 0.886076], abs=1e-6)
    assert toy.truth["personal"].ravel() == pytest.approx([1, 1, -1 / 3, 2 / 3, -1, 1])
    gradient = np.einsum("cij,cj->ci", toy.train.x, toy.truth["personal"]) - toy.train.y
    assert np.abs(gradient).max() < 1e-14
    assert np.linalg.eigvalsh(toy.train.x).min() == 0.5 and np.linalg.eigvalsh(toy.train.x).max() == 3
    assert toy.train.x.dtype == np.float64 and toy.task == "custom"


def test_linear_clients_lie_on_a_sphere_orthogonal_to_the_centre():
    truth = linear(clients=7, features=5, radius=0.7, norm=1.3).truth
    away = truth["personal"] - truth["center"]
    assert np.linalg.norm(truth["center"]) == pytest.approx(1.3)
    assert np.linalg.norm(away, axis=1) == pytest.approx(np.full(7, 0.7))
    assert np.abs(away @ truth["center"]).max() < 1e-12


def test_linear_regression_without_noise_finds_the_true_model_of_every_client_in_every_split():
    federation = linear(clients=4, examples=30, features=6, noise=0.0, held_out=10, dtype="float64")
    for split in (federation.train, federation.validation, federation.test):
        for i in range(4):
            assert fit(split, i) == pytest.approx(federation.truth["personal"][i], abs=1e-9)


def test_linear_has_the_covariance_and_the_noise_asked_for():
    federation = linear(clients=1, examples=200_000, features=4, spectrum=(0.5, 2.0), noise=0.3)
    x, y = federation.train.client(0)
    assert np.cov(x.T) == pytest.approx(np.diag([0.5, 0.5, 2, 2]), abs=0.02)
    assert (y - x @ federation.truth["personal"][0]).std() == pytest.approx(0.3, rel=0.02)


def test_the_spectrum_of_every_client_is_exact():
    federation = linear_spectrum(clients=5, examples=40, features=6, mu=0.05, L=2.0, dtype="float64")
    for i in range(5):
        x, _ = federation.train.client(i)
        assert np.linalg.eigvalsh(x.T @ x / 40) == pytest.approx(np.geomspace(0.05, 2, 6), rel=1e-12)


def test_linear_spectrum_knows_the_minima_of_its_training_losses():
    federation = linear_spectrum(radius=0.8)
    truth = federation.truth
    for i in range(federation.clients):
        assert fit(federation.train, i) == pytest.approx(truth["personal_fit"][i], abs=1e-6)
    pooled = np.linalg.lstsq(federation.train.x.astype(float), federation.train.y.astype(float), rcond=None)[0]
    assert pooled == pytest.approx(truth["center_fit"], abs=1e-6)
    away = truth["personal"] - truth["center"]
    assert np.abs(away.sum(0)).max() < 1e-12
    assert np.linalg.norm(away, axis=1).max() == pytest.approx(0.8)


@pytest.mark.parametrize("clients", [2, 3, 10, 101])
def test_logistic_deviations_have_equal_length_and_sum_to_zero(clients):
    truth = logistic(clients=clients, examples=2, features=4, radius=2.0, norm=1.5).truth
    away = truth["personal"] - truth["center"]
    assert np.linalg.norm(truth["center"]) == pytest.approx(1.5)
    assert np.linalg.norm(away, axis=1) == pytest.approx(np.full(clients, 2.0))
    assert np.abs(away.sum(0)).max() < 1e-9


def test_logistic_labels_have_the_probability_of_the_true_model():
    federation = logistic(clients=3, examples=60_000, features=3, radius=1.0)
    for i in range(3):
        x, y = federation.train.client(i)
        p = 1 / (1 + np.exp(-x @ federation.truth["personal"][i]))
        score = x.T @ (y - p) / len(y)  # the gradient of the likelihood vanishes at the truth
        assert np.abs(score).max() < 0.02
    assert federation.classes == ("0", "1")


def test_two_level_gaussian_has_both_variances_and_the_sizes():
    federation = two_level_gaussian(clients=4000, between=0.5, within=0.1, smallest=5, largest=9)
    personal = federation.truth["personal"][:, 0]
    assert personal.mean() == pytest.approx(1.6, abs=0.05) and personal.var() == pytest.approx(0.5, rel=0.08)
    assert (federation.train.y - personal[federation.train.owner]).var() == pytest.approx(0.1, rel=0.03)
    assert set(federation.train.sizes.tolist()) == {5, 6, 7, 8, 9}
    assert federation.truth["personal_variance"] == pytest.approx(0.1 / federation.train.sizes)
    assert (federation.train.x == 1).all() and federation.task == "regression"


def test_bernoulli_means_are_the_means():
    federation = bernoulli_means(clients=50, examples=4000)
    means = np.add.reduceat(federation.train.y, federation.train.offsets[:-1]) / 4000
    assert np.abs(means - federation.truth["personal"][:, 0]).max() < 0.04
    assert np.ptp(federation.truth["personal"]) > 0.8


def test_clusters_of_coins_share_a_mean():
    truth = bernoulli_means(clients=12, examples=3, clusters=3).truth
    assert sorted(np.bincount(truth["personal_cluster"])) == [4, 4, 4]
    assert truth["personal"][:, 0] == pytest.approx((2 * truth["personal_cluster"] + 1) / 6)


def test_many_can_be_learned_and_personalized():
    federation = many(clients=500, examples=10, features=64)
    x, y = federation.train.x.astype(float), federation.train.y
    centroid = np.array([x[y == c].mean(0) for c in range(10)])
    distance = ((federation.test.x[:, None].astype(float) - centroid) ** 2).sum(2)
    assert (distance.argmin(1) == federation.test.y).mean() > 0.9
    favourite = federation.truth["personal_favourite"][federation.train.owner]
    assert (y == favourite).mean() == pytest.approx(0.55, abs=0.03)


@pytest.mark.thorough
def test_a_million_clients_with_64_features_are_made_in_seconds():
    began = time.process_time()
    federation = many()
    assert federation.clients == 1_000_000 and federation.train.x.shape == (10_000_000, 64)
    assert federation.train.x.nbytes == 640_000_000
    assert time.process_time() - began < 25


@pytest.mark.parametrize("partition", ["iid", "by_classes", "dirichlet_per_class", "dirichlet_per_client", "power_law"])
def test_digits_keep_all_1797_examples_whatever_the_partition(partition):
    federation = digits(clients=20, partition=partition)
    x = np.concatenate([federation.train.x, federation.validation.x, federation.test.x])
    y = np.concatenate([federation.train.y, federation.validation.y, federation.test.y])
    assert x.shape == (1797, 64) and x.dtype == np.uint8
    assert x.min() == 0 and x.max() == 255
    pixels, labels = load_digits(return_X_y=True)
    sixteenths = np.rint(x / 255 * 16)
    assert sorted(map(tuple, np.column_stack([sixteenths, y]))) == sorted(map(tuple, np.column_stack([pixels, labels])))


@pytest.mark.parametrize("name", sorted(set(MADE) - {"many"}))
def test_every_source_is_the_same_for_the_same_seed_and_says_what_it_is(name):
    first, second = source(name), source(name)
    assert first.name == name
    assert (first.train.x == second.train.x).all() and (first.test.y == second.test.y).all()
    assert first.summary()["clients"] == first.clients


@pytest.mark.parametrize("name", sorted(set(MADE) - {"many", "quadratics"}))
def test_every_source_differs_for_another_seed(name):
    first, second = source(name, seed=0), source(name, seed=1)
    assert first.train.y.shape != second.train.y.shape or (first.train.y != second.train.y).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: source("digit"), "unknown data 'digit': did you mean 'digits'"),
        (lambda: source("digits", alhpa=0.3), "no option 'alhpa': did you mean 'alpha'"),
        (lambda: source("quadratics", clients=3), "data 'quadratics' has no option 'clients': it has none"),
        (lambda: source("digits", partition="dirichlet"), "unknown partition 'dirichlet'"),
        (lambda: source("digits", partition="iid", alpha=0.3), "no option 'alpha'"),
        (lambda: source("digits", clients=1798), "1797 examples are too few"),
        (lambda: linear(features=1), "features >= 2"),
        (lambda: linear(clients=0), "clients must be at least 1"),
        (lambda: linear(spectrum=[1.0] * 11), "spectrum must be"),
        (lambda: linear(dtype="float16"), "float32 or float64"),
        (lambda: linear_spectrum(examples=5, features=6), "examples >= features"),
        (lambda: linear_spectrum(mu=2.0), "mu <= L"),
        (lambda: logistic(clients=1), "add a client"),
        (lambda: logistic(clients=3, features=1), "add a client"),
        (lambda: two_level_gaussian(smallest=9, largest=3), "smallest <= largest"),
        (lambda: bernoulli_means(clients=3, clusters=4), "clusters"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_the_reason(call, message):
    with pytest.raises(UserError, match=message):
        call()
