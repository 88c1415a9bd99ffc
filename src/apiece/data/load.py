"""The user's own data: a CSV, Parquet or NPZ file with a client column, or a folder with one file per client.

`inspect` says what was found and every problem at once; `load` returns the federation or raises the first problem.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.data.columns import as_texts, feature_array, is_number, key_array, parse_numbers
from apiece.data.federation import SPLITS, Federation, check_shares, deal, from_rows
from apiece.data.notes import ALIKE, SHOWN, Notes, listed, quoted
from apiece.data.partition import natural
from apiece.data.read import SUFFIXES, Table, read
from apiece.errors import UserError, suggest

FEW_LABELS = 100  # integers with at most so many distinct values are classes, not amounts
TASKS = ("auto", "classification", "regression")


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
    seen = inspect(path, **options)
    if seen.federation is not None:
        return seen.federation
    more = len(seen.problems) - 1
    tail = f" (and {more} more problem{'s' if more > 1 else ''}: apiece data check shows all)" if more else ""
    raise UserError(seen.problems[0] + tail)


def inspect(
    path: str | os.PathLike[str],
    *,
    client: str | None = None,
    label: str | None = None,
    features: Sequence[str] | str | None = None,
    task: str = "auto",
    split: str | None = None,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    min_size: int | None = None,
    delimiter: str = ",",
    standardize: bool = False,
    seed: int = 0,
) -> Inspection:
    """Look at a file or a folder and collect every problem that forbids loading it.

    `client`, `label`: the columns (in NPZ: arrays) with the client and the target; "client" and "label" (in NPZ: "y")
    unless told. `features`: the columns to learn from, by default all others (in NPZ: the array "x"). In a folder the
    file name without suffix is the client, unless `client` names a column. `task`: "classification", "regression", or
    "auto": texts, and integers with at most 100 distinct values, are classes. `split`: a column with train, validation
    or test (a column "split" that holds these is used unasked); without it each client's rows are dealt at random by
    `shares`. `min_size` leaves smaller clients out. `standardize` gives every feature mean 0 and spread 1
    over all training examples.

    Row numbers are those a person sees: lines of a CSV file (the header is row 1), rows of a Parquet file from 1,
    indexes of NPZ arrays from 0.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("client,age,label\\noslo,31,0\\nrome,old,1\\n")
    ...     for problem in inspect(folder + "/a.csv").problems: print(problem.replace(folder + "/", ""))
    a.csv, row 3, column 'age': 'old' is not a number; mend the cell or leave the column out of the features
    a.csv: clients with fewer examples than the 3 the split needs: 'oslo' (1), 'rome' (1); give them more, change the \
