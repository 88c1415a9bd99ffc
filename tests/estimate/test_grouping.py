"""Groups from what clients pay for one another's models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from apiece.estimate.grouping import group_by_cost, linkage

same = lambda labels: np.asarray(labels)[:, None] == np.asarray(labels)


def distances(seed, clients=12):
    drawn = np.random.default_rng(seed).random((clients, clients)) - 0.3
    return np.where(np.eye(clients, dtype=bool), 0, (drawn + drawn.T) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_average_linkage_is_scipys(seed):
    apart = distances(seed)
    labels, heights = jax.jit(linkage)(jnp.asarray(apart))
    theirs = hierarchy.linkage(squareform(apart + 1 - np.eye(12)), "average")  # theirs must not be below 0
    np.testing.assert_allclose(heights, theirs[:, 2] - 1, atol=1e-5)
    for k in range(1, 13):
        np.testing.assert_array_equal(same(labels[12 - k]), same(hierarchy.fcluster(theirs, k, "maxclust")))


def paid(kinds, between=3.0, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    far = np.where(same(kinds), 0.0, between) + noise * rng.standard_normal((len(kinds), len(kinds)))
    return far.astype(np.float32)


def test_groups_of_any_size_are_found_whoever_is_who():
    kinds = np.random.default_rng(3).permutation([0] * 9 + [1] * 4 + [2] * 2)
    np.testing.assert_array_equal(same(group_by_cost(jnp.asarray(paid(kinds)))), same(kinds))


def test_half_of_the_pairs_suffice():
    kinds = np.arange(16) % 2
    cost = np.where(np.random.default_rng(1).random((16, 16)) < 0.5, paid(kinds), np.nan)
    np.testing.assert_array_equal(same(group_by_cost(jnp.asarray(cost))), same(kinds))


def test_nobody_joins_those_of_whom_nothing_is_known():
    cost = paid([0, 0, 0, 1, 1, 1])
    cost[5, :] = cost[:, 5] = np.nan
    np.testing.assert_array_equal(same(group_by_cost(jnp.asarray(cost))), same([0, 0, 0, 1, 1, 2]))
    np.testing.assert_array_equal(group_by_cost(jnp.full((4, 4), jnp.nan)), np.arange(4))


@pytest.mark.parametrize("clients", [1, 2])
def test_one_or_two_clients_are_no_groups(clients):
    np.testing.assert_array_equal(group_by_cost(jnp.zeros((clients, clients))), np.arange(clients))
