"""What must hold of clients, splits and labels before they are a federation; what does not is noted."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from apiece.data.ids import mix_hash
from apiece.data.load.cells import strip_blanks
from apiece.data.load.columns import Column, as_texts
from apiece.data.load.notes import ALIKE, SHOWN, Notes, leave_out, listed, quoted
from apiece.data.load.take import Taken
from apiece.data.splits import SPLITS


def large(
    path: Path, client: np.ndarray, size: np.ndarray, min_size: int | None, notes: Notes, unit: str = "examples"
) -> np.ndarray:
    """Which rows are of clients that are not below min_size; `size` is what each row counts.

    >>> large(Path("t.csv"), np.array([0, 0, 1]), np.ones(3), 2, Notes()).tolist()
    [True, True, False]
    """
    enough = np.bincount(client, weights=size) >= (min_size or 0)
    if not enough.any():
        notes.problem("size", f"{path}: no client has the {min_size} {unit} that min_size asks for; lower it")
    elif not enough.all():
        notes.warnings.append(f"{(~enough).sum()} client(s) with fewer than {min_size} {unit} are left out")
    return enough[client]


def check_sizes(path: Path, client: np.ndarray, ids: np.ndarray, share: np.ndarray, notes: Notes) -> None:
    """Every client has a row for each split.

    >>> notes = Notes()
    >>> check_sizes(Path("t.csv"), np.array([0]), np.array(["oslo"]), np.array([0.8, 0.0, 0.2]), notes)
    >>> "than the 2 the split needs: 'oslo' (1)" in notes.problems[0]
    True
    """
    need, sizes = int((share > 0).sum()), np.bincount(client)
    small = np.flatnonzero(sizes < need)
    if len(small):
        who = ", ".join(f"{quoted(ids[i])} ({sizes[i]})" for i in small[:SHOWN])
        more = f" and {len(small) - SHOWN} more" if len(small) > SHOWN else ""
        them = f"change the shares, or leave them out with min_size={need} (-D min_size={need})"
        if len(small) == len(ids):
            them = "or name another column that tells clients apart (--client COLUMN)"
        said = f"clients with fewer examples than the {need} the split needs: {who}{more}"
        notes.problem("size", f"{path}: {said}; give them more, {them}")


def check_split(path: Path, client: np.ndarray, ids: np.ndarray, split: np.ndarray, column: str, notes: Notes) -> None:
    """Every client has training rows; that one has no others is a warning.

    >>> notes = Notes()
    >>> check_split(Path("t.csv"), np.array([0]), np.array(["oslo"]), np.array([2]), "part", notes)
    >>> notes.problems
    ["t.csv, column 'part': no train rows for 1 client(s): 'oslo'; give them some or remove the clients"]
    """
    for number, part in enumerate(SPLITS):
        without = np.flatnonzero(np.bincount(client[split == number], minlength=len(ids)) == 0)
        text = f"{path}, column '{column}': no {part} rows for {len(without)} client(s): {listed(ids[without])}"
        if len(without) and part == "train":
            notes.problem("size", f"{text}; give them some or remove the clients")
        elif part == "test" and len(without) == len(ids):
            notes.warnings.append(f"{path}, column '{column}': no test rows, so nothing can be compared; say test in "
                                  f"some rows, or leave the column out ({leave_out(column)})")  # fmt: skip
        elif len(without):
            notes.warnings.append(text)


def check_labels(
    parts: Sequence[Taken],
    y: np.ndarray,
    classes: tuple[str, ...],
    client: np.ndarray,
    ids: np.ndarray,
    split: np.ndarray,
    trains: np.ndarray,
    given: bool,
    notes: Notes,
) -> None:
    """Labels that are tested but never trained, and clients that train on a single class.

    `given`: the splits are the user's, so that a label that only one of them has is the user's to mend.
    """
    trained = np.bincount(y[trains], minlength=len(classes)) > 0
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
    _check_only_trained(classes, y, split, trained, notes)
    pairs = np.unique(client[trains].astype(np.int64) * len(classes) + y[trains])
    one = np.flatnonzero(np.bincount(pairs // len(classes), minlength=len(ids)) == 1)
    if len(one):
        notes.warnings.append(f"{len(one)} client(s) with a single class in train: {listed(ids[one])}")


def check_copies(columns: Sequence[Column], y: np.ndarray, client: np.ndarray, split: np.ndarray, notes: Notes) -> None:
    """Rows of a client that are held out and in training as well, if they are many more than chance makes alike.

    Rows of few possible answers agree by chance. So, unless a column has hardly any value twice, the one with the most
    different values is shuffled within each client: copies that are real are then gone.

    >>> notes, x = Notes(), np.array([[1.5], [2.5], [3.5], [4.5], [5.5], [1.5]], np.float32)
    >>> check_copies([Column("x", x)], np.zeros(6), np.zeros(6, int), np.array([0] * 5 + [2]), notes)
    >>> print(notes.warnings[0].partition(":")[0])
    1 of 1 rows of validation and test are copies of their client's train rows
    """
    if any(column.values.ndim > 2 for column in columns):
        return
    values = (y, *(column.values for column in columns))
    cells = [_as_whole(one) for several in values for one in several.reshape(len(y), -1).T]
    held, copies = split > 0, _copies(cells, client, split)
    if not copies:
        return
    different = [len(np.unique(one)) for one in cells]
    most = int(np.argmax(different))
    mixed = np.random.default_rng(0).permutation(len(y))
    mixed = mixed[np.argsort(client[mixed], kind="stable")]
    cells[most][np.argsort(client, kind="stable")] = cells[most][mixed]
    if different[most] > len(y) / 2 or copies > 3 * _copies(cells, client, split):
        notes.warnings.append(
            f"{copies} of {held.sum()} rows of validation and test are copies of their client's train rows: results "
            f"look better than they are; remove copies, or keep them in one split (--split COLUMN)"
        )


def _copies(cells: Sequence[np.ndarray], client: np.ndarray, split: np.ndarray) -> int:
    """How many rows that are held out are equal to one of the same client's that is not."""
    row = client.astype(np.uint64)
    for one in cells:
        row = mix_hash(row, one)
    return int(np.isin(row[split > 0], row[split == 0]).sum())