shares, or leave them out with min_size=3 (-D min_size=3)
    """
    path, notes = Path(path), Notes()
    if (path / "federation.json").is_file():
        return _saved(path)
    wanted = _Wanted(client, label, features, split, path.is_dir() and client is None)
    found: dict[str, Any] = {"path": str(path)}
    try:
        share = check_shares(shares)
        if task not in TASKS:
            raise UserError(f"unknown task '{task}': {suggest(task, TASKS)}")
        files = _files(path, notes)
    except UserError as error:
        return Inspection(found, [str(error)], [], None)
    found |= {"format": "folder" if path.is_dir() else path.suffix[1:].lower(), "files": len(files)}
    parts: list[_Part] = []
    first: Table | None = None
    for file in files:
        try:
            table = read(file, text=(client or "client", split or "split"), delimiter=delimiter)
        except UserError as error:
            notes.problem("file", str(error))
            continue
        first = first or table
        found.setdefault("columns", table.names)
        for text in table.problems or [f"{file} has no rows; remove it or fill it"] * (table.rows == 0):
            notes.problem("row", text)
        if table.rows and _columns_agree(table, first, notes):
            parts.append(_take(replace(table, names=first.names), wanted, parts[0] if parts else None, notes))
    federation = _join(path, parts, task, share, min_size, seed, found, notes) if parts else None
    if federation is not None:
        if standardize:
            federation = federation.standardized()
        else:
            notes.warnings += federation.scale_warnings()
        found |= federation.summary()
    return Inspection(found, notes.problems, notes.warnings, federation)


class _Wanted(NamedTuple):
    """What the user said about the columns."""

    client: str | None
    label: str | None
    features: Sequence[str] | str | None
    split: str | None
    by_file: bool  # the file name is the client


class _Part(NamedTuple):
    """The rows of one file; what is missing or wrong is None, and noted."""

    table: Table
    x: np.ndarray | None
    features: list[str]
    label: np.ndarray | None
    client: np.ndarray | None
    split: np.ndarray | None
    names: dict[str, str | None]  # of the label, client and split columns


def _saved(path: Path) -> Inspection:
    found: dict[str, Any] = {"path": str(path), "format": "federation"}
    try:
        federation = Federation.load(path)
    except UserError as error:
        return Inspection(found, [str(error)], [], None)
    return Inspection(found | federation.summary(), [], [], federation)


def _files(path: Path, notes: Notes) -> list[Path]:
    if not path.exists():
        raise UserError(f"{path} does not exist; check the path")
    if not path.is_dir():
        return [path]
    try:
        inside = sorted(p for p in path.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    files = [p for p in inside if p.suffix.lower() in SUFFIXES and p.is_file()]
    if not files:
        raise UserError(f"{path} holds no {', '.join(SUFFIXES)} file; give a folder with one file per client")
    if len(files) < len(inside):
        notes.warnings.append(
            f"ignored in {path}: {listed(sorted({p.name for p in inside} - {p.name for p in files}))}"
        )
    stems, count = np.unique([p.stem for p in files], return_counts=True)
    for stem in stems[count > 1]:
        notes.problem("file", f"{path}: several files are called '{stem}', and the file name is the client; rename one")
    return files


def _columns_agree(table: Table, first: Table, notes: Notes) -> bool:
    """No column twice, and the same columns as in the first file of a folder."""
    count, expected = Counter(table.names), Counter(first.names)
    repeated = [name for name in count if count[name] > 1]
    for name in repeated:
        notes.problem("repeated", f"{table.file}: {count[name]} columns are called '{name}'; rename all but one")
    lacking = [name for name in expected if name not in count]
    extra = [name for name in count if name not in expected]
    if lacking or extra:
        said = [f"lacks {listed(lacking)}"] * bool(lacking) + [f"has also {listed(extra)}"] * bool(extra)
        notes.problem(
            "columns",
            f"{table.file}: other columns than {first.file.name}: it {' and '.join(said)}; give all files the same",
        )
    return not (repeated or lacking or extra)


def _take(table: Table, wanted: _Wanted, first: _Part | None, notes: Notes) -> _Part:
    """The wanted columns of a table as arrays."""
    names, chosen = _chosen(table, wanted)
    keys = {name for name in names.values() if name is not None}
    if not _is_npz(table) and not keys.issubset(table.names):
        if sum(bool(name.strip()) and is_number(name) for name in table.names) > len(table.names) / 2:
            notes.problem("missing", f"{table.file}, row 1: numbers where the column names should be; add a header row")
            return _Part(table, None, [], None, None, None, names)
        if wanted.features is None:  # a text among the other columns may be the very column that was not found
            chosen = [name for name in chosen if table.column(name).dtype.kind not in "SUO"]
    table, there = _present(table, names, chosen, notes)
    if not chosen and keys <= there:
        notes.problem("features", f"{table.file}: no column is left for the features beside client and label; add some")
    if names["label"] in chosen:
        notes.problem(
            "features", f"{table.file}, column '{names['label']}': is label and feature; take it out of these"
        )
    if any(not name.strip() for name in there.intersection(chosen)):
        notes.problem("features", f"{table.file}: a column has no name; name it in the header or remove it")
    x, called = feature_array(table, chosen, notes) if chosen and there.issuperset(chosen) else (None, [])
    if x is not None and first is not None and first.x is not None and first.x.shape[1:] != x.shape[1:]:
        notes.problem(
            "shape",
            f"{table.file}: an example has shape {x.shape[1:]}, in {first.table.file.name} {first.x.shape[1:]}; "
            f"make them equal",
        )
        x = None
    values = {role: key_array(table, name, role, notes) if name in there else None for role, name in names.items()}
    if wanted.by_file:
        values["client"] = np.full(table.rows, table.file.stem, object)
    return _Part(table, x, called, **values, names=names)


def _is_npz(table: Table) -> bool:
    return table.file.suffix.lower() == ".npz"


def _chosen(table: Table, wanted: _Wanted) -> tuple[dict[str, str | None], list[str]]:
    """The names of the label, client and split columns (None: there is none), and those of the features."""
    names: dict[str, str | None] = {
        "label": wanted.label or ("y" if _is_npz(table) else "label"),
        "client": None if wanted.by_file else wanted.client or "client",
        "split": wanted.split or ("split" if _holds_splits(table) else None),
    }
    if wanted.features is not None:
        return names, [wanted.features] if isinstance(wanted.features, str) else list(wanted.features)
    others = {*names.values(), "client"} if wanted.by_file else set(names.values())
    return names, ["x"] if _is_npz(table) else [name for name in table.names if name not in others]


def _present(table: Table, names: dict[str, str | None], chosen: list[str], notes: Notes) -> tuple[Table, set[str]]:
    """Which of the columns are there, with as many rows as the features have; the others are noted."""
    existing, there = set(table.names), set()
    if _is_npz(table):  # an archive may hold other arrays of other lengths: the examples say how many rows there are
        lengths = [len(table.column(name)) for name in chosen if name in existing and table.column(name).ndim]
        table = replace(table, rows=lengths[0] if lengths else table.rows)
    for role, name in [*names.items(), *(("features", name) for name in chosen)]:
        if name is None:
            continue
        if name not in existing:
            _note_missing(table, role, name, notes)
        elif _is_npz(table) and table.column(name).shape[:1] != (table.rows,):
            said = f"shape {table.column(name).shape}, but '{chosen[0]}' has {table.rows} rows"
            notes.problem("length", f"{table.file}, array '{name}': {said}; make them fit")
        else:
            there.add(name)
    return table, there


def _holds_splits(table: Table) -> bool:
    if "split" not in table.names:
        return False
    values = table.column("split")
    return values.ndim == 1 and {str(value) for value in values[:1000].tolist()} <= set(SPLITS)


def _note_missing(table: Table, role: str, name: str, notes: Notes) -> None:
    what = "array" if _is_npz(table) else "column"
    remedy = suggest(name, table.names)
    if not remedy.startswith("did"):
        shown = ", ".join(table.names[:20]) + (f", ... ({len(table.names)} in all)" if len(table.names) > 20 else "")
        remedy = f"name the {what} for {role}; there are: {shown}"
    notes.problem("missing", f"{table.file}: no {what} '{name}' for {role}; {remedy}")


def _join(
    path: Path,
    parts: list[_Part],
    task: str,
    share: np.ndarray,
    min_size: int | None,
    seed: int,
    found: dict[str, Any],
    notes: Notes,
) -> Federation | None:
    """All parts as one federation; clients, labels and splits are checked as far as they are there."""
    names = parts[0].names
    found |= {"rows": sum(part.table.rows for part in parts), "label": names["label"]}
    found |= {"client": names["client"] or "file name", "split": names["split"] or "at random"}
    labels = _labels(parts, task, notes)
    split = _split_numbers(parts, notes)
    if labels is not None:
        found["task"] = "classification" if labels[1] else "regression"
    owners = [as_texts(part.client) for part in parts if part.client is not None]
    if len(owners) < len(parts) or (names["split"] and split is None):
        return None
    client, ids = natural(np.concatenate(owners))
    keep = _large(path, client, min_size, notes)
    found["clients"] = len(np.unique(client[keep]))
    if not keep.any():
        return None
    kept, client = np.unique(client[keep], return_inverse=True)
    ids = ids[kept]
    given = names["split"]
    if split is None or given is None:
        _check_sizes(path, client, ids, share, notes)
        split = deal(client, share.tolist(), seed)
    else:
        split = split[keep]
        _check_split(path, client, ids, split, given, notes)
    if labels is None:
        return None
    y, classes = labels[0][keep], labels[1]
    if classes:
        _check_labels(parts, y, classes, client, ids, split, given, notes)
    rows = [part.x for part in parts if part.x is not None]
    if notes.kinds or len(rows) < len(parts):
        return None
    x = np.concatenate(rows) if len(rows) > 1 else rows[0]
    x = x if keep.all() else x[keep]
    called = parts[0].features
    try:
        return from_rows(x, y, client, name=path.stem, ids=ids, classes=classes, features=called, split=split)
    except UserError as error:  # nothing above should let this happen, and if it does it is one more problem
        notes.problem("file", f"{path}: {error}")
        return None


def _labels(parts: list[_Part], task: str, notes: Notes) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Class indexes and the names of the classes, or targets and no names."""
    name = str(parts[0].names["label"])
    raw = [part.label for part in parts if part.label is not None]
    if len(raw) < len(parts):
        return None
    text = any(values.dtype.kind == "O" for values in raw)
    if task == "regression" and text:
        parsed = [
            values if values.dtype.kind != "O" else parse_numbers(part.table, name, values, notes)
            for part, values in zip(parts, raw, strict=True)
        ]
        raw = [values for values in parsed if values is not None]
        if len(raw) < len(parts):
            return None
        text = False
    if len({values.shape[1:] for values in raw}) > 1 or (task == "classification" and raw[0].ndim > 1):
        notes.problem("label", f"{parts[0].table.file}, array '{name}': labels must be one value per row")
        return None
    y = np.concatenate([as_texts(values) for values in raw] if text else raw)
    distinct = len(np.unique(y)) if y.ndim == 1 else 0
    if task == "auto":
        task = "classification" if text or (y.dtype.kind in "biu" and 0 < distinct <= FEW_LABELS) else "regression"
        if task == "regression" and 0 < distinct <= 20 and (y == np.rint(y)).all():
            notes.warnings.append(
                f"column '{name}' holds whole numbers written as decimals and is taken as a regression target; "
                f"if they are classes, set task=classification"
            )
    if task == "regression":
        targets = [_targets(part.table, name, values, notes) for part, values in zip(parts, raw, strict=True)]
        return (np.concatenate(targets), ()) if "label" not in notes.kinds else None
    values, index = np.unique(y, return_inverse=True)
    if distinct == 1 or distinct > max(FEW_LABELS, len(y) // 2):
        notes.warnings.append(f"column '{name}' holds {distinct} class(es) in {len(y)} rows; is it the right column?")
    return index.astype(np.int32), tuple(as_texts(values).tolist())


def _targets(table: Table, name: str, values: np.ndarray, notes: Notes) -> np.ndarray:
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    bad = ~np.isfinite(single).reshape(len(single), -1).all(1)
    if bad.any():
        what = "the label is not finite, or too large for float32"
        notes.cells("label", table, name, np.flatnonzero(bad), what, "mend or remove the row")
    return single


def _split_numbers(parts: list[_Part], notes: Notes) -> np.ndarray | None:
    numbers = []
    for part in parts:
        if part.split is None:
            return None
        texts = as_texts(part.split)
        number = sum((i + 1) * (texts == name) for i, name in enumerate(SPLITS)) - 1
        bad = np.flatnonzero(number < 0)
        if len(bad):
            what = f"{quoted(texts[bad[0]])} is none of train, validation, test"
            notes.cells("split", part.table, str(part.names["split"]), bad, what, "write one of these")
        numbers.append(number)
    return np.concatenate(numbers) if "split" not in notes.kinds else None


def _large(path: Path, client: np.ndarray, min_size: int | None, notes: Notes) -> np.ndarray:
    """The rows of clients that are not below min_size."""
    large = np.bincount(client) >= (min_size or 0)
    if not large.any():
        notes.problem("size", f"{path}: no client has the {min_size} examples that min_size asks for; lower it")
    elif not large.all():
        notes.warnings.append(f"{(~large).sum()} client(s) with fewer than {min_size} examples are left out")
    return large[client]


def _check_sizes(path: Path, client: np.ndarray, ids: np.ndarray, share: np.ndarray, notes: Notes) -> None:
    need, sizes = int((share > 0).sum()), np.bincount(client)
    small = np.flatnonzero(sizes < need)
    if len(small):
        who = ", ".join(f"{quoted(ids[i])} ({sizes[i]})" for i in small[:SHOWN])
        more = f" and {len(small) - SHOWN} more" if len(small) > SHOWN else ""
        notes.problem(
            "size",
            f"{path}: clients with fewer examples than the {need} the split needs: {who}{more}; give them more, "
            f"change the shares, or leave them out with min_size={need} (-D min_size={need})",
        )


def _check_split(path: Path, client: np.ndarray, ids: np.ndarray, split: np.ndarray, column: str, notes: Notes) -> None:
    for number, part in enumerate(SPLITS):
        without = np.flatnonzero(np.bincount(client[split == number], minlength=len(ids)) == 0)
        text = f"{path}, column '{column}': no {part} rows for {len(without)} client(s): {listed(ids[without])}"
        if len(without) and part == "train":
            notes.problem("size", f"{text}; give them some or remove the clients")
        elif len(without):
            notes.warnings.append(text)


def _check_labels(
    parts: list[_Part],
    y: np.ndarray,
    classes: tuple[str, ...],
    client: np.ndarray,
    ids: np.ndarray,
    split: np.ndarray,
    given: str | None,
    notes: Notes,
) -> None:
    """Labels that are tested but never trained, and clients that train on a single class."""
    trained = np.bincount(y[split == 0], minlength=len(classes)) > 0
    for number, part in ((2, "test"), (1, "validation")):
        strange = (split == number) & ~trained[y]
        labels = np.unique(y[strange])
        if len(labels) and given:
            for c in labels[:ALIKE]:
                where, who = _first_row(parts, classes[c]), quoted(ids[client[strange & (y == c)][0]])
                notes.problem(
                    "unknown label",
                    f"{where}: label {quoted(classes[c])} is in {part} (client {who}) but never in train; "
                    f"move a row with it to train or remove it",
                )
        elif len(labels):
            which = listed([classes[c] for c in labels])
            notes.warnings.append(
                f"{len(labels)} label(s) with too few examples are in {part} but not in train: {which}"
            )
    pairs = np.unique(client[split == 0].astype(np.int64) * len(classes) + y[split == 0])
    one = np.flatnonzero(np.bincount(pairs // len(classes), minlength=len(ids)) == 1)
    if len(one):
        notes.warnings.append(f"{len(one)} client(s) with a single class in train: {listed(ids[one])}")


def _first_row(parts: list[_Part], label: str) -> str:
    for part in parts:
        rows = np.flatnonzero(as_texts(part.label) == label) if part.label is not None else np.zeros(0)
        if len(rows):
            return f"{part.table.file}, row {part.table.row(int(rows[0]))}, column '{part.names['label']}'"
    return str(parts[0].table.file)
