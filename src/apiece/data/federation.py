"""A federation: clients and their examples, in three splits of one flat array each.

On disk it is a folder of `.npy` files and a `federation.json`, opened memory-mapped.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import statistics, storage
from apiece.data.describe import label_skew, spread_of
from apiece.data.encoding import Encoding
from apiece.data.ids import all_differ, suggest_id
from apiece.data.scaling import Scaling
from apiece.data.splits import SPLITS, Listed, Split
from apiece.errors import UserError, suggest

TASKS = ("classification", "regression", "next_character", "custom")
HITS = ("classification", "next_character")  # tasks in which an answer is right or wrong
_WORDS = ("classes", "features", "notes")


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients and their examples, split into train, validation and test; the same clients in the same order in each.

    `y` indexes `classes` when the task is classification. When it is "next_character", an example is a sequence: x and
    y are [rows, length] indexes of `classes`, the characters, and y is x one character later (-1: there is none).
    `new` holds clients that never train, in the same schema. `notes` are what a reader of results should know.
    `truth` holds what a generator knows: entries whose name starts with "personal" have one row per client, the others
    belong to all ("center"). `encoding` is how the columns of a file became features, `scaling` how these were scaled
    then, if they were: x and y are after both. Every client has at least one training example.

    >>> from apiece.data import from_rows
    >>> rows = np.arange(12.0).reshape(6, 2)
    >>> federation = from_rows(rows, np.array([0, 1, 0, 1, 1, 0]), np.array([0, 0, 0, 1, 1, 1]), classes=("no", "yes"))
    >>> federation.clients, federation.train.rows, federation.test.rows
    (2, 2, 2)
    """

    name: str
    ids: np.ndarray
    train: Split
    validation: Split
    test: Split
    task: str
    classes: tuple[str, ...] = ()
    new: "Federation | None" = None
    truth: dict[str, np.ndarray] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    scaling: Scaling | None = None
    encoding: Encoding | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", np.asarray(self.ids, np.str_))
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "notes", tuple(self.notes))
        if self.task not in TASKS:
            raise UserError(f"unknown task '{self.task}': {suggest(self.task, TASKS)}")
        if self.ids.ndim != 1 or not all_differ(self.ids):
            raise UserError("client ids must be a one-dimensional array without repeats")
        for part in SPLITS:
            self._check_split(part, getattr(self, part))
        if (self.train.sizes == 0).any():
            raise UserError(f"client '{self.ids[self.train.sizes.argmin()]}' has no training examples; drop it")
        for key, value in self.truth.items():
            if key.startswith("personal") and len(value) != self.clients:
                raise UserError(f"truth '{key}' has {len(value)} rows for {self.clients} clients")
        if self.new is not None and self.new.train.x.shape[1:] != self.train.x.shape[1:]:
            raise UserError("the new clients' examples have another shape than the training clients'")

    def _check_split(self, part: str, split: Split) -> None:
        if split.clients != len(self.ids):
            raise UserError(f"the {part} split has {split.clients} clients for {len(self.ids)} ids")
        if split.x.shape[1:] != self.train.x.shape[1:] or split.x.dtype != self.train.x.dtype:
            raise UserError(f"x of the {part} split differs from the train split in shape or dtype")
        if self.task not in ("classification", "next_character"):
            return
        if self.task == "next_character" and split.y.shape != split.x.shape:
            raise UserError(f"of the {part} split, x has shape {split.x.shape} and y {split.y.shape}; make them alike")
        if (self.task == "classification" and split.y.ndim != 1) or split.y.dtype.kind not in "iu":
            raise UserError(f"the labels of the {part} split must be a one-dimensional array of class indexes")
        least = -1 if self.task == "next_character" else 0  # -1 fills up a sequence: no target, and never judged
        if split.rows and not least <= split.y.min() <= split.y.max() < len(self.classes):
            raise UserError(f"the labels of the {part} split must lie in {least}..{len(self.classes) - 1}")

    @property
    def clients(self) -> int:
        """The number of clients that train."""
        return len(self.ids)

    @property
    def binary(self) -> bool:
        """Whether there are two classes; the second is the one to find (a disease, a word)."""
        return self.task == "classification" and len(self.classes) == 2

    def index_of(self, client_id: str) -> int:
        """The index of a client by its id.

        >>> from apiece.data.sources.synthetic import quadratics
        >>> quadratics().index_of("2")
        2
        """
        found = np.flatnonzero(self.ids == str(client_id))
        if len(found):
            return int(found[0])
        raise UserError(f"no client '{client_id}' in {self.name}: {suggest_id(str(client_id), self.ids)}")

    def take(self, clients: Listed) -> "Federation":
        """The federation of the given client indexes only, in that order (a copy; `new` is kept).

        >>> from apiece.data.sources.synthetic import quadratics
        >>> quadratics().take([2, 0]).truth["personal"].tolist()
        [[-1.0, 1.0], [1.0, 1.0]]
        """
        chosen = np.asarray(clients)
        whole = chosen.dtype.kind in "iu" or not chosen.size
        if not whole or ((chosen < 0) | (chosen >= self.clients)).any():
            raise UserError(f"clients are taken by number, 0 to {self.clients - 1}; index_of finds that of an id")
        chosen = chosen.astype(np.int64)
        truth = {k: v[chosen] if k.startswith("personal") else v for k, v in self.truth.items()}
        parts = {part: getattr(self, part).take(chosen) for part in SPLITS}
        return replace(self, ids=self.ids[chosen], truth=truth, **parts)

    def hold_out_clients(self, share: float, seed: int = 0) -> "Federation":
        """Set a share of the clients aside as `new`: they never train, and meet the method only afterwards.

        >>> from apiece.data.sources.synthetic import linear
        >>> federation = linear(clients=20).hold_out_clients(0.1)
        >>> federation.clients, federation.new.clients
        (18, 2)
        """
        if self.new is not None:
            raise UserError(f"{self.name} already has {self.new.clients} new clients")
        held = round(share * self.clients)
        if share == 0:
            return self
        if not 0 < share < 1 or not 0 < held < self.clients:
            raise UserError(
                f"a share of {share} of {self.clients} clients cannot be held out as new clients; "
                f"take a share that leaves at least one client on each side"
            )
        shuffled = np.random.default_rng([seed, 0x6E6577]).permutation(self.clients)
        old, new = np.sort(shuffled[held:]), np.sort(shuffled[:held])
        return replace(self.take(old), new=self.take(new))

    def standardized(self, keep: Sequence[str] = (), together: bool = False) -> "Federation":
        """Every feature with mean 0 and spread 1 over all training examples; new clients and other splits alike.

        The two numbers a feature needs are sums over clients (`data.statistics`), so no row has to move. A constant
        feature becomes 0; features named in `keep`, uint8 pictures and characters stay as they are. `together`: means
        0, and one number for all features that makes their mean spread 1, so that what hardly ever speaks stays soft.

        >>> from apiece.data import from_rows
        >>> rows = np.array([[1.0, 5.0], [3.0, 5.0], [1.0, 5.0], [3.0, 5.0]])
        >>> f = from_rows(rows, np.array([0.5, 1.5, 2.5, 3.5]), np.array([0, 0, 1, 1]), shares=(1, 0, 0))
        >>> f.standardized().train.x.tolist()
        [[-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]]
        """
        if self.train.x.dtype.kind != "f":
            return self
        mean, spread = self.scales()
        if keep:
            kept = np.isin(self.features, list(keep))
            mean, spread = np.where(kept, 0.0, mean), np.where(kept, 1.0, spread)
        if together:
            spread = np.full_like(spread, np.sqrt(np.square(spread).mean()))
        return self.rescaled(Scaling(mean, np.where(spread > 0, spread, 1.0)))

    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard deviation) of every feature over all training examples."""
        return statistics.mean_and_spread(statistics.ask_rows(self.train.x, self.train.offsets))

    def rescaled(self, scaling: Scaling, notes: Sequence[str] = ()) -> "Federation":
        """The examples of all splits and of new clients scaled like this, and notes that say so.

        >>> from apiece.data import from_rows
        >>> f = from_rows(np.array([[60.0], [70.0]]), np.array([5.0, 9.0]), np.array([0, 0]), shares=(1, 0, 0))
        >>> scaled = f.rescaled(Scaling(np.array([65.0]), np.array([5.0]), target_mean=7.0, target_spread=2.0))
        >>> scaled.train.x.tolist(), scaled.train.y.tolist()
        ([[-1.0], [1.0]], [-1.0, 1.0])
        """
        x = lambda part: scaling.inputs(part.x).astype(self.train.x.dtype)
        y = lambda part: scaling.targets(part.y).astype(np.result_type(self.train.y.dtype, np.float32))
        scaled = lambda part: replace(part, x=x(part), y=y(part) if scaling.of_targets else part.y)
        parts = {part: scaled(getattr(self, part)) for part in SPLITS}
        new = None if self.new is None else self.new.rescaled(scaling)
        about: dict[str, Any] = {"new": new, "scaling": scaling.after(self.scaling), "notes": (*self.notes, *notes)}
        return replace(self, **about, **parts)

    def encoded(self, **known: Any) -> "Federation":
        """The federation with more known of its encoding, if it has one; of its new clients alike."""
        if self.encoding is None:
            return self
        new = None if self.new is None else self.new.encoded(**known)
        return replace(self, new=new, encoding=self.encoding.model_copy(update=known))

    def summary(self) -> dict[str, Any]:
        """What is in it: clients, sizes, classes per client, label skew.

        `label_skew` is the mean total-variation distance between a client's label distribution and the pooled one;
        small clients differ by luck alone, so `label_skew_by_chance` is the same after the labels were shuffled.

        >>> from apiece.data.sources.catalog import digits
        >>> report = digits(clients=10, partition="by_classes", k=2).summary()
        >>> report["clients"], sum(report["examples"].values()), report["classes_per_client"]
        (10, 1797, {'min': 2, 'median': 2.0, 'max': 2})
        """
        total = sum(getattr(self, part).sizes for part in SPLITS)
        report: dict[str, Any] = {
            "name": self.name,
            "task": self.task,
            "clients": self.clients,
            "new_clients": self.new.clients if self.new is not None else 0,
            "examples": {part: getattr(self, part).rows for part in SPLITS},
            "examples_per_client": spread_of(total),
            "train_examples_per_client": spread_of(self.train.sizes),
            "feature_shape": list(self.train.x.shape[1:]),
            "dtype": str(self.train.x.dtype),
        }
        if self.task == "classification":
            owner = np.concatenate([getattr(self, part).owner for part in SPLITS])
            y = np.concatenate([getattr(self, part).y for part in SPLITS])
            held, skew = label_skew(owner, y, self.clients, len(self.classes))
            shuffled = np.random.default_rng(0).permutation(y)
            report["classes"] = len(self.classes)
            report["classes_per_client"] = spread_of(held)
            report["label_skew"] = round(skew, 6)
            report["label_skew_by_chance"] = round(label_skew(owner, shuffled, self.clients, len(self.classes))[1], 6)
        elif self.task == "next_character":
            report["characters"] = len(self.classes)
        return report | ({"notes": list(self.notes)} if self.notes else {})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a folder of `.npy` files and `federation.json`; whole or not at all, and never over something else.

        >>> import tempfile
        >>> from apiece.data.sources.synthetic import quadratics
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(p.name for p in quadratics().save(folder + "/toy").iterdir())[:3]
        ['federation.json', 'ids.npy', 'test.offsets.npy']
        """
        return storage.write_folder(Path(path), *self._described(""))

    def _described(self, prefix: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What goes into the JSON file, and the arrays by name."""
        described: dict[str, Any] = {
            "name": self.name,
            "task": self.task,
            "classes": list(self.classes),
            "features": list(self.features),
            "notes": list(self.notes),
            "truth": sorted(self.truth),
            "scaling": None if self.scaling is None else self.scaling.as_dict(),
            "encoding": None if self.encoding is None else self.encoding.as_dict(),
            "new": None,
        }
        arrays = {f"{prefix}ids": self.ids} | {f"{prefix}truth.{key}": value for key, value in self.truth.items()}
        for part in SPLITS:
            split = getattr(self, part)
            arrays |= {f"{prefix}{part}.{key}": getattr(split, key) for key in ("x", "y", "offsets")}
        if self.new is not None:
            described["new"], more = self.new._described(f"{prefix}new.")
            arrays |= more
        return described, arrays

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Federation":
        """Open a folder written by `save`; x and y stay on disk, memory-mapped, until they are read.

        >>> import tempfile
        >>> from apiece.data.sources.synthetic import quadratics
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Federation.load(quadratics().save(folder + "/toy")).truth["personal"][0].tolist()
        [1.0, 1.0]
        """
        return cls._opened(Path(path), storage.read_described(Path(path)), "")

    @classmethod
    def _opened(cls, folder: Path, described: dict[str, Any], prefix: str) -> "Federation":
        kinds: dict[str, Any] = {"name": str, "task": str, "new": dict | None}
        kinds |= dict.fromkeys(("scaling", "encoding"), dict | None)
        kinds |= dict.fromkeys(("classes", "features", "notes", "truth"), list)
        described = {"notes": [], "scaling": None, "encoding": None, **described}  # older folders have none
        for key, kind in kinds.items():
            if key not in described or not isinstance(described[key], kind):
                raise UserError(f"{folder / storage.DESCRIBED} has no valid '{key}'; the federation is damaged")
        parts: dict[str, Any] = {}
        for part in SPLITS:
            x, y = (storage.read_array(folder, f"{prefix}{part}.{key}", mapped=True) for key in ("x", "y"))
            offsets = storage.read_array(folder, f"{prefix}{part}.offsets")
            try:
                parts[part] = Split(x, y, offsets)
            except UserError as error:
                raise UserError(f"{folder / prefix}{part}.offsets.npy: {error}; the federation is damaged") from error
        ids = storage.read_array(folder, f"{prefix}ids")
        truth = {str(key): storage.read_array(folder, f"{prefix}truth.{key}") for key in described["truth"]}
        new = cls._opened(folder, described["new"], f"{prefix}new.") if described["new"] is not None else None
        words: dict[str, Any] = {key: tuple(str(word) for word in described[key]) for key in _WORDS}
        try:
            scaling = None if described["scaling"] is None else Scaling.from_dict(described["scaling"])
            encoding = None if described["encoding"] is None else Encoding.from_dict(described["encoding"])
            about: dict[str, Any] = {"task": described["task"], "truth": truth, "new": new}
            about |= {"scaling": scaling, "encoding": encoding}
            return cls(described["name"], ids, **about, **parts, **words)
        except UserError as error:
            raise UserError(f"{folder}: {error}; the federation is damaged") from error
