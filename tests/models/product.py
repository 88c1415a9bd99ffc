"""What every pair of a model and a method must show: states keep their shapes; training is alike on both engines."""

import jax
import numpy as np
from model_runs import fits, setting

from apiece.methods import CATALOG

# Their clients begin each round with a part drawn anew, or at the others' models: two rounds may not make them better.
BEGIN_ELSEWHERE = ("ffgg", "local_ffgg", "self_fl")


def keeps_its_shapes(model):
    """Under every method it fits, nothing computed: what most often goes wrong between a model and a method."""
    for method in (method for method in CATALOG if fits(model, method)):
        before, after = setting(model).shapes(method)
        assert jax.tree.structure(before) == jax.tree.structure(after), method
        assert jax.tree.leaves(before) == jax.tree.leaves(after), method


def trains_and_agrees(model, method):
    """Finite, moved, better on the clients' own examples; and the same on both engines."""
    here = setting(model)
    found = here.vectorized(method)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    for i in range(2):
        assert any((a[i] != b[i]).any() for a, b in zip(*map(jax.tree.leaves, (found, here.first())), strict=True))
    assert method in BEGIN_ELSEWHERE or here.loss(found) < here.loss(here.first())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5), found, here.remote(method))
