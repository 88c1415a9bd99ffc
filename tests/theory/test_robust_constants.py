"""The constants of robust means, held against rules of NumPy under lies that try to be the worst."""

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.theory.robust import bucket_size, robust_constant


def krum(rows, liars):
    apart = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    scores = [np.sort(np.delete(apart[i], i))[: len(rows) - liars - 2].sum() for i in range(len(rows))]
    return rows[int(np.argmin(scores))]


def geometric_median(rows):
    z = np.median(rows, axis=0)
    for _ in range(200):
        near = 1 / np.maximum(np.linalg.norm(rows - z, axis=1), 1e-12)
        z = (near[:, None] * rows).sum(0) / near.sum()
    return z


RULES = {
    "krum": krum,
    "median": lambda rows, liars: np.median(rows, axis=0),
    "geometric_median": lambda rows, liars: geometric_median(rows),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("size", [1, 2])
def test_no_lie_makes_the_error_larger_than_the_constant_says(name, size):
    rng, clients, liars = np.random.default_rng(0), 24, 2
    proved, worst = robust_constant(name, clients, liars, size), 0.0
    for far in (0.5, 1.5, 4.0, 1e4):
        errors, pairs = [], []
        for _ in range(40):
            honest = rng.standard_normal((clients - liars, 3)) * (0.2, 1.0, 3.0)
            lie = honest.mean(0) + far * honest.std(0)
            rows = np.concatenate([honest, np.tile(lie, (liars, 1))])
            buckets = rows[rng.permutation(clients)].reshape(-1, size, 3).mean(1)
            errors.append(((RULES[name](buckets, liars) - honest.mean(0)) ** 2).sum())
            g = len(honest)
            pairs.append(((honest[:, None] - honest[None]) ** 2).sum() / (g * (g - 1)))
        worst = max(worst, np.mean(errors) / (liars / clients * np.mean(pairs)))
    assert 0 < worst <= proved


def test_the_medians_constant_is_nearly_reached_by_clients_at_two_ends():
    """Eleven inputs: honest ones, three at 1 and five at -1, and three liars at 1, so that the median is 1."""
    honest = np.array([1.0] * 3 + [-1.0] * 5)
    rows = np.concatenate([honest, np.ones(3)])
    error = (np.median(rows) - honest.mean()) ** 2
    pairs = ((honest[:, None] - honest[None]) ** 2).sum() / (8 * 7)
    assert 0.3 < error / (3 / 11 * pairs) / robust_constant("median", 11, 3, 1) <= 1


def test_buckets_are_as_large_as_the_rules_limit_allows():
    assert bucket_size("krum", 40, 2) == 5 and bucket_size("median", 40, 2) == 10
    assert bucket_size("krum", 20, 4) == 1 and bucket_size("geometric_median", 20, 0) == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("krum", 20, 4, 2), "0.25 of the buckets spoiled: 4 liars in 10 are 0.4"),
        (("median", 20, 5, 2), "0.5 of the buckets"),
        (("krum", 8, 2, 1), None),
        (("krum", 24, 2, 4), "0.25 of the buckets"),
        (("krum", 16, 1, 4), "more than 4 buckets"),
        (("median", 20, 0, 2), "some liars"),
        (("median", 20, 1, 3), "divide the clients"),
        (("mean", 20, 1, 1), "no constant is known for the rule 'mean'"),
    ],
)
def test_outside_the_hypotheses_nothing_is_claimed(arguments, words):
    if words is None:
        assert robust_constant(*arguments) > 0
        return
    with pytest.raises(UserError, match=words):
        robust_constant(*arguments)
