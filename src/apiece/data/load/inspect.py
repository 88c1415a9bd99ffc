"""The user's own data: a CSV, Parquet or NPZ file with a client column, or a folder with one file per client.

Also a folder of pictures, a text for each author, and the JSON files of LEAF. `inspect` says what was found and every
problem at once; `load` returns the federation or raises the first problem.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.deal import check_shares
from apiece.data.federation import Federation
from apiece.data.load.dealt import find_dealt, restored
from apiece.data.load.join import federate
from apiece.data.load.notes import Notes
from apiece.data.load.read import PLAIN, Dialect, Table
from apiece.data.load.tables import tables_of
from apiece.data.load.take import Wanted
from apiece.errors import UserError, suggest
from apiece.registry import check_options, read_options

TASKS = ("auto", "classification", "regression", "next_character")
GAPS = ("fill", "refuse")


@dataclass(frozen=True, eq=False)
class Inspection:
    """What `inspect` found. There is a federation exactly when there are no problems; warnings forbid nothing.

    >>> seen = inspect("no-such-file.csv")
    >>> len(seen.problems), seen.federation is None
    (1, True)
    """

    found: dict[str, Any]
    problems: list[str]
    warnings: list[str]
    federation: Federation | None


def load(path: str | os.PathLike[str], **options: Any) -> Federation:
    """The federation in a file or folder; the options are those of `inspect`. A folder made by `save` is opened.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = "".join(f"{hospital},{age},{age % 2}\\n" for hospital in ("oslo", "rome") for age in range(30, 40))
    ...     _ = Path(folder, "heart.csv").write_text("hospital,age,sick\\n" + rows)
    ...     federation = load(folder + "/heart.csv", client="hospital", label="sick")
    >>> federation.ids.tolist(), federation.classes, federation.features, federation.train.sizes.tolist()
    (['oslo', 'rome'], ('0', '1'), ('age',), [6, 6])
    """
    return loaded(inspect(path, **check_load_options(options)))


def check_load_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `inspect`, each of which exists and is of its type; a wrong one is an error that names it.

    >>> try: check_load_options({"lable": "sick"})
    ... except UserError as error: print(error)
    own data has no option 'lable': did you mean 'label'?
    """
    return check_options("own data", read_options(inspect, positional=1), options, "typed")


def loaded(seen: Inspection) -> Federation:
    """The federation of an inspection, or its first problem as an error.

    >>> try: loaded(inspect("no-such-file.csv"))
    ... except UserError as error: print(error)
    no-such-file.csv does not exist; check the path
    """
    if seen.federation is not None:
        return seen.federation
    more = len(seen.problems) - 1
    tail = f" (and {more} more problem{'s' if more > 1 else ''}: apiece data check shows all)" if more else ""
    raise UserError(seen.problems[0] + tail)


