"""The JSON files of LEAF (Caldas et al. 2018): `users`, `num_samples`, and `user_data` with x and y for each user.

A file, or a folder of them, or a folder with the folders `train` and `test`. Users that are in both have a test split
of their own; users that are in `test` only never train: they are new clients.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.deal import deal
from apiece.data.load.read import Table
from apiece.errors import UserError

SPLIT_FOLDERS = ("train", "test")


def is_leaf(path: Path) -> bool:
    """Whether a path is a JSON file, or a folder that holds some, itself or in `train`.

    >>> is_leaf(Path("all_data.json")), is_leaf(Path("data.csv"))
    (True, False)
    """
    if path.is_dir():
        return any(path.glob("*.json")) or any((path / "train").glob("*.json"))
    return path.suffix.lower() == ".json"


def read_leaf(path: Path, shares: Sequence[float], seed: int) -> tuple[Table, int]:
    """The examples as a table (user, x, y and, where the files say so, split or new), and the length of texts, or 0.

    Texts hold x followed by y. LEAF knows no validation examples: a part of the training examples, by `shares`, is it.

    >>> import tempfile
    >>> told = {"users": ["f1"], "num_samples": [1], "user_data": {"f1": {"x": [[0.5, 1]], "y": [3]}}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.json").write_text(json.dumps(told))
    ...     table, _ = read_leaf(Path(folder, "a.json"), (0.6, 0.2, 0.2), seed=0)
    >>> table.column("x").tolist(), table.column("y").tolist()
    ([[0.5, 1.0]], [3])
    """
    folders = [path / name for name in SPLIT_FOLDERS] if (path / "train").is_dir() else [path]
    user: list[str] = []
    x: list[Any] = []
    y: list[Any] = []
    part: list[int] = []
    for number, folder in enumerate(folders):
        for file in sorted(folder.glob("*.json")) if folder.is_dir() else [folder]:
            for name, examples in _users(file).items():
                user += [name] * len(examples["x"])
                x += examples["x"]
                y += examples["y"]
                part += [number] * len(examples["x"])
    if not x:
        raise UserError(f"{path} holds no examples")
    columns: dict[str, np.ndarray] = {"user": np.array(user, object)}
    length = 0
    if isinstance(x[0], str):
        columns["x"], length = _texts(path, x, y)
    else:
        columns["x"], columns["y"] = _numbers(path, x), np.array(y)
    if len(folders) > 1:
        columns |= _split(columns["user"], np.array(part), shares, seed)
    return Table(path, list(columns), len(x), columns.__getitem__, lambda i: i), length


def _users(file: Path) -> dict[str, dict[str, list[Any]]]:
    """`user_data` of a file, checked."""
    try:
        whole = json.loads(file.read_text("utf-8"))
        data = {name: whole["user_data"][name] for name in whole["users"]}
        for name, count in zip(whole["users"], whole["num_samples"], strict=True):
            if not count == len(data[name]["x"]) == len(data[name]["y"]):
                raise UserError(
                    f"{file}, user '{name}': num_samples says {count}, but there are {len(data[name]['x'])} x and "
                    f"{len(data[name]['y'])} y; the file is damaged"
                )
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read as JSON ({error}); mend or remove it") from error
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{file} is not a file of LEAF: it needs users, num_samples and user_data with x and y"
        ) from error
    return data


def _numbers(path: Path, x: list[Any]) -> np.ndarray:
    try:
        return np.array(x, np.float32)
    except (ValueError, TypeError) as error:
        raise UserError(f"{path}: x must be lists of numbers of one length, or texts of one length") from error


def _texts(path: Path, x: list[Any], y: list[Any]) -> tuple[np.ndarray, int]:
    lengths = {len(text) if isinstance(text, str) else -1 for text in x}
    if len(lengths) > 1 or not all(isinstance(text, str) and len(text) == 1 for text in y):
        raise UserError(f"{path}: texts must have one length, and y be the one character that follows")
    joined = np.empty(len(x), object)
    joined[:] = [text + following for text, following in zip(x, y, strict=True)]
    return joined, lengths.pop()


def _split(user: np.ndarray, part: np.ndarray, shares: Sequence[float], seed: int) -> dict[str, np.ndarray]:
    """The split column, or, when no user is in train and test, the column that says who is new."""
    trains, tests = set(user[part == 0]), set(user[part == 1])
    if not trains & tests:
        return {"new": part}
    if tests - trains:
        raise UserError(
            f"user '{sorted(tests - trains)[0]}' is in test only, but others are in both; give one or the other"
        )
    split = np.where(part == 1, "test", "train").astype(object)
    rows = np.flatnonzero(part == 0)
    client = np.unique(user[rows].astype(np.str_), return_inverse=True)[1]
    split[rows[deal(client, (shares[0], shares[1], 0), seed) == 1]] = "validation"
    return {"split": split}
