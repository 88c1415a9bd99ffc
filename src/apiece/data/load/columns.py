"""From columns to arrays: features as numbers; clients, labels and splits as they are. What is wrong is noted."""

import re
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from apiece.data.load.cells import is_blank, is_missing, is_nearly_number, is_number, number_of, of_each, strip_blanks
from apiece.data.load.notes import SHOWN, Notes, leave_out, quoted
from apiece.data.load.read import Table

LONG = 20  # letters; whoever writes more means something
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
DAY_FIRST = re.compile(r"\s*\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}")
FILL = "fill the cell or remove the row"


class Column(NamedTuple):
    """A feature column: float32 (a missing value is NaN) or uint8 of shape [rows, ...], or texts (missing: None).

    >>> Column("town", np.array(["oslo", None], object)).categorical
    True
    """

    name: str
    values: np.ndarray

    @property
    def categorical(self) -> bool:
        """Whether it holds texts: levels, not amounts."""
        return self.values.dtype.kind == "O"


def categorical_columns(tables: Sequence[Table], names: Sequence[str]) -> set[str]:
    """The columns that hold words: at least two different ones, and numbers in fewer than half of the filled cells.

    A column of numbers with a few words in it is one with mistakes, not a categorical one; and so is one of numbers in
    other dress, such as "3,5" or "45%".

    >>> from pathlib import Path
    >>> columns = {"town": np.array(["oslo", "rome"], object), "age": np.array(["31", "old"], object)}
    >>> categorical_columns([Table(Path("t.csv"), list(columns), 2, columns.get, lambda i: i)], ["town", "age"])
    {'town'}
    """
    found = set()
    for name in names:
        values = [table.column(name) for table in tables if name in table.names]
        if not any(column.dtype.kind in "SUO" for column in values) or any(column.ndim != 1 for column in values):
            continue
        listed = [cell for column in values for cell in _strings(column)]
        if not all(cell is None or isinstance(cell, str | int | float) for cell in listed):
            continue
        cells = Counter(cell for cell in listed if cell is not None)
        cells = Counter({cell: count for cell, count in cells.items() if not is_missing(cell)})
        decimal = tables[0].decimal
        words = [cell for cell in cells if not is_number(cell, decimal) and not is_nearly_number(cell)]
        if sum(cells[word] for word in words) > cells.total() / 2 and len(cells) > 1:
            found.add(name)
    return found


def feature_columns(
    table: Table,
    names: Sequence[str],
    notes: Notes,
    *,
    categorical: Collection[str] = (),
    gaps: bool = True,
    empty: bool = False,
) -> list[Column] | None:
    """The feature columns of a table, or None when one holds something that is neither a finite number nor missing.

    `categorical` names those that are levels. Without `gaps` a missing value is a problem too; in an array of more than
    two dimensions (pictures) it always is. With `empty` a column may lack all its values: a table of one row may.

    >>> from pathlib import Path
    >>> columns = {"age": np.array([31, 47]), "town": np.array(["oslo", ""], object)}
    >>> table = Table(Path("t.parquet"), list(columns), 2, columns.get, lambda i: i + 1)
    >>> [column.values.tolist() for column in feature_columns(table, ["age", "town"], Notes(), categorical=["town"])]
    [[31.0, 47.0], ['oslo', None]]
    """
    read = [
        _levels(table, name, notes, gaps) if name in categorical else _numbers(table, name, notes, gaps, empty)
        for name in names
    ]
    kept = [Column(name, values) for name, values in zip(names, read, strict=True) if values is not None]
    return kept if len(kept) == len(names) else None


