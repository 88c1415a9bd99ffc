"""From feature columns to one array: gaps are filled and words become numbers, by rules fitted on training rows alone.

- A missing number becomes the median of its column; a column of its own, 1 where the value was missing, says so.
- A categorical column becomes one column of 0 and 1 for each level found in training; a missing cell is a level of its
  own, "missing"; a level that training never saw is all zeros.

What the rules need of the clients are counts (`data.statistics.median`) and names of levels; no row has to move.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from apiece.data import statistics
from apiece.data.encoding import MISSING, Encoding, Levels, Numbers
from apiece.data.load.columns import Column
from apiece.data.load.notes import leave_out
from apiece.errors import UserError


class Encoded(NamedTuple):
    """The array, the rules that made it, which of its columns were made up here, and in words what was done."""

    x: np.ndarray
    encoding: Encoding
    made: list[str]
    filled: list[str]
    levels: list[str]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.encoding.features)


def encode(columns: Sequence[Column], train: np.ndarray, *, max_levels: int = 50) -> Encoded:
    """One array from feature columns; `train` says which rows are for training: the rules come from these.

    A single array of more than two dimensions keeps its shape, and bytes stay bytes if all columns are.

    >>> columns = [Column("age", np.array([30, np.nan, 50, 90], np.float32)),
    ...            Column("town", np.array(["oslo", "rome", "oslo", "lima"], object))]
    >>> done = encode(columns, train=np.array([True, True, True, False]))
    >>> done.names
    ['age', 'age missing', 'town=oslo', 'town=rome']
    >>> done.x.tolist()
    [[30.0, 0.0, 1.0, 0.0], [40.0, 1.0, 0.0, 1.0], [50.0, 0.0, 1.0, 0.0], [90.0, 0.0, 0.0, 0.0]]
    >>> done.filled, done.levels
    (["'age': 1 of 4 missing, filled with the median 40"], ["'town': 2 levels"])
    """
    made: list[str] = []
    filled: list[str] = []
    levels: list[str] = []
    rules: list[Numbers | Levels] = []
    for column in columns:
        if column.categorical:
            known = _levels(column, train, max_levels)
            levels.append(f"'{column.name}': {len(known.levels)} levels")
            made += known.features
            rules.append(known)
        else:
            rules.append(_numbers(column, train, made, filled))
    dtype = np.result_type(*(np.float32 if column.categorical else column.values.dtype for column in columns))
    encoding = Encoding(columns=tuple(rules), dtype=str(dtype))
    x = encoding.encode({column.name: column.values for column in columns})
    return Encoded(x, encoding, made, filled, levels)


def _levels(column: Column, train: np.ndarray, max_levels: int) -> Levels:
    cells = [MISSING if cell is None else str(cell) for cell in column.values[train]]
    found = Levels(name=column.name, levels=tuple(np.unique(np.array(cells, np.str_)).tolist()))
    if len(found.levels) > max_levels:
        raise UserError(
            f"column '{column.name}' has {len(found.levels)} levels in training, more than max_levels={max_levels}; "
            f"leave it out ({leave_out(column.name)}), merge levels, or raise max_levels (-D "
            f"max_levels={len(found.levels)})"
        )
    return found


def _median(values: np.ndarray, name: str) -> float:
    if len(values) == 0:
        raise UserError(f"column '{name}' is missing in all training rows; leave it out of the features")
    return float(statistics.medians(statistics.ask_rows(values[:, None]))[0])


def _numbers(column: Column, train: np.ndarray, made: list[str], filled: list[str]) -> Numbers:
    values = column.values.reshape(len(column.values), -1)
    plain = Numbers(name=column.name, shape=column.values.shape[1:])
    if values.dtype.kind != "f" or not (gaps := np.isnan(values)).any():
        return plain
    fill: list[float | None] = []
    for name, value, gap in zip(plain.features, values.T, gaps.T, strict=True):
        fill.append(_median(value[train & ~gap], name) if gap.any() else None)
        if gap.any():
            filled.append(f"'{name}': {gap.sum()} of {len(gap)} missing, filled with the median {fill[-1]:.6g}")
    marked = gaps[train].any(0).tolist()  # an indicator that is never 1 in training would have no weight to learn
    made += [f"{name} {MISSING}" for name, told in zip(plain.features, marked, strict=True) if told]
    return plain.model_copy(update={"fill": tuple(fill), "marked": tuple(marked)})
