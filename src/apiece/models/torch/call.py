"""Calling the host from inside a compiled program, on any number of devices, without ever hanging.

`jax.pure_callback` does the same, except that it first puts the arguments back on a device and then waits for them:
with a program running on every device that wait can last for ever, once the arrays are too large to be copied at once
(two CPU devices and a small convolutional network suffice). The primitive here hands the function plain NumPy views
of the arguments and touches no device. It stands on the lowering that `pure_callback` itself stands on, which is
private to JAX: `apiece.jax_private` has all such names.

A function that raises is the other way to hang: its device would leave the program, and the others would wait for it
in the next sum over devices. So a failure is noted, the call answers with not-a-numbers, the program runs to its end,
and `raise_failures` then tells the user.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from apiece.jax_private import Primitive, ShapedArray, ad, batching, lowered_with_devices, mlir, place_of_callback
from apiece.models.failures import note_failure
from apiece.protocol import Tree


def host_call(function: Callable[..., Sequence[np.ndarray]], results: Sequence[Any], *args: Any) -> list[jax.Array]:
    """`function(*args)`, run on the host with NumPy views; `results` tell the shapes and dtypes of the floats it gives.

    The function must be pure, may run in several threads at once, must keep no view, and must not use JAX. Under
    `vmap` it is called once for each; it has no derivative (give it one with `jax.custom_jvp`), unless it is linear:
    see `linear_host_call`.

    >>> double = lambda x: [2 * x]
    >>> jax.jit(lambda x: host_call(double, [x], x)[0])(np.float32([1, 2])).tolist()
    [2.0, 4.0]
    """
    shapes = tuple(jax.ShapeDtypeStruct(result.shape, result.dtype) for result in results)
    return _host_call.bind(*args, function=function, shapes=shapes, back=None)


def linear_host_call(
    forth: Callable[..., Sequence[np.ndarray]],
    back: Callable[..., Sequence[np.ndarray]],
    results: Sequence[Any],
    linear: Sequence[Any],
    *fixed: Any,
) -> list[jax.Array]:
    """`forth(*linear, *fixed)`, linear in its first arguments, with `back(*cotangents, *fixed)` as its transpose.

    >>> triple = lambda x, by: [x * by]
    >>> f = lambda x: linear_host_call(triple, triple, [x], [x], np.float32(3))[0]
    >>> float(jax.grad(f)(np.float32(5)))
    3.0
    """
    shapes = tuple(jax.ShapeDtypeStruct(result.shape, result.dtype) for result in results)
    return _host_call.bind(*linear, *fixed, function=forth, shapes=shapes, back=(back, len(linear)))


_host_call = Primitive("apiece_host_call")
_host_call.multiple_results = True
lowered_with_devices.add(_host_call)  # else it would not know over which devices a program is divided


@_host_call.def_impl
def _now(*args: Any, function: Callable, shapes: tuple, back: tuple | None) -> list[jax.Array]:
    got = function(*map(np.asarray, args))
    return [jnp.asarray(value, shape.dtype) for value, shape in zip(got, shapes, strict=True)]


@_host_call.def_abstract_eval
def _shapes(*avals: Any, function: Callable, shapes: tuple, back: tuple | None) -> list[Any]:
    return [ShapedArray(shape.shape, shape.dtype) for shape in shapes]


def _lowered(ctx: Any, *args: Any, function: Callable, shapes: tuple, back: tuple | None) -> Any:
    def call(*views: np.ndarray) -> tuple:
        try:
            return tuple(function(*views))
        except Exception as error:
            note_failure(error)
            return tuple(np.full(shape.shape, np.nan, shape.dtype) for shape in shapes)

    where: Any = place_of_callback(ctx.module_context.axis_context, None, ctx.avals_out)
    how: dict[str, Any] = dict(has_side_effect=False, returns_token=False, sharding=where)
    return mlir.emit_python_callback(ctx, call, None, list(args), ctx.avals_in, ctx.avals_out, **how)[0]


def _one_by_one(
    args: Sequence[Any], dims: Sequence[Any], *, function: Callable, shapes: tuple, back: tuple | None
) -> tuple[Tree, Tree]:
    many = [dim is not None for dim in dims]
    moved = [jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims, strict=True) if dim is not None]

    def one(mine: list) -> list:
        rest = iter(mine)
        whole = (next(rest) if m else arg for arg, m in zip(args, many, strict=True))
        return _host_call.bind(*whole, function=function, shapes=shapes, back=back)

    return lax.map(one, moved), [0] * len(shapes)


def _moved(args: Sequence[Any], ways: Sequence[Any], *, back: tuple | None, **how: Any) -> tuple[list, list]:
    count = 0 if back is None else back[1]
    if any(type(way) is not ad.Zero for way in ways[count:]):
        raise TypeError("a call of the host has no derivative in these arguments; give it one with jax.custom_jvp")
    straight = [ad.instantiate_zeros(way) for way in ways[:count]]
    call = partial(_host_call.bind, back=back, **how)
    return call(*args), call(*straight, *args[count:])


def _transposed(cotangents: Sequence[Any], *args: Any, function: Callable, shapes: tuple, back: tuple) -> list[Any]:
    given, count = back[0], back[1]
    results = [arg.aval for arg in args[:count]]
    cotangents = [ad.instantiate_zeros(way) for way in cotangents]
    return linear_host_call(given, function, results, cotangents, *args[count:]) + [None] * (len(args) - count)


mlir.register_lowering(_host_call, _lowered, cacheable=False)
batching.primitive_batchers[_host_call] = _one_by_one
ad.primitive_jvps[_host_call] = _moved
ad.primitive_transposes[_host_call] = _transposed
