"""Columns that are hardly what they seem: row numbers, one value throughout, the label once more, stand-ins for gaps.

Row numbers by name are left out of the features; all else is a warning with its remedy. Looked at as they were read,
because float32 cannot tell large whole numbers apart.
"""

import re
import shlex
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from apiece.data.load.cells import is_missing, of_each, strip_blanks
from apiece.data.load.names import warn_of_near_names
from apiece.data.load.notes import SHOWN, Notes, leave_out, listed
from apiece.data.load.read import Table
from apiece.data.load.take import Wanted, other_columns

INDEX = re.compile(r"id|idx|index|row_?(id|idx|index|number|num|names?)|__index_level_\d+__|level_0|unnamed: ?[\d.]+")
ID = re.compile(r".+(_id|_uuid|[a-z]I[dD])|uuid|guid")
DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}|\d{1,2}:\d{2}")
STAND_INS = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 99.0, 999.0, 9999.0, 99999.0)
HUGE = 1e9
LOOK = 1000  # rows that show whether a column is one of amounts
FEW = 20  # rows in which chance makes columns look like anything
ALIKE = 0.99999  # a correlation that is none by chance


class _Raw(NamedTuple):
    """A column of all tables: as float64 (a gap is NaN), or as the numbers of its words (a gap is -1)."""

    name: str
    values: np.ndarray
    whole: bool = False  # written as whole numbers
    words: tuple[str, ...] = ()

    @property
    def text(self) -> bool:
        return self.values.dtype.kind == "i"

    @property
    def there(self) -> np.ndarray:
        return self.values >= 0 if self.text else np.isfinite(self.values)

    @property
    def rows_of(self) -> dict[str, int]:
        rows = np.bincount(self.values[self.there], minlength=len(self.words))
        return dict(zip(self.words, rows.tolist(), strict=True))


def leave_out_indexes(tables: Sequence[Table], wanted: Wanted, notes: Notes) -> Wanted:
    """What is wanted, without columns that by their names only number the rows; it is said.

    >>> from pathlib import Path
    >>> columns = {"id": np.arange(3), "age": np.array([31, 47, 20])}
    >>> table, notes = Table(Path("t.csv"), list(columns), 3, columns.get, lambda i: i), Notes()
    >>> leave_out_indexes([table], Wanted(), notes).exclude
    ('id',)
    """
    if wanted.features is not None or wanted.text or tables[0].archive:
        return wanted
    names = [name for name in other_columns(tables[0], wanted) if name not in wanted.categorical]
    found = [name for name in names if _is_index(tables, name)]
    if found:
        called = [name or "(without a name)" for name in found]
        notes.warnings.append(f"left out, as by name they only number rows: {listed(called)}; if one is a feature, "
                              "name all features (--features)")  # fmt: skip
    return wanted._replace(exclude=(*wanted.exclude, *found))


def warn_of_columns(
    tables: Sequence[Table], features: Sequence[str], categorical: Collection[str], label: str | None, notes: Notes
) -> None:
    """Warn of features that are hardly what they seem; those that are no single values per row are not looked at."""
    if tables[0].archive or sum(table.rows for table in tables) < FEW:
        return
    target = _raw(tables, label) if label is not None and label in tables[0].names else None
    raws = [raw for name in features if name in tables[0].names and (raw := _raw(tables, name)) is not None]
    raws = [raw for raw in raws if not raw.text or raw.name in categorical]  # the others are problems
    for column in [*raws, *([target] if target is not None and target.text else [])]:
        _warn_of_words(tables, column, notes) if column.text else _warn_of_numbers(tables, column, notes)
        if column.text and column is not target:
            warn_of_near_names(column.rows_of, f"words in column '{column.name}'", notes)
    dates = [raw.name for raw in raws if raw.text and _are_dates(raw)]
    _say(notes, dates, "dates, taken as words, of which the next ones are new; to train on the first and test on the "
                       "last, say -D order=COLUMN")  # fmt: skip
    same = [raw.name for raw in raws if raw.there.all() and (raw.values == raw.values[0]).all()]
    _say(notes, same, "the same value in every row, so nothing to learn from")
    ids = [raw.name for raw in raws if raw.name not in (*same, *dates) and _is_id(tables, raw)]
    _say(notes, ids, "a number or name of each row, it seems: nothing that holds for the next row")
    if target is not None and target.there.all():
        labels, label_of = np.unique(target.values, return_inverse=True)
        rest = [raw for raw in raws if raw.name not in (*same, *ids) and raw.there.all()]
        classes = target.text or len(labels) <= len(label_of) / 2
        leaks = [raw.name for raw in rest if (_names(raw, label_of) if classes else _is_in_step(raw, target))]
        _say(notes, leaks, f"the label '{label}' once more, it seems: a model would look better than it is")


def _say(notes: Notes, names: list[str], what: str) -> None:
    if names:
        which = names if len(names) <= SHOWN else ["COLUMN", "..."]
        has = "column" if len(names) == 1 else "columns"
        notes.warnings.append(f"{has} {listed(names)}: {what}; leave out what is no feature ({leave_out(*which)})")


