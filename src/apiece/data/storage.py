"""A folder of `.npy` files and one JSON file: written whole or not at all, read without pickle, mapped if asked."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from apiece.errors import UserError
from apiece.files import fill_folder, write_json

DESCRIBED = "federation.json"
FORMAT = {"format": "apiece federation", "version": 1}


def write_folder(path: Path, described: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """Write the arrays and what describes them into a folder that must not exist yet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write_folder(Path(folder, "toy"), {"name": "toy"}, {"ids": np.array(["a"])})
    ...     read_described(made)["name"], read_array(made, "ids").tolist()
    ('toy', ['a'])
    """
    with fill_folder(path) as temporary:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        write_json(temporary / DESCRIBED, FORMAT | described)
    return path


def read_described(folder: Path) -> dict[str, Any]:
    """What the JSON file of a folder says, if it is one of ours and of this version."""
    file = folder / DESCRIBED
    try:
        described = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{file} is missing; {folder} is not a saved federation") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read ({error}); the federation is damaged") from error
    if not isinstance(described, dict) or described.get("format") != FORMAT["format"]:
        raise UserError(f"{file} does not describe a federation")
    if described.get("version") != FORMAT["version"]:
        raise UserError(
            f"{file} has version {described.get('version')}; this program reads {FORMAT['version']}: update it"
        )
    return described


def read_array(folder: Path, name: str, mapped: bool = False) -> np.ndarray:
    """One array of a folder; mapped arrays are read from disk only where they are used."""
    file = folder / f"{name}.npy"
    try:
        return np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"{file} is missing; the federation is damaged") from error
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{file} cannot be read ({error}); the federation is damaged") from error
