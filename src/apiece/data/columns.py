"""From columns to arrays: features as numbers; clients, labels and splits as they are. What is wrong is noted."""

from collections.abc import Sequence

import numpy as np

from apiece.data.notes import SHOWN, Notes, quoted
from apiece.data.read import Table


def feature_array(table: Table, names: Sequence[str], notes: Notes) -> tuple[np.ndarray | None, list[str]]:
    """The feature columns as one array, uint8 if all of them are and else float32, and the names of its columns.

    None when a column holds something that is not a finite number. A single NPZ array keeps its shape.

    >>> from pathlib import Path
    >>> columns = {"age": np.array([31, 47]), "weight": np.array([70.5, 64.0])}
    >>> table = Table(Path("t.parquet"), list(columns), 2, columns.get, lambda i: i + 1)
    >>> feature_array(table, ["age", "weight"], Notes())[0].tolist()
    [[31.0, 70.5], [47.0, 64.0]]
    """
    blocks = [block for name in names if (block := _numbers(table, name, notes)) is not None]
    if len(blocks) < len(names):
        return None, []
    if len(blocks) == 1 and blocks[0].ndim > 2:
        return blocks[0], []
    flat = [block.reshape(len(block), -1) for block in blocks]
    widths = [block.shape[1] for block in flat]
    called = [
        name if width == 1 else f"{name}[{j}]" for name, width in zip(names, widths, strict=True) for j in range(width)
    ]
    return np.concatenate(flat, axis=1), called


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
        values = np.empty(len(listed), object)
        values[:] = listed
        bad = np.array([is_blank(value) for value in listed], bool)
    else:
        bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
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
    bad = np.flatnonzero([not is_number(value) for value in listed])
    if len(bad) == 0:
        return np.array([np.nan if is_blank(value) else float(str(value)) for value in listed]).reshape(values.shape)
    first = [str(listed[i]) for i in bad[:SHOWN]]
    said = ", ".join(quoted(value) for value in dict.fromkeys(first))
    remedy = "mend the cell or leave the column out of the features"
    if any("," in value and is_number(value.replace(",", ".")) for value in first):
        remedy = "write a point, not a comma, before decimals"
    rows = np.unique(bad // (values.size // len(values)))
    what = f"{said} is not a number" if len(set(first)) == 1 else f"{said} are not numbers"
    notes.cells("number", table, name, rows, what, remedy, count=len(bad))
    return None


def as_texts(values: np.ndarray) -> np.ndarray:
    """Values as texts; whole numbers without a decimal point, so that 3 and 3.0 are the same client or class.

    >>> as_texts(np.array([3.0, 4.0])).tolist()
    ['3', '4']
    """
    if values.dtype.kind == "f" and (values == np.rint(values)).all() and np.abs(values).max(initial=0) < 2**53:
        values = values.astype(np.int64)
    return values.astype(np.str_)


def is_blank(value: object) -> bool:
    """Whether a cell holds nothing.

    >>> is_blank(" "), is_blank(None), is_blank("0")
    (True, True, False)
    """
    return value is None or (isinstance(value, str) and not value.strip())


def is_number(value: object) -> bool:
    """Whether a cell is a number or blank.

    >>> is_number("-1e3"), is_number(""), is_number("1_000"), is_number("x")
    (True, True, False, False)
    """
    if is_blank(value):
        return True
    try:
        float(str(value))
    except ValueError:
        return False
    return "_" not in str(value)  # Python reads 1_000 as a number; no data format does


def _strings(values: np.ndarray) -> list[object]:
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values.tolist()]


def _numbers(table: Table, name: str, notes: Notes) -> np.ndarray | None:
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
    if np.isnan(wide).all():
        notes.problem("finite", f"{table.file}, column '{name}': is empty; fill it or leave it out of the features")
        return None
    too_large = ~good & ~missing & ~endless
    for bad, what in ((missing, "missing (NaN)"), (endless, "infinite"), (too_large, "too large for float32")):
        if bad.any():
            notes.cells("finite", table, name, np.flatnonzero(bad), what, "fill the cell or remove the row")
    return None
