"""A model written elsewhere, with its convolutions and poolings exchanged for ours, which stay fast inside a loop.

The model is traced, and its program carried out again equation by equation: where it convolves or takes the largest of
2x2 blocks in a way that `apiece.models.convolution` has too, that is called instead. Values and gradients stay.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from apiece.jax_private import ClosedJaxpr, Literal
from apiece.models.convolution import max_pool, padded_convolution
from apiece.protocol import Params

JITTED = ("jit", "pjit")  # what JAX calls the equation of a jitted function


def swapped(apply: Callable[[Params, Any], Any]) -> Callable[[Params, Any], Any]:
    """The same function of (params, x), by our convolutions where they can do it.

    They do one or two dimensions, one stride for both and any padding; neither groups nor dilation.

    >>> from jax import numpy as jnp
    >>> theirs = lambda w, x: lax.conv(x, w, (1, 1), "SAME")
    >>> x, w = jnp.ones((1, 1, 4, 4)), jnp.ones((1, 1, 3, 3))
    >>> bool(jnp.array_equal(swapped(theirs)(w, x), theirs(w, x)))
    True
    >>> "custom_vjp" in str(jax.make_jaxpr(swapped(theirs))(w, x))
    True
    """

    def run(params: Params, x: Any) -> Any:
        program, shapes = jax.make_jaxpr(apply, return_shape=True)(params, x)
        outputs = _carried_out(program, jax.tree.leaves((params, x)))
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return run


def _carried_out(program: ClosedJaxpr, given: list) -> list:
    known = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    known |= dict(zip(program.jaxpr.invars, given, strict=True))
    value = lambda atom: atom.val if isinstance(atom, Literal) else known[atom]
    for equation in program.jaxpr.eqns:
        found = _equation(equation, [value(atom) for atom in equation.invars])
        known |= dict(zip(equation.outvars, found, strict=True))
    return [value(atom) for atom in program.jaxpr.outvars]


def _equation(equation: Any, given: list) -> list:
    kind, how = equation.primitive.name, equation.params
    if kind in JITTED:
        return _carried_out(how["jaxpr"], given)
    if kind == "conv_general_dilated" and _is_ours(how, *given):
        return [_convolved(how, *given)]
    if kind == "reduce_window_max" and _is_our_pool(how, *given):
        return [_pooled(how, *given)]
    found = equation.primitive.bind(*given, **equation.primitive.get_bind_params(how))
    return found if equation.primitive.multiple_results else [found]


def _is_ours(how: dict[str, Any], x: Any, w: Any) -> bool:
    plain = all(d == 1 for d in (*how["lhs_dilation"], *how["rhs_dilation"]))
    alone = how["feature_group_count"] == how["batch_group_count"] == 1
    usual = how["precision"] is None and how["preferred_element_type"] in (None, x.dtype)
    even = len(set(how["window_strides"])) == 1 and np.min(how["padding"], initial=0) >= 0
    return plain and alone and usual and even and x.ndim in (3, 4)


def _convolved(how: dict[str, Any], x: Any, w: Any) -> Any:
    """Into our order of axes, [batch, height, width, channels], and back; a series is an image of one row or column."""
    layout: lax.ConvDimensionNumbers = how["dimension_numbers"]
    last = lambda spec: (spec[0], *spec[2:], spec[1])  # batch, space, channels
    images, outputs, features = last(layout.lhs_spec), last(layout.out_spec), layout.rhs_spec
    filters = (*features[2:], features[1], features[0])  # space, inputs, outputs
    (stride, *_), pads, x, w = how["window_strides"], tuple(how["padding"]), x.transpose(images), w.transpose(filters)
    if x.ndim == 4:
        out = padded_convolution(stride, pads, x, w)
    elif stride == 1:  # along the width, which is faster; but it is the stride of both
        out = padded_convolution(1, ((0, 0), *pads), x[:, None], w[None])[:, 0]
    else:
        out = padded_convolution(stride, (*pads, (0, 0)), x[:, :, None], w[:, None])[:, :, 0]
    return out.transpose(_inverse(outputs))


def _is_our_pool(how: dict[str, Any], x: Any) -> bool:
    blocks = how["window_dimensions"] == how["window_strides"] and sorted(how["window_dimensions"]) == [1, 1, 2, 2]
    plain = all(d == 1 for d in (*how["base_dilation"], *how["window_dilation"]))
    return blocks and plain and not np.any(how["padding"])


def _pooled(how: dict[str, Any], x: Any) -> Any:
    order = sorted(range(4), key=lambda axis: how["window_dimensions"][axis] == 1)
    order = [order[2], *order[:2], order[3]]
    return max_pool(x.transpose(order)).transpose(_inverse(order))


def _inverse(order: Any) -> list[int]:
    return [int(place) for place in np.argsort(order)]
