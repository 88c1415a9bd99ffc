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
from apiece.data.load.columns import Column
from apiece.data.load.notes import leave_out
from apiece.errors import UserError

MISSING = "missing"


class Encoded(NamedTuple):
    """The array, the names of its columns, which of these were made up here, and in words what was done."""

    x: np.ndarray
    names: list[str]
    made: list[str]
    filled: list[str]
    levels: list[str]


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
    if len(columns) == 1 and columns[0].values.ndim > 2:
        return Encoded(columns[0].values, [], [], [], [])
    whole = Encoded(np.zeros(0), [], [], [], [])
    blocks = []
    for column in columns:
        if column.categorical:
            block, called = _one_hot(column, train, max_levels)
            whole.levels.append(f"'{column.name}': {len(called)} levels")
            whole.made.extend(called)
        else:
            block, called = _filled(column, train, whole)
        blocks.append(block)
        whole.names.extend(called)
    return whole._replace(x=np.concatenate(blocks, axis=1))


def _one_hot(column: Column, train: np.ndarray, max_levels: int) -> tuple[np.ndarray, list[str]]:
    cells = np.array([MISSING if cell is None else cell for cell in column.values], np.str_)
    levels, index = np.unique(cells, return_inverse=True)
    known = np.bincount(index[train], minlength=len(levels)) > 0
    levels = levels[known]
    if len(levels) > max_levels:
        raise UserError(
            f"column '{column.name}' has {len(levels)} levels in training, more than max_levels={max_levels}; leave it "
            f"out ({leave_out(column.name)}), merge levels, or raise max_levels (-D max_levels={len(levels)})"
        )
    place = np.where(known, np.cumsum(known) - 1, -1)[index]
    return (place[:, None] == np.arange(len(levels))).astype(np.float32), [f"{column.name}={level}" for level in levels]


def _median(values: np.ndarray, name: str) -> float:
    if len(values) == 0:
        raise UserError(f"column '{name}' is missing in all training rows; leave it out of the features")
    return float(statistics.medians(statistics.ask_rows(values[:, None]))[0])


def _filled(column: Column, train: np.ndarray, whole: Encoded) -> tuple[np.ndarray, list[str]]:
    values = column.values.reshape(len(column.values), -1)
    width = values.shape[1]
    names = [column.name] if width == 1 else [f"{column.name}[{j}]" for j in range(width)]
    if values.dtype.kind != "f" or not (gaps := np.isnan(values)).any():
        return values, names
    done, called = [], []
    for j, name in enumerate(names):
        value, gap = values[:, j], gaps[:, j]
        done.append(value)
        called.append(name)
        if not gap.any():
            continue
        middle = _median(value[train & ~gap], name)
        done[-1] = np.where(gap, np.float32(middle), value)
        whole.filled.append(f"'{name}': {gap.sum()} of {len(gap)} missing, filled with the median {middle:.6g}")
        if gap[train].any():  # an indicator that is never 1 in training would have no weight to learn
            done.append(gap.astype(np.float32))
            called.append(f"{name} {MISSING}")
            whole.made.append(called[-1])
    return np.stack(done, axis=1), called