def inspect(
    path: str | os.PathLike[str],
    *,
    client: str | Sequence[str] | None = None,
    label: str | None = None,
    features: Sequence[str] | str | None = None,
    exclude: Sequence[str] | str | None = None,
    task: str = "auto",
    split: str | None = None,
    order: str | None = None,
    new: str | None = None,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    min_size: int | None = None,
    delimiter: str = ",",
    decimal: str = ".",
    na: str | float | Sequence[str | float] | None = None,
    missing: str = "fill",
    categorical: Sequence[str] | str | None = None,
    max_levels: int = 50,
    length: int = 80,
    standardize: bool = False,
    seed: int = 0,
) -> Inspection:
    """Look at a file or a folder and collect every problem that forbids loading it.

    `client`, `label`: the columns (in NPZ: arrays) with the client and the target; "client" and "label" (in NPZ: "y")
    unless told; several columns that together name the client are given as a list. `features`: the columns to learn
    from, by default all others (in NPZ: the array "x") but for those in `exclude`: a list, or "a,b". In a folder the
    file name without suffix is the client, unless `client` names a column. `task`: "classification", "regression",
    "next_character" (the feature is a text), or "auto": texts, and integers with at most 100 distinct values, are
    classes.

    `split`: a column with train, validation or test, or another word for them (`data.load.split_words`; a column that
    holds these is used unasked; if it says no validation, a part of train is); without it each client's rows are dealt
    by `shares`, at random, or in time by the column `order`, the last ones to test. `new`:
    a column that is 1 for clients that never train and 0 for others. `min_size` leaves smaller clients out (of texts:
    in characters).

    `delimiter`: what separates the columns of a CSV file: a character, "tab", or "auto", what the header has most of.
    `decimal`: "." or ",", before the decimals of numbers. `na`: what stands for a missing value, "?" or -999, a list of
    such; blanks, NA, N/A, nan, NULL and the like do so anyway.

    `missing`: "fill" gaps by the rules of `data.encode`, or "refuse" them. `categorical`: columns of numbers that are
    levels; columns of words are found, and may have `max_levels`. `length`: of the sequences of characters.
    `standardize` gives every feature mean 0 and spread 1 over all training examples.

    Row numbers are those a person sees: lines of a CSV file (the header is row 1), rows of a Parquet file from 1,
    indexes of NPZ arrays from 0.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("client,age,label\\noslo,31,0\\nrome,old,1\\n")
    ...     for problem in inspect(folder + "/a.csv").problems: print(problem.replace(folder + "/", ""))
    a.csv, row 3, column 'age': 'old' is not a number; mend the cell, call it missing (--na old), or leave the column \
out (--exclude age)
    a.csv: clients with fewer examples than the 3 the split needs: 'oslo' (1), 'rome' (1); give them more, or name \
another column that tells clients apart (--client COLUMN)
    """
    path, notes = Path(path), Notes()
    if (path / "federation.json").is_file():
        return _saved(path)
    path = find_dealt(path)
    found: dict[str, Any] = {"path": str(path)}
    try:
        share = tuple(check_shares(shares).tolist())
        if task not in TASKS:
            raise UserError(f"unknown task '{task}': {suggest(task, TASKS)}")
        if missing not in GAPS:
            raise UserError(f"missing = '{missing}' is wrong: {suggest(missing, GAPS)}")
        for name, value in (("length", length), ("max_levels", max_levels)):
            if value < 1:
                raise UserError(f"{name} must be at least 1, got {value}")
        several = [client] if isinstance(client, str) else list(client or [])
        wanted = Wanted(
            " / ".join(several) or None,
            label,
            features,
            split,
            order,
            new,
            exclude=listed_names(exclude),
            task=task,
            shares=share,
            min_size=min_size,
            gaps=missing == "fill",
            categorical=(categorical,) if isinstance(categorical, str) else tuple(categorical or ()),
            max_levels=max_levels,
            length=length,
            standardize=standardize,
            seed=seed,
        )
        words = [na] if isinstance(na, str | int | float) else na or ()
        dialect = Dialect(delimiter, decimal, tuple(str(word).strip() for word in words)).checked()
        tables, wanted = tables_of(path, wanted, several, dialect, found, notes)
    except UserError as error:
        return Inspection(found, [str(error)], [], None)
    seen = examined(path, tables, wanted, found, notes)
    if seen.federation is None or dialect == PLAIN:
        return seen
    return replace(seen, federation=seen.federation.encoded(**dialect._asdict()))


def listed_names(names: Sequence[str] | str | None) -> tuple[str, ...]:
    """Names as they are listed, or in one text with commas.

    >>> listed_names("id, note"), listed_names(["a, b"]), listed_names(None)
    (('id', 'note'), ('a, b',), ())
    """
    parts = names.split(",") if isinstance(names, str) else names or ()
    return tuple(part.strip() for part in parts if part.strip())


def examined(path: Path, tables: Sequence[Table], wanted: Wanted, found: dict[str, Any], notes: Notes) -> Inspection:
    """The inspection of tables that were read already."""
    federation = federate(path, tables, wanted, found, notes) if tables else None
    if federation is not None and wanted.dealt:
        federation = restored(federation, tables[0].about)
        notes.warnings = list(dict.fromkeys([*federation.notes, *notes.warnings]))
    if federation is not None:
        found |= {key: value for key, value in federation.summary().items() if key != "notes"}  # warnings say them
    return Inspection(found, notes.problems, notes.warnings, federation)


def from_columns(file: Path, columns: dict[str, np.ndarray], wanted: Wanted) -> Federation:
    """The federation in arrays of one length, by the same importer; `file` is named in what is wrong.

    >>> columns = {"client": np.zeros(5, int), "x": np.arange(10.0).reshape(5, 2), "y": np.arange(5) % 2}
    >>> from_columns(Path("made here"), columns, Wanted()).train.rows
    3
    """
    rows = len(next(iter(columns.values())))
    table = Table(file, list(columns), rows, columns.__getitem__, lambda i: i, archive=True)
    return loaded(examined(file, [table], wanted, {}, Notes()))


def _saved(path: Path) -> Inspection:
    found: dict[str, Any] = {"path": str(path), "format": "federation"}
    try:
        federation = Federation.load(path)
    except UserError as error:
        return Inspection(found, [str(error)], [], None)
    return Inspection(found | federation.summary(), [], [], federation)