def key_array(table: Table, name: str, role: str, notes: Notes) -> np.ndarray | None:
    """A client, label or split column: numbers as they are, texts as objects. Missing entries are noted.

    >>> from pathlib import Path
    >>> table = Table(Path("t.npz"), ["client"], 2, {"client": np.array(["a", " "])}.get, lambda i: i)
    >>> notes = Notes()
    >>> _ = key_array(table, "client", "client", notes)
    >>> notes.problems
    ["t.npz, row 1, column 'client': the client is missing; fill or remove the row"]
    """
    values = table.column(name)
    kind = values.dtype.kind
    if kind not in "biufSUO" or values.size == 0 or (values.ndim > 1 and (role != "label" or kind not in "biuf")):
        notes.problem(role, f"{table.file}, column '{name}': the {role} must be one number or text per row")
        return None
    if kind in "SUO":
        listed = _strings(values)
        if not all(value is None or isinstance(value, str) for value in listed):
            notes.problem(role, f"{table.file}, column '{name}': the {role} must be one number or text per row")
            return None
        values = _objects(listed)
        empty = is_blank if role == "client" else is_missing  # a client may be called NA: a country is
        bad = np.array(of_each(empty, listed), bool)
    else:
        bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
    if role == "order" and kind in "SUO":
        mixed = np.flatnonzero(of_each(lambda value: DAY_FIRST.match(str(value)) is not None, listed))
        if len(mixed):
            what = f"{quoted(listed[mixed[0]])} sorts by its first figures"
            notes.cells(role, table, name, mixed, what, "write dates as 2024-03-31")
            return None
    if bad.any():
        what = f"the {role} is missing" + ("" if kind in "SUO" else " or not finite")
        notes.cells(role, table, name, np.flatnonzero(bad), what, "fill or remove the row")
        return None
    return values


def parse_numbers(table: Table, name: str, values: np.ndarray, notes: Notes) -> np.ndarray | None:
    """Texts as float64 (blank: NaN); texts that are no numbers are noted with their rows.

    >>> from pathlib import Path
    >>> table = Table(Path("t.csv"), ["age"], 2, {}.get, lambda i: i + 2)
    >>> parse_numbers(table, "age", np.array(["31", "4e1"]), Notes()).tolist()
    [31.0, 40.0]
    """
    listed = _strings(values.ravel())
    if any(isinstance(value, list | np.ndarray) for value in listed):
        what = "lists of different lengths, or of other things than numbers"
        notes.problem("shape", f"{table.file}, column '{name}': holds {what}; make all rows alike")
        return None
    numbers = of_each(lambda value: number_of(value, table.decimal), listed)
    bad = np.flatnonzero([number is None for number in numbers])
    if len(bad) == 0:
        return np.array(numbers, np.float64).reshape(values.shape)
    first = [str(listed[i]) for i in bad[:SHOWN]]
    said = ", ".join(quoted(value) for value in dict.fromkeys(first))
    remedy = _remedy(table, name, list(dict.fromkeys(str(listed[i]) for i in bad)))
    rows = np.unique(bad // (values.size // len(values)))
    what = f"{said} is not a number" if len(set(first)) == 1 else f"{said} are not numbers"
    notes.cells("number", table, name, rows, what, remedy, count=len(bad))
    return None


def _remedy(table: Table, name: str, bad: Sequence[str]) -> str:
    """What to do about texts that are no numbers."""
    words = f"if they are words, say so (-D categorical={shlex.quote(name)}) or leave them out ({leave_out(name)})"
    if table.decimal != "." and any("." in value and is_nearly_number(value) for value in bad):
        return "decimals have a comma here, so take out all points, or leave --decimal out"
    if all(THOUSANDS.fullmatch(value.strip()) for value in bad):
        return f"write 1234, not 1,234; if the comma is a decimal one, say so (--decimal ,); {words}"
    if any("," in value and is_number(value.replace(",", ".")) for value in bad):
        return f"write a point, not a comma, before decimals, or say so (--decimal ,); {words}"
    if any(is_nearly_number(value) for value in bad):
        return f"write plain numbers, as 1234.5; {words}"
    word = bad[0].strip()
    missing = f", call it missing (--na {shlex.quote(word)})," if len(word) <= LONG else ""
    return f"mend the cell{missing} or leave the column out ({leave_out(name)})"


def as_texts(values: np.ndarray) -> np.ndarray:
    """Values as texts; whole numbers without a decimal point, so that 3 and 3.0 are the same client or class.

    >>> as_texts(np.array([3.0, 4.0])).tolist()
    ['3', '4']
    """
    if values.dtype.kind == "f" and (values == np.rint(values)).all() and np.abs(values).max(initial=0) < 2**53:
        values = values.astype(np.int64)
    return values.astype(np.str_)


def _strings(values: np.ndarray) -> list[object]:
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values.tolist()]


