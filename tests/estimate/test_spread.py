"""What clients measure at the shared model, and the spread that follows, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece import tree
from apiece.estimate.spread import PROBES, Slope, measure_slope, spread_of
from apiece.models import linear, mlp, objective
from apiece.protocol import Data

pytestmark = pytest.mark.usefixtures("x64")


def squares(w, batch, key):
    return jnp.sum(batch.weight * jnp.square(batch.x @ w - batch.y)) / 2 / batch.weight.sum()


def client(n, d, seed=0, spare=3):
    """n rows of a client, and some of a neighbour's that must not be read."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((n + spare, d)), rng.standard_normal(n + spare)
    x[n:], y[n:] = np.nan, np.nan
    return x[:n], y[:n], Data(jnp.asarray(x), jnp.asarray(y), 0, n, n + spare)


def by_hand(x, y, w):
    """|g|^2, its squared standard error, tr(S), tr(H), tr(H^2) of half the mean square."""
    each = x * (x @ w - y)[:, None]
    h = x.T @ x / len(x)
    scatter = each.var(axis=0, ddof=1).sum()
    return [np.sum(each.mean(0) ** 2), scatter / len(x), scatter, np.trace(h), np.sum(h * h), len(x)]


def test_a_small_model_is_measured_exactly():
    x, y, data = client(17, PROBES)
    found = jax.jit(lambda w, key: measure_slope(squares, w, data, key))(jnp.ones(PROBES), jax.random.key(0))
    np.testing.assert_allclose(found, by_hand(x, y, np.ones(PROBES)), rtol=1e-6)  # weights are float32


def test_a_larger_one_is_measured_rightly_on_average():
    x, y, data = client(40, 12)
    keys = jax.random.split(jax.random.key(1), 400)
    found = jax.jit(jax.vmap(lambda key: jnp.stack(measure_slope(squares, jnp.ones(12), data, key))))(keys)
    np.testing.assert_allclose(found.mean(0), by_hand(x, y, np.ones(12)), rtol=0.06)


def test_of_a_log_loss_noise_and_curvature_are_one():
    """Labels drawn by the model itself: tr(S) = tr(H), which is what makes a likelihood of a loss."""
    model = mlp((3,), 4, hidden=(5,))
    params, rng = model.init(jax.random.key(0)), np.random.default_rng(0)
    x = rng.standard_normal((256, 3))
    chance = jax.nn.softmax(model.apply(params, jnp.asarray(x)))
    loss, ratios = objective(model, "classification").loss, []
    measure = jax.jit(lambda y, key: measure_slope(loss, params, Data(jnp.asarray(x), y, 0, 256, 256), key))
    for k in range(20):
        y = jnp.asarray([rng.choice(4, p=np.asarray(row) / np.sum(row)) for row in chance])
        found = measure(y, jax.random.key(k))
        ratios.append((found.noise, found.curvature))
    noise, curvature = np.mean(ratios, axis=0)
    assert noise == pytest.approx(curvature, rel=0.1)


def test_one_example_says_nothing():
    _, _, data = client(1, 2)
    found = jax.jit(lambda key: measure_slope(squares, jnp.ones(2), data, key))(jax.random.key(0))
    assert not bool(found.known)
    assert float(spread_of(tree.stack([found, found]))) == 0


def test_a_loss_that_is_no_number_says_nothing():
    _, _, data = client(5, 2)
    found = measure_slope(lambda w, batch, key: jnp.nan * squares(w, batch, key), jnp.ones(2), data, jax.random.key(0))
    assert [float(number) for number in found] == [0] * len(Slope._fields)


def drawn(spread, sizes, seed, noise=1.0):
    """Slopes of clients that estimate a mean in three dimensions, at the mean of all."""
    rng = np.random.default_rng(seed)
    s = noise / sizes
    z = rng.standard_normal((len(sizes), 3)) * np.sqrt(spread + s)[:, None]
    away = np.sum((z - z.mean(0)) ** 2, axis=1)
    numbers = away, 3 * s, 3 * noise + 0 * s, 3 + 0 * s, 3 + 0 * s, sizes
    return Slope(*(jnp.asarray(number, float) for number in numbers))


@pytest.mark.parametrize("spread", [0.0, 0.02, 1.0])
def test_the_spread_is_found(spread):
    sizes = np.random.default_rng(0).integers(10, 200, 30)
    found = np.mean([jax.jit(spread_of)(drawn(spread, sizes, seed)) for seed in range(60)])
    assert found == pytest.approx(spread, rel=0.1, abs=0.002)


def test_what_all_have_in_common_is_no_spread():
    slopes = drawn(1.0, np.full(10, 50), 0)
    assert float(spread_of(slopes, common=1.0)) == 0
    assert 0 < float(spread_of(slopes, common=0.5)) < float(spread_of(slopes))


def test_a_client_whose_loss_is_flat_does_not_count():
    slopes = drawn(1.0, np.full(10, 50), 0)
    flat = Slope(*(jnp.append(number, 0.0) for number in slopes))
    assert float(spread_of(flat)) == pytest.approx(float(spread_of(slopes)))


def test_the_linear_model_of_the_house_is_measured_too():
    model = linear((2,))
    x, y, data = client(9, 2)
    params = jax.tree.map(jnp.ones_like, model.init(jax.random.key(0)))
    found = measure_slope(objective(model, "regression").loss, params, data, jax.random.key(0))
    rows = np.column_stack([x, np.ones(9)])
    np.testing.assert_allclose(found, by_hand(rows, y, np.ones(3)), rtol=1e-5)
