"""The convolution's and the pooling's own gradients are those of automatic differentiation, in every kind of loop."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from apiece.engines.simulation.division import mesh_of
from apiece.errors import UserError
from apiece.models.convolution import FEW, convolution, convolution_1d, max_pool

CHANNELS = pytest.mark.parametrize("channels", [FEW, FEW + 1])  # few and many have gradients of their own


def plain(x, w, stride, padding):
    around = [((k - 1) // 2, k // 2) if padding == "same" else (0, 0) for k in w.shape[:2]]
    return lax.conv_general_dilated(x, w, (stride, stride), around, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def plain_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def operands(size=(6, 7), window=(3, 3), seed=0, channels=3):
    rng = np.random.default_rng(seed)
    return jnp.array(rng.normal(size=(2, *size, channels))), jnp.array(rng.normal(size=(*window, channels, 4)))


def bent(f, *args):
    """A scalar whose gradient depends on the outputs, so that no error hides."""
    return lambda x, w: jnp.sum(jnp.sin(f(x, w, *args)))


def close(a, b, rtol=1e-10):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-11), a, b)


@CHANNELS
@pytest.mark.parametrize(
    ("size", "window", "stride", "padding"),
    [
        ((6, 7), (3, 3), 1, "same"),
        ((6, 7), (3, 3), 2, "same"),
        ((7, 8), (5, 2), 1, "valid"),
        ((7, 8), (5, 2), 2, "valid"),
        ((8, 5), (4, 5), 2, "same"),
        ((5, 6), (1, 1), 2, "same"),
    ],
)
def test_value_and_gradients_equal_automatic_ones(x64, size, window, stride, padding, channels):
    x, w = operands(size, window, channels=channels)
    both = [jax.jit(jax.value_and_grad(bent(f, stride, padding), (0, 1)))(x, w) for f in (convolution, plain)]
    close(*both)


@CHANNELS
@pytest.mark.parametrize(("stride", "padding"), [(1, "valid"), (2, "same")])
def test_second_derivatives_equal_automatic_ones(x64, stride, padding, channels):
    x, w = operands(channels=channels)
    along = operands(seed=1, channels=channels)

    def forward_over_reverse(f):
        return jax.jit(lambda x, w: jax.jvp(jax.grad(bent(f, stride, padding), (0, 1)), (x, w), along)[1])(x, w)

    def reverse_over_reverse(f):
        first = jax.grad(bent(f, stride, padding), (0, 1))
        dot = lambda x, w: sum(jnp.vdot(a, b) for a, b in zip(first(x, w), along, strict=True))
        return jax.jit(jax.grad(dot, (0, 1)))(x, w)

    expected = forward_over_reverse(plain)
    close(forward_over_reverse(convolution), expected)
    close(reverse_over_reverse(convolution), expected)  # a Hessian is symmetric


def test_gradients_hold_inside_every_kind_of_loop(x64):
    pooled = lambda x, w: jnp.sum(jnp.sin(max_pool(convolution(x, w))))
    gradient = lambda x: jax.grad(pooled, (0, 1))(x, w)
    w = operands()[1]
    xs = jnp.stack([operands(seed=s)[0] for s in range(2)])
    alone = jax.jit(gradient)
    expected = jax.tree.map(lambda *rows: jnp.stack(rows), *(alone(x) for x in xs))
    summed = jax.tree.map(lambda leaf: leaf.sum(0), expected)
    zero = jax.tree.map(jnp.zeros_like, alone(xs[0]))
    add = lambda total, x: jax.tree.map(jnp.add, total, gradient(x))
    close(jax.jit(jax.vmap(gradient))(xs), expected)
    close(lax.map(gradient, xs), expected)
    close(lax.scan(lambda total, x: (add(total, x), None), zero, xs)[0], summed)
    close(lax.fori_loop(0, jnp.int32(2), lambda k, total: add(total, xs[k]), zero), summed)
    divided = jax.shard_map(
        lambda xs: lax.map(gradient, xs), mesh=mesh_of(), in_specs=P("clients"), out_specs=P("clients"), check_vma=False
    )
    close(jax.jit(divided)(xs), expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_along_time_is_one_of_images_one_pixel_high(x64, stride):
    rng = np.random.default_rng(0)
    x, w = jnp.array(rng.normal(size=(2, 9, 3))), jnp.array(rng.normal(size=(5, 3, 4)))
    other = lambda x, w: lax.conv_general_dilated(x, w, (stride,), [(2, 2)], dimension_numbers=("NWC", "WIO", "NWC"))
    both = [
        jax.jit(jax.value_and_grad(bent(f), (0, 1)))(x, w) for f in (lambda x, w: convolution_1d(x, w, stride), other)
    ]
    close(*both)


@pytest.mark.parametrize("size", [(4, 6), (5, 7)])
def test_pooling_and_its_gradients_equal_a_window_reduction(x64, size):
    x = jnp.array(np.random.default_rng(0).normal(size=(2, *size, 3)))
    both = [jax.jit(jax.value_and_grad(lambda x, f=f: jnp.sum(jnp.sin(f(x)))))(x) for f in (max_pool, plain_pool)]
    close(*both)


def test_the_first_of_equal_entries_gets_the_gradient():
    gradient = jax.grad(lambda x: max_pool(x).sum())(jnp.zeros((1, 2, 2, 1)))
    assert gradient.ravel().tolist() == [1, 0, 0, 0]


def test_what_does_not_fit_is_refused():
    x, w = jnp.ones((1, 2, 2, 1)), jnp.ones((3, 3, 1, 1))
    with pytest.raises(UserError, match="3x3 window does not fit into 2x2"):
        convolution(x, w, padding="valid")
    with pytest.raises(UserError, match="did you mean 'same'"):
        convolution(x, w, padding="some")


def seconds_of_descent(f):
    """What a call takes that descends inside a loop, as every client does."""
    rng = np.random.default_rng(0)
    x, w = (jnp.array(rng.normal(size=s).astype(np.float32)) for s in ((16, 14, 14, 16), (5, 5, 16, 32)))
    step = lambda k, w: w - 0.01 * jax.grad(lambda w: bent(f, 1, "same")(x, w))(w)
    run = jax.jit(lambda w: lax.fori_loop(0, 2, step, w))
    run(w).block_until_ready()

    def once():
        start = time.perf_counter()
        run(w).block_until_ready()
        return time.perf_counter() - start

    return once


@pytest.mark.slow
def test_plain_gradients_are_still_slow_inside_a_loop():
    """A canary: ten to twenty times slower with jaxlib 0.10. A busy machine slows both, so they run in turns."""
    own, automatic = seconds_of_descent(convolution), seconds_of_descent(plain)
    turns = [(own(), automatic()) for _ in range(5)]
    best, plain_best = (min(times) for times in zip(*turns, strict=True))
    assert plain_best > 1.5 * best, (
        f"XLA's gradient of a convolution inside a loop is cured ({plain_best:.4f} s, ours {best:.4f} s): our own "
        "gradients of convolutions (models/convolution.py) and the exchange of foreign ones (models/swap.py) can go; "
        "see first what `python -m benchmarks deep` says without them"
    )
