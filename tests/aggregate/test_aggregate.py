"""Means and robust rules over replies: golden numbers, weights, absent rows, wild rows, dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.aggregate import (
    RULES,
    Rule,
    as_rule,
    bucketing,
    centered_clipping,
    flatten,
    geometric_median,
    krum,
    mean,
    median,
    multi_krum,
    nearest_neighbour_mixing,
    plain_mean,
    rule,
    trimmed_mean,
)
from apiece.errors import UserError

WEIGHTS = st.lists(st.just(0.0) | st.floats(0, 1e4, width=32, allow_subnormal=False), min_size=6, max_size=6).filter(
    lambda w: max(w) > 1e-3
)


@given(WEIGHTS, st.integers(0, 99))
def test_the_mean_is_numpys_over_those_who_have_weight(weights, seed):
    w = np.array(weights, np.float32)
    leaf = np.random.default_rng(seed).normal(size=(len(w), 2, 3)).astype(np.float32)
    got = mean({"a": jnp.asarray(leaf), "b": jnp.asarray(leaf[:, 0, 0])}, jnp.asarray(w))
    expected = np.average(leaf.astype(float), axis=0, weights=w.astype(float))
    np.testing.assert_allclose(got["a"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["b"], expected[0, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain_mean(jnp.asarray(leaf), jnp.asarray(w)), leaf[w > 0].mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", [mean, plain_mean])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 3e38])
def test_rows_of_weight_zero_never_matter(rule, poison):
    leaf = jnp.array([[1.0, 2.0], [poison, poison], [3.0, 4.0]])
    clean = leaf.at[1].set(0)
    w = jnp.array([1.0, 0.0, 3.0])
    np.testing.assert_array_equal(rule(leaf, w), rule(clean, w))


@pytest.mark.parametrize("rule", [mean, plain_mean])
def test_nobody_gives_no_update(rule):
    np.testing.assert_array_equal(rule(jnp.full((2, 3), np.nan), jnp.zeros(2)), np.zeros(3))


@pytest.mark.parametrize("rule", [mean, plain_mean])
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_the_mean_keeps_the_dtype(rule, dtype):
    assert rule(jnp.ones((2, 3), dtype), jnp.array([1.0, 2.0])).dtype == dtype


def test_equal_rows_are_their_own_mean_for_any_sizes():
    row = jnp.array([0.1, -7.0])
    np.testing.assert_allclose(mean(jnp.tile(row, (3, 1)), jnp.array([1e-3, 1e6, 7.0])), row, rtol=1e-6)


# The robust rules in plain NumPy, for n present rows.


def numpy_krum_order(x, f):
    far = ((x[:, None] - x) ** 2).sum(-1)
    score = [np.sort(np.delete(far[i], i))[: max(len(x) - f - 2, 1)].sum() for i in range(len(x))]
    return np.argsort(score, kind="stable")


def numpy_trimmed_mean(x, b):
    return np.sort(x, 0)[b : len(x) - b].mean(0)


def numpy_geometric_median(x, steps, smoothing=1e-6):
    z = x.mean(0)
    for _ in range(steps):
        near = 1 / np.maximum(smoothing, np.linalg.norm(x - z, axis=1))
        z = near @ x / near.sum()
    return z


def numpy_centered_clipping(x, v, radius, steps):
    for _ in range(steps):
        apart = x - v
        v = v + (apart * np.minimum(1, radius / np.linalg.norm(apart, axis=1))[:, None]).mean(0)
    return v


def numpy_mixing(x, f):
    far = np.linalg.norm(x[:, None] - x, axis=-1)
    return np.array([x[np.argsort(row, kind="stable")[: len(x) - f]].mean(0) for row in far])


X = np.array([(1, 2), (1.2, 1.9), (0.9, 2.2), (1.1, 2.1), (10, -10)])
GOLDEN = [  # by the rule's name, and how
    ("plain_mean", plain_mean, X.mean(0), (2.84, -0.36)),
    ("median", median(), np.median(X, 0), (1.1, 2.0)),
    ("krum", krum(byzantine=1), X[numpy_krum_order(X, 1)[0]], (1, 2)),
    ("trimmed_mean", trimmed_mean(trim=1), numpy_trimmed_mean(X, 1), (1.1, 2.0)),
    ("geometric_median", geometric_median(steps=8), numpy_geometric_median(X, 8), (1.082859, 2.007191)),
    (
        "geometric_median, converged",
        geometric_median(steps=1000),
        numpy_geometric_median(X, 1000),
        (1.071593, 2.015350),
    ),
    (
        "centered_clipping, once",
        centered_clipping(radius=1.0, steps=1),
        numpy_centered_clipping(X, np.zeros(2), 1, 1),
        (0.506191, 0.568838),
    ),
    (
        "centered_clipping, three times",
        centered_clipping(radius=1.0, steps=3),
        numpy_centered_clipping(X, np.zeros(2), 1, 3),
        (1.149660, 1.711758),
    ),
    ("multi_krum", multi_krum(byzantine=1, keep=3), X[numpy_krum_order(X, 1)[:3]].mean(0), None),
    ("multi_krum, all but one", multi_krum(byzantine=1), X[numpy_krum_order(X, 1)[:4]].mean(0), None),
    (
        "nearest_neighbour_mixing",
        nearest_neighbour_mixing("median", byzantine=1),
        np.median(numpy_mixing(X, 1), 0),
        None,
    ),
]
ROBUST = {
    "median": median(),
    "trimmed_mean": trimmed_mean(trim=2),
    "krum": krum(byzantine=2),
    "multi_krum": multi_krum(byzantine=2),
    "geometric_median": geometric_median(),
    "centered_clipping": centered_clipping(radius=1.0, steps=20),
    "bucketing": bucketing(krum(byzantine=2)),
    "nearest_neighbour_mixing": nearest_neighbour_mixing("median", byzantine=2),
}
NUMPY = {
    "median": median(),
    "trimmed_mean": trimmed_mean(trim=2),
    "krum": krum(byzantine=2),
    "multi_krum": multi_krum(byzantine=1, keep=3),
    "geometric_median": geometric_median(steps=8),
    "centered_clipping": centered_clipping(radius=0.7, steps=3),
    "nearest_neighbour_mixing": nearest_neighbour_mixing(plain_mean, byzantine=2),
}
KEY = jax.random.key(5)
MEDIAN, EIGHT_STEPS = jax.jit(geometric_median()), jax.jit(geometric_median(steps=8))
RUN = {name: jax.jit(combine) for name, combine in ROBUST.items()}  # on [11, 5], so that each is compiled once


def test_every_rule_of_the_registry_is_held_by_the_tests_of_this_file():
    means, random = {"mean", "plain_mean"}, {"bucketing"}  # the test of means; the tests of buckets
    assert set(ROBUST) == set(RULES.own) - means
    assert {name.partition(",")[0] for name, *_ in GOLDEN} - means == set(ROBUST) - random
    assert set(NUMPY) == set(ROBUST) - random


@pytest.mark.parametrize(("combine", "by_numpy", "published"), [g[1:] for g in GOLDEN], ids=[g[0] for g in GOLDEN])
def test_golden_numbers_on_two_leaves_among_absent_rows_of_nan(combine, by_numpy, published, x64):
    if published is not None:
        np.testing.assert_allclose(by_numpy, published, atol=1e-6)
    among = np.full((8, 2), np.nan)
    present = np.array([1, 2, 4, 5, 7])
    among[present] = X
    weight = np.zeros(8)
    weight[present] = 7
    got = jax.jit(combine)({"a": among[:, :1], "b": among[:, 1]}, weight)
    np.testing.assert_allclose([got["a"][0], got["b"]], by_numpy, atol=1e-12)


@jax.jit
def every_rule(rows, weight, last):
    return {name: combine(rows, weight, KEY, last) for name, combine in NUMPY.items()}


@given(st.lists(st.booleans(), min_size=9, max_size=9).filter(any), st.integers(0, 99))
def test_every_rule_is_numpys_over_those_present_whatever_their_weight(x64, present, seed):
    rng = np.random.default_rng(seed)
    here = np.array(present)
    rows = np.where(here[:, None], rng.normal(size=(9, 4)), np.nan)
    weight = np.where(here, rng.uniform(0.1, 50, 9), 0)
    x, last = rows[here], rng.normal(size=4)
    n = len(x)
    expected = {
        "median": np.median(x, 0),
        "trimmed_mean": numpy_trimmed_mean(x, min(2, (n - 1) // 2)),
        "krum": x[numpy_krum_order(x, 2)[0]],
        "multi_krum": x[numpy_krum_order(x, 1)[:3]].mean(0),
        "geometric_median": numpy_geometric_median(x, 8),
        "centered_clipping": numpy_centered_clipping(x, last, 0.7, 3),
        "nearest_neighbour_mixing": numpy_mixing(x, min(2, n - 1)).mean(0),
    }
    found = every_rule(rows, weight, last)
    for name in NUMPY:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-9, err_msg=name)


def test_a_geometric_median_is_converged_unless_steps_are_asked_for(x64):
    np.testing.assert_allclose(
        geometric_median()(jnp.asarray(X), jnp.ones(5)), numpy_geometric_median(X, 1000), atol=1e-6
    )
    close = geometric_median(tolerance=1e-12)(jnp.asarray(X), jnp.ones(5))
    np.testing.assert_allclose(close, numpy_geometric_median(X, 1000), atol=1e-11)


@pytest.mark.parametrize("wild", [1, 4])
def test_a_geometric_median_stays_near_the_honest_however_far_away_less_than_half_of_the_replies_are(wild):
    # With a share a of wild replies, and the honest within r of c: |z - c| <= (1 - a) / sqrt(1 - 2a) r (Minsker 2015).
    honest = np.random.default_rng(1).normal(size=(9 - wild, 5)).astype(np.float32)
    center, a = honest.mean(0), wild / 9
    bound = (1 - a) / np.sqrt(1 - 2 * a) * np.linalg.norm(honest - center, axis=1).max()
    for far in (1e1, 1e3, 1e6, 1e12, 1e30):
        rows = np.concatenate([honest, np.full((wild, 5), far, np.float32)])
        assert np.linalg.norm(MEDIAN(rows, np.ones(9)) - center) < bound
    rows = np.concatenate([honest, np.full((wild, 5), 1e12, np.float32)])
    assert np.linalg.norm(EIGHT_STEPS(rows, np.ones(9)) - center) > bound  # what few steps from the mean leave


@pytest.mark.parametrize("name", ROBUST)
def test_two_wild_replies_of_eleven_do_little(name):
    honest = np.random.default_rng(0).normal(1, 0.1, size=(9, 5)).astype(np.float32)
    for wild in (np.nan, np.inf, -np.inf, 1e6):
        rows = np.concatenate([honest[:4], np.full((2, 5), wild, np.float32), honest[4:]])
        np.testing.assert_allclose(RUN[name](rows, np.ones(11), KEY), np.ones(5), atol=0.5)


@pytest.mark.parametrize("name", ROBUST)
def test_a_robust_rule_never_reads_an_absent_row(name):
    rows = np.random.default_rng(1).normal(size=(11, 5)).astype(np.float32)
    weight = np.array([1.0, 0.0, 2.0, 3.0, 0.0, 1.0, 1.0, 0.0, 4.0, 1.0, 1.0])
    here = (weight > 0)[:, None]
    clean = RUN[name](np.where(here, rows, np.float32(0)), weight, KEY)
    for poison in (np.nan, np.inf, -np.inf, 3e38):
        np.testing.assert_array_equal(RUN[name](np.where(here, rows, np.float32(poison)), weight, KEY), clean)
    # Nor does it matter where the absent rows stand.
    last = np.argsort(weight == 0, kind="stable")
    np.testing.assert_allclose(RUN[name](rows[last], weight[last], KEY), clean, atol=1e-6)


@pytest.mark.parametrize("name", ROBUST)
def test_a_robust_rule_gives_zero_when_nobody_is_there_and_the_one_reply_of_one(name):
    rows = np.full((11, 5), np.nan, np.float32)
    np.testing.assert_array_equal(RUN[name](rows, np.zeros(11), KEY), np.zeros(5))
    rows[3] = (0.25, -7, 1, 2, 3)  # clipping twenty times by a radius of 1 goes farther than this is away from zero
    np.testing.assert_allclose(RUN[name](rows, 3.0 * (np.arange(11) == 3), KEY), rows[3], rtol=1e-6)


@pytest.mark.parametrize("combine", ROBUST.values(), ids=ROBUST)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_a_robust_rule_keeps_dtypes_and_shapes(combine, dtype):
    stacked = {"a": jnp.ones((3, 2), dtype), "b": jnp.ones((3,), jnp.float32)}
    got = jax.eval_shape(combine, stacked, jnp.ones(3), KEY)
    assert (got["a"].dtype, got["a"].shape, got["b"].dtype, got["b"].shape) == (dtype, (2,), jnp.float32, ())


def test_clipping_stays_where_it_was_when_nobody_is_there():
    last = jnp.array([1.0, 2.0])
    np.testing.assert_array_equal(centered_clipping()(jnp.full((3, 2), np.nan), jnp.zeros(3), None, last), last)


def test_clipping_goes_on_from_its_last_answer(x64):
    one = centered_clipping(radius=1.0, steps=1)
    v = one(jnp.asarray(X), jnp.ones(5), None, None)
    for _ in range(2):
        v = one(jnp.asarray(X), jnp.ones(5), None, v)
    np.testing.assert_allclose(v, (1.149660, 1.711758), atol=1e-6)


def test_hyper_parameters_may_be_traced_and_promote_nothing(x64):
    rows = jnp.asarray(X, jnp.float32)
    for make in (lambda v: centered_clipping(radius=v), lambda v: geometric_median(smoothing=v)):
        got = jax.jit(lambda v, make=make: make(v)(rows, jnp.ones(5, jnp.float32)))(jnp.float64(1.0))
        assert got.dtype == jnp.float32


def test_buckets_are_random_groups_of_the_present_replies_and_only_the_last_is_smaller():
    groups_themselves = Rule(lambda rows, weight, key, last: jnp.concatenate([rows, weight[:, None]], axis=1))
    weight = jnp.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    once = lambda k: bucketing(groups_themselves, size=3).combine(jnp.eye(8), weight, jax.random.key(k), jnp.zeros(8))
    seen = np.asarray(jax.jit(jax.vmap(once))(jnp.arange(200)))
    rows, counted = seen[:, :, :8], seen[:, :, 8]
    np.testing.assert_array_equal((rows > 0).sum(2), np.tile([3, 3, 1], (200, 1)))
    np.testing.assert_array_equal((rows > 0).sum(1), np.tile(np.asarray(weight), (200, 1)))
    np.testing.assert_allclose(rows.sum(2), np.ones((200, 3)), rtol=1e-6)
    np.testing.assert_array_equal(counted, np.ones((200, 3)))
    alone = rows[:, 2].sum(0)
    assert (np.delete(alone, 2) > 10).all()  # 200 / 7 = 29 +- 5


def test_buckets_of_one_change_nothing_and_one_bucket_is_the_mean():
    rows = jnp.asarray(X, jnp.float32)
    np.testing.assert_array_equal(jax.jit(bucketing(median(), size=1))(rows, jnp.ones(5), KEY), np.float32((1.1, 2.0)))
    np.testing.assert_allclose(jax.jit(bucketing(krum(), size=9))(rows, jnp.ones(5), KEY), X.mean(0), rtol=1e-6)


def test_bucketing_without_a_key_says_so():
    with pytest.raises(UserError, match="call the rule with a key"):
        bucketing(median())(jnp.ones((2, 1)), jnp.ones(2))


def test_pre_aggregators_can_be_nested_and_pass_the_memory_on():
    nested = nearest_neighbour_mixing(bucketing(centered_clipping(radius=0.5, steps=1)), byzantine=1)
    assert nested.remembers and not bucketing("median").remembers
    last = jnp.array([1.0, 2.0])
    got = nested(jnp.asarray(X, jnp.float32), jnp.ones(5), KEY, last)
    assert np.linalg.norm(got - last) <= 0.5


def test_krum_at_a_tie_takes_the_first():
    first = jax.jit(krum(byzantine=0))
    assert first(jnp.array([3.0, 5.0, 9.0]), jnp.array([1.0, 1.0, 0.0])) == 3
    assert first(jnp.array([9.0, 5.0, 3.0]), jnp.array([0.0, 1.0, 1.0])) == 5


def test_distances_are_over_the_whole_tree():
    # In each leaf alone, another row would win.
    a, b = jnp.array([0.0, 0.1, 1.0, 5.0]), jnp.array([[9.0], [1.0], [1.1], [1.2]])
    got = jax.jit(krum(byzantine=1))({"a": a, "b": b}, jnp.ones(4))
    assert (got["a"], got["b"][0]) == (a[1], b[1][0])
    assert jax.jit(krum(byzantine=1))(a, jnp.ones(4)) == a[0]


def test_distances_keep_their_digits_where_replies_nearly_agree():
    rows = 1000 + jnp.array([[0.0], [1 / 16], [3 / 16], [1.0]])
    assert krum(byzantine=1)(rows, jnp.ones(4))[0] == 1000


def test_rows_of_any_tree_become_a_matrix_and_trees_again():
    stacked = {"a": jnp.ones((2, 3, 2), jnp.float16), "b": (jnp.zeros(2), None), "c": jnp.ones((2, 0))}
    rows, restore = flatten(stacked, 2)
    assert rows.shape == (2, 7) and rows.dtype == jnp.float32
    back = restore(rows[1])
    assert jax.tree.structure(back) == jax.tree.structure(stacked)
    assert back["a"].shape == (3, 2) and back["a"].dtype == jnp.float16
    assert flatten((), 4)[0].shape == (4, 0) and flatten((), 4)[1](jnp.zeros(0)) == ()
    assert median()((), jnp.ones(3)) == ()


def test_a_spec_can_name_every_rule():
    for name in RULES:
        assert jax.eval_shape(rule(name), jnp.ones((5, 2)), jnp.ones(5), KEY).shape == (2,), name
    by_name = rule("bucketing", size=2, rule={"name": "krum", "byzantine": 1})
    by_hand = bucketing(krum(byzantine=1), size=2)
    here, there = jax.jit(lambda rows: [combine(rows, jnp.ones(5), KEY) for combine in (by_name, by_hand)])(X)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: rule("crum"), "unknown rule 'crum': did you mean 'krum'"),
        (lambda: rule("median", trim=1), "rule 'median' has no option 'trim': it has none"),
        (lambda: rule("trimmed_mean", trimm=1), "has no option 'trimm': did you mean 'trim'"),
        (lambda: trimmed_mean(trim=-1), "option 'trim' of 'trimmed_mean' is a whole number of at least 0"),
        (lambda: krum(byzantine=-1), "option 'byzantine' of 'krum' is a whole number"),
        (lambda: geometric_median(steps=0), "option 'steps' of 'geometric_median' is a whole number of at least 1"),
        (lambda: centered_clipping(radius=0.0), "option 'radius' of 'centered_clipping' is a number above 0"),
        (lambda: bucketing("median", size=0), "option 'size' of 'bucketing' is a whole number of at least 1"),
        (lambda: bucketing("medain"), "did you mean 'median'"),
        (lambda: bucketing({"byzantine": 1}), "a rule is a name"),
        (lambda: as_rule(3), "a rule is a name"),
    ],
)
def test_a_wrong_rule_or_option_is_named(wrong, words):
    with pytest.raises(UserError, match=words):
        wrong()
