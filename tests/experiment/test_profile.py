"""Who the clients are: likeness and groups of known vectors."""

import numpy as np
import pytest

from apiece.experiment.profile import MATRIX, likeness


def around(center, count, seed):
    return np.array(center) + np.random.default_rng(seed).normal(0, 0.1, (count, len(center)))


def test_clear_groups_are_found_the_largest_first():
    vectors = np.concatenate([around([5, 0, 0], 8, 0), around([0, 5, 0], 12, 1), around([0, 0, 5], 6, 2)])
    found = likeness(vectors)
    assert found.group.tolist() == [1] * 8 + [0] * 12 + [2] * 6
    assert found.groups[0, 0] > 0.9 > 0 > found.groups[0, 1]
    assert found.similarity.shape == (26, 26) and np.allclose(np.diag(found.similarity), 1)
    assert set(found.partners[0]) <= set(range(8))


def test_one_cloud_has_no_groups():
    assert likeness(around([0] * 8, 60, 3)).group.max() == 0


def test_of_many_clients_no_matrix_is_kept():
    found = likeness(around([0] * 4, MATRIX + 1, 4))
    assert found.similarity.size == 0 and found.partners.shape == (MATRIX + 1, 5)
    assert not (found.partners == np.arange(MATRIX + 1)[:, None]).any(), "nobody is its own partner"


@pytest.mark.parametrize("vectors", [None, np.zeros((2, 3)), np.ones((9, 3)), np.full((9, 3), np.nan)])
def test_what_cannot_be_compared_is_nothing(vectors):
    assert likeness(vectors) is None
