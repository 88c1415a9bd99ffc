"""The filter, its numbers, and the estimators of b, against closed forms and plain NumPy."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.client.descend import full_gradient
from apiece.errors import UserError
from apiece.estimate.similarity import (
    bias_from_distance,
    bias_of_clusters,
    combine,
    cross_evaluation,
    gradient_and_error,
    gradient_bias,
    largest_eigenvalue,
    mean_and_error,
    mean_distance,
    neighbours,
    oracle,
    separation,
    squared_distances,
    symmetric,
    total_variation,
    wasserstein,
)
from apiece.protocol import Batch, Data
from apiece.theory.formulas import loneliness, mixing

pytestmark = pytest.mark.usefixtures("x64")

MEANS = np.array([0.1, 0.15, 0.2, 0.6, 0.65])
B5 = (MEANS[:, None] - MEANS[None]) ** 2 / 2


def largest(filter):
    return np.linalg.eigvalsh(filter @ filter.T)[-1]


def star(clients):
    """Everybody is like the first, and like nobody else."""
    b = np.full((clients, clients), 10.0)
    b[0] = b[:, 0] = 0
    return b


# eps, N_i, S, lambda_max(W), the mean bias, N/S
TABLE = [
    (1e-4, (1, 1, 1, 1, 1), 5, 1, 0, 1),
    (0.004, (2, 3, 2, 2, 2), 2.333333, 1.057055, 0.000667, 2.142857),
    (0.02, (3, 3, 3, 2, 2), 2, 1, 0.001250, 2.5),
    (0.2, (3, 3, 4, 3, 2), 1.75, 1.023909, 0.010437, 2.857143),
    (1.0, (5, 5, 5, 5, 5), 1, 1, 0.055400, 5),
]


@pytest.mark.parametrize(("eps", "counts", "alone", "top", "bias", "gain"), TABLE)
def test_the_numbers_of_a_filter_are_those_of_the_table(eps, counts, alone, top, bias, gain):
    filter = np.asarray(neighbours(B5, eps))
    np.testing.assert_array_equal((filter > 0).sum(1), counts)
    np.testing.assert_allclose(filter.sum(1), 1, rtol=1e-15)
    printed = dict(rtol=0, atol=0.5e-6 + 1e-12)
    np.testing.assert_allclose(loneliness(filter), alone, **printed)
    np.testing.assert_allclose(largest(filter), top, **printed)
    np.testing.assert_allclose(largest_eigenvalue(filter), top, **printed)
    np.testing.assert_allclose((filter * B5).sum() / 5, bias, **printed)
    np.testing.assert_allclose(5 / loneliness(filter), gain, **printed)


def test_a_client_is_its_own_neighbour_and_equality_counts():
    assert neighbours(np.full((2, 2), 9.0), 0.0).tolist() == [[1, 0], [0, 1]]
    assert neighbours(np.array([[0.0, 0.5], [0.5, 0.0]]), 1.0).tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_an_asymmetric_b_still_makes_a_symmetric_mixing():
    w = mixing(neighbours(np.array([[0.0, 9.0, 0.0], [0.0, 0.0, 9.0], [9.0, 9.0, 0.0]]), 1.0))
    np.testing.assert_array_equal(w, w.T)
    assert float(abs(w.sum(1) - 1).max()) > 0.1  # and rows that do not sum to 1


def test_clusters_mix_as_blocks():
    expected = np.array([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])
    np.testing.assert_array_equal(mixing(neighbours(bias_of_clusters(["a", "a", "b"]), 1.0)), expected)


def test_the_largest_eigenvalue_of_a_star_is_a_quarter_of_its_size():
    filter = neighbours(star(100), 1.0)
    assert largest(np.asarray(filter)) == pytest.approx(25.0, abs=0.05)
    assert float(largest_eigenvalue(filter)) == pytest.approx(largest(np.asarray(filter)), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("eps", [0.001, 0.02, 0.3])
def test_the_largest_eigenvalue_is_the_exact_one_even_with_a_small_gap(seed, eps):
    p = np.random.default_rng(seed).random(150)
    filter = neighbours((p[:, None] - p[None]) ** 2 / 2, eps)
    exact, found = largest(np.asarray(filter)), float(jax.jit(largest_eigenvalue)(filter))
    assert 1 <= found <= exact + 1e-12
    assert found == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    "b", [np.zeros((1, 1)), *(bias_of_clusters(np.arange(60) % kinds) for kinds in (7, 60)), star(60)]
)
def test_the_largest_eigenvalue_in_single_precision(b):
    filter = neighbours(b, 1.0)
    found = largest_eigenvalue(filter.astype(jnp.float32))
    assert float(found) == pytest.approx(largest(np.asarray(filter)), rel=1e-5)


def test_a_rate_is_governed_by_the_smallest_eigenvalue_not_by_the_mean():
    # f(y) = y'Ay/2 is 1-smooth and 1-strongly convex relative to A; the claim exp(-eta mu T) is off by far.
    a, y = np.array([1.0, 0.01]), np.array([0.0, 1.0])
    first = (a * y * y).sum()
    for _ in range(20):
        y = y - 0.5 * a * y
    assert (a * y * y).sum() / first == pytest.approx(0.818, abs=5e-4)
    assert np.exp(-0.5 * 20) == pytest.approx(4.5e-5, abs=5e-7)


def test_combining_ignores_who_is_not_present():
    rows = {"w": jnp.array([[1.0, 2.0], [np.nan, np.inf], [3.0, 4.0]])}
    got = combine(jnp.array([[1.0, 5.0, 2.0]]), rows, jnp.array([True, False, True]))["w"]
    assert got.tolist() == [[7.0, 10.0]]


def test_combining_keeps_the_dtype_of_the_model():
    assert combine(jnp.ones(2, jnp.float64), jnp.ones((2, 3), jnp.float32)).dtype == jnp.float32


# b, known and measured.


def test_the_oracle_on_quadratics_is_the_excess_risk_and_below_the_gradients_bound():
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((4, 3, 3))
    h = roots @ roots.transpose(0, 2, 1) + np.eye(3)
    best = rng.standard_normal((4, 3))
    risks = lambda x: jnp.einsum("ia,iab,ib->i", x - best, h, x - best) / 2
    b = np.asarray(oracle(risks, best))
    away = best[None] - best[:, None]
    np.testing.assert_allclose(b, np.einsum("ija,iab,ijb->ij", away, h, away) / 2, atol=1e-12)
    slopes = np.einsum("iab,ijb->ija", h, away)
    convexity = np.linalg.eigvalsh(h)[:, :1]
    assert (b <= (slopes**2).sum(-1) / (2 * convexity) + 1e-12).all()


def test_separation_takes_the_noise_out_or_adds_it():
    squared, errors = np.array([[0.0, 0.09], [0.09, 0.0]]), np.array([0.01, 0.03])
    found = {how: float(separation(squared, errors, how)[0, 1]) for how in ("plain", "unbiased", "upper")}
    assert found == pytest.approx({"plain": 0.09, "unbiased": 0.05, "upper": 0.25})
    assert float(separation(squared, errors + 1)[0, 1]) == 0
    with pytest.raises(UserError, match="did you mean 'upper'"):
        separation(squared, errors, "uper")


def test_estimates_are_symmetric_with_a_zero_diagonal():
    assert symmetric(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[0, 3], [3, 0]]


def test_squared_distances_do_not_drown_in_a_common_offset():
    rows = {"a": np.array([[0.0, 1.0], [2.0, 3.0]]) + 1e8, "b": np.array([5.0, 7.0])}
    np.testing.assert_allclose(squared_distances(rows), [[0, 12], [12, 0]], rtol=1e-6)


def test_the_gradient_distance_is_unbiased_where_the_plain_one_is_not():
    """Two clients a distance apart, in three dimensions, of 5 and 8 examples."""
    rng = np.random.default_rng(0)
    centres, sizes, repeats = np.array([[0.0, 0, 0], [1.5, 0, 0]]), (5, 8), 4000
    samples = [centres[i] + rng.standard_normal((repeats, sizes[i], 3)) for i in (0, 1)]
    means = np.stack([s.mean(1) for s in samples], 1)
    errors = np.stack([s.var(1, ddof=1).sum(-1) / n for s, n in zip(samples, sizes, strict=True)], 1)
    measure = lambda how: jax.vmap(lambda g, e: gradient_bias(g, e, 0.5, how)[0, 1])(means, errors)
    true = 1.5**2
    assert float(measure("unbiased").mean()) == pytest.approx(true, rel=0.03)
    assert float(measure("plain").mean()) == pytest.approx(true + 3 / 5 + 3 / 8, rel=0.03)
    assert float(measure("upper").mean()) > float(measure("plain").mean())


def test_means_of_samples_give_half_the_squared_difference():
    rng = np.random.default_rng(3)
    samples = [rng.random(400) < p for p in (0.2, 0.25, 0.8)]
    means, errors = (np.array(column) for column in zip(*map(mean_and_error, samples), strict=True))
    b = np.asarray(gradient_bias(means, errors))
    np.testing.assert_allclose(errors, [np.var(s, ddof=1) / 400 for s in samples])
    expected = np.maximum((means[:, None] - means[None]) ** 2 - errors[:, None] - errors[None], 0) / 2
    np.testing.assert_allclose(b[~np.eye(3, dtype=bool)], expected[~np.eye(3, dtype=bool)], atol=1e-14)
    np.testing.assert_allclose(b[0], [0, 0.5 * 0.05**2, 0.18], atol=0.03)
    with pytest.raises(UserError, match="at least two"):
        mean_and_error([1.0])


def squares(w, batch, key):
    miss = jnp.square(batch.x @ w["w"] - batch.y) / 2
    return (batch.weight * miss).sum() / batch.weight.sum()


def test_cross_evaluation_of_three_regressions_finds_the_true_b():
    """True b between the three: .025, .9 and .625; five parameters, halves of 80 examples, mean of 300 repetitions."""
    rng = np.random.default_rng(0)
    truth = np.array([0.0, 0.1, 0.6])[:, None] * np.ones(5)
    x = rng.standard_normal((300, 3, 160, 5))
    y = np.einsum("rinf,if->rin", x, truth) + rng.standard_normal((300, 3, 160))

    @jax.jit
    @jax.vmap
    def estimate(x, y):
        train = Batch(x[:, :80], y[:, :80], jnp.ones((3, 80)))
        held = Batch(x[:, 80:], y[:, 80:], jnp.ones((3, 80)))
        fit = jax.vmap(lambda a, b: jnp.linalg.solve(a.T @ a, a.T @ b))(train.x, train.y)
        return [cross_evaluation(squares, {"w": fit}, train, held, raw=raw) for raw in (True, False)]

    raw, safe = estimate(x, y)
    b, truth = np.asarray(raw.mean(0)), np.array([[0, 0.025, 0.9], [0.025, 0, 0.625], [0.9, 0.625, 0]])
    np.testing.assert_allclose(b, truth, rtol=0.04, atol=0.003)
    np.testing.assert_array_equal(safe, np.maximum(np.maximum(raw, raw.transpose(0, 2, 1)), 0))


@pytest.mark.parametrize(("batch", "size"), [(0, 1), (0, 3), (0, 40), (6, 3), (6, 40)])
def test_a_gradient_with_its_error_reads_only_the_clients_rows(batch, size):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((60, 2)), rng.standard_normal(60)
    x[:5], x[5 + size :] = np.nan, np.nan
    data = Data(jnp.asarray(x), jnp.asarray(y), 5, size, 40)
    w = {"w": jnp.array([0.3, -0.2])}
    g, error = jax.jit(partial(gradient_and_error, squares, batch=batch))(w, data, jax.random.key(2))
    assert np.isfinite(g["w"]).all()
    if batch == 0 or size <= batch:
        np.testing.assert_allclose(g["w"], full_gradient(squares, w, data, jax.random.key(0))["w"], atol=1e-12)
    if size == 1:
        assert float(error) == pytest.approx(float(jnp.sum(g["w"] ** 2)))
    if size == 3:  # three examples in chunks of one: the usual formula
        mine = slice(5, 8)
        single = (x[mine] @ np.asarray(w["w"]) - y[mine])[:, None] * x[mine]
        assert float(error) == pytest.approx(single.var(0, ddof=1).sum() / 3)


@pytest.mark.parametrize("batch", [0, 12])
def test_the_error_of_a_gradient_is_unbiased(batch):
    """Batches of 12 of many; all of 30; and, of more than are read at once, a sample of 256."""
    rng = np.random.default_rng(4)
    mean = lambda w, batch, key: (batch.weight * jnp.sum((w - batch.y) ** 2, -1) / 2).sum() / batch.weight.sum()
    y = 2 * rng.standard_normal((3000, 30, 3))  # tr(S) = 12
    measure = jax.jit(jax.vmap(lambda y, k: gradient_and_error(mean, jnp.zeros(3), Data(y, y, 0, 30, 30), k, batch)[1]))
    errors = measure(y, jax.random.split(jax.random.key(0), 3000))
    assert float(errors.mean()) == pytest.approx(12 / (batch or 30), rel=0.02)


def test_of_many_examples_a_sample_tells_the_error():
    rng = np.random.default_rng(4)
    mean = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2 / 2).sum() / batch.weight.sum()
    y = jnp.asarray(rng.standard_normal((200, 900)))
    measure = jax.jit(jax.vmap(lambda y, k: gradient_and_error(mean, jnp.zeros(()), Data(y, y, 0, 900, 900), k, 0)))
    g, errors = measure(y, jax.random.split(jax.random.key(0), 200))
    np.testing.assert_allclose(g, -y.mean(1), atol=1e-8)  # chunks are weighted in single precision
    assert float(errors.mean()) == pytest.approx(1 / 900, rel=0.15)


# Distances between samples.


def bernoulli(p):
    return (np.arange(10) < 10 * p).astype(float)


def test_all_three_distances_between_two_coins_are_the_difference_of_their_chances():
    a, b = bernoulli(0.3), bernoulli(0.7)
    for distance in (mean_distance, wasserstein, total_variation):
        assert distance(a, b) == pytest.approx(0.4, abs=1e-12)
    assert bias_from_distance(0.4, diameter=1.0) == pytest.approx(0.4)
    assert bias_from_distance(0.4, convexity=1.0) == pytest.approx(0.08)
    with pytest.raises(UserError, match="give one of the two"):
        bias_from_distance(0.4)


@pytest.mark.parametrize("sizes", [(7, 7), (5, 9)])
def test_wasserstein_in_one_dimension_agrees_with_optimal_transport(sizes):
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal(sizes[0]), 1 + rng.standard_normal(sizes[1])
    flat = lambda sample: np.stack([sample, np.zeros(len(sample))], 1)  # a second feature that is the same for all
    assert wasserstein(a, b) == pytest.approx(wasserstein(flat(a), flat(b)), abs=1e-12)


def test_wasserstein_of_a_shifted_sample_is_the_shift():
    sample = np.random.default_rng(6).standard_normal((20, 3))
    assert wasserstein(sample, sample + [3.0, 0.0, 4.0]) == pytest.approx(5.0)
    with pytest.raises(UserError, match="3 and 2 features"):
        wasserstein(sample, sample[:, :2])


def test_without_the_transport_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(UserError, match=r"pip install apiece\[transport\]"):
        wasserstein(np.zeros((2, 2)), np.ones((2, 2)))
    assert wasserstein([0.0], [1.0]) == 1.0


def test_total_variation_counts_rows_as_values():
    a = np.array([[0, 0], [0, 1], [1, 1], [1, 1]])
    assert total_variation(a, a[:2]) == pytest.approx(0.5)
    assert total_variation(a, a) == 0


def test_the_mean_distance_is_at_most_wasserstein():
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((15, 2)), rng.standard_normal((15, 2)) * 2
    assert mean_distance(a, b) <= wasserstein(a, b)
