"""Arrays that are too large to hold at once, in a safetensors file: written and read some rows at a time."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from apiece.errors import UserError
from apiece.experiment import folder

Put = Callable[[str, int, np.ndarray], None]  # (name, first row, rows): a whole array begins at row 0
KINDS = {"f": "F", "i": "I", "u": "U"}


@contextlib.contextmanager
def new_arrays(path: Path, like: dict[str, Any], about: dict[str, Any]) -> Iterator[Put]:
    """A file as `folder.write_arrays` makes it, of arrays of the shapes and dtypes that `like` has.

    What is not put is zero. As every file of a run, it is there as a whole when the block ends well, or not at all.

    >>> import tempfile
    >>> from apiece.experiment.folder import read_arrays
    >>> with tempfile.TemporaryDirectory() as place:
    ...     file = Path(place, "a.safetensors")
    ...     with new_arrays(file, {"w": np.empty((3, 2), np.int32), "n": np.empty((), bool)}, {"round": 5}) as put:
    ...         put("w", 1, np.array([[1, 2], [3, 4]], np.int32))
    ...         put("n", 0, np.array(True))
    ...     arrays, about = read_arrays(file)
    >>> arrays["w"].tolist(), arrays["n"].tolist(), about
    ([[0, 0], [1, 2], [3, 4]], True, {'round': 5})
    """
    head: dict[str, Any] = {"__metadata__": {"json": json.dumps(folder.plain(about))}}
    end = 0
    for name, array in sorted(like.items(), key=lambda item: -np.dtype(item[1].dtype).itemsize):  # keeps them aligned
        begin, end = end, end + _bytes(array.shape, array.dtype)
        head[name] = {"dtype": _kind(array.dtype), "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with folder.replacing(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)

        def put(name: str, first: int, rows: np.ndarray) -> None:
            array = like[name]
            assert rows.dtype == array.dtype and rows.shape[1:] == tuple(array.shape[1:])
            file.seek(8 + len(text) + head[name]["data_offsets"][0] + first * _bytes(array.shape[1:], array.dtype))
            file.write(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")

        yield put


@contextlib.contextmanager
def opened(path: Path) -> Iterator[tuple[Callable[..., np.ndarray], list[str], dict[str, Any]]]:
    """(get, names, description) of a file: `get(name)` is an array, `get(name, first, last)` some of its rows."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["json"])
            rows = lambda name, first, last: file.get_slice(name)[first:last]
            get = lambda name, *some: rows(name, *some) if some else file.get_tensor(name)
            yield get, list(file.keys()), about
    except (safetensors.SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and resume to make it again") from None


def _bytes(shape: tuple[int, ...], dtype: Any) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def _kind(dtype: Any) -> str:
    dtype = np.dtype(dtype)
    return "BOOL" if dtype.kind == "b" else f"{KINDS[dtype.kind]}{8 * dtype.itemsize}"
