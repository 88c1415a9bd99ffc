"""Trees over the wire: safetensors with a header. Structure, dtypes, shapes and version are checked; no code travels.

Both parties derive the schema from the spec; its hash goes with every message, so a client of another version, model
or method is refused with a reason instead of being misread.
"""

import hashlib
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from apiece.errors import UserError
from apiece.protocol import Tree

VERSION = "1"
LIMIT = 1 << 32  # bytes; a larger message is refused unread
# What bytes from a stranger can make the readers raise (an infinite number, nesting without end, ...).
UNREADABLE = (
    safetensors.SafetensorError,
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
)


class Schema(NamedTuple):
    """What a tree must look like: its structure, and each leaf's path, dtype and shape."""

    kind: str
    structure: Any
    leaves: tuple[tuple[str, str, tuple[int, ...]], ...]

    @property
    def hash(self) -> str:
        """A fingerprint of version, kind and leaves.

        >>> schema_of("reply", {"w": np.zeros(2, np.float32)}).hash[:6]
        'e32fe4'
        """
        text = json.dumps([VERSION, self.kind, self.leaves])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def schema_of(kind: str, example: Tree) -> Schema:
    """The schema of trees like this one (arrays, or the shapes of `jax.eval_shape`).

    >>> schema_of("reply", {"w": np.zeros(2, np.float32)}).leaves
    (("['w']", 'float32', (2,)),)
    """
    flat, structure = jax.tree_util.tree_flatten_with_path(example)
    leaves = tuple((jax.tree_util.keystr(path), str(leaf.dtype), tuple(leaf.shape)) for path, leaf in flat)
    return Schema(kind, structure, leaves)


def encode(schema: Schema, tree: Tree, header: dict[str, int]) -> bytes:
    """The tree and a small header of numbers, as bytes.

    >>> schema = schema_of("reply", {"w": np.zeros(2, np.float32)})
    >>> wire = encode(schema, {"w": np.array([1, 2], np.float32)}, {"round": 3})
    >>> decode(schema, wire)
    ({'w': array([1., 2.], dtype=float32)}, {'round': 3})
    """
    actual = schema_of(schema.kind, tree)
    if actual.leaves != schema.leaves:
        raise UserError(f"this {schema.kind} does not fit its schema: {_difference(actual.leaves, schema.leaves)}")
    leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(tree)]  # `ascontiguousarray` loses scalars
    named = {str(k): leaf.view(_on_wire(leaf.dtype)) for k, leaf in enumerate(leaves)}
    # One entry of metadata: of several, safetensors writes the order by chance, and equal trees had unequal bytes.
    return safetensors.numpy.save(named, {"apiece": json.dumps({"schema": schema.hash, "header": header})})


def decode(schema: Schema, wire: bytes) -> tuple[Tree, dict[str, int]]:
    """(tree, header) of bytes from `encode`; anything else is a `UserError` that says what is wrong."""
    if len(wire) > LIMIT:
        raise UserError(f"a {schema.kind} of {len(wire)} bytes was refused: the limit is {LIMIT}")
    try:
        named = safetensors.numpy.load(wire)
        length = int.from_bytes(wire[:8], "little")
        about = json.loads(json.loads(wire[8 : 8 + length])["__metadata__"]["apiece"])
        theirs = about["schema"]
        header = {str(name): int(value) for name, value in about["header"].items()}
    except UNREADABLE as error:
        raise UserError(f"a {schema.kind} could not be read: {error}") from None
    expected = {str(k): leaf for k, leaf in enumerate(schema.leaves)}
    if theirs != schema.hash or set(named) != set(expected):
        raise UserError(
            f"a {schema.kind} is of another schema ({theirs}, expected {schema.hash}): "
            "the two parties run different versions, methods or models; start both from one spec"
        )
    leaves = []
    for name, (path, dtype, shape) in expected.items():
        leaf, wanted = named[name], jnp.dtype(dtype)
        if leaf.dtype != _on_wire(wanted) or leaf.shape != shape:
            raise UserError(f"a {schema.kind} has {leaf.dtype}{leaf.shape} at {path}, expected {dtype}{shape}")
        leaves.append(leaf.view(wanted))
    return jax.tree.unflatten(schema.structure, leaves), header


def _on_wire(dtype: np.dtype) -> np.dtype:
    """Types that NumPy does not know by itself (bfloat16, float8) travel as their bits."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.kind == "V" else dtype


def _difference(actual: tuple, expected: tuple) -> str:
    for a, e in zip(actual, expected, strict=False):
        if a != e:
            return f"got {a[1]}{a[2]} at {a[0]}, expected {e[1]}{e[2]} at {e[0]}"
    return f"got {len(actual)} leaves, expected {len(expected)}"
