"""Local: every client's ridge problem is solved, and its matrices alone are pulled to zero."""

import numpy as np
from engine_runs import on_quadratics

from apiece.client.descend import shrink
from apiece.data import from_rows
from apiece.experiment import fit
from apiece.methods import local


def test_a_client_alone_comes_to_the_solution_of_its_ridge_problem(x64):
    rng = np.random.default_rng(0)
    h = np.array([(a @ a.T) / 3 + 0.1 * np.eye(3) for a in rng.normal(size=(4, 3, 3))])
    b, ridge = rng.normal(size=(4, 3)), 0.7
    found = on_quadratics(local, h, b, [400], ridge=ridge, lr=0.3, steps=5).models[-1]
    np.testing.assert_allclose(found, [np.linalg.solve(a + ridge * np.eye(3), c) for a, c in zip(h, b, strict=True)])


def test_intercepts_are_not_pulled_to_zero():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    y = (50 + x @ [1.0, -2.0]).astype(np.float32)  # far from zero
    federation = from_rows(x, y, np.repeat([0, 1], 30))
    strong = fit("local", federation=federation, rounds=20, options={"ridge": 5.0, "batch": 0}, standardize=False)
    mine = strong.personal("0")
    assert abs(mine["b"][0] - federation.train.client(0)[1].mean()) < 1 and abs(mine["w"]).max() < 0.6


def test_what_is_pulled_is_read_off_the_shapes():
    network = {"out": {"w": np.ones((2, 3)), "b": np.ones(2)}, "scale": np.ones(())}
    pull = shrink(2.0)(network)
    assert pull["out"]["w"].tolist() == [[2.0] * 3] * 2 and not pull["out"]["b"].any() and not pull["scale"]
