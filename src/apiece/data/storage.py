"""A folder of `.npy` files and one JSON file: written whole or not at all, read without pickle, mapped if asked."""

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from apiece.errors import UserError

DESCRIBED = "federation.json"
FORMAT = {"format": "apiece federation", "version": 1}


def write(path: Path, described: dict[str, Any], arrays: dict[str, np.ndarray]) -> Path:
    """Write the arrays and what describes them into a folder that must not exist yet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write(Path(folder, "toy"), {"name": "toy"}, {"ids": np.array(["a"])})
    ...     read_described(made)["name"], read(made, "ids").tolist()
    ('toy', ['a'])
    """
    if os.path.lexists(path):
        raise UserError(f"{path} already exists; remove it or choose another folder")
    # A reader must never see half a folder, so fill a sibling and then rename it.
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        unfinished.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(unfinished / f"{name}.npy", array, allow_pickle=False)
        text = json.dumps(FORMAT | described, indent=2, ensure_ascii=False)
        (unfinished / DESCRIBED).write_text(text + "\n", "utf-8")
        os.rename(unfinished, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
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


def read(folder: Path, name: str, mapped: bool = False) -> np.ndarray:
    """One array of a folder; mapped arrays are read from disk only where they are used."""
    file = folder / f"{name}.npy"
    try:
        return np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"{file} is missing; the federation is damaged") from error
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{file} cannot be read ({error}); the federation is damaged") from error
