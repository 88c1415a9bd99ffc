"""Parts of a long reproduction, each kept when it ends: a run that was stopped goes on from there.

Verdicts are judged anew from the numbers each time. A part is found again by its name and its settings, which are all
that it depends on but for the code: whoever changes what a part computes takes another folder.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apiece.experiment.folder import name_file
from apiece.files import as_plain, read_arrays, write_arrays

Piece = tuple[dict[str, np.ndarray], dict[str, Any]]  # arrays, and what JSON can hold


@dataclass
class Parts:
    """A folder of parts (none: nothing is kept), and the seconds that those took which were found there."""

    folder: Path | None = None
    seconds: float = 0.0


_HERE: ContextVar[Parts | None] = ContextVar("parts", default=None)


@contextlib.contextmanager
def keeping(folder: Path | None) -> Iterator[Parts]:
    """Within, parts are kept in this folder; None: they are not."""
    parts = Parts(folder)
    token = _HERE.set(parts)
    try:
        yield parts
    finally:
        _HERE.reset(token)


def kept(name: str, settings: Any, make: Callable[[], Piece]) -> Piece:
    """Arrays and plain numbers: read if a part of this name was made with the same settings; else made, and written.

    >>> kept("first", {"seed": 0}, lambda: ({}, {"error": 0.5}))
    ({}, {'error': 0.5})
    """
    parts = _HERE.get()
    if parts is None or parts.folder is None:
        return make()
    mark = hashlib.sha256(repr(settings).encode()).hexdigest()[:16]  # settings' text is what counts
    path = parts.folder / f"{name_file(name)}-{mark}.safetensors"
    if path.exists():
        parts.seconds += read_arrays(path)[1]["seconds"]
    else:
        began = time.perf_counter()
        arrays, about = make()
        write_arrays(path, arrays, {"seconds": time.perf_counter() - began, "about": about})
    # Also what was just made: a run that goes on sees the same as one that never stopped.
    arrays, written = read_arrays(path)
    return arrays, written["about"]


def part(name: str, settings: Any, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The same of numbers alone, as JSON has them.

    >>> part("nobody keeps it", {}, lambda: {"accuracy": np.array([0.5, 0.75])})
    {'accuracy': [0.5, 0.75]}
    """
    return kept(name, settings, lambda: ({}, as_plain(make())))[1]


def arrays(by_name: dict[str, Any]) -> dict[str, np.ndarray]:
    """Numbers by name, as they were before they were kept.

    >>> arrays({"local": [0.5, None]})
    {'local': array([0.5, nan])}
    """
    return {name: np.asarray(values, float) for name, values in by_name.items()}
