"""All that touches the disk: every file is written whole or not at all, so that a killed run can be continued."""

import contextlib
import errno
import json
import os
import secrets
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import tomli_w

from apiece.errors import UserError

Tree = Any  # whatever jax.tree takes apart
PART = ".part"  # how a file or folder is called until it is whole
FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}  # of the disk, or of what one may take of it


class DiskFull(UserError):
    """There is no room for a file; nothing of it is left.

    >>> print(DiskFull(Path("/"), 1e18).args[0].partition(" and ")[0])
    the disk is full: / needs 1,000,000,000,000.0 MB,
    """

    def __init__(self, path: Path, size: float | None = None) -> None:
        free = shutil.disk_usage(path if path.is_dir() else path.parent).free
        told = lambda count: f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.0f} kB"
        needs = f"{path} needs {told(size)}, and" if size else f"{path} cannot be written,"
        super().__init__(f"the disk is full: {needs} {told(free)} are free there; make room, and try again")


@contextlib.contextmanager
def replace_file(path: Path, size: float | None = None) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    `size`: how many bytes it will have, if that is known: `DiskFull` tells it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replace_file(Path(folder) / "a.txt") as temporary:
    ...         _ = temporary.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text()
    'whole'
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except (OSError, safetensors.SafetensorError) as error:
        if not _is_full(error):
            raise
        if temporary is not None:  # what is free is told without it
            temporary.unlink(missing_ok=True)
        raise DiskFull(path, size) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _is_full(error: Exception) -> bool:
    # A library in another language may tell the number in its text alone.
    told = any(f"os error {number}" in str(error) for number in FULL)
    return told or (isinstance(error, OSError) and error.errno in FULL)


def sweep_parts(folder: Path, deep: bool = True) -> int:
    """Remove what killed processes left of files that they were writing; how many. For whoever alone writes there.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / ".a.txt.x0_9.part").write_text("ha")
    ...     sweep_parts(Path(folder)), list(Path(folder).iterdir())
    (1, [])
    """
    found = [path for path in (folder.rglob if deep else folder.glob)(f".*{PART}") if path.is_file()]
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


