"""Convolution and pooling with gradients of their own, so that they stay fast inside a compiled loop.

XLA's automatic gradient of a convolution has a fast path on a CPU only outside of `scan`, `map` and `while`; inside,
where every local step of every client runs, it is up to thirty times slower. Here both gradients are written as
ordinary convolutions, of operands turned round behind a barrier that keeps XLA from undoing it.

Images are [batch, height, width, channels], filters [height, width, inputs, outputs].
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from apiece.errors import UserError, suggest

PADDINGS = ("same", "valid")
LAYOUT = ("NHWC", "HWIO", "NHWC")
FEW = 4  # input channels: grey, colours
Pads = tuple[tuple[int, int], tuple[int, int]]


def convolution(x: jax.Array, w: jax.Array, stride: int = 1, padding: str = "same") -> jax.Array:
    """The sum over a window: out[n, i, j, o] = sum x[n, s i + a - p, s j + b - p, c] w[a, b, c, o].

    With "same" padding p is (size - 1) // 2 zeros before and size // 2 after, so that out has ceil(height / s) rows;
    with "valid" there is none.

    >>> convolution(jnp.ones((1, 4, 4, 1)), jnp.ones((3, 3, 1, 2)), padding="valid")[0, :, :, 0].tolist()
    [[9.0, 9.0], [9.0, 9.0]]
    """
    if padding not in PADDINGS:
        raise UserError(f"padding '{padding}' of a convolution is unknown: {suggest(padding, PADDINGS)}")
    if min(x.shape[1:3]) < 1 or (
        padding == "valid" and any(a < b for a, b in zip(x.shape[1:3], w.shape, strict=False))
    ):
        raise UserError(
            f"a {w.shape[0]}x{w.shape[1]} window does not fit into {x.shape[1]}x{x.shape[2]} without padding"
        )
    around = lambda size: ((size - 1) // 2, size // 2) if padding == "same" else (0, 0)
    return padded_convolution(stride, (around(w.shape[0]), around(w.shape[1])), x, w)


def convolution_1d(x: jax.Array, w: jax.Array, stride: int = 1, padding: str = "same") -> jax.Array:
    """Along time: x is [batch, length, channels], w [size, inputs, outputs].

    >>> convolution_1d(jnp.arange(4.0).reshape(1, 4, 1), jnp.ones((2, 1, 1)), padding="valid").ravel().tolist()
    [1.0, 3.0, 5.0]
    """
    if stride == 1:
        return convolution(x[:, None], w[None], 1, padding)[:, 0]
    return convolution(x[:, :, None], w[:, None], stride, padding)[:, :, 0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def padded_convolution(stride: int, pads: Pads, x: jax.Array, w: jax.Array) -> jax.Array:
    """`convolution` with any number of zeros (before, after) along height and width.

    >>> padded_convolution(1, ((0, 0), (1, 0)), jnp.ones((1, 1, 2, 1)), jnp.ones((1, 2, 1, 1))).ravel().tolist()
    [1.0, 2.0]
    """
    return lax.conv_general_dilated(x, w, (stride, stride), pads, dimension_numbers=LAYOUT)


def _forward(stride: int, pads: Pads, x: jax.Array, w: jax.Array) -> tuple[jax.Array, Any]:
    # Not `padded_convolution` itself: a second derivative goes through here, and a custom_vjp has no forward one.
    return lax.conv_general_dilated(x, w, (stride, stride), pads, dimension_numbers=LAYOUT), (x, w)


def _backward(stride: int, pads: Pads, kept: tuple, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, w = kept
    if w.shape[2] <= FEW:  # mostly a first layer, whose input gradient nobody asks for: g is read once, as it comes
        return _input_gradient(stride, pads, x, w, g), _filter_gradient_of_few(stride, pads, x, w, g)
    g = lax.optimization_barrier(g)  # made once, in its own order, before it is turned round below
    return _input_gradient(stride, pads, x, w, g), _filter_gradient(stride, pads, x, w, g)


def _input_gradient(stride: int, pads: Pads, x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
    """g's convolution with the filter turned round: g is spread by the stride and padded to the width of x and more.

    Without padding in the forward direction that is mostly zeros. Then only rows are convolved, for every row of the
    filter at once, and the results added where they belong.
    """
    height, width, inputs, outputs = w.shape
    full = [
        size + pad[0] - stride * (out - 1) - 1 for size, pad, out in zip(x.shape[1:3], pads, g.shape[1:3], strict=True)
    ]
    around = [(size - 1 - pad[0], after) for size, pad, after in zip(w.shape[:2], pads, full, strict=True)]
    if any(map(sum, pads)):
        turned = lax.optimization_barrier(jnp.flip(w, (0, 1)).swapaxes(2, 3))
        spread = (stride, stride)
        return lax.conv_general_dilated(g, turned, (1, 1), around, lhs_dilation=spread, dimension_numbers=LAYOUT)
    turned = jnp.flip(w, 1).transpose(1, 3, 0, 2).reshape(1, width, outputs, height * inputs)
    turned, beside = lax.optimization_barrier(turned), [(0, 0), around[1]]
    rows = lax.conv_general_dilated(g, turned, (1, 1), beside, lhs_dilation=(1, stride), dimension_numbers=LAYOUT)
    rows = lax.optimization_barrier(rows.reshape(*rows.shape[:3], height, inputs))
    place = lambda a: [(0, 0, 0), (a, full[0] - a, stride - 1), (0, 0, 0), (0, 0, 0)]
    zero = jnp.zeros((), g.dtype)
    return functools.reduce(jnp.add, (lax.pad(rows[:, :, :, a], zero, place(a)) for a in range(height)))


def _filter_gradient(stride: int, pads: Pads, x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
    """x's convolution with g as the filter: examples are summed over, so they stand where channels do."""
    images, filters = (lax.optimization_barrier(t) for t in (x.transpose(3, 1, 2, 0), g.transpose(1, 2, 0, 3)))
    reach = [stride * (out - 1) + window for out, window in zip(g.shape[1:3], w.shape[:2], strict=True)]
    cut = [(pad[0], end - size - pad[0]) for pad, end, size in zip(pads, reach, x.shape[1:3], strict=True)]
    spread = (stride, stride)
    dw = lax.conv_general_dilated(images, filters, (1, 1), cut, rhs_dilation=spread, dimension_numbers=LAYOUT)
    return dw.transpose(1, 2, 0, 3)


