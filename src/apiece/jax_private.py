"""All that we use of JAX beyond what it promises to keep: when an update of JAX breaks an import, it is here.

JAX keeps what `jax`, `jax.numpy`, `jax.lax` and their like offer, and warns before it goes. The names below it moves
when it pleases, so `pyproject.toml` pins one minor version, and `tests/test_imports_run_downwards.py` lets no other
file have them.
"""
# isort: off

# Programs as data: `models/swap.py` carries one out equation by equation. `jax.extend` is meant for such uses, but
# without a promise; a public way to replace a primitive inside a traced function would do instead.
from jax.extend.core import ClosedJaxpr, Literal

# A primitive of our own: `models/torch/call.py` calls the host. Of these, too, JAX says only that they are for experts.
# All of them could go once `jax.pure_callback` hands NumPy views to the function and never waits for a device.
from jax.core import ShapedArray  # the shape and dtype that a primitive's result has while it is traced
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir  # its derivatives, its `vmap`, its lowering

# The two that are private even by name; `pure_callback` itself stands on them. Which device's host is called in a
# program that is divided over devices, and that a primitive must know over which it is divided. Public substitutes
# would be arguments of `mlir.emit_python_callback` and of `mlir.register_lowering`.
from jax._src.callback import _callback_op_sharding as place_of_callback
from jax._src.dispatch import prim_requires_devices_during_lowering as lowered_with_devices

__all__ = ["ClosedJaxpr", "Literal", "Primitive", "ShapedArray", "ad", "batching", "lowered_with_devices", "mlir",
           "place_of_callback"]  # fmt: skip
