"""The rule of rest on made curves: how often it cries wolf, and how often it misses one."""

import numpy as np
import pytest

from apiece.evaluate import trend_of, trend_of_seeds

ROUNDS = np.arange(5, 101, 5)  # as by default: twenty looks
REPEATS = 200


def share(curve, noise, state="improving", memory=0.0, rounds=ROUNDS):
    """How often the curve is said to be so when noise is added, each look's partly that of the look before."""
    rng = np.random.default_rng(0)
    fresh = rng.normal(size=(REPEATS, len(rounds)))
    for k in range(1, len(rounds)):
        fresh[:, k] = memory * fresh[:, k - 1] + (1 - memory**2) ** 0.5 * fresh[:, k]
    return np.mean([trend_of(rounds, curve + noise * one).state == state for one in fresh])


def decay(rounds_to_a_third, rounds=ROUNDS):
    """Towards 0.5, the distance divided by e in so many rounds."""
    return 0.5 + np.exp(-rounds / rounds_to_a_third)


def gain(rounds_to_a_third):
    """What as many rounds again bring, of the loss."""
    before, after = decay(rounds_to_a_third, 100), decay(rounds_to_a_third, 200)
    return (before - after) / before


@pytest.mark.parametrize("noise", [0.0005, 0.001, 0.003])
def test_a_flat_curve_is_rarely_said_to_improve(noise):
    flat = np.full(len(ROUNDS), 0.5)
    assert share(flat, noise) <= 0.025, "an interval of 95 %, one side of it"
    assert share(flat, noise, "resting") >= 0.85
    assert share(flat, noise, memory=0.8) <= 0.1, "noise that lasts from look to look looks like a trend"


@pytest.mark.parametrize("slowness", [30, 50, 100, 200, 400])
def test_a_decay_that_goes_on_is_seen(slowness):
    assert gain(slowness) > 0.05
    assert share(decay(slowness), 0.0) == 1
    assert share(decay(slowness), 0.003) > 0.95


@pytest.mark.parametrize("slowness", [3, 10, 15])
def test_a_decay_that_has_arrived_rests_however_clean_its_last_digits_are(slowness):
    assert gain(slowness) < 0.01
    assert share(decay(slowness), 0.0, "resting") == 1
    assert share(decay(slowness), 0.001) <= 0.05


@pytest.mark.parametrize("slowness", [30, 50, 100, 200, 400])
def test_what_more_rounds_bring_is_foreseen(slowness):
    found = trend_of(ROUNDS, decay(slowness))
    assert found.gain / found.loss == pytest.approx(gain(slowness), rel=0.1)


def test_a_slow_law_of_one_over_the_rounds_is_foreseen_to_its_order():
    loss = lambda rounds: 0.1 + 5 / (rounds + 10)
    assert trend_of(ROUNDS, loss(ROUNDS)).state == "improving"
    assert 0.5 < trend_of(ROUNDS, loss(ROUNDS)).gain / (loss(100) - loss(200)) < 1


def test_overfitting_is_said_to_rise_and_never_to_improve():
    curve = 0.5 + np.exp(-ROUNDS / 10) + 0.002 * np.maximum(ROUNDS - 40, 0)
    assert share(curve, 0.003, "rising") > 0.95
    assert share(curve, 0.01) == 0


@pytest.mark.parametrize("period", [8, 13, 20, 32])
def test_an_oscillation_that_the_last_half_shows_whole_does_not_improve(period):
    for phase in np.linspace(0, 2 * np.pi, 8):
        curve = 0.5 + 0.01 * np.sin(2 * np.pi * ROUNDS / period + phase)
        assert share(curve, 0.001) <= 0.06


def test_noise_that_could_hide_a_fall_leaves_it_open():
    assert share(np.full(len(ROUNDS), 0.5), 0.03, "unknown") > 0.9
    assert share(decay(100), 0.03, "resting") < 0.05, "it gains a quarter of its loss"


def test_few_looks_tell_nothing():
    every = np.arange(10, 101, 10)
    found = trend_of(every, decay(100, every))
    assert (found.state, found.looks) == ("unknown", 3)
    assert trend_of(np.arange(10, 161, 10), decay(100, np.arange(10, 161, 10))).state == "improving"
    assert trend_of([], []).state == trend_of([10], [0.5]).state == "unknown"


def test_a_loss_that_is_not_finite_at_the_end_has_diverged_and_one_that_never_was_is_unknown():
    assert trend_of(ROUNDS, np.where(ROUNDS > 50, np.nan, 0.5)).state == "diverged"
    assert trend_of(ROUNDS, np.full(len(ROUNDS), np.nan)).state == "unknown", "there is no validation"
    assert trend_of(ROUNDS, np.where(ROUNDS == 90, np.inf, 0.5)).state == "unknown"


def test_the_scale_of_the_loss_does_not_matter():
    for scale in (1e-6, 1.0, 1e6):
        assert trend_of(ROUNDS, scale * decay(100)).state == "improving"
        assert trend_of(ROUNDS, scale * decay(10)).state == "resting"


def test_seeds_that_differ_by_chance_are_judged_by_their_mean():
    rng = np.random.default_rng(1)
    noisy = [decay(50) + 0.01 * one for one in rng.normal(size=(200, 8, len(ROUNDS)))]
    alone = np.mean([trend_of(ROUNDS, seeds[0]).state == "improving" for seeds in noisy])
    together = np.mean([trend_of_seeds([(ROUNDS, one) for one in seeds]).state == "improving" for seeds in noisy])
    assert together > 0.99 > alone
    flat = 0.5 + 0.003 * rng.normal(size=(200, len(ROUNDS)))
    thrice = [trend_of_seeds([(ROUNDS, one)] * 3).state for one in flat]
    assert thrice == [trend_of(ROUNDS, one).state for one in flat], "seeds that are all alike are one"


def test_of_seeds_with_other_looks_the_one_that_gains_most_stands_for_all():
    short = (ROUNDS, decay(100))
    long = (np.arange(5, 801, 5), decay(100, np.arange(5, 801, 5)))
    assert trend_of_seeds([long]).state == "resting"
    assert trend_of_seeds([long, short]) == trend_of(*short)
    broken = (ROUNDS, np.where(ROUNDS > 50, np.nan, 0.5))
    assert trend_of_seeds([short, broken]).state == "diverged"
