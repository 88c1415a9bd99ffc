"""ByzFL, written by others, as the oracle: where its definitions are ours, the numbers are; each difference is a test.

ByzFL 0.0.11 is not among the test requirements, because it needs PyTorch. Its package imports its benchmark, and that
torchvision and seaborn; the rules and attacks need none of it, so here they are imported without the benchmark.
"""

import importlib
import importlib.util
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.aggregate import (
    Rule,
    bucketing,
    centered_clipping,
    geometric_median,
    krum,
    median,
    multi_krum,
    nearest_neighbour_mixing,
    plain_mean,
    trimmed_mean,
)
from apiece.wrap.attacks import Scene, alie, inner_product, mimic, sign_flip

HOW = "compares with ByzFL; to run it: pip install torch, then pip install --no-deps byzfl==0.0.11"
pytest.importorskip("torch", reason=HOW, exc_type=ImportError)
found = importlib.util.find_spec("byzfl")
if found is None:
    pytest.skip(HOW, allow_module_level=True)


def without_its_benchmark(*names):
    """Modules of ByzFL, imported below a package whose own __init__ is not run."""
    package = types.ModuleType("byzfl")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["byzfl"] = package
    try:
        return [importlib.import_module(f"byzfl.{name}") for name in names]
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "byzfl"]:
            del sys.modules[name]


theirs, their_attacks = without_its_benchmark("aggregators", "attacks")

KEY = jax.random.key(0)
SHAPES = [(7, 3, 2), (12, 5, 3), (20, 30, 4)]  # clients, parameters, attackers
pytestmark = pytest.mark.usefixtures("x64")
over_shapes = pytest.mark.parametrize(("n", "p", "f"), SHAPES)


def draw(n, p, seed=0):
    """Most replies near one another, a few far off."""
    rng = np.random.default_rng(seed)
    return rng.normal(1, 1, size=(n, p)) + 5 * (rng.uniform(size=(n, 1)) < 0.2) * rng.normal(size=(n, p))


def ours(rule, rows, last=None):
    return np.asarray(jax.jit(rule)(jnp.asarray(rows), jnp.ones(len(rows)), KEY, last))


def agree(rule, oracle, n, p):
    for seed in range(5):
        rows = draw(n, p, seed)
        np.testing.assert_allclose(ours(rule, rows), oracle(rows.copy()), atol=1e-6)


@over_shapes
def test_mean_median_and_trimmed_mean_agree(n, p, f):
    agree(lambda rows, weight, key, last: plain_mean(rows, weight), theirs.Average(), n, p)
    agree(median(), theirs.Median(), n, p)
    agree(trimmed_mean(trim=f), theirs.TrMean(f), n, p)


def test_where_theirs_refuses_to_trim_everybody_away_ours_is_the_median():
    rows = draw(6, 3)
    with pytest.raises(ValueError, match="Cannot tolerate"):
        theirs.TrMean(3)(rows)
    np.testing.assert_allclose(ours(trimmed_mean(trim=3), rows), theirs.Median()(rows), atol=1e-12)


@over_shapes
def test_their_krum_looks_at_one_neighbour_more_so_their_f_is_ours_less_one(n, p, f):
    # Blanchard et al. sum over n - f - 2 neighbours, ByzFL over n - f - 1 (n - f with the reply itself).
    agree(krum(byzantine=f - 1), theirs.Krum(f), n, p)
    agree(multi_krum(byzantine=f - 1, keep=n - f), theirs.MultiKrum(f), n, p)


def test_so_the_two_krums_can_choose_differently():
    chosen = [np.allclose(ours(krum(byzantine=2), x), theirs.Krum(2)(x)) for x in (draw(7, 3, s) for s in range(20))]
    assert not all(chosen) and any(chosen)


@over_shapes
def test_geometric_medians_agree_once_they_have_converged(n, p, f):
    agree(geometric_median(steps=2000, smoothing=1e-6), theirs.GeometricMedian(nu=1e-6, T=2000), n, p)


def test_theirs_starts_at_zero_and_ours_at_the_mean_so_a_few_steps_differ():
    rows = draw(12, 5)
    assert (
        np.abs(ours(geometric_median(steps=3, smoothing=0.1), rows) - theirs.GeometricMedian(0.1, 3)(rows)).max() > 1e-3
    )
    # One step of theirs from zero is one step of ours, if the mean is zero.
    centered = rows - rows.mean(0)
    got = ours(geometric_median(steps=3, smoothing=0.1), centered)
    np.testing.assert_allclose(got, theirs.GeometricMedian(0.1, 3)(centered), atol=1e-6)


