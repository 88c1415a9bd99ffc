"""Dividing clients over devices: one mesh axis, rows divided, everything else given to each."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from apiece import tree
from apiece.engines.devices import use_all_cores
from apiece.protocol import Tree


def mesh_of(devices: Sequence[Any] | None = None) -> Any:
    """The given devices (default: all) in a row, over which clients are divided."""
    use_all_cores()
    devices = list(devices or jax.devices())
    # Explicit axes, the default, would refuse a gather from sharded rows.
    return jax.make_mesh((len(devices),), ("clients",), axis_types=(AxisType.Auto,), devices=devices)


def on_devices(values: Tree, mesh: Any) -> Tree:
    """The same values on every device; strongly typed, so that a block's output fits its input."""
    strong = lambda leaf: jax.device_put(jnp.asarray(leaf, leaf.dtype), NamedSharding(mesh, P()))
    return jax.tree.map(strong, values)


def on_host(value: jax.Array) -> np.ndarray:
    """The whole array, also when parts of it lie on other machines."""
    if value.is_fully_addressable or value.is_fully_replicated:
        return np.asarray(value)
    return np.asarray(multihost_utils.process_allgather(value, tiled=True))


def divided(work: Callable, mesh: Any, rows: int, whole: int) -> Callable:
    """`work` with its first `rows` arguments divided over the devices and the other `whole` ones given to each."""
    specs = (*[P("clients")] * rows, *[P()] * whole)
    return jax.shard_map(work, mesh=mesh, in_specs=specs, out_specs=P("clients"), check_vma=False)


def each(one: Callable, who: Tree, present: Any, sequential: bool) -> Tree:
    """`one` for each of this device's clients; absent ones are not run (or, under vmap, run for nothing)."""
    if not sequential:
        return jax.vmap(one)(who)
    shapes = jax.eval_shape(one, tree.take(who, 0))
    blank = lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.map(lambda pair: lax.cond(pair[1], lambda: one(pair[0]), blank), (who, present))
