"""From a table to the arrays of its examples: which columns are wanted, whether they are there, and what they hold."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from apiece.data.load.cells import is_number
from apiece.data.load.columns import Column, feature_columns, key_array, text_column
from apiece.data.load.notes import Notes, listed
from apiece.data.load.read import Table
from apiece.errors import suggest


class Wanted(NamedTuple):
    """What the user said: which columns are what, and what to do with them. The options are those of `load.inspect`."""

    client: str | None = None
    label: str | None = None
    features: Sequence[str] | str | None = None
    split: str | None = None
    order: str | None = None
    new: str | None = None
    exclude: tuple[str, ...] = ()  # neither features nor anything else
    by_file: bool = False  # the file name is the client
    task: str = "auto"
    classes: tuple[str, ...] = ()  # in this order; else sorted
    dealt: bool = False  # rows, clients and splits are as we dealt them: nothing to mend
    shares: tuple[float, ...] = (0.6, 0.2, 0.2)
    min_size: int | None = None
    gaps: bool = True  # missing values are filled, not refused
    categorical: tuple[str, ...] = ()
    max_levels: int = 50
    length: int = 80
    joined: bool = True  # the texts of a client are one text
    standardize: bool = False
    seed: int = 0

    @property
    def text(self) -> bool:
        """Whether the examples are sequences of characters, which need no label."""
        return self.task == "next_character"


class Taken(NamedTuple):
    """The rows of one file; what is missing or wrong is None, and noted."""

    table: Table
    columns: list[Column] | None
    label: np.ndarray | None
    client: np.ndarray | None
    split: np.ndarray | None
    order: np.ndarray | None
    new: np.ndarray | None
    names: dict[str, str | None]  # of the label, client, split, order and new columns

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of an example, column by column."""
        return [column.values.shape[1:] for column in self.columns or []]


def columns_agree(table: Table, first: Table, notes: Notes) -> bool:
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


def take(table: Table, wanted: Wanted, categorical: Collection[str], first: Taken | None, notes: Notes) -> Taken:
    """The wanted columns of a table as arrays."""
    names, chosen = chosen_names(table, wanted)
    keys = {name for name in names.values() if name is not None}
    if not table.archive and not keys.issubset(table.names):
        if sum(bool(name.strip()) and is_number(name) for name in table.names) > len(table.names) / 2:
            notes.problem("missing", f"{table.file}, row 1: numbers where the column names should be; add a header row")
            return Taken(table, None, None, None, None, None, None, names)
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
    columns = None
    if wanted.text and len(chosen) != 1:
        notes.problem("features", f"{table.file}: texts are one column; name it with features")
    elif wanted.text and there.issuperset(chosen):
        columns = text_column(table, chosen[0], notes)
    elif chosen and there.issuperset(chosen):
        columns = feature_columns(table, chosen, notes, categorical=categorical, gaps=wanted.gaps)
    values = {role: key_array(table, name, role, notes) if name in there else None for role, name in names.items()}
    if wanted.by_file:
        values["client"] = np.full(table.rows, table.file.stem, object)
    part = Taken(table, columns, **values, names=names)
    if columns is None or first is None or first.columns is None or first.shapes == part.shapes:
        return part
    shape = lambda part: part.shapes[0] if len(part.shapes) == 1 else tuple(part.shapes)
    notes.problem(
        "shape",
        f"{table.file}: an example has shape {shape(part)}, in {first.table.file.name} {shape(first)}; make them equal",
    )
    return part._replace(columns=None)