def text_column(table: Table, name: str, notes: Notes) -> list[Column] | None:
    """One column of texts as they are, spaces and all; a missing one is empty.

    >>> from pathlib import Path
    >>> table = Table(Path("t.csv"), ["said"], 2, {"said": np.array([" ah ", None], object)}.get, lambda i: i + 2)
    >>> text_column(table, "said", Notes())[0].values.tolist()
    [' ah ', '']
    """
    values = table.column(name)
    cells = _strings(values) if values.ndim == 1 and values.dtype.kind in "SUO" else [0]
    if not all(cell is None or isinstance(cell, str) for cell in cells):
        notes.problem("text", f"{table.file}, column '{name}': must be one text per row; name the column of texts")
        return None
    return [Column(name, _objects([cell or "" for cell in cells]))]


def _levels(table: Table, name: str, notes: Notes, gaps: bool) -> np.ndarray | None:
    """One categorical column as texts, None where a cell is missing."""
    values = table.column(name)
    if values.ndim != 1 or values.dtype.kind not in "biufSUO":
        notes.problem("number", f"{table.file}, column '{name}': levels must be one number or text per row")
        return None
    if values.dtype.kind in "SUO":
        cells = of_each(lambda cell: None if is_missing(cell) else strip_blanks(str(cell)), _strings(values))
    else:
        there = np.isfinite(values)
        texts = iter(as_texts(values[there]).tolist())
        cells = [next(texts) if known else None for known in there]
    missing = np.flatnonzero([cell is None for cell in cells])
    if len(missing) and not gaps:
        notes.cells("finite", table, name, missing, "missing", FILL)
        return None
    return _objects(cells)


def _objects(cells: Sequence[object]) -> np.ndarray:
    made = np.empty(len(cells), object)
    made[:] = cells
    return made


def _numbers(table: Table, name: str, notes: Notes, gaps: bool, empty: bool) -> np.ndarray | None:
    """One feature column as uint8 or float32, or None with a note."""
    values = table.column(name)
    if values.dtype.kind in "SUO":
        parsed = parse_numbers(table, name, values, notes)
        if parsed is None:
            return None
        values = parsed
    elif values.dtype.kind not in "biuf":
        what = f"{values.dtype} is not a number"
        notes.problem("number", f"{table.file}, column '{name}': {what}; leave the column out of the features")
        return None
    if values.size == 0:
        notes.problem("number", f"{table.file}, column '{name}': holds no values; fill it or leave it out")
        return None
    if values.dtype == np.uint8:
        return values
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    good = np.isfinite(single).reshape(len(single), -1).all(1)
    if good.all():
        return single
    wide = values.reshape(len(values), -1).astype(np.float64)
    missing, endless = np.isnan(wide).any(1), np.isinf(wide).any(1)
    if np.isnan(wide).all() and not empty:
        notes.problem("finite", f"{table.file}, column '{name}': is empty; fill it or leave it out of the features")
        return None
    too_large = ~(np.isfinite(single) | np.isnan(single)).reshape(wide.shape).all(1) & ~endless
    allowed = gaps and values.ndim <= 2
    if allowed and not (endless | too_large).any():
        return single
    wrong = [(endless, "infinite"), (too_large, "too large for float32")] + [(missing, "missing (NaN)")] * (not allowed)
    for bad, what in wrong:
        if bad.any():
            notes.cells("finite", table, name, np.flatnonzero(bad), what, FILL)
    return None
