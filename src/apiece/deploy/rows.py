"""A site's own rows: read once, told of in counts and sums, and made examples as all sites agreed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apiece.data import Federation
from apiece.data.deal import from_rows
from apiece.data.encoding import MISSING, Encoding, Levels, Numbers
from apiece.data.load.columns import Column, as_texts, feature_columns, key_array
from apiece.data.load.notes import Notes
from apiece.data.load.read import Table, read
from apiece.data.load.split_words import number_splits
from apiece.data.scaling import Scaling
from apiece.data.splits import SPLITS
from apiece.deploy.config import SiteTable
from apiece.errors import UserError

FEW = 100  # whole numbers with at most so many distinct values are classes, not amounts
MOST_LEVELS = 50


class SiteRows(NamedTuple):
    """The columns of a site's file, its labels as they are written, and each row's part (0 train, 1, 2)."""

    where: str
    columns: dict[str, Column]
    label: np.ndarray
    part: np.ndarray
    classes: tuple[str, ...] = ()  # in their order, if the data say it

    def survey(self) -> dict[str, Any]:
        """What the server needs to know to find rules for all sites: names, kinds, words, counts and sums; no row."""
        train = self.part == 0
        told: dict[str, Any] = {"columns": {}, "order": list(self.classes)}
        for name, column in self.columns.items():
            if column.categorical:
                words = {MISSING if cell is None else str(cell) for cell in column.values[train]}
                if len(words) > MOST_LEVELS:
                    raise UserError(f"{self.where}: column '{name}' has {len(words)} different words; leave it out "
                                    f"(exclude = [\"{name}\"])")  # fmt: skip
                told["columns"][name] = {"kind": "words", "levels": sorted(words)}
            else:
                gaps = np.isnan(column.values) if column.values.dtype.kind == "f" else np.zeros(1, bool)
                told["columns"][name] = {
                    "kind": "numbers",
                    "shape": list(column.values.shape[1:]),
                    "dtype": str(column.values.dtype),
                    "gaps": bool(gaps.any()),
                    "gaps_in_training": bool(gaps[train].any()) if gaps.ndim and len(gaps) == len(train) else False,
                }
        told["sizes"] = {name: int((self.part == number).sum()) for number, name in enumerate(SPLITS)}
        told["label"] = self._label()
        return told

    def _label(self) -> dict[str, Any]:
        words = self.label.dtype.kind not in "biuf"
        whole = not words and bool((self.label == np.rint(self.label)).all())
        texts = as_texts(self.label) if words or (whole and len(np.unique(self.label)) <= FEW) else None
        told: dict[str, Any] = {"kind": "words" if words else "whole" if texts is not None else "numbers"}
        for number, name in enumerate(SPLITS):
            mine = self.part == number
            if texts is not None:
                names, counts = np.unique(texts[mine], return_counts=True)
                told.setdefault("counts", {})[name] = dict(zip(names.tolist(), counts.tolist(), strict=True))
            if not words:
                values = self.label[mine].astype(np.float64)
                told.setdefault("sums", {})[name] = [float(values.sum()), float((values**2).sum())]
        return told

    def values(self, name: str) -> np.ndarray:
        """A column of numbers of the training rows, a row each."""
        values = self.columns[name].values[self.part == 0]
        return values.reshape(len(values), -1).astype(np.float32)

    def examples(
        self, encoding: Encoding, classes: tuple[str, ...], scaling: Scaling | None
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Part by part, examples and targets by the rules that all sites agreed on."""
        self._check(encoding)
        x = encoding.encode({name: column.values for name, column in self.columns.items()})
        x = x if scaling is None else scaling.inputs(x).astype(encoding.dtype)
        if classes:
            texts = as_texts(self.label)
            if len(strange := np.setdiff1d(texts, classes)):
                raise UserError(f"{self.where}: the label '{strange[0]}' is none of the classes agreed on: "
                                f"{', '.join(classes[:20])}")  # fmt: skip
            place = {name: number for number, name in enumerate(classes)}
            y: np.ndarray = np.array([place[text] for text in texts.tolist()], np.int32)
        else:
            y = self.label.astype(np.float32) if scaling is None else scaling.targets(self.label).astype(np.float32)
        return {name: (x[self.part == number], y[self.part == number]) for number, name in enumerate(SPLITS)}

    def _check(self, encoding: Encoding) -> None:
        """The same columns, of the same kinds, as all sites agreed on."""
        for rule in encoding.columns:
            mine = self.columns.get(rule.name)
            if mine is None:
                there = ", ".join(list(self.columns)[:20])
                raise UserError(f"{self.where} has no column '{rule.name}', which was agreed on; there are: {there}")
            if mine.categorical != isinstance(rule, Levels):
                was = "words" if isinstance(rule, Levels) else "numbers"
                raise UserError(f"{self.where}: column '{rule.name}' holds {'words' if mine.categorical else 'numbers'}"
                                f", and {was} were agreed on; mend the column at this site")  # fmt: skip
            if isinstance(rule, Numbers) and rule.shape != mine.values.shape[1:]:
                raise UserError(f"{self.where}: an example of '{rule.name}' has shape {mine.values.shape[1:]}, and "
                                f"{rule.shape} was agreed on")  # fmt: skip


