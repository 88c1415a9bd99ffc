"""Partitions: every example exactly once, deterministic, sizes as promised, and clear when impossible."""

import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apiece.data.partition import (
    PARTITIONS,
    assign,
    by_classes,
    dirichlet_per_class,
    dirichlet_per_client,
    iid,
    natural,
    power_law,
)
from apiece.errors import UserError

label_lists = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(np.array)
names = st.sampled_from(sorted(PARTITIONS))


@given(label_lists, st.integers(1, 12), names, st.integers(0, 3), st.integers(0, 3))
def test_every_example_goes_to_exactly_one_client_and_nobody_is_below_min_size(labels, clients, name, min_size, seed):
    try:
        client = assign(labels, name, clients, min_size=min_size, seed=seed)
    except UserError:
        assume(False)
    assert client.shape == labels.shape
    sizes = np.bincount(client, minlength=clients)
    assert len(sizes) == clients and sizes.sum() == len(labels)
    assert sizes.min() >= min_size


@given(label_lists, st.integers(1, 12), names, st.integers(0, 3))
def test_the_same_seed_gives_the_same_clients(labels, clients, name, seed):
    def run():
        try:
            return assign(labels, name, clients, seed=seed).tolist()
        except UserError as error:
            return str(error)

    assert run() == run()


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_another_seed_gives_other_clients(name):
    labels = np.arange(300) % 10
    assert (assign(labels, name, 10, seed=0) != assign(labels, name, 10, seed=1)).any()


@given(st.integers(1, 200), st.integers(1, 20))
def test_iid_sizes_differ_by_at_most_one(n, clients):
    assume(n >= clients)
    sizes = np.bincount(iid(n, clients), minlength=clients)
    assert sizes.max() - sizes.min() <= 1


@given(st.integers(1, 12), st.integers(1, 9), st.data(), st.integers(0, 4))
def test_every_client_holds_exactly_k_classes_and_every_class_is_held_equally_often(clients, classes, data, seed):
    k = data.draw(st.integers(1, classes))
    assume(clients * k >= classes)
    labels = np.repeat(np.arange(classes), clients)
    client = by_classes(labels, clients, k=k, seed=seed)
    held = np.zeros((clients, classes), bool)
    held[client, labels] = True
    assert (held.sum(1) == k).all()
    assert held.sum(0).max() - held.sum(0).min() <= 1


def test_by_classes_mixes_the_classes_and_does_not_make_a_few_fixed_groups():
    labels = np.repeat(np.arange(10), 200)
    client = by_classes(labels, 100, k=2)
    pairs = {tuple(np.unique(labels[client == i]).tolist()) for i in range(100)}
    assert len(pairs) > 20


def test_by_classes_takes_power_law_sizes():
    labels = np.repeat(np.arange(10), 1000)
    sizes = np.bincount(by_classes(labels, 50, k=2, exponent=1.0))
    assert sizes.max() > 5 * np.median(sizes)


def test_power_law_sizes_follow_the_law():
    sizes = np.sort(np.bincount(power_law(100_000, 50, exponent=1.0, min_size=0)))[::-1]
    slope = np.polyfit(np.log(np.arange(1, 51)), np.log(sizes), 1)[0]
    assert slope == pytest.approx(-1, abs=0.02)
    assert np.ptp(np.bincount(power_law(100, 10, exponent=0.0))) == 0


def skew(labels, client):
    """The mean total-variation distance of a client's labels to the pooled ones."""
    pooled = np.bincount(labels) / len(labels)
    own = [np.bincount(labels[client == i], minlength=len(pooled)) / (client == i).sum() for i in np.unique(client)]
    return np.abs(np.array(own) - pooled).sum(1).mean() / 2


@pytest.mark.parametrize("scheme", [dirichlet_per_class, dirichlet_per_client])
def test_a_smaller_alpha_means_more_label_skew(scheme):
    labels = np.random.default_rng(0).permutation(np.arange(10_000) % 10)
    skews = [skew(labels, scheme(labels, 20, alpha=alpha)) for alpha in (0.1, 0.5, 2.0, 100.0)]
    assert skews == sorted(skews, reverse=True)
    assert skews[0] > 0.5 and skews[-1] < 0.1


def test_the_two_dirichlet_schemes_differ_where_they_say_in_the_sizes():
    labels = np.arange(10_000) % 10
    assert np.ptp(np.bincount(dirichlet_per_client(labels, 20, alpha=0.3))) == 0
    assert np.ptp(np.bincount(dirichlet_per_class(labels, 20, alpha=0.3))) > 300


def test_the_label_distribution_of_a_client_is_dirichlet():
    # With few of many examples asked for, nothing runs out: the second moment of a share is that of Dir(alpha).
    labels, alpha = np.arange(400_000) % 5, 0.5
    client = dirichlet_per_client(labels, 2000, alpha=alpha)
    share = np.zeros((2000, 5))
    np.add.at(share, (client, labels), 1 / 200)
    expected = (alpha + 1) / (5 * (5 * alpha + 1))
    assert (share**2).mean() == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e6])
def test_extreme_alphas_still_hand_out_everything(alpha):
    labels = np.arange(500) % 10
    assert np.bincount(dirichlet_per_client(labels, 10, alpha=alpha)).tolist() == [50] * 10
    assert len(dirichlet_per_class(labels, 10, alpha=alpha, min_size=0)) == 500


def test_natural_clients_keep_their_names_and_numbers_their_order():
    client, ids = natural(np.array([10, 9, 10, 2]))
    assert ids.tolist() == ["2", "9", "10"] and client.tolist() == [2, 1, 2, 0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: iid(5, 6), "at most 5 clients"),
        (lambda: iid(5, 0), "at least one client"),
        (lambda: power_law(20, 3, min_size=7), "at most 2 clients"),
        (lambda: power_law(20, 3, exponent=-1.0), "exponent"),
        (lambda: by_classes(np.arange(30) % 3, 5, k=4), r"take k in 1\.\.3"),
        (lambda: by_classes(np.arange(30) % 10, 3, k=2), "at least 5 clients"),
        (lambda: by_classes(np.array([0] * 50 + [1]), 20, k=1), "class '1' has 1 examples for the 10 clients"),
        (lambda: by_classes(np.array([0] * 50 + [1] * 10), 20, k=1, min_size=2), "min_size=2"),
        (lambda: dirichlet_per_client(np.zeros(9, int), 3, alpha=0.0), "alpha must be"),
        (lambda: dirichlet_per_class(np.arange(100) % 2, 50, alpha=0.01, min_size=2), "take a larger alpha"),
        (lambda: assign(np.zeros(9), "dirichlet_per_clas", 3), "did you mean 'dirichlet_per_class'"),
        (lambda: assign(np.zeros(9), "iid", 3, alpha=1.0), "'iid' has no option 'alpha'"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(call, message):
    with pytest.raises(UserError, match=message):
        call()


def test_a_hopeless_draw_ends_soon():
    began = time.process_time()
    with pytest.raises(UserError, match="never had more than"):
        dirichlet_per_class(np.arange(10_000) % 10, 1000, alpha=0.001, min_size=9)
    assert time.process_time() - began < 10
