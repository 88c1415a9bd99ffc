"""Are two trees alike, finite, the same?"""

import jax
import numpy as np

from apiece.protocol import Tree
from apiece.testing.case import Ending, Shapes

ROUNDING = 1e-6


def check_shapes(when: str, shapes: Shapes, parameters: bool = True) -> None:
    """States come out as they went in; and models, where a personal model is the parameters of one."""
    check_like(f"{when} the server's state after merge", shapes.merged, shapes.server)
    check_like(f"{when} a client's state after local", shapes.after, shapes.client)
    if parameters:
        check_like(f"{when} the model of personal", shapes.personal, shapes.params)


def check_like(what: str, actual: Tree, expected: Tree) -> None:
    """The same structure, shapes and dtypes."""
    found, wanted = str(jax.tree.structure(actual)), str(jax.tree.structure(expected))
    assert found == wanted, f"{what} has another structure: {found}, not {wanted}"
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        there = jax.tree_util.keystr(path)
        assert a.shape == b.shape, f"{what} has the shape {a.shape}{there}, not {b.shape}"
        assert a.dtype == b.dtype, f"{what} has the dtype {a.dtype}{there}, not {b.dtype}"


def check_finite(what: str, values: Tree) -> None:
    """Every number is finite."""
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(values)), f"{what} is not finite"


def check_same(what: str, actual: Tree, expected: Tree, tolerance: float = 0.0) -> None:
    """Bit for bit, or up to a tolerance relative to 1 + |expected|; what is not a number equals only itself."""
    check_like(what, actual, expected)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            continue
        gap = np.abs(a.astype(float) - b.astype(float)) / (1 + np.abs(b.astype(float)))
        worst = np.inf if np.isnan(gap).any() else gap.max()
        assert worst <= tolerance, f"{what} differs by {worst:.1e}{jax.tree_util.keystr(path)}"


def check_outcomes(what: str, actual: Ending, expected: Ending) -> None:
    """Two runs are the same, up to rounding."""
    names = ("the server", "a reply", "a client's state", "the model at enrollment", "a personal model", "who fell")
    for name, a, b in zip(names, actual, expected, strict=True):
        check_same(f"{what} {name}", a, b, ROUNDING)
