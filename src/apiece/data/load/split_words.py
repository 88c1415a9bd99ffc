"""Which words mean train, validation and test, and which column says them; validation where nobody gave any."""

from collections.abc import Sequence

import numpy as np

from apiece.data.deal import deal
from apiece.data.load.cells import is_blank, of_each
from apiece.data.load.columns import as_texts
from apiece.data.load.notes import Notes, leave_out, listed, quoted
from apiece.data.load.read import Table
from apiece.data.load.take import Taken, Wanted, other_columns
from apiece.data.splits import SPLITS

# Capitals, blanks, "-" and "_" do not count, nor does "set" at the end: "Training Set" is "training".
WORDS: dict[str, tuple[str, ...]] = {
    "train": ("train", "training", "trn"),
    "validation": ("validation", "valid", "val", "validate", "dev", "development"),
    "test": ("test", "testing", "tst", "holdout", "heldout"),
}
EITHER = ("eval", "evaluation")  # the test, or the validation where others are the test
COLUMNS = ("split", "splits", "fold", "folds", "partition", "subset", "set", "datasplit", "datasetsplit", "traintest")
UNDERSTOOD = "train, validation, test, nor another word for them (training, val, valid, dev, testing, eval, holdout)"
LOOK = 1000  # rows; who has not said a split by then says none
TRAIN, VALIDATION, TEST = range(len(SPLITS))


def number_splits(said: np.ndarray) -> np.ndarray:
    """Texts as 0 (train), 1 (validation) and 2 (test); -1 is none of them.

    >>> number_splits(np.array(["Train", " val", "TEST", "tset"])).tolist()
    [0, 1, 2, -1]
    >>> number_splits(np.array(["train", "eval"])).tolist(), number_splits(np.array(["test", "eval"])).tolist()
    ([0, 2], [2, 1])
    """
    distinct, index = np.unique(said, return_inverse=True)
    known = {word: number for number, part in enumerate(SPLITS) for word in WORDS[part]}
    plain = [_plain(word).removesuffix("set") for word in distinct.tolist()]
    either = VALIDATION if any(known.get(word) == TEST for word in plain) else TEST
    known |= dict.fromkeys(EITHER, either)
    return np.array([known.get(word, -1) for word in plain], np.int8)[index]


def settle_split(tables: Sequence[Table], wanted: Wanted, notes: Notes) -> Wanted:
    """What is wanted, with the column that says the split of each row, if there is one; what is unclear is noted.

    A column that says these words and no others is taken unasked. One that is called so and says something else would
    be a feature by accident: it is a problem.

    >>> from pathlib import Path
    >>> columns = {"fold": np.array(["Train", "val", "test"], object), "age": np.arange(3)}
    >>> settle_split([Table(Path("t.csv"), list(columns), 3, columns.get, lambda i: i)], Wanted(), Notes()).split
    'fold'
    """
    first = tables[0]
    free = [name for name in other_columns(first, wanted) if name not in wanted.categorical]
    said = {name: _said(tables, name) for name in free if name == "split" or not first.archive}
    numbers = {name: number_splits(texts) for name, texts in said.items() if texts is not None}
    named = [name for name in numbers if _plain(name) in COLUMNS]
    clear = [name for name, number in numbers.items() if (number >= 0).all() and (name in named or _says_both(number))]
    unclear = [name for name, number in numbers.items() if name not in clear and (name in named or _says_both(number))]
    if wanted.features is not None or wanted.text or first.archive:  # they are no features: some word must be right
        unclear = [name for name in unclear if (numbers[name] >= 0).any()]
    if wanted.split is not None:
        for name in unclear:
            notes.warnings.append(f"column '{name}' is called like a split, but taken as a feature; if it is none, "
                                  f"leave it out ({leave_out(name)})")  # fmt: skip
        return wanted._replace(exclude=(*wanted.exclude, *clear))
    for name in unclear:
        _note_unclear(tables, name, notes)
    if len(clear) > 1:
        notes.problem("split", f"{first.file}: the columns {listed(clear)} all say train and test; choose "
                               f"(--split COLUMN) or leave the others out ({leave_out(*clear[1:])})")  # fmt: skip
    return wanted._replace(split=clear[0]) if clear else wanted