def _raw(tables: Sequence[Table], name: str) -> _Raw | None:
    columns = [table.column(name) for table in tables]
    if any(values.ndim != 1 or values.dtype.kind not in "biufSUO" for values in columns):
        return None
    if all(values.dtype.kind in "biuf" for values in columns):
        whole = all(values.dtype.kind in "biu" for values in columns)
        return _Raw(name, np.concatenate([values.astype(np.float64) for values in columns]), whole)
    cells = [cell for values in columns for cell in values.tolist()]
    bare = of_each(lambda cell: None if is_missing(cell) else strip_blanks(str(cell)), cells)
    number = {word: i for i, word in enumerate(sorted(set(bare) - {None}))}
    return _Raw(name, np.array([number.get(word, -1) for word in bare], np.int64), words=tuple(number))


def _is_index(tables: Sequence[Table], name: str) -> bool:
    if name.strip() and not INDEX.fullmatch(name.strip().lower()):
        return False
    raw = _raw(tables, name)
    if raw is None or not (raw.text or raw.whole):
        return False
    return bool(name.strip()) or (raw.whole and _counts_rows(tables, raw))  # an index without a name, as pandas has it


def _is_id(tables: Sequence[Table], raw: _Raw) -> bool:
    if ID.fullmatch(raw.name.strip()) and (raw.text or raw.whole):
        return True
    if not raw.there.all() or not (raw.text or raw.whole):
        return False
    if raw.text:
        return len(raw.words) == len(raw.values)
    if _counts_rows(tables, raw):
        return True
    # All different is no sign by itself, in amounts of a wide range; all different and dense, or sorted, is one.
    distinct = np.unique(raw.values)
    dense = distinct[-1] - distinct[0] < 2 * len(distinct)
    return len(distinct) == len(raw.values) and bool(dense or (np.diff(raw.values) > 0).all())


def _counts_rows(tables: Sequence[Table], raw: _Raw) -> bool:
    ends = np.cumsum([table.rows for table in tables])[:-1]
    return all(len(part) > 1 and bool((np.diff(part) == 1).all()) for part in np.split(raw.values, ends))


def _names(raw: _Raw, label: np.ndarray) -> bool:
    """Whether a column has one value for each class, and only for that; `label` are the classes' numbers."""
    classes = int(label.max()) + 1
    if len(np.unique(raw.values[:LOOK])) > classes:  # so no column of amounts is sorted in vain
        return False
    known, value = np.unique(raw.values, return_inverse=True)
    pairs = np.unique(value.astype(np.int64) * classes + label)
    return 1 < classes == len(known) == len(pairs) <= len(label) / 2


def _is_in_step(raw: _Raw, target: _Raw) -> bool:
    """Whether a column is the target in other units."""
    if raw.text:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(abs(np.corrcoef(raw.values, target.values)[0, 1]) > ALIKE)


def _are_dates(raw: _Raw) -> bool:
    return len(raw.words) > 1 and sum(DATE.match(word) is not None for word in raw.words) > len(raw.words) / 2


def _warn_of_words(tables: Sequence[Table], raw: _Raw, notes: Notes) -> None:
    """Signs among words: most people mean by them that they do not know. Signs alone, as + and -, are answers."""
    signs = [word for word in raw.words if not any(character.isalnum() for character in word)]
    for word in signs if len(signs) < len(raw.words) else []:
        where = _where(tables, np.flatnonzero(raw.values == raw.words.index(word)))
        notes.warnings.append(f"{where}, column '{raw.name}': '{word}' is taken as a word; if it stands for a gap, say "
                              f"so (--na {shlex.quote(word)})")  # fmt: skip


def _warn_of_numbers(tables: Sequence[Table], raw: _Raw, notes: Notes) -> None:
    """Huge numbers, and numbers that stand for something else, far from all others."""
    huge = np.flatnonzero(raw.there & (np.abs(raw.values) >= HUGE))
    if len(huge):
        notes.warnings.append(f"{_where(tables, huge)}, column '{raw.name}': huge, {raw.values[huge[0]]:.6g}; mend it, "
                              f"call it missing (--na {raw.values[huge[0]]:.6g}), or leave the column out "
                              f"({leave_out(raw.name)})")  # fmt: skip
    may_be = np.isin(raw.values, STAND_INS)
    rest = raw.values[raw.there & ~may_be & (np.abs(raw.values) < HUGE)] if may_be.any() else raw.values[:0]
    for value in np.unique(raw.values[may_be]).tolist() if len(rest) >= FEW / 2 else []:
        is_it = raw.values == value
        low, high = rest.min(), rest.max()
        if high > low and (value > high + (high - low) or value < low - (high - low)):
            notes.warnings.append(f"{_where(tables, np.flatnonzero(is_it))}, column '{raw.name}': {value:g}, far from "
                                  f"all others; if it stands for a gap, say so (--na {value:g})")  # fmt: skip


def _where(tables: Sequence[Table], rows: np.ndarray) -> str:
    """The file and the first row, as a person counts, and how many there are."""
    ends = np.cumsum([table.rows for table in tables])
    which = int(np.searchsorted(ends, rows[0], side="right"))
    table = tables[which]
    more = f" (the first of {len(rows)})" if len(rows) > 1 else ""
    return f"{table.file}, row {table.row(int(rows[0] - (ends[which] - table.rows)))}{more}"
