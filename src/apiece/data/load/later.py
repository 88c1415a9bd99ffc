"""Rows that come later: a new table with the columns of the training data, made examples by the same rules."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.data.encoding import Encoding, Levels, Numbers
from apiece.data.load.columns import as_texts, feature_columns, key_array
from apiece.data.load.images import is_picture, read_own_images
from apiece.data.load.notes import Notes, listed
from apiece.data.load.read import Dialect, Table, arrow_table, read
from apiece.data.load.take import columns_agree
from apiece.data.load.texts import UNKNOWN, cut
from apiece.errors import UserError

KEYS = ("client", "label", "split", "y")  # of a table whose features have no names, what is never one


class Rows(NamedTuple):
    """Examples as a federation has them before scaling, the table they come from, and what a reader should know."""

    x: np.ndarray
    table: Table
    notes: list[str]


class Text(NamedTuple):
    """A text as sequences of characters: known ones as their places among the classes, the characters that follow."""

    x: np.ndarray
    y: np.ndarray
    pieces: tuple[str, ...]
    notes: list[str]


def encode_text(source: Any, classes: Sequence[str], length: int) -> Text:
    """A .txt file cut into sequences of `length` characters, as the texts of the training data were.

    What is left at the end is too short for a sequence, and not among them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("abba?ba", encoding="utf-8")
    ...     text = encode_text(Path(folder, "a.txt"), ("<unknown>", "a", "b"), length=3)
    >>> text.pieces, text.x.tolist(), text.y.tolist()
    (('abb', 'a?b'), [[1, 2, 2], [1, 0, 2]], [[2, 2, 1], [0, 2, 1]])
    """
    file = Path(source)
    text = read(file).column("text")[0]
    if len(text) <= length:
        raise UserError(
            f"{file} has {len(text)} characters; a sequence has {length}, and one more follows it: give more"
        )
    windows, _ = cut([text], np.zeros(1, np.int64), length)
    place = {ord(character): number for number, character in enumerate(classes) if len(character) == 1}
    tokens = np.vectorize(lambda code: place.get(code, 0), otypes=[np.int32])(windows)
    strange = sorted({chr(code) for code in np.unique(windows) if code not in place})
    notes = [f"{file}: {listed(strange)} never seen in training, and counted as {UNKNOWN}"] if strange else []
    return Text(tokens[:, :-1], tokens[:, 1:], tuple("".join(map(chr, one[:-1])) for one in windows), notes)


def plain_encoding(features: Sequence[str], shape: Sequence[int], dtype: str) -> Encoding:
    """The encoding of examples that came from no table: a column for each feature or, without names, one array "x".

    >>> plain_encoding(("age", "height"), (2,), "float32").features, plain_encoding((), (8, 8), "uint8").columns[0].name
    (('age', 'height'), 'x')
    """
    if features and (len(features),) == tuple(shape):
        return Encoding(columns=tuple(Numbers(name=name) for name in features), dtype=dtype, label="label")
    return Encoding(columns=(Numbers(name="x", shape=tuple(shape)),), dtype=dtype, label="y", others=KEYS)


def open_table(source: Any, encoding: Encoding) -> Table:
    """The table at a path (CSV, Parquet, NPZ), or of columns at hand: a mapping, a DataFrame, an Arrow table.

    Where an example is a picture, the path may be one, or a folder of them.

    >>> open_table({"age": [31, 47]}, plain_encoding(("age",), (1,), "float32")).rows
    2
    """
    if isinstance(source, str | os.PathLike):
        if encoding.whole and (Path(source).is_dir() or is_picture(Path(source))):
            return read_own_images(Path(source), encoding.columns[0].name)
        text = [column.name for column in encoding.columns if isinstance(column, Levels) and column.text]
        return read(Path(source), text=text, dialect=Dialect(encoding.delimiter, encoding.decimal, encoding.na))
    if hasattr(source, "column_names"):
        return arrow_table(source)
    if not isinstance(source, Mapping) and not hasattr(source, "columns"):
        raise UserError(f"rows are given as the path of a file, columns by name, or a DataFrame, not as {source!r:.80}")
    names = list(source) if isinstance(source, Mapping) else list(source.columns)
    columns = {str(name): _values(source[name]) for name in names}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1 or not columns:
        raise UserError(f"the columns of a table have as many rows each; these have {sorted(lengths)}")
    return Table(Path("the table"), list(columns), lengths.pop(), columns.__getitem__, lambda i: i)


def _values(column: Any) -> np.ndarray:
    """A column as an array; what libraries of tables write for a missing word (NaN, NA, NaT) as None."""
    values = np.asarray(column)
    if values.ndim == 0:
        raise UserError(f"a column is a list of values, not {column!r:.60}")
    if values.dtype.kind in "SUO":
        made = np.empty(values.shape, object)
        made[...] = values
        made[[i for i, cell in enumerate(values.tolist()) if _is_missing(cell)]] = None
        return made
    return values


def _is_missing(cell: Any) -> bool:
    return type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def encode_rows(source: Any, encoding: Encoding) -> Rows:
    """The examples in a table with the columns of the training data, in any order, by the rules fitted then.

    A column that is not there, or holds something else, is an error that names it; others are ignored, and noted.

    >>> encoding = Encoding(columns=(Numbers(name="age", fill=(40.0,), marked=(False,)),
    ...                              Levels(name="town", levels=("oslo", "rome"))), others=("sick",))
    >>> rows = encode_rows({"town": ["rome", "bath"], "age": [np.nan, 31], "sick": [0, 1], "day": [1, 2]}, encoding)
    >>> rows.x.tolist()
    [[40.0, 0.0, 1.0], [31.0, 0.0, 0.0]]
    >>> for note in rows.notes: print(note)
    the table: ignored, as no feature is called so: 'day'
    the table, column 'town': 'bath' was never seen in training, and counts as none of its levels
    """
    table = open_table(source, encoding)
    if table.problems or table.rows == 0:
        raise UserError(table.problems[0] if table.problems else f"{table.file} has no rows; fill it")
    table, said = _named(table, encoding)
    if strange := ignored(table, encoding):
        said.append(f"{table.file}: ignored, as no feature is called so: {listed(strange)}")
    notes = Notes()
    columns_agree(table, table, notes)
    _check_there(table, encoding, notes)
    names = [column.name for column in encoding.columns]
    words = [column.name for column in encoding.columns if isinstance(column, Levels)]
    read = None if notes.kinds else feature_columns(table, names, notes, categorical=words, empty=True)
    if read is None:
        more = f" (and {len(notes.problems) - 1} more)" if len(notes.problems) > 1 else ""
        raise UserError(notes.problems[0] + more)
    values = {column.name: column.values for column in read}
    for rule in encoding.columns:
        if isinstance(rule, Numbers) and (shape := values[rule.name].shape[1:]) != rule.shape:
            raise UserError(f"{table.file}, column '{rule.name}': an example has shape {rule.shape}, not {shape}")
        if isinstance(rule, Levels) and (new := rule.unknown(values[rule.name])):
            was = "was" if len(new) == 1 else "were"
            counts = "counts as none of its levels" if len(new) == 1 else "count as none of its levels"
            said.append(f"{table.file}, column '{rule.name}': {listed(new)} {was} never seen in training, and {counts}")
        if encoding.dtype == "uint8":
            values[rule.name] = _bytes(table, rule.name, values[rule.name])
    try:
        return Rows(encoding.encode(values), table, said)
    except UserError as error:
        raise UserError(f"{table.file}: {error}") from None


def targets_of(table: Table, label: str, classes: Sequence[str]) -> np.ndarray:
    """The targets of rows in the column `label`: indexes of `classes`, or numbers where there are none.

    >>> table = open_table({"sick": ["yes", "no"]}, plain_encoding((), (1,), "float32"))
    >>> targets_of(table, "sick", ("no", "yes")).tolist()
    [1, 0]
    """
    notes = Notes()
    if label not in table.names:
        raise UserError(f"{table.file}: no column '{label}' with the target; there are: {listed(table.names)}")
    values = key_array(table, label, "label", notes)
    if values is None:
        raise UserError(notes.problems[0])
    if not classes:
        try:
            return values.astype(np.float32)
        except (TypeError, ValueError):
            raise UserError(f"{table.file}, column '{label}': the target is a number; mend the column") from None
    texts = as_texts(values)
    strange = np.setdiff1d(texts, classes)
    if len(strange):
        raise UserError(f"{table.file}, column '{label}': the model has no class {listed(strange)}; "
                        f"its classes: {', '.join(classes[:20])}")  # fmt: skip
    place = {name: number for number, name in enumerate(classes)}
    return np.array([place[text] for text in texts.tolist()], np.int32)


def _named(table: Table, encoding: Encoding) -> tuple[Table, list[str]]:
    """The table; where features have no names, and it has as many columns as an example has numbers, these in order."""
    first = encoding.columns[0]
    unnamed = len(encoding.columns) == 1 and isinstance(first, Numbers) and first.name == "x" and first.shape
    if not unnamed or "x" in table.names or table.archive:
        return table, []
    assert isinstance(first, Numbers)
    names = [name for name in table.names if name not in encoding.others]
    if len(names) != int(np.prod(first.shape)):
        raise UserError(
            f"{table.file}: the features of this model have no names, and an example is {first.shape}: give a table "
            f"of {int(np.prod(first.shape))} columns in their order (it has {len(names)}), or an .npz file with x"
        )
    notes = Notes()
    read = feature_columns(table, names, notes, empty=True)
    if read is None:
        raise UserError(notes.problems[0])
    joined = np.stack([column.values for column in read], axis=1).reshape(-1, *first.shape)
    column = lambda name: joined if name == "x" else table.column(name)
    others = [name for name in table.names if name in encoding.others]
    said = f"{table.file}: features have no names, so that its {len(names)} columns are taken in their order"
    return Table(table.file, ["x", *others], table.rows, column, table.row), [said]


def _check_there(table: Table, encoding: Encoding, notes: Notes) -> None:
    names = [column.name for column in encoding.columns]
    if lacking := [name for name in names if name not in table.names]:
        what = "column" if len(lacking) == 1 else "columns"
        notes.problem("missing", f"{table.file}: no {what} {listed(lacking)}, which the model was trained on; "
                                 f"there are: {', '.join(table.names[:20])}")  # fmt: skip


def ignored(table: Table, encoding: Encoding) -> list[str]:
    """The columns of a table that are neither features nor known to be none.

    >>> encoding = plain_encoding(("age",), (1,), "float32")
    >>> ignored(open_table({"age": [1], "day": [1]}, encoding), encoding)
    ['day']
    """
    known = {column.name for column in encoding.columns}.union(*(other.split(" / ") for other in encoding.others))
    return [name for name in table.names if name not in known and name not in encoding.others]


def _bytes(table: Table, name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype != np.uint8 and not ((values >= 0) & (values <= 255) & (values == np.rint(values))).all():
        raise UserError(f"{table.file}, column '{name}': the model takes whole numbers from 0 to 255; mend the column")
    return values.astype(np.uint8)
