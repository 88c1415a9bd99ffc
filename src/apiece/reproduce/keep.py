"""What a long reproduction has trained, kept piece by piece: a run that is stopped goes on from there."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from apiece.files import read_arrays, write_arrays

Piece = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays, and what JSON can hold
_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextlib.contextmanager
def keeping(folder: Path | None) -> Iterator[None]:
    """Within it pieces are kept in this folder; None: they are not."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def kept(name: str, settings: Any, make: Callable[[], Piece]) -> Piece:
    """A piece of this name: read if it is there, made with the same settings; else made, and written.

    `settings` is all that the piece depends on; its text is what counts.

    >>> kept("first", {"seed": 0}, lambda: ({}, {"error": 0.5}))
    ({}, {'error': 0.5})
    """
    folder = _folder.get()
    if folder is None:
        return make()
    mark = hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
    path = folder / f"{name.replace(' ', '-').replace(',', '')}-{mark}.safetensors"
    if not path.exists():
        write_arrays(path, *make())
    return read_arrays(path)  # also what was just made: a run that goes on sees the same as one that never stopped