@contextlib.contextmanager
def fill_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` that becomes it when the block ends well: no reader ever sees half of it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fill_folder(Path(folder) / "a") as temporary:
    ...         _ = (temporary / "b.txt").write_text("whole")
    ...     (Path(folder) / "a" / "b.txt").read_text()
    'whole'
    """
    if os.path.lexists(path):
        raise UserError(f"{path} already exists; remove it or choose another folder")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        os.rename(temporary, path)
    except OSError as error:
        if _is_full(error):
            shutil.rmtree(temporary, ignore_errors=True)
            raise DiskFull(path) from error
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """JSON with NaN and infinity as null (JSON has neither); without `indent` in one line, ten times as fast.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(Path(folder) / "a.json", {"x": float("nan")})
    ...     read_json(Path(folder) / "a.json")
    {'x': None}
    """
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(as_plain(value), indent=indent, allow_nan=False) + "\n", "utf-8")


def read_json(path: Path) -> Any:
    """The value of a JSON file; a `UserError` names a damaged one."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and resume to make it again") from None


def write_toml(path: Path, values: dict[str, Any]) -> None:
    """Tables of numbers, texts and lists as TOML.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_toml(Path(folder) / "a.toml", {"data": {"source": "digits"}, "tune": 8})
    ...     read_toml(Path(folder) / "a.toml")
    {'tune': 8, 'data': {'source': 'digits'}}
    """
    try:
        text = as_toml(values)
    except TypeError as error:
        raise UserError(f"{path} cannot be written as TOML: {error}; give plain numbers, texts and lists") from None
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def read_toml(path: str | Path, what: str = "file") -> dict[str, Any]:
    """The values of a TOML file; a `UserError` says `what` is missing, or where it is no TOML.

    >>> try: read_toml("no-such.toml", "spec file")
    ... except UserError as error: print(error)
    there is no spec file 'no-such.toml'
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no {what} '{path}'") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"the {what} '{path}' cannot be read: {error}") from None


def as_toml(values: dict[str, Any]) -> str:
    """The text of a TOML file with these values; None is left out, as TOML has none.

    >>> print(as_toml({"tune": 8, "data": {"source": "digits", "hidden": None, "options": {"k": 2}}}).strip())
    tune = 8
    <BLANKLINE>
    [data]
    source = "digits"
    <BLANKLINE>
    [data.options]
    k = 2
    """
    return tomli_w.dumps(_without_none(values))


def as_plain(value: Any) -> Any:
    """NumPy numbers, arrays and tuples as what JSON knows.

    >>> as_plain({"a": np.float32(1.5), "b": (1, np.nan)})
    {'a': 1.5, 'b': [1, None]}
    """
    if isinstance(value, dict):
        return {str(key): as_plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return as_plain(value.tolist())
    if isinstance(value, np.generic):
        return as_plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def write_arrays(path: Path, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    """Named arrays and a JSON description in one safetensors file."""
    whole = {name: np.asarray(value, order="C") for name, value in arrays.items()}  # a single number stays one
    with replace_file(path, sum(array.nbytes for array in whole.values())) as temporary:
        safetensors.numpy.save_file(whole, temporary, {"json": json.dumps(as_plain(about))})


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(arrays, description) of a file from `write_arrays`.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_arrays(Path(folder) / "a", {"x": np.ones(2)}, {"round": 3})
    ...     read_arrays(Path(folder) / "a")
    ({'x': array([1., 1.])}, {'round': 3})
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            return arrays, json.loads(file.metadata()["json"])
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and resume to make it again") from None


def leaves_by_path(prefix: str, tree: Tree) -> dict[str, Any]:
    """A tree's leaves as they are, by path.

    >>> leaves_by_path("model", {"out": {"w": 1}})
    {'model/out/w': 1}
    """
    # Here and not at the top: who only looks at data on the disk does not wait for JAX.
    import jax

    from apiece.split import path_name

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join([prefix, path_name(path)] if path else [prefix]): leaf for path, leaf in leaves}


def arrays_by_path(prefix: str, tree: Tree) -> dict[str, np.ndarray]:
    """A tree's leaves by path, for `write_arrays`.

    >>> list(arrays_by_path("model", {"out": {"w": np.ones(1)}}))
    ['model/out/w']
    """
    return {name: np.asarray(leaf) for name, leaf in leaves_by_path(prefix, tree).items()}


def rebuild_tree(prefix: str, example: Tree, arrays: dict[str, np.ndarray]) -> Tree:
    """The tree, shaped like `example`, of arrays that `arrays_by_path` named.

    >>> rebuild_tree("m", {"w": 0}, {"m/w": np.ones(1)})
    {'w': array([1.])}
    """
    import jax

    names = leaves_by_path(prefix, example)
    return jax.tree.unflatten(jax.tree.structure(example), [arrays[name] for name in names])


def make_folder(path: Path, besides: str = "") -> Path:
    """An empty folder for a run; one that holds anything (`besides` a file of this name) is never overwritten."""
    if path.exists() and (not path.is_dir() or any(inside.name != besides for inside in path.iterdir())):
        hint = f"continue it with: apiece resume {path}" if (path / "spec.toml").exists() else "choose another name"
        raise UserError(
            f"the output folder '{path}' already exists; nothing was written. Give another --out, or {hint}"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the output folder '{path}' cannot be made: {error}") from None
    return path


def find_free_path(path: Path) -> Path:
    """`path` with the first number behind it that is not taken.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "run-1").mkdir()
    ...     find_free_path(Path(folder) / "run").name
    'run-2'
    """
    number = 1
    while (free := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return free


# Arrays that are too large to hold at once, in a safetensors file: written and read some rows at a time.

Put = Callable[[str, int, np.ndarray], None]  # (name, first row, rows): a whole array begins at row 0
KINDS = {"f": "F", "i": "I", "u": "U"}


@contextlib.contextmanager
def write_rows(path: Path, like: dict[str, Any], about: dict[str, Any]) -> Iterator[Put]:
    """A file as `write_arrays` makes it, of arrays of the shapes and dtypes that `like` has.

    What is not put is zero. As every file of a run, it is there as a whole when the block ends well, or not at all.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     file = Path(place, "a.safetensors")
    ...     with write_rows(file, {"w": np.empty((3, 2), np.int32), "n": np.empty((), bool)}, {"round": 5}) as put:
    ...         put("w", 1, np.array([[1, 2], [3, 4]], np.int32))
    ...         put("n", 0, np.array(True))
    ...     arrays, about = read_arrays(file)
    >>> arrays["w"].tolist(), arrays["n"].tolist(), about
    ([[0, 0], [1, 2], [3, 4]], True, {'round': 5})
    """
    head: dict[str, Any] = {"__metadata__": {"json": json.dumps(as_plain(about))}}
    end = 0
    for name, array in sorted(like.items(), key=lambda item: -np.dtype(item[1].dtype).itemsize):  # keeps them aligned
        begin, end = end, end + _size_in_bytes(array.shape, array.dtype)
        head[name] = {"dtype": _dtype_name(array.dtype), "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with replace_file(path, 8 + len(text) + end) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)

        def put(name: str, first: int, rows: np.ndarray) -> None:
            array = like[name]
            assert rows.dtype == array.dtype and rows.shape[1:] == tuple(array.shape[1:])
            before = first * _size_in_bytes(array.shape[1:], array.dtype)
            file.seek(8 + len(text) + head[name]["data_offsets"][0] + before)
            file.write(np.ascontiguousarray(rows).data.cast("B") if rows.size else b"")

        yield put


@contextlib.contextmanager
def read_rows(path: Path) -> Iterator[tuple[Callable[..., np.ndarray], list[str], dict[str, Any]]]:
    """(get, names, description) of a file: `get(name)` is an array, `get(name, first, last)` some of its rows."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["json"])
            rows = lambda name, first, last: file.get_slice(name)[first:last]
            get = lambda name, *some: rows(name, *some) if some else file.get_tensor(name)
            yield get, list(file.keys()), about
    except (safetensors.SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it and resume to make it again") from None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(v) for key, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list | tuple) else value


def _size_in_bytes(shape: tuple[int, ...], dtype: Any) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def _dtype_name(dtype: Any) -> str:
    dtype = np.dtype(dtype)
    return "BOOL" if dtype.kind == "b" else f"{KINDS[dtype.kind]}{8 * dtype.itemsize}"