@over_shapes
def test_centered_clipping_agrees_over_several_rounds(n, p, f):
    oracle, last = theirs.CenteredClipping(L=3, tau=2.0), jnp.zeros(p)
    for seed in range(5):
        rows = draw(n, p, seed)
        last = jnp.asarray(ours(centered_clipping(radius=2.0, steps=3), rows, last))
        np.testing.assert_allclose(last, oracle(rows.copy()), atol=1e-6)


def test_a_reply_at_the_center_itself_is_no_division_by_zero_in_ours():
    rows = np.zeros((3, 2))
    np.testing.assert_array_equal(ours(centered_clipping(radius=1.0), rows), np.zeros(2))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(theirs.CenteredClipping(L=1, tau=1.0)(rows), np.zeros(2))


@over_shapes
def test_nearest_neighbour_mixing_agrees_before_any_rule(n, p, f):
    mixed = Rule(lambda rows, weight, key, last: rows)
    combine = jax.jit(nearest_neighbour_mixing(mixed, byzantine=f).combine)
    for seed in range(5):
        rows = draw(n, p, seed)
        got = combine(jnp.asarray(rows), jnp.ones(n), KEY, jnp.zeros(p))
        np.testing.assert_allclose(got, theirs.NNM(f)(rows.copy()), atol=1e-6)
    agree(nearest_neighbour_mixing("median", byzantine=f), lambda x: theirs.Median()(theirs.NNM(f)(x)), n, p)


@pytest.mark.parametrize(("n", "size"), [(6, 2), (7, 2), (20, 3), (5, 1), (4, 9)])
def test_bucketing_agrees_when_given_the_same_order(n, size, monkeypatch):
    groups = Rule(lambda rows, weight, key, last: rows)
    combine = jax.jit(bucketing(groups, size=size).combine)
    buckets = lambda x: np.asarray(combine(x, jnp.ones(n), KEY, jnp.zeros(x.shape[1])))
    # Which replies are in which group: from one reply per axis.
    order = np.concatenate([np.flatnonzero(row) for row in buckets(jnp.eye(n))])
    assert sorted(order) == list(range(n))
    monkeypatch.setattr(np.random, "permutation", lambda vectors: vectors[order])
    rows = draw(n, n)
    np.testing.assert_allclose(buckets(jnp.asarray(rows)), theirs.Bucketing(size)(rows), atol=1e-6)


def forged(attack, honest, f, memory=()):
    rows = jnp.concatenate([jnp.asarray(honest), jnp.full((f, honest.shape[1]), 77.0)])
    good = jnp.arange(len(rows)) < len(honest)
    return jax.jit(attack.forge)(Scene(rows, good, ~good, jnp.arange(len(rows)), KEY), memory)


@over_shapes
def test_sign_flipping_and_inner_product_manipulation_agree(n, p, f):
    honest = draw(n - f, p)
    flipped = forged(sign_flip(of="honest"), honest, f)[0]
    np.testing.assert_allclose(flipped, their_attacks.SignFlipping()(honest), atol=1e-6)
    for eps in (0.1, 2.0):
        manipulated = forged(inner_product(eps=eps), honest, f)[0]
        np.testing.assert_allclose(manipulated, their_attacks.InnerProductManipulation(eps)(honest), atol=1e-6)


@over_shapes
def test_alie_agrees_but_they_add_where_baruch_et_al_subtract(n, p, f):
    honest = draw(n - f, p)
    for z in (0.25, 1.5):
        np.testing.assert_allclose(
            forged(alie(z=-z), honest, f)[0], their_attacks.ALittleIsEnough(z)(honest), atol=1e-6
        )


@over_shapes
def test_they_copy_a_client_that_is_given_and_ours_one_that_is_found(n, p, f):
    honest, attack = draw(n - f, p), mimic()
    copy, memory = forged(attack, honest, f, attack.init(jnp.zeros(p), KEY))
    np.testing.assert_allclose(copy, their_attacks.Mimic(int(memory.target))(honest), atol=1e-6)
