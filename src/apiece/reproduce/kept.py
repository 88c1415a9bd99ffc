"""Parts of a long reproduction, each kept as numbers when it ends: a run that was stopped goes on from there.

Verdicts are judged anew from the numbers each time. Whoever changes what a part computes takes another folder.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from apiece.experiment.folder import name_file
from apiece.files import as_plain, read_json, write_json


@dataclass
class Parts:
    """A folder of parts (none: nothing is kept), and the seconds that those took which were found there."""

    folder: Path | None = None
    seconds: float = 0.0


_HERE: ContextVar[Parts | None] = ContextVar("parts", default=None)


@contextlib.contextmanager
def parts_in(folder: Path | None) -> Iterator[Parts]:
    """Within, `part` keeps what it makes in the folder."""
    parts = Parts(folder)
    token = _HERE.set(parts)
    try:
        yield parts
    finally:
        _HERE.reset(token)


def part(name: str, settings: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` finds, as JSON has it; or what it found before, by this name and with the same settings.

    >>> part("nobody keeps it", {}, lambda: {"accuracy": np.array([0.5, 0.75])})
    {'accuracy': [0.5, 0.75]}
    """
    parts = _HERE.get()
    path = None if parts is None or parts.folder is None else parts.folder / f"{name_file(name)}.json"
    if parts is not None and path is not None and path.exists():
        kept = read_json(path)
        if kept["settings"] == as_plain(settings):
            parts.seconds += kept["seconds"]
            return kept["found"]
    began = time.perf_counter()
    found = as_plain(make())
    if path is not None:
        write_json(path, {"settings": settings, "seconds": time.perf_counter() - began, "found": found})
    return found


def arrays(by_name: dict[str, Any]) -> dict[str, np.ndarray]:
    """Numbers by name, as they were before they were kept.

    >>> arrays({"local": [0.5, None]})
    {'local': array([0.5, nan])}
    """
    return {name: np.asarray(values, float) for name, values in by_name.items()}
