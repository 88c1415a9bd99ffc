"""A network in PyTorch and the same one in JAX, with the same parameters."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from apiece.models import Model, objective
from apiece.models.torch.module import from_torch
from apiece.protocol import Batch

torch = pytest.importorskip("torch")

FEATURES, HIDDEN, CLASSES = 6, 5, 3
KEY = jax.random.key(3)


def network(*more):
    """hidden, tanh, out; and more layers before the last."""
    torch.manual_seed(0)
    first = [("hidden", torch.nn.Linear(FEATURES, HIDDEN)), ("tanh", torch.nn.Tanh())]
    return torch.nn.Sequential(OrderedDict([*first, *more, ("out", torch.nn.Linear(HIDDEN, CLASSES))]))


def in_jax(params, x):
    hidden = jnp.tanh(x @ params["hidden/weight"].T + params["hidden/bias"])
    return hidden @ params["out/weight"].T + params["out/bias"]


def twins():
    """(PyTorch's model, the same in JAX, its objective)"""
    theirs = from_torch(network())
    ours = Model(theirs.init, in_jax)
    return theirs, ours, objective(ours, "classification")


def batch(count=7, absent=2):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(count, FEATURES)), rng.integers(0, CLASSES, count)
    present = jnp.arange(count) < count - absent
    return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32), present.astype(jnp.float32))


def gap(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    apart = jax.tree.map(lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max(initial=0)), a, b)
    return max(jax.tree.leaves(apart), default=0)
