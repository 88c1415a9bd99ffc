"""Self-FL's synthetic experiment: the draws, and every method against a NumPy program in which it is a closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

from apiece.reproduce.self_fl import gaussian_clients as clients
from apiece.reproduce.self_fl.gaussian_clients import LR, STEPS, drawn, joined, played
from apiece.reproduce.self_fl.reference import SHARES, TABLE
from apiece.reproduce.self_fl.rules import numbers_of_steps, rules, running_variance
from apiece.reproduce.self_fl.unknown_variances import regressions

pytestmark = pytest.mark.usefixtures("x64")

ROUNDS = 6


def test_every_share_has_the_same_clients_and_others_of_them_take_part():
    few, many = drawn(2, 0.1, 20, 5), drawn(2, 0.5, 20, 5)
    for name in ("theta", "z", "sizes", "variance"):
        np.testing.assert_array_equal(getattr(few, name), getattr(many, name))
    assert few.sizes.min() >= 10 and few.sizes.max() <= 200
    assert set(few.present.sum(axis=2).ravel()) == {2} and set(many.present.sum(axis=2).ravel()) == {10}
    again = drawn(2, 0.1, 3, 5)
    np.testing.assert_array_equal(again.present, few.present[:3])


def closed_form(name, every):
    """Both estimates after the rounds: every step on a quadratic keeps a part of the way to where it leads."""
    z, s, n, spread = every.z, every.variance, every.sizes, every.spread[:, None]
    curved = LR / s
    kept = (1 - curved) ** STEPS
    w = 1 / (spread + s)
    others = w.sum(1, keepdims=True) - w
    steps = np.maximum(1, np.rint(np.log(others * s / (1 + others * s)) / np.log(1 - curved)))
    x, own = np.zeros((len(z), 1)), np.zeros_like(z)
    for t in range(ROUNDS):
        here = every.present[:, t]
        mean = lambda models, weight, here=here: (
            (here * weight * models).sum(1, keepdims=True) / (here * weight).sum(1, keepdims=True)
        )
        if name == "self_fl":
            start = x - w / others * (own - x)
            own = np.where(here, z + (1 - curved) ** steps * (start - z), own)
            x = x + here.mean(1, keepdims=True) * (mean(own, w) - x)
            continue
        sent = z + kept * (x - z)
        if name == "fed_avg":
            own = np.where(here, sent, own)
        if name == "ditto":
            centre = (curved * z + 0.01 * x) / (curved + 0.01)
            own = np.where(here, centre + (1 - curved - 0.01) ** STEPS * (own - centre), own)
        if name == "pfedme":
            left = 1 - LR * 15 / (1 + 15 * s)
            last = z + left ** (STEPS - 1) * (x - z)
            own, sent = np.where(here, (z + 15 * s * last) / (1 + 15 * s), own), z + left**STEPS * (x - z)
        if name == "maml_fl":
            sent = z + (1 - curved * (1 - curved) ** 2) ** STEPS * (x - z)
        x = mean(sent, n)
        if name == "maml_fl":
            own = z + (1 - curved) * (x - z)
    return x[:, 0], own


@pytest.mark.parametrize("name", ["self_fl", "fed_avg", "ditto", "pfedme", "maml_fl"])
def test_a_method_is_its_closed_form(name):
    every = joined([drawn(case, 0.5, 2, ROUNDS) for case in (1, 2)])
    build = clients.self_fl(every, "paper", smoothing=True) if name == "self_fl" else getattr(clients, name)
    x, own = played(build, every, lambda x, own, theta: (x, own), ROUNDS)
    expected_x, expected = closed_form(name, every)
    visited = every.present.any(axis=1) | (name != "pfedme")  # who never came is seen as it enrolls, at x
    accuracy = 2e-3 if name == "pfedme" else 1e-9  # its inner solve is by gradient steps
    np.testing.assert_allclose(x, expected_x, atol=accuracy)
    np.testing.assert_allclose(np.where(visited, own, 0), np.where(visited, expected, 0), atol=accuracy)


def test_the_reference_has_both_errors_at_every_share():
    for by_case in TABLE.values():
        assert np.shape(list(by_case.values())) == (2, len(SHARES), 2)


def test_the_printed_rule_errs_fifty_times_more_than_it_says_and_the_bayes_rule_as_much_as_it_says():
    errors = np.full((2, 10), 0.03)
    found = {claim.name: claim for claim in rules(errors, errors, quick=True)}
    printed = found["100 clients, all variances 1: squared error of the printed rule, to 5%"]
    assert printed.published == pytest.approx(0.0198, abs=5e-5)
    assert not printed.holds and printed.ours > 40 * printed.published
    assert found["100 clients, all variances 1: of the Bayes rule, to 5%"].holds
    assert found["case 1, C = 1: own error of self_fl over training alone"].holds
    assert not found["case 2, C = 1: own error of self_fl over training alone"].holds


def test_numbers_of_steps_and_the_running_variance():
    assert all(claim.holds for claim in numbers_of_steps())
    assert [claim.holds for claim in running_variance()] == [False, True]


def test_regressions_are_padded_and_their_own_fits_err_by_what_is_known():
    data = regressions((0.05, 1.0), range(4))
    beyond = np.arange(60) >= data.sizes[..., None]
    assert not data.x[beyond].any() and not data.y[beyond].any()
    assert (jnp.abs(data.y) > 0).sum(axis=2).tolist() == data.sizes.tolist()
    assert data.alone.reshape(2, 4).mean(axis=1) == pytest.approx(0.4204, abs=1e-4)
