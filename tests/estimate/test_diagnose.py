"""The split diagnostic: too much private, too little, and a split that leaves something to learn together."""

import jax.numpy as jnp
import numpy as np
import pytest

from apiece.errors import UserError
from apiece.estimate.diagnose import diagnose_split

OFFSETS = np.array([0, 5, 5, 12, 20, 30])  # the second client has no examples
START = {"shared": jnp.zeros(3), "own": jnp.zeros(3), "bias": jnp.zeros(())}


def loss(p, batch, key):
    error = batch.x @ (p["shared"] + p["own"]) + p["bias"] - batch.y
    return (batch.weight * error**2).sum() / 2 / batch.weight.sum()


def federation(truth):
    """Linear clients; `truth(m)` are client m's coefficients."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)).astype(np.float32)
    owner = np.repeat(np.arange(5), np.diff(OFFSETS))
    y = np.array([x[k] @ truth(owner[k]) for k in range(30)], np.float32)
    return x, y + owner.astype(np.float32)


def test_a_private_copy_of_the_shared_part_is_too_much():
    x, y = federation(lambda m: np.ones(3))
    found = diagnose_split(loss, START, x, y, OFFSETS, private="own, bias", steps=400, lr=0.2)
    present = [0, 2, 3, 4]
    assert (found.ratio[present] < 0.05).all()
    assert np.isnan(found.left[1])
    assert np.isnan(found.ratio[1])
    assert "too much is private" in found.advice
    assert (found.shared, found.private) == (3, 4)


def test_clients_of_one_kind_leave_something_to_learn_together():
    x, y = federation(lambda m: 3 * np.ones(3))
    found = diagnose_split(loss, START, x, y, OFFSETS, private="bias", steps=100, lr=0.5)
    assert found.agreement > 0.8
    assert "something to learn together" in found.advice
    exact = diagnose_split(loss, START, x, y, OFFSETS, private="bias", steps=1, solver="cg", group=2)
    np.testing.assert_allclose(exact.left[[0, 2, 3, 4]], found.left[[0, 2, 3, 4]], rtol=1e-3)
    assert exact.agreement == pytest.approx(found.agreement, rel=1e-3)


def test_clients_that_pull_apart_need_more_of_their_own():
    x, y = federation(lambda m: np.array([3.0, 3.0, 3.0]) * (-1) ** (m // 3))
    found = diagnose_split(loss, START, x, y, OFFSETS, private="bias", steps=100, lr=0.5)
    assert found.agreement < 1.5 * found.chance
    assert "different shared parts" in found.advice


def test_the_numbers_are_the_gradients_themselves():
    x, y = federation(lambda m: np.ones(3))
    found = diagnose_split(loss, START, x, y, OFFSETS, private="bias", steps=1, solver="cg")
    before, left = [], []
    twice = 2**0.5  # both vectors of coefficients are shared here, and have the same gradient
    for m in (0, 2, 3, 4):
        rows = slice(OFFSETS[m], OFFSETS[m + 1])
        before.append(-x[rows].T @ y[rows] / len(y[rows]))
        left.append(-x[rows].T @ (y[rows] - y[rows].mean()) / len(y[rows]))
    here = [0, 2, 3, 4]
    np.testing.assert_allclose(found.before[here], twice * np.linalg.norm(before, axis=1), rtol=1e-5)
    np.testing.assert_allclose(found.left[here], twice * np.linalg.norm(left, axis=1), rtol=1e-5)
    expected = np.linalg.norm(np.mean(left, 0)) / np.linalg.norm(left, axis=1).mean()
    assert found.agreement == pytest.approx(expected, rel=1e-5)


def test_nobody_with_examples_is_refused():
    with pytest.raises(UserError, match="no client has an example"):
        diagnose_split(loss, START, np.zeros((0, 3)), np.zeros(0), np.zeros(3, int), private="bias")
