"""Read a file of a user (CSV, Parquet, NPZ or text) into named columns, or say in one paragraph why it cannot be."""

import codecs
import json
import zipfile
import zlib
from collections.abc import Callable, Sequence
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.data.load.cells import DECIMALS, empty_cells, strip_blanks
from apiece.errors import UserError

TEXT = ".txt"  # no table: each file is one text
NOT_READABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError)
ABOUT = "apiece"  # the key of the metadata of a Parquet file that we wrote
AUTO = "auto"
DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file, by name. `column` fetches one: numbers, or texts (an object array), or [rows, ...].

    `row` turns an index into the row number a person sees: lines of a CSV file with the header as row 1, rows from 1 in
    a Parquet file, the index itself in an NPZ file. `problems` holds rows that had to be left out. `archive`: these
    are arrays, each with a length and a shape of its own, of which x, y and client are the examples unless others are
    named; not the columns of one table. `called` names rows that have no number: pictures by their files.
    """

    file: Path
    names: list[str]
    rows: int
    column: Callable[[str], np.ndarray]
    row: Callable[[int], int]
    problems: list[str] = field(default_factory=list)
    archive: bool = False
    about: dict[str, Any] = field(default_factory=dict)  # what the file says of itself, if `write_dealt` wrote it
    decimal: str = "."  # before the decimals of numbers that are written as texts
    called: tuple[str, ...] = ()


class Dialect(NamedTuple):
    """How tables are written: what separates columns and decimals, and which words mean that a cell is empty.

    >>> Dialect(delimiter="tab").checked().delimiter
    '\\t'
    """

    delimiter: str = ","
    decimal: str = "."
    na: tuple[str, ...] = ()

    def checked(self) -> "Dialect":
        """The same with names replaced by what they name; a `UserError` if it makes no sense."""
        delimiter = DELIMITERS.get(self.delimiter, self.delimiter)
        if delimiter != AUTO and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '\r\n"'):
            raise UserError(f"delimiter must be one plain character, tab or auto, got {delimiter!r}")
        if self.decimal not in DECIMALS:
            raise UserError(f"decimal must be a point or a comma, got {self.decimal!r}")
        return self._replace(delimiter=delimiter)


PLAIN = Dialect()


def read(file: Path, *, text: Sequence[str] = (), dialect: Dialect = PLAIN) -> Table:
    """Read a file by its suffix. Columns named in `text` stay texts in a CSV file (a client '007' is not 7).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("who,height\\n007,1.83\\n")
    ...     table = read(Path(folder, "a.csv"), text=["who"])
    ...     table.names, table.column("who").tolist(), table.column("height").tolist(), table.row(0)
    (['who', 'height'], ['007'], [1.83], 2)
    """
    file = Path(file)
    try:
        empty = file.stat().st_size == 0
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    if empty:
        raise UserError(f"{file} is empty; remove it or fill it")
    make = (READERS | {TEXT: _txt}).get(file.suffix.lower())
    if make is None:
        raise UserError(f"{file} is none of {', '.join(SUFFIXES)}; convert it, or rename it if it is one")
    table = replace(make(file, text, dialect), decimal=dialect.decimal)
    if not dialect.na:
        return table
    return replace(table, column=lambda name: empty_cells(table.column(name), dialect.na))


def _csv(file: Path, text: Sequence[str], dialect: Dialect) -> Table:
    import pyarrow as pa  # here, as in the functions below, because importing pyarrow slows every start
    from pyarrow import csv

    _check_utf8(file)
    delimiter, header = _delimiter(file, dialect.delimiter)
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append((row.number, row.expected_columns, row.actual_columns))
        return "skip"

    def parse(careful: bool) -> Any:
        return csv.read_csv(
            file,
            read_options=csv.ReadOptions(use_threads=not careful, block_size=1 << 24),
            parse_options=csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note if careful else None
            ),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in header if strip_blanks(name) in text},
                decimal_point=dialect.decimal,
            ),
        )

    try:
        try:
            table = parse(careful=False)
        except pa.ArrowInvalid:
            table = parse(careful=True)  # only a careful (and slow) reader knows the numbers of the bad rows
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} cannot be read as CSV ({_first_line(error)}); mend or remove it") from error
    bad = np.array([number for number, _, _ in ragged], np.int64) - 1
    lines: list[np.ndarray] = []

    def line(record: int) -> int:
        if not lines:
            lines.append(_record_lines(file, table.num_rows + 1 + len(bad)))
        return int(lines[0][record])

    def row(i: int) -> int:
        # Left-out records sit between the kept ones: record r is the (r - left out before r)-th kept one.
        kept_before = bad - np.arange(len(bad))
        return line(i + 1 + int(np.searchsorted(kept_before, i + 1, side="right")))

    problems = [
        f"{file}, row {line(number - 1)}: {actual} cells where the header has {expected}; mend the row or quote the "
        f"cells that hold a '{delimiter}'"
        for number, expected, actual in ragged[:3]
    ]
    if len(ragged) > 3:
        problems.append(f"{file}: {len(ragged) - 3} more rows with the wrong number of cells")
    return _arrow(file, table.rename_columns([strip_blanks(name) for name in table.column_names]), row, problems)


def _check_utf8(file: Path) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with file.open("rb") as stream:
        while True:
            block = stream.read(1 << 24)
            try:
                decoded = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                raise UserError(f"{file}, row {line}: not UTF-8 text; save the file as CSV in UTF-8") from error
            if "\0" in decoded:
                line += decoded[: decoded.index("\0")].count("\n")
                raise UserError(f"{file}, row {line}: holds binary data, so it is not a CSV file")
            line += decoded.count("\n")
            if not block:
                return


def _delimiter(file: Path, delimiter: str) -> tuple[str, list[str]]:
    """What separates the columns, and their names as they stand in the file."""
    with file.open(encoding="utf-8-sig") as stream:
        header = stream.readline(1 << 16)
    others = (";", "\t", "|", ",")
    if delimiter == AUTO:
        delimiter = max((",", *others), key=header.count)
    elif delimiter not in header:
        other = next((other for other in others if other in header), None)
        if other is not None:
            flag = {"\t": "tab", ",": ","}.get(other, f"'{other}'")
            raise UserError(
                f"{file}, row 1: the columns are not separated by {delimiter!r} but, it seems, by {other!r}; "
                f"give delimiter={other!r} (--delimiter {flag})"
            )
    try:
        return delimiter, next(reader([header], delimiter=delimiter), [])
    except CsvError:
        return delimiter, header.strip().split(delimiter)


def _record_lines(file: Path, records: int) -> np.ndarray:
    """The line each record (header first) starts on: cells may hold line breaks, and empty lines are no records."""
    data = np.fromfile(file, np.uint8)
    breaks = data == 10
    quoted = np.cumsum(data == 34, dtype=np.uint8) & 1
    ends = np.flatnonzero(breaks & (quoted == 0))
    starts = np.concatenate([[0], ends + 1])
    ends = np.concatenate([ends, [len(data)]])
    ends = ends - (data[np.maximum(ends - 1, 0)] == 13)
    starts = starts[ends > starts]
    if len(starts) != records:  # stray quotes or old line ends: then count records
        return np.arange(1, records + 1)
    return 1 + np.searchsorted(np.flatnonzero(breaks), starts)


def _parquet(file: Path, *_: object) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as opened:
            table = opened.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(
            f"{file} cannot be read as Parquet ({_first_line(error)}); it may be cut short: copy it again"
        ) from error
    return replace(_arrow(file, table, lambda i: i + 1, []), about=_about(table.schema.metadata))


def _about(metadata: dict[bytes, bytes] | None) -> dict[str, Any]:
    try:
        said = json.loads((metadata or {}).get(ABOUT.encode(), b"{}"))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def arrow_table(table: Any) -> Table:
    """An Arrow table at hand, as one of a file is read."""
    return _arrow(Path("the table"), table, lambda i: i, [])


def _arrow(file: Path, table: Any, row: Callable[[int], int], problems: list[str]) -> Table:
    names = list(table.column_names)
    where = {name: i for i, name in enumerate(names)}
    return Table(file, names, table.num_rows, lambda name: _numpy(table.column(where[name])), row, problems)


def _numpy(column: Any) -> np.ndarray:
    """Numbers stay numbers (a missing one is NaN), equal lists become a matrix, the rest becomes texts or None."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_null(column.type):
        return np.full(len(column), np.nan)
    if types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type):
        if column.null_count:
            column = column.cast(pa.float64()) if not types.is_boolean(column.type) else column.cast(pa.int8())
        return column.to_numpy(zero_copy_only=False)
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        rows = column.to_numpy(zero_copy_only=False)
        lengths = np.array([-1 if row is None else len(row) for row in rows])
        if len(set(lengths.tolist())) == 1 and lengths[0] >= 0 and all(row.dtype.kind in "biuf" for row in rows):
            return np.stack(list(rows)) if len(rows) else np.zeros((0, 0))
        return rows
    if not types.is_string(column.type) and not types.is_large_string(column.type):
        column = pa.chunked_array([pa.array([None if v is None else str(v) for v in column.to_pylist()], pa.string())])
    return column.to_numpy(zero_copy_only=False)