def read_splits(parts: Sequence[Taken], notes: Notes) -> np.ndarray | None:
    """The split of every row, as the column says it; None if there is no such column, or a wrong word in it."""
    name, there = parts[0].names["split"], [part.split for part in parts if part.split is not None]
    if name is None or len(there) < len(parts):
        return None
    number = number_splits(np.concatenate([as_texts(values) for values in there]))
    if (number < 0).any():
        _note_unclear([part.table for part in parts], name, notes)
        return None
    return number


def carve_validation(
    client: np.ndarray,
    split: np.ndarray,
    shares: Sequence[float],
    seed: int,
    time: np.ndarray | None = None,
    label: np.ndarray | None = None,
) -> np.ndarray:
    """The splits with a part of each client's training rows as validation, by `shares`; at random, or the last in time.

    No class loses all its training rows by it.

    >>> carve_validation(np.zeros(6, int), np.array([0, 0, 0, 0, 2, 2]), (0.6, 0.2, 0.2), 0, np.arange(6)).tolist()
    [0, 0, 0, 1, 2, 2]
    """
    rows = np.flatnonzero(split == TRAIN)
    if time is not None:
        rows = rows[np.argsort(time[rows], kind="stable")]
    dealt = deal(client[rows], (shares[0], shares[1], 0), seed, in_order=time is not None)
    carved = split.copy()
    carved[rows[dealt == VALIDATION]] = VALIDATION
    if label is not None:
        lost = np.setdiff1d(label[split == TRAIN], label[carved == TRAIN])
        carved[(split == TRAIN) & np.isin(label, lost)] = TRAIN
    return carved


def lacks_validation(split: np.ndarray) -> bool:
    """Whether somebody gave train and test, but no validation.

    >>> lacks_validation(np.array([0, 2])), lacks_validation(np.array([0, 1, 2])), lacks_validation(np.array([0]))
    (True, False, False)
    """
    return bool((split == TEST).any() and not (split == VALIDATION).any())


def _plain(word: str) -> str:
    return "".join(letter for letter in word.casefold() if letter.isalnum())


def _says_both(number: np.ndarray) -> bool:
    """Whether most cells say train or something held out, and both occur: so no column of vehicles does."""
    return bool((number == TRAIN).any() and (number > TRAIN).any() and (number >= 0).mean() > 0.5)


def _said(tables: Sequence[Table], name: str) -> np.ndarray | None:
    """A column of all tables as texts; None where it cannot say splits: of fractions, say, or of lists."""
    columns = [table.column(name) for table in tables]
    if any(values.ndim != 1 or values.dtype.kind not in "biufSUO" for values in columns):
        return None
    if _plain(name) not in COLUMNS:
        first = [value for values in columns for value in values[:LOOK].tolist() if isinstance(value, str)]
        if (number_splits(np.array(["", *first])) < 0).all():  # so no other text is read in vain
            return None
    texts = [as_texts(values) if values.dtype.kind in "biuf" else _words(values) for values in columns]
    return np.concatenate(texts)


def _words(values: np.ndarray) -> np.ndarray:
    return np.array(of_each(lambda value: "" if is_blank(value) else str(value), values.tolist()), np.str_)


def _note_unclear(tables: Sequence[Table], name: str, notes: Notes) -> None:
    """Name the first rows of each table that say something else."""
    for table in tables:
        said = _said([table], name)
        bad = np.flatnonzero(number_splits(said) < 0) if said is not None else np.zeros(0, int)
        if said is not None and len(bad):
            remedy = f"mend it, leave the column out ({leave_out(name)}), or name the right one (--split COLUMN)"
            notes.cells("split", table, name, bad, f"{quoted(said[bad[0]])} is none of {UNDERSTOOD}", remedy)
