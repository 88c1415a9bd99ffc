"""What an advice that takes long has found so far, file by file: a killed one goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece import files
from apiece.protocol import Tree


class Kept:
    """Finished pieces of work in a folder, or nowhere; pieces made of other data or questions are made anew.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = Kept(Path(folder), "digits").tree("sum", lambda: {"a": np.ones(2)})
    ...     Kept(Path(folder), "digits").tree("sum", lambda: 1 / 0)["a"].tolist()
    [1.0, 1.0]
    """

    def __init__(self, folder: Path | None, made_of: str) -> None:
        self.folder, self.made_of = folder, made_of

    def tree(self, name: str, make: Callable[[], Tree]) -> Tree:
        """A piece: read, if an earlier advice of the same has left it; else made, and left for a later one."""
        if self.folder is None:
            return jax.tree.map(np.asarray, make())
        path = self.folder / f"{name}.safetensors"
        if path.exists():
            arrays, about = files.read_arrays(path)
            if about.get("made_of") == self.made_of:
                return _rebuilt(about["structure"], [arrays[str(at)] for at in range(len(arrays))])
        made = jax.tree.map(np.asarray, make())
        arrays = {str(at): leaf for at, leaf in enumerate(jax.tree.leaves(made))}
        files.write_arrays(path, arrays, {"made_of": self.made_of, "structure": _described(made)})
        return made


def _described(made: Tree) -> Any:
    """The structure of dicts and tuples, as plain values; a leaf is None."""
    if isinstance(made, dict):
        return {"dict": {key: _described(made[key]) for key in sorted(made)}}
    if isinstance(made, tuple | list):
        return {"tuple": [_described(part) for part in made]}
    return None


def _rebuilt(structure: Any, leaves: list[np.ndarray]) -> Tree:
    """The tree of that structure, of these leaves in their order."""
    if structure is None:
        return leaves.pop(0)
    if "dict" in structure:
        return {key: _rebuilt(part, leaves) for key, part in structure["dict"].items()}
    return tuple(_rebuilt(part, leaves) for part in structure["tuple"])
