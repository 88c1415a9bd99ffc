"""From a path to tables: one file, a folder with a file for each client, pictures, texts, or LEAF's JSON."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.load import images, leaf
from apiece.data.load.columns import as_texts
from apiece.data.load.dealt import as_dealt
from apiece.data.load.notes import Notes, listed
from apiece.data.load.read import SUFFIXES, TEXT, Dialect, Table, read
from apiece.data.load.take import Wanted
from apiece.errors import UserError


def tables_of(
    path: Path, wanted: Wanted, client: Sequence[str], dialect: Dialect, found: dict[str, Any], notes: Notes
) -> tuple[list[Table], Wanted]:
    """The tables at a path, and what is wanted of them, completed by what their format says; `client` are columns."""
    if not path.exists():
        raise UserError(f"{path} does not exist; check the path")
    if leaf.is_leaf(path):
        found |= {"format": "LEAF"}
        table, length = leaf.read_leaf(path, wanted.shares, wanted.seed)
        split, new = ("split" if "split" in table.names else None), ("new" if "new" in table.names else None)
        wanted = wanted._replace(client="user", split=split, new=new, label="y", features="x")
        return [table], wanted._replace(task="next_character", joined=False, length=length) if length else wanted
    if images.is_folder_of_images(path):
        found |= {"format": "images"}
        table = images.read_images(path, notes)
        found |= {"files": table.rows}
        return [table], wanted._replace(client="client", label="label", features="image")
    files = _files(path, notes)
    found |= {"format": "folder" if path.is_dir() else path.suffix[1:].lower(), "files": len(files)}
    wanted = wanted._replace(by_file=path.is_dir() and not client)
    if files[0].suffix.lower() == TEXT:
        wanted = wanted._replace(task="next_character")
    tables = []
    text = (*(client or ("client",)), wanted.split or "split")
    for file in files:
        try:
            table = read(file, text=text, dialect=dialect)
        except UserError as error:
            notes.problem("file", str(error))
            continue
        found.setdefault("columns", table.names)
        for problem in table.problems or [f"{file} has no rows; remove it or fill it"] * (table.rows == 0):
            notes.problem("row", problem)
        tables.append(with_joined(table, client) if len(client) > 1 else table)
    if len(files) == 1 and tables and tables[0].about:
        table, wanted = as_dealt(tables[0], wanted)
        return [table], wanted
    return tables, wanted


def with_joined(table: Table, names: Sequence[str]) -> Table:
    """The table with several columns made one: "play", "role" become "play / role".

    >>> columns = {"play": np.array(["Lear"]), "role": np.array(["Fool"])}
    >>> table = with_joined(Table(Path("t.csv"), list(columns), 1, columns.get, lambda i: i), ["play", "role"])
    >>> table.names, table.column("play / role").tolist()
    (['play / role'], ['Lear / Fool'])
    """
    lacking = [name for name in names if name not in table.names]
    if lacking:
        raise UserError(f"{table.file}: no column {listed(lacking)} for client; there are: {', '.join(table.names)}")
    whole = " / ".join(names)

    def column(name: str) -> np.ndarray:
        if name != whole:
            return table.column(name)
        joined = zip(*(as_texts(table.column(one)).tolist() for one in names), strict=True)
        return np.array([" / ".join(cells) for cells in joined], object)

    return replace(table, names=[*(name for name in table.names if name not in names), whole], column=column)


def _files(path: Path, notes: Notes) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        inside = sorted(p for p in path.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    files = [p for p in inside if p.suffix.lower() in SUFFIXES and p.is_file()]
    # Texts count only among themselves: beside tables, a text is a README.
    files = files or [p for p in inside if p.suffix.lower() == TEXT and p.is_file()]
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
