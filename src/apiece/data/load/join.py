"""From the examples of all files to one federation: clients, labels and splits are settled and checked."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.data.deal import deal, from_rows
from apiece.data.encoding import Encoding
from apiece.data.federation import Federation
from apiece.data.load.checks import check_clients, check_copies, check_labels, check_sizes, check_split, large
from apiece.data.load.columns import Column, as_texts, categorical_columns
from apiece.data.load.encode import encode
from apiece.data.load.labels import read_labels
from apiece.data.load.names import strip_names, warn_of_near_names
from apiece.data.load.notes import Notes, listed, quoted
from apiece.data.load.read import Table
from apiece.data.load.split_words import carve_validation, lacks_validation, read_splits, settle_split
from apiece.data.load.suspects import leave_out_indexes, warn_of_columns
from apiece.data.load.take import Taken, Wanted, check_excluded, chosen_names, columns_agree, take
from apiece.data.load.texts import cut, vocabulary
from apiece.data.partition import natural
from apiece.data.splits import SPLITS
from apiece.data.unit_scale import scale_warnings
from apiece.errors import UserError

YES, NO = ("1", "true", "yes"), ("0", "false", "no")


def federate(
    path: Path, tables: Sequence[Table], wanted: Wanted, found: dict[str, Any], notes: Notes
) -> Federation | None:
    """The federation in some tables, or None with notes that say why there is none. `found` gets what was found.

    >>> columns = {"client": np.array(["a"] * 5), "age": np.arange(5.0), "label": np.arange(5) % 2}
    >>> table = Table(Path("t.csv"), list(columns), 5, columns.get, lambda i: i + 2)
    >>> federate(Path("t.csv"), [table], Wanted(), {}, Notes()).features
    ('age',)
    """
    agreeing = [table for table in tables if table.rows and columns_agree(table, tables[0], notes)]
    if not agreeing:
        return None
    first = agreeing[0]
    check_excluded(first, wanted, notes)
    wanted = leave_out_indexes(agreeing, settle_split(agreeing, wanted, notes), notes)
    roles, features = chosen_names(first, wanted)
    categorical = {*wanted.categorical, *(() if wanted.text else categorical_columns(agreeing, features))}
    for name in sorted(set(wanted.categorical).difference(features)):
        notes.problem("missing", f"{first.file}: categorical '{name}' is none of the features: {listed(features)}")
    if not wanted.text and not wanted.dealt:
        warn_of_columns(agreeing, features, categorical, roles["label"], notes)
    parts: list[Taken] = []
    for table in agreeing:
        table = replace(table, names=first.names)
        parts.append(take(table, wanted, categorical, parts[0] if parts else None, notes))
    names = parts[0].names
    found |= {"left_out": list(wanted.exclude)} if wanted.exclude else {}
    found |= {"rows": sum(part.table.rows for part in parts), "label": names["label"] or "the next character"}
    said = "in time" if wanted.text and not names["order"] else "at random"
    said = f"in order of {names['order']}" if names["order"] else said
    found |= {"client": names["client"] or "file name", "split": names["split"] or said}
    return (_join_texts if wanted.text else _join)(path, parts, wanted, found, notes)


class _Rows(NamedTuple):
    """Which rows are kept, whose they are, their split (None: not given), and which clients are new."""

    keep: np.ndarray
    client: np.ndarray
    ids: np.ndarray
    split: np.ndarray | None
    new: np.ndarray


def _rows(
    path: Path, parts: list[Taken], wanted: Wanted, size: np.ndarray, found: dict[str, Any], notes: Notes
) -> _Rows | None:
    """Whose the rows are, and what is said of their splits; `size` is what a row counts for min_size."""
    names = parts[0].names
    split = read_splits(parts, notes)
    owners = [as_texts(part.client) for part in parts if part.client is not None]
    if len(owners) < len(parts) or (names["split"] and split is None):
        return None
    owner = np.concatenate(owners)
    if wanted.dealt:
        ids = np.array(list(dict.fromkeys(owner.tolist())), np.str_)
        client = np.argsort(ids)[natural(owner)[0]]
    else:
        client, ids = natural(strip_names(owner, "client names", notes))
        warn_of_near_names(dict(zip(ids.tolist(), np.bincount(client).tolist(), strict=True)), "clients", notes)
    check_clients(ids, names["client"], notes)
    keep = large(path, client, size, wanted.min_size, notes, "characters" if wanted.text else "examples")
    found["clients"] = len(np.unique(client[keep]))
    if not keep.any():
        return None
    kept, client = np.unique(client[keep], return_inverse=True)
    new = _new_clients(parts, client, ids[kept], keep, notes)
    return None if new is None else _Rows(keep, client, ids[kept], None if split is None else split[keep], new)


def _dealt(
    path: Path, parts: list[Taken], rows: _Rows, label: np.ndarray | None, wanted: Wanted, notes: Notes
) -> np.ndarray:
    """The split of every row: as given, or in order, or at random. `label` are the classes, if they are known."""
    given, order = parts[0].names["split"], _joined([part.order for part in parts])
    if rows.split is not None and given is not None:
        time = None if order is None else order[rows.keep]
        split = _completed(path, parts, rows.client, rows.split, time, label, wanted, notes)
        check_split(path, rows.client, rows.ids, split, given, notes)
        return split
    check_sizes(path, rows.client, rows.ids, np.asarray(wanted.shares), notes)
    if order is None:
        return deal(rows.client, wanted.shares, wanted.seed)
    in_time = np.argsort(order[rows.keep], kind="stable")
    split = np.empty(len(in_time), np.int8)
    split[in_time] = deal(rows.client[in_time], wanted.shares, in_order=True)
    return split


def _join(path: Path, parts: list[Taken], wanted: Wanted, found: dict[str, Any], notes: Notes) -> Federation | None:
    """All parts as one federation; clients, labels and splits are checked as far as they are there."""
    labels = read_labels(parts, wanted.task, notes, wanted.classes)
    if labels is not None:
        found["task"] = "classification" if labels[1] else "regression"
    size = np.ones(sum(part.table.rows for part in parts))
    rows = _rows(path, parts, wanted, size, found, notes)
    if rows is None:
        return None
    label = labels[0][rows.keep] if labels is not None and labels[1] else None
    split = _dealt(path, parts, rows, label, wanted, notes)
    if labels is None:
        return None
    y, classes = labels[0][rows.keep], labels[1]
    trains = (split == 0) & ~rows.new[rows.client]
    if classes:
        given = rows.split is not None and not wanted.dealt
        check_labels(parts, y, classes, rows.client, rows.ids, split, trains, given, notes)
    columns = _columns(parts)
    if notes.kinds or columns is None:
        return None
    if not rows.keep.all():
        columns = [column._replace(values=column.values[rows.keep]) for column in columns]
    if not wanted.dealt:
        check_copies(columns, y, rows.client, split, notes)
    try:
        x, encoding, made, filled, levels = encode(columns, trains, max_levels=wanted.max_levels)
        found |= {key: value for key, value in (("filled", filled), ("one_hot", levels)) if value}
        called: dict[str, Any] = dict(classes=classes, features=encoding.features, notes=notes.warnings)
        federation = from_rows(x, y, rows.client, name=path.stem, ids=rows.ids, split=split, **called)
        federation = replace(federation, encoding=_with_roles(encoding, parts[0]))
    except UserError as error:
        notes.problem("features", f"{path}: {error}")
        return None
    federation = _apart(federation, rows.new)
    if wanted.standardize:
        found["scaled"] = "features to mean 0 and spread 1 in training" + (", but for those made here" if made else "")
        return federation.standardized(keep=made)
    notes.warnings += scale_warnings(federation, "they are scaled for training, unless standardize = false")
    return federation


def _join_texts(
    path: Path, parts: list[Taken], wanted: Wanted, found: dict[str, Any], notes: Notes
) -> Federation | None:
    """All texts as one federation of sequences."""
    found["task"] = wanted.task
    columns = _columns(parts)
    texts = [""] * sum(part.table.rows for part in parts) if columns is None else columns[0].values.tolist()
    size = np.array([len(text) for text in texts])
    rows = _rows(path, parts, wanted, size, found, notes)
    order = _joined([part.order for part in parts])
    if rows is None or columns is None or notes.kinds:
        return None
    in_time = np.arange(rows.keep.sum()) if order is None else np.argsort(order[rows.keep], kind="stable")
    kept = np.flatnonzero(rows.keep)[in_time]
    owner = rows.client[in_time]
    part = np.zeros(len(owner), np.int64) if rows.split is None else rows.split[in_time]
    group = owner * len(SPLITS) + part if wanted.joined else np.arange(len(owner))
    windows, row = cut([texts[i] for i in kept], group, wanted.length)
    client, given = owner[row], part[row]
    need = int((np.asarray(wanted.shares) > 0).sum()) if rows.split is None else 1
    few = np.flatnonzero(np.bincount(client, minlength=len(rows.ids)) < need)
    if len(few):
        least = need * wanted.length + 1
        notes.problem(
            "size",
            f"{path}: {len(few)} client(s) with less than {need} sequences of {wanted.length} characters: "
            f"{listed(rows.ids[few])}; give them more text, or leave them out with min_size={least} "
            f"(-D min_size={least})",
        )
        return None
    split = deal(client, wanted.shares, in_order=True) if rows.split is None else given
    if rows.split is not None:
        split = _completed(path, parts, client, split, np.arange(len(split)), None, wanted, notes)
        check_split(path, client, rows.ids, split, str(parts[0].names["split"]), notes)
    if notes.kinds:
        return None
    known, tokens = vocabulary(windows, (split == 0) & ~rows.new[client])
    x, y = tokens[:, :-1], tokens[:, 1:]
    federation = from_rows(x, y, client, name=path.stem, ids=rows.ids, classes=known, split=split, notes=notes.warnings)
    return _apart(federation, rows.new)


def _completed(
    path: Path,
    parts: list[Taken],
    client: np.ndarray,
    split: np.ndarray,
    time: np.ndarray | None,
    label: np.ndarray | None,
    wanted: Wanted,
    notes: Notes,
) -> np.ndarray:
    """The splits that a column says, with validation carved from train where it says none."""
    if wanted.dealt or wanted.shares[1] == 0 or not lacks_validation(split):
        return split
    share = wanted.shares[1] / (wanted.shares[0] + wanted.shares[1])
    which = "at random" if time is None else "the last ones"
    notes.warnings.append(f"{path}, column '{parts[0].names['split']}': no validation rows; {share:.0%} of each "
                          f"client's train rows, {which}, are taken for it")  # fmt: skip
    return carve_validation(client, split, wanted.shares, wanted.seed, time, label)


def _apart(federation: Federation, new: np.ndarray) -> Federation:
    """The new clients set apart from those that train."""
    if not new.any():
        return federation
    return replace(federation.take(np.flatnonzero(~new)), new=federation.take(np.flatnonzero(new)))


def _with_roles(encoding: Encoding, first: Taken) -> Encoding:
    """The encoding, with what the other columns are."""
    used = {column.name for column in encoding.columns}
    others = tuple(name for name in first.table.names if name not in used)
    return encoding.model_copy(update={"label": first.names["label"], "others": others})


def _columns(parts: list[Taken]) -> list[Column] | None:
    """The feature columns of all parts, end to end."""
    there = [part.columns for part in parts if part.columns is not None]
    if len(there) < len(parts):
        return None
    return [
        Column(same[0].name, same[0].values if len(same) == 1 else np.concatenate([column.values for column in same]))
        for same in zip(*there, strict=True)
    ]


def _joined(values: list[np.ndarray | None]) -> np.ndarray | None:
    there = [value for value in values if value is not None]
    if not there or len(there) < len(values):
        return None
    alike = len({value.dtype.kind == "O" for value in there}) == 1
    return np.concatenate(there if alike else [as_texts(value) for value in there])


def _new_clients(
    parts: list[Taken], client: np.ndarray, ids: np.ndarray, keep: np.ndarray, notes: Notes
) -> np.ndarray | None:
    """Which clients never train, by the column that says so; None with a note if it is not clear."""
    new, name = _joined([part.new for part in parts]), parts[0].names["new"]
    if name is None:
        return np.zeros(len(ids), bool)
    if new is None:
        return None
    said = np.char.lower(as_texts(new)[keep].astype(np.str_))
    strange = said[~np.isin(said, YES + NO)]
    if len(strange):
        notes.problem("new", f"{parts[0].table.file}, column '{name}': {quoted(strange[0])} is neither 1 nor 0")
        return None
    share = np.bincount(client, weights=np.isin(said, YES)) / np.bincount(client)
    mixed = np.flatnonzero((share > 0) & (share < 1))
    if len(mixed):
        who = listed(ids[mixed])
        notes.problem("new", f"{parts[0].table.file}, column '{name}': {who} is new in some rows only; make them alike")
    if share.min() == 1:
        notes.problem("new", f"{parts[0].table.file}, column '{name}': all clients are new, so none can train")
    return share == 1 if "new" not in notes.kinds else None