def read_rows(site: SiteTable, folder: Path) -> SiteRows:
    """The rows of a site's data file, or of a saved federation; paths are relative to the site's folder."""
    path = Path(site.data).expanduser()
    path = path if path.is_absolute() else folder / path
    if not path.exists():
        raise UserError(f"there are no data at {path}; site.toml names them under 'data'")
    if (path / "federation.json").is_file():
        return _saved(Federation.load(path), site, str(path))
    table = read(path, text=[site.client] if site.client else [])
    if table.problems or not table.rows:
        raise UserError(table.problems[0] if table.problems else f"{path} has no rows; fill it")
    return _from_table(table, site)


def _from_table(table: Table, site: SiteTable) -> SiteRows:
    notes = Notes()
    roles = [name for name in (site.label, site.client, site.split) if name]
    for role in [*roles, *site.exclude, *site.categorical]:
        if role not in table.names:
            raise UserError(f"{table.file} has no column '{role}'; there are: {', '.join(table.names[:20])}")
    names = [name for name in table.names if name not in roles and name not in site.exclude]
    words = [name for name in names if name in site.categorical or table.column(name).dtype.kind in "OSU"]
    columns = feature_columns(table, names, notes, categorical=words)
    label = key_array(table, site.label, "label", notes)
    owner = key_array(table, site.client, "client", notes) if site.client else None
    split = key_array(table, site.split, "split", notes) if site.split else None
    if columns is None or label is None or not names or notes.problems:
        raise UserError(notes.problems[0] if notes.problems else f"{table.file} has no column to learn from")
    mine = np.ones(table.rows, bool) if owner is None else as_texts(owner) == site.name
    if not mine.any():
        raise UserError(f"{table.file}: no row has '{site.name}' in the column '{site.client}', which names its site")
    label = label[mine]
    part = _dealt(len(label), site) if split is None else _said(split[mine], table, site)
    kept = {column.name: Column(column.name, column.values[mine]) for column in columns}
    return _with_training(SiteRows(str(table.file), kept, label, part))


def _dealt(rows: int, site: SiteTable) -> np.ndarray:
    """Each row's part, dealt by chance as a federation's rows are."""
    if rows < 3:
        raise UserError(f"the site '{site.name}' has {rows} rows, and needs at least 3: to train, validate and test")
    made = from_rows(np.arange(rows)[:, None], np.zeros(rows), np.zeros(rows, int), seed=site.seed)
    part = np.zeros(rows, np.int64)
    for number, name in enumerate(SPLITS):
        part[getattr(made, name).x[:, 0]] = number
    return part


def _said(split: np.ndarray, table: Table, site: SiteTable) -> np.ndarray:
    """Each row's part, as a column says it."""
    numbers = number_splits(as_texts(split)).astype(np.int64)
    if (numbers < 0).any():
        raise UserError(f"{table.file}, column '{site.split}': '{split[numbers < 0][0]}' is none of train, validation "
                        "and test")  # fmt: skip
    return numbers


def _saved(federation: Federation, site: SiteTable, where: str) -> SiteRows:
    if federation.clients > 1 or site.client:
        federation = federation.take([federation.index_of(site.name)])
    parts = [getattr(federation, name) for name in SPLITS]
    x, y = np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts])
    label = np.asarray(federation.classes)[y] if federation.classes else y
    part = np.repeat(np.arange(3), [len(one.y) for one in parts])
    return _with_training(SiteRows(where, {"x": Column("x", np.asarray(x))}, label, part, federation.classes))


def _with_training(rows: SiteRows) -> SiteRows:
    if not (rows.part == 0).any():
        raise UserError(f"{rows.where} has no training rows; the split column says train, validation or test")
    return rows


def class_counts(survey: Mapping[str, Any], part: str, classes: tuple[str, ...]) -> list[int]:
    """How many examples of each class a site has in a part."""
    counts = survey["label"].get("counts", {}).get(part, {})
    return [int(counts.get(name, 0)) for name in classes]