def chosen_names(table: Table, wanted: Wanted) -> tuple[dict[str, str | None], list[str]]:
    """The names of the label, client, split, order and new columns (None: there is none), and those of the features.

    >>> from pathlib import Path
    >>> table = Table(Path("t.csv"), ["client", "age", "label"], 0, lambda name: np.zeros(0), lambda i: i)
    >>> chosen_names(table, Wanted())[1]
    ['age']
    """
    names: dict[str, str | None] = {
        "label": None if wanted.text else wanted.label or ("y" if table.archive else "label"),
        "client": None if wanted.by_file else wanted.client or "client",
        "split": wanted.split,
        "order": wanted.order,
        "new": wanted.new,
    }
    if wanted.features is not None:
        return names, [wanted.features] if isinstance(wanted.features, str) else list(wanted.features)
    if wanted.text:
        return names, ["text"]
    others = {*names.values(), *wanted.exclude, *(["client"] if wanted.by_file else [])}
    return names, ["x"] if table.archive else [name for name in table.names if name not in others]


def other_columns(table: Table, wanted: Wanted) -> list[str]:
    """The columns that nobody gave a role, by name: features unless others are named.

    >>> from pathlib import Path
    >>> table = Table(Path("t.csv"), ["client", "age", "sex", "label"], 0, lambda name: np.zeros(0), lambda i: i)
    >>> other_columns(table, Wanted(exclude=("sex",))), other_columns(table, Wanted(features="age"))
    (['age'], ['sex'])
    """
    names, chosen = chosen_names(table, wanted)
    taken = {*names.values(), *wanted.exclude, *(chosen if wanted.features is not None or wanted.text else [])}
    return [name for name in table.names if name not in taken]


def check_excluded(table: Table, wanted: Wanted, notes: Notes) -> None:
    """What is left out is there, and nothing that is needed.

    >>> from pathlib import Path
    >>> table, notes = Table(Path("t.csv"), ["client", "age"], 0, lambda name: np.zeros(0), lambda i: i), Notes()
    >>> check_excluded(table, Wanted(exclude=("client", "agee")), notes)
    >>> notes.problems
    ["t.csv: 'client' is the client and cannot be left out; take it out of exclude", \
"t.csv: no column 'agee' to leave out; did you mean 'age'?"]
    """
    names, chosen = chosen_names(table, wanted)
    for name in wanted.exclude:
        role = next((role for role, taken in names.items() if taken == name), None)
        if role is not None or name in chosen:
            is_ = f"the {role}" if role is not None else "one of the features named"
            notes.problem("exclude", f"{table.file}: '{name}' is {is_} and cannot be left out; take it out of exclude")
        elif name not in table.names:
            notes.problem("exclude", f"{table.file}: no column '{name}' to leave out; {suggest(name, table.names)}")


def _present(table: Table, names: dict[str, str | None], chosen: list[str], notes: Notes) -> tuple[Table, set[str]]:
    """Which of the columns are there, with as many rows as the features have; the others are noted."""
    existing, there = set(table.names), set()
    if table.archive:  # an archive may hold other arrays of other lengths: the examples say how many rows there are
        lengths = [len(table.column(name)) for name in chosen if name in existing and table.column(name).ndim]
        table = replace(table, rows=lengths[0] if lengths else table.rows)
    for role, name in [*names.items(), *(("features", name) for name in chosen)]:
        if name is None:
            continue
        if name not in existing:
            _note_missing(table, role, name, notes)
        elif table.archive and table.column(name).shape[:1] != (table.rows,):
            said = f"shape {table.column(name).shape}, but '{chosen[0]}' has {table.rows} rows"
            notes.problem("length", f"{table.file}, array '{name}': {said}; make them fit")
        else:
            there.add(name)
    return table, there


def _note_missing(table: Table, role: str, name: str, notes: Notes) -> None:
    what = "array" if table.archive else "column"
    remedy = suggest(name, table.names)
    if not remedy.startswith("did"):
        shown = ", ".join(table.names[:20]) + (f", ... ({len(table.names)} in all)" if len(table.names) > 20 else "")
        remedy = f"name the {what} for {role}; there are: {shown}"
    notes.problem("missing", f"{table.file}: no {what} '{name}' for {role}; {remedy}")
