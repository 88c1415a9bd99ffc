"""Engines that tests share: a method on data of the same shapes, with other numbers for options, is compiled once."""

import inspect

import jax
import numpy as np

from apiece.engines.remote.engine import Remote
from apiece.engines.simulation.vectorized import Vectorized
from apiece.methods import CATALOG
from apiece.shelf import Shelf

ENGINES = ("vectorized", "remote")
BLOCK = 32  # rounds a compiled call: whoever has fewer shares it, for those beyond the last are not played
_MADE = Shelf(most=12)  # kept programs make every garbage collection slower


def engine_of(kind, factory, loss, x, y, offsets, options, rounds=1, **how):
    """(engine, hyper) of `factory(loss, **options)`: fractions are traced, as they are for users.

    `rounds`: the longest way that it will go at once.
    """
    factory = CATALOG.find(factory)
    known = inspect.signature(factory).parameters
    is_fraction = lambda name: name in known and isinstance(known[name].default, float)
    hyper = {name: value for name, value in options.items() if type(value) is float and is_fraction(name)}
    fixed = {name: value for name, value in options.items() if name not in hyper}
    shapes = [(leaf.shape, leaf.dtype) for leaf in map(np.asarray, jax.tree.leaves((x, y)))]
    key = (kind, factory, loss, fixed, sorted(hyper), shapes, np.diff(offsets).max(), len(offsets), how)
    build = lambda hyper, round: factory(loss, **fixed, **hyper)
    exact = jax.dtypes.canonicalize_dtype(np.float64)
    if kind == "remote":
        made = Remote(build, x, y, offsets, **how)
        made._programs = _MADE.take((*key, exact), lambda: made._programs)
        return made, hyper
    block = BLOCK if rounds <= 4 * BLOCK else rounds
    kept = _MADE.take((*key, exact, block), lambda: Vectorized(build, x, y, offsets, block=block, **how))
    return kept.moved(x, y, offsets), hyper
