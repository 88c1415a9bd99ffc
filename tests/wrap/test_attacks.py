"""Attacks: golden numbers, who is seen, who is copied, and what happens when nobody is honest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from apiece.errors import UserError
from apiece.protocol import Data
from apiece.wrap.attacks import (
    ATTACKS,
    Mimicry,
    Scene,
    alie,
    attack,
    inner_product,
    label_flip,
    mimic,
    most_hidden_z,
    noise,
    not_a_number,
    scaled,
    sign_flip,
)

X = np.array([(1, 2), (1.2, 1.9), (0.9, 2.2), (1.1, 2.1), (10, -10)])
HONEST = np.array([True, True, True, True, False])
KEY = jax.random.key(3)


def scene(rows=X, honest=HONEST, byzantine=None, ids=None):
    byzantine = ~honest if byzantine is None else byzantine
    ids = np.arange(len(rows)) if ids is None else ids
    return Scene(jnp.asarray(rows), jnp.asarray(honest), jnp.asarray(byzantine), jnp.asarray(ids, jnp.int32), KEY)


def forged(chosen, at):
    memory = () if chosen.init is None else chosen.init(jnp.zeros_like(at.rows[0]), KEY)
    return jax.jit(chosen.forge)(at, memory)[0]


@pytest.mark.parametrize(
    ("n", "f", "z"), [(25, 5, 0.253347), (20, 4, 0.157311), (10, 2, 0), (50, 11, 0.293381), (32, 6, 0.194028)]
)
def test_how_far_a_little_is(n, f, z, x64):
    needed = np.floor(n / 2 + 1) - f
    np.testing.assert_allclose(norm.ppf((n - f - needed) / (n - f)), z, atol=1e-6)
    np.testing.assert_allclose(jax.jit(most_hidden_z)(n, f), z, atol=1e-6)


def test_how_far_a_little_is_stays_finite_where_the_formula_is_not():
    n, f = np.meshgrid(np.arange(12), np.arange(12))
    assert np.isfinite(jax.jit(most_hidden_z)(n[f <= n], f[f <= n])).all()


def test_golden_numbers_of_alie_and_inner_product_manipulation(x64):
    np.testing.assert_allclose(forged(alie(), scene()), (1.05, 2.05), atol=1e-6)
    np.testing.assert_allclose(forged(inner_product(eps=0.1), scene()), (-0.105, -0.205), atol=1e-6)


def test_alie_moves_by_the_spread_of_the_honest_alone(x64):
    good = X[:4]
    np.testing.assert_allclose(forged(alie(z=1.5), scene()), good.mean(0) - 1.5 * good.std(0, ddof=1), atol=1e-12)
    rows = np.random.default_rng(0).normal(size=(25, 3))
    honest = np.arange(25) >= 5
    expected = rows[5:].mean(0) - 0.253347 * rows[5:].std(0, ddof=1)
    np.testing.assert_allclose(forged(alie(), scene(rows, honest)), expected, atol=1e-6)


def test_who_takes_part_decides_how_far_alie_goes(x64):
    rows = np.random.default_rng(0).normal(size=(32, 3))
    attacks, absent = np.arange(32) < 5, np.arange(32) >= 25
    rows[absent] = 0
    got = forged(alie(), scene(rows, ~attacks & ~absent, attacks))
    np.testing.assert_allclose(got, rows[5:25].mean(0) - 0.253347 * rows[5:25].std(0, ddof=1), atol=1e-6)


def test_signs_flip_of_the_own_reply_or_of_the_honest_mean(x64):
    np.testing.assert_allclose(forged(sign_flip(), scene())[4], (-10, 10))
    np.testing.assert_allclose(forged(sign_flip(scale=3.0, of="honest"), scene()), -3 * X[:4].mean(0))
    np.testing.assert_allclose(forged(scaled(scale=4.0), scene())[4], (40, -40))
    assert np.isnan(forged(not_a_number(), scene())).all()


def test_noise_is_each_attackers_own_whatever_its_place():
    ids = np.array([7, 3, 5, 9])
    attacks = np.array([False, True, True, True])
    rows = np.zeros((4, 20_000), np.float32)
    draw = jax.jit(noise(scale=2.0).forge)
    here = np.asarray(draw(scene(rows, ~attacks, attacks, ids), ())[0])
    there = np.asarray(draw(scene(rows, ~attacks, attacks, ids[::-1]), ())[0])
    np.testing.assert_array_equal(here, there[::-1])
    np.testing.assert_allclose(here.std(1), 2, rtol=0.05)
    assert abs(np.corrcoef(here)[np.triu_indices(4, 1)]).max() < 0.05


def test_labels_are_flipped_and_nothing_else():
    x, y = jnp.ones((3, 2)), jnp.array([0, 3, 9], jnp.int32)
    spoiled = label_flip(classes=10).data(Data(x, y, 0, 3, 3))
    assert spoiled.x is x and spoiled.y.tolist() == [9, 6, 0] and spoiled.y.dtype == y.dtype
    with pytest.raises(UserError, match="for classification"):
        label_flip(classes=10).data(Data(x, jnp.ones(3), 0, 3, 3))


def test_mimic_finds_where_the_honest_differ_most_and_then_copies_one_client_for_good(x64):
    rng, warmup = np.random.default_rng(0), 12
    ids, honest = np.array([8, 2, 5, 0, 7, 3]), np.array([True, True, True, True, True, False])
    axis = np.array([0.6, 0.8, 0, 0])
    draw = lambda: rng.normal(size=(6, 4)) * 0.3 + np.outer([-2, 1, 3, 0, -1, 0], axis)
    chosen = mimic(warmup=warmup)
    memory = chosen.init(jnp.zeros(4), KEY)
    z, run = np.asarray(memory.z), jax.jit(chosen.forge)
    for t in range(warmup):
        rows = draw()
        good = rows[:5]
        apart = good - good.mean(0)
        pull = apart.T @ (apart @ z)
        z = t / (1 + t) * z + pull / np.linalg.norm(pull) / (1 + t)
        z /= np.linalg.norm(z)
        row, memory = run(scene(rows, honest, ids=ids), memory)
        np.testing.assert_allclose(memory.z, z, atol=1e-9)
        np.testing.assert_array_equal(row, good[np.argmax(good @ z)])
    assert abs(z @ axis) > 0.98
    last_target = int(ids[np.argmax(good @ z)])
    assert memory.target == last_target and memory.rounds == warmup
    rows = -draw()  # now another one is the largest, but the target is frozen
    row, memory = run(scene(rows, honest, ids=ids), memory)
    np.testing.assert_array_equal(row, rows[np.flatnonzero(ids == last_target)[0]])
    assert (memory.target, memory.rounds) == (last_target, warmup)
    np.testing.assert_allclose(memory.z, z, atol=1e-9)
    here = honest & (ids != last_target)  # while it is absent, somebody else is copied
    row, memory = run(scene(rows, here, np.zeros(6, bool), ids=ids), memory)
    np.testing.assert_array_equal(row, rows[here][np.argmax(rows[here] @ z)])
    assert memory.target == last_target


def test_mimic_learns_nothing_from_equal_replies():
    chosen = mimic()
    memory = chosen.init(jnp.zeros(3), KEY)
    at = scene(np.ones((4, 3), np.float32), np.array([True, True, True, False]))
    row, after = jax.jit(chosen.forge)(at, memory)
    np.testing.assert_array_equal(row, np.ones(3))
    np.testing.assert_array_equal(after.z, memory.z)
    assert isinstance(after, Mimicry) and after.rounds == 1


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in ("label_flip", "not_a_number")])
def test_without_anybody_honest_or_anybody_at_all_the_forgery_is_finite(name):
    nobody = np.zeros(5, bool)
    for byzantine in (nobody, ~nobody):
        assert np.isfinite(forged(attack(name), scene(X.astype(np.float32), nobody, byzantine))).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: attack("noize"), "unknown attack 'noize': did you mean 'noise'"),
        (lambda: attack("noise", sigma=1.0), "attack 'noise' has no option 'sigma': known: scale"),
        (lambda: attack("label_flip"), "attack 'label_flip' needs the option 'classes'"),
        (lambda: label_flip(classes=1), "at least 2"),
        (lambda: mimic(warmup=-1), "option 'warmup' of the attack 'mimic'"),
        (lambda: sign_flip(of="all"), "option 'of' of the attack 'sign_flip' is unknown"),
    ],
)
def test_a_wrong_attack_or_option_is_named(wrong, words):
    with pytest.raises(UserError, match=words):
        wrong()