def _filter_gradient_of_few(stride: int, pads: Pads, x: jax.Array, w: jax.Array, g: jax.Array) -> jax.Array:
    """Of few input channels: one product of g with the windows of x, which are then small; g is not turned round."""
    height, width, inputs, outputs = w.shape
    rows, columns = g.shape[1:3]
    around = jnp.pad(x, ((0, 0), *pads, (0, 0))) if any(map(sum, pads)) else x
    reach = lambda first, count: slice(first, first + stride * (count - 1) + 1, stride)
    turned = around.transpose(3, 0, 1, 2)
    beside = jnp.stack([turned[..., reach(b, columns)] for b in range(width)])
    windows = jnp.stack([beside[..., reach(a, rows), :] for a in range(height)])
    flat = lax.optimization_barrier(windows.reshape(height * width * inputs, -1))
    return (flat @ g.reshape(-1, outputs)).reshape(w.shape)


padded_convolution.defvjp(_forward, _backward)


@jax.custom_vjp
def max_pool(x: jax.Array) -> jax.Array:
    """The largest of every 2x2 block; a last odd row or column is left out. Of equal ones the first gets the gradient.

    >>> max_pool(jnp.arange(16.0).reshape(1, 4, 4, 1)).ravel().tolist()
    [5.0, 7.0, 13.0, 15.0]
    """
    return _largest(x)[0]


def _largest(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest of every block, and which of the four it is."""
    n, height, width, channels = x.shape
    blocks = x[:, : height // 2 * 2, : width // 2 * 2].reshape(n, height // 2, 2, width // 2, 2, channels)
    most = blocks.max((2, 4))  # one reduction: pairs of maxima would be computed anew for each of their uses
    a, b, c = blocks[:, :, 0, :, 0], blocks[:, :, 0, :, 1], blocks[:, :, 1, :, 0]
    which = jnp.where(a == most, 0, jnp.where(b == most, 1, jnp.where(c == most, 2, 3)))
    return most, which.astype(jnp.int8)


def _pool_forward(x: jax.Array) -> tuple[jax.Array, Any]:
    most, which = _largest(x)
    return most, (which, x[:0])  # the second for its shape alone


def _pool_backward(kept: tuple, g: jax.Array) -> tuple[jax.Array]:
    which, like = kept
    n, height, width, channels = g.shape
    corner = jnp.arange(4, dtype=which.dtype).reshape(1, 1, 2, 1, 2, 1)
    blocks = jnp.where(which[:, :, None, :, None] == corner, g[:, :, None, :, None], 0)
    dx = blocks.reshape(n, 2 * height, 2 * width, channels)
    odd = [(0, 0), *((0, full - even) for full, even in zip(like.shape[1:], dx.shape[1:], strict=True))]
    return (jnp.pad(dx, odd) if any(after for _, after in odd) else dx,)


max_pool.defvjp(_pool_forward, _pool_backward)