def _as_whole(cells: np.ndarray) -> np.ndarray:
    if cells.dtype.kind == "O":
        number = {cell: i for i, cell in enumerate(dict.fromkeys(cells.tolist()))}
        return np.array([number[cell] for cell in cells.tolist()], np.uint64)
    return cells.astype(np.float64).view(np.uint64).copy()


def check_clients(ids: np.ndarray, column: str | None, notes: Notes) -> None:
    """There is somebody to learn with.

    >>> notes = Notes()
    >>> check_clients(np.array(["oslo"]), "clinic", notes)
    >>> notes.warnings
    ["one client only, 'oslo': nobody to learn with; name the column that tells clients apart (--client, now 'clinic')"]
    """
    if len(ids) == 1:
        now = f"now '{column}'" if column else "now the file name"
        notes.warnings.append(f"one client only, {quoted(ids[0])}: nobody to learn with; name the column that tells "
                              f"clients apart (--client, {now})")  # fmt: skip


def _check_only_trained(
    classes: tuple[str, ...], y: np.ndarray, split: np.ndarray, trained: np.ndarray, notes: Notes
) -> None:
    only = np.flatnonzero(trained & (np.bincount(y[split > 0], minlength=len(classes)) == 0))
    if len(only) and (split > 0).any():
        notes.warnings.append(f"{len(only)} class(es) in train only, so nobody is tested on them: "
                              f"{listed([classes[c] for c in only])}; give them more rows, or merge them")  # fmt: skip


def _first_row(parts: Sequence[Taken], label: str) -> str:
    for part in parts:
        said = as_texts(part.label) if part.label is not None else np.zeros(0, np.str_)
        rows = np.flatnonzero(np.array([strip_blanks(text) for text in said.tolist()], np.str_) == label)
        if len(rows):
            return f"{part.table.file}, row {part.table.row(int(rows[0]))}, column '{part.names['label']}'"
    return str(parts[0].table.file)
