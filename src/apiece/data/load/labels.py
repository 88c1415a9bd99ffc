"""From the label column to class indexes, or to targets: which of the two it is, and what is wrong with it."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from apiece.data.load.cells import is_nearly_number
from apiece.data.load.columns import as_texts, parse_numbers
from apiece.data.load.names import strip_names, warn_of_near_names
from apiece.data.load.notes import Notes
from apiece.data.load.read import Table
from apiece.data.load.take import Taken

FEW_LABELS = 100  # integers with at most so many distinct values are classes, not amounts
FEW_CLASSES = 20  # as many whole decimals, or numbers in other dress, may be classes


def read_labels(
    parts: Sequence[Taken], task: str, notes: Notes, order: Sequence[str] = ()
) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """Class indexes and the names of the classes (in `order`, if that is given), or targets and no names."""
    name = str(parts[0].names["label"])
    raw = [part.label for part in parts if part.label is not None]
    if len(raw) < len(parts):
        return None
    text = any(values.dtype.kind == "O" for values in raw)
    if task == "auto" and text and _are_nearly_numbers(raw):
        task = "regression"  # whose numbers are then named as what they are
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
    if order and set(y.tolist()) <= set(order):
        place = {name: i for i, name in enumerate(order)}
        return np.array([place[name] for name in y.tolist()], np.int32), tuple(order)
    if text:
        y = strip_names(y, f"labels in column '{name}'", notes)
        warn_of_near_names(Counter(y.tolist()), f"labels in column '{name}'", notes)
    distinct = len(np.unique(y)) if y.ndim == 1 else 0
    if task == "auto":
        task = "classification" if text or (y.dtype.kind in "biu" and 0 < distinct <= FEW_LABELS) else "regression"
        if task == "regression" and 0 < distinct <= FEW_CLASSES and (y == np.rint(y)).all():
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


def _are_nearly_numbers(raw: Sequence[np.ndarray]) -> bool:
    """Whether texts are numbers in other dress, such as "3,5", and too many for classes."""
    cells = Counter(cell for values in raw for cell in values.tolist())
    nearly = sum(count for cell, count in cells.items() if isinstance(cell, str) and is_nearly_number(cell))
    return len(cells) > FEW_CLASSES and nearly > cells.total() / 2


def _targets(table: Table, name: str, values: np.ndarray, notes: Notes) -> np.ndarray:
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    bad = ~np.isfinite(single).reshape(len(single), -1).all(1)
    if bad.any():
        what = "the label is not finite, or too large for float32"
        notes.cells("label", table, name, np.flatnonzero(bad), what, "mend or remove the row")
    return single
