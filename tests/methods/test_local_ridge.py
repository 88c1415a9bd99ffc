"""Local ridge: every client's solution against a NumPy program, and the ridge that a client chooses."""

import golden_ridge
import numpy as np
import pytest

from apiece.data import from_rows
from apiece.errors import UserError
from apiece.experiment import fit
from apiece.methods.local_ridge import FREE, GRID

SIZES = (9, 30, 17)
OWNER = np.repeat(np.arange(3), SIZES)
TRAIN = np.tile([0, 0, 0, 1, 2], sum(SIZES))[: sum(SIZES)]


def rows(seed=0):
    return np.random.default_rng(seed).normal(size=(sum(SIZES), 4))


def test_numbers_have_the_solution_of_ridge_regression(x64):
    x = rows()
    y = 20 + x @ [1.0, -2, 0, 3] + np.random.default_rng(1).normal(size=len(x))
    federation = from_rows(x, y, OWNER, split=TRAIN)
    for ridge in (0.01, 1.0):
        found = fit("local_ridge", federation=federation, rounds=1, options={"ridge": ridge}, standardize=False)
        for client in range(3):
            mine = found.personal(str(client))
            w, b = golden_ridge.ridge_regression(*federation.train.client(client), ridge)
            np.testing.assert_allclose(mine["w"][0], w, rtol=1e-6, atol=1e-8)
            np.testing.assert_allclose(mine["b"][0], b, rtol=1e-6)


def test_classes_have_the_solution_of_ridge_softmax_regression(x64):
    x = rows(2)
    y = (x[:, 0] > 0.3).astype(int) + (x[:, 1] > 0.5)
    federation = from_rows(x, y, OWNER, split=TRAIN, classes=("a", "b", "c"))
    found = fit("local_ridge", federation=federation, rounds=1, options={"ridge": 0.03})
    for client in range(3):
        mine, (own_x, own_y) = found.personal(str(client)), federation.train.client(client)
        w, b = golden_ridge.softmax_regression(own_x, own_y, 3, 0.03, FREE / len(own_y))
        np.testing.assert_allclose(mine["w"], w, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(mine["b"], b, rtol=1e-5, atol=1e-7)


def test_a_client_chooses_little_ridge_for_what_is_linear_and_much_for_noise(x64):
    x = rows(3)
    y = np.where(OWNER == 1, x @ [1.0, -2, 0, 3], np.random.default_rng(4).normal(size=len(x)))
    federation = from_rows(x, y, OWNER, split=TRAIN)
    found = fit("local_ridge", federation=federation, rounds=1)  # ridge = 0: its own choice
    data = federation.train.client(1)
    np.testing.assert_allclose(
        found.personal("1")["w"][0], golden_ridge.ridge_regression(*data, GRID[-1])[0], rtol=1e-5
    )
    noise = golden_ridge.ridge_regression(*federation.train.client(0), 0.01)[0]
    assert np.abs(found.personal("0")["w"]).max() < 0.5 * np.abs(noise).max()


def test_a_network_is_refused_with_a_sentence():
    with pytest.raises(UserError, match=r"'local_ridge' solves linear models.*mlp.* is another: take the model"):
        fit("local_ridge", "mlp", rounds=1)