def _npz(file: Path, *_: object) -> Table:
    arrays = {}
    with file.open("rb") as stream:  # opened here, because NumPy leaves a damaged archive open
        try:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
        except NOT_READABLE as error:
            reason = "" if "pickle" in str(error) else f" ({_first_line(error)})"  # so NumPy calls all other bytes
            raise UserError(
                f"{file} is not a readable NumPy .npz archive{reason}; write it with numpy.savez"
            ) from error
        for name in archive.files:
            try:
                arrays[name] = archive[name]
            except NOT_READABLE as error:
                raise UserError(
                    f"{file}: array '{name}' cannot be read ({_first_line(error)}); write plain numbers or texts, "
                    f"no Python objects"
                ) from error
    if not arrays:
        raise UserError(f"{file} holds no arrays; write them with numpy.savez(file, x=..., y=..., client=...)")
    rows = max((len(array) for array in arrays.values() if array.ndim), default=0)
    return Table(file, list(arrays), rows, lambda name: arrays[name], lambda i: i, archive=True)


def _txt(file: Path, *_: object) -> Table:
    _check_utf8(file)
    text = np.array([file.read_text("utf-8-sig")], object)  # universal line ends
    return Table(file, ["text"], 1, lambda name: text, lambda i: 1)


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:200].rstrip(".")


# A format is a function of (file, columns that stay texts, dialect), by the suffix of its files.
READERS: dict[str, Callable[[Path, Sequence[str], Dialect], Table]] = {".csv": _csv, ".parquet": _parquet, ".npz": _npz}
SUFFIXES = tuple(READERS)
