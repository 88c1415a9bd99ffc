"""A federation: every client's examples in one flat array per split, with offsets.

Client i owns the rows `offsets[i]:offsets[i + 1]` of a split, so nothing is padded, client sizes may follow any law,
and a million clients cost three arrays. On disk it is a folder of `.npy` files and a `federation.json`, opened
memory-mapped.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data import statistics, storage
from apiece.errors import UserError, suggest

FAR_FROM_UNIT = 20.0  # a feature whose mean or spread exceeds this needs scaling
_WORDS = ("classes", "features", "notes")
SPLITS = ("train", "validation", "test")
TASKS = ("classification", "regression", "next_character", "custom")
HITS = ("classification", "next_character")  # tasks in which an answer is right or wrong
Listed = Sequence[Any] | np.ndarray  # one entry per row


@dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split: client i owns the rows from `offsets[i]` up to `offsets[i + 1]`.

    `x` is [rows, ...] (uint8 stays uint8; may be memory-mapped); `y` is [rows] int32 class indexes, or float targets.

    >>> split = Split(x=np.eye(3), y=np.array([0, 1, 1], np.int32), offsets=np.array([0, 1, 3]))
    >>> split.clients, split.rows, split.sizes.tolist()
    (2, 3, [1, 2])
    >>> split.client(1)[1].tolist()
    [1, 1]
    """

    x: np.ndarray
    y: np.ndarray
    offsets: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", np.asarray(self.offsets, np.int64))
        if self.offsets.ndim != 1 or len(self.offsets) < 2:
            raise UserError("offsets must be one-dimensional with one more entry than there are clients")
        if self.offsets[0] != 0 or (np.diff(self.offsets) < 0).any():
            raise UserError("offsets must start at 0 and never decrease")
        if not self.offsets[-1] == len(self.x) == len(self.y):
            raise UserError(f"x has {len(self.x)} rows, y has {len(self.y)}, but the offsets end at {self.offsets[-1]}")

    @property
    def sizes(self) -> np.ndarray:
        """The number of examples of each client."""
        return np.diff(self.offsets)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.offsets) - 1

    @property
    def rows(self) -> int:
        """The number of examples of all clients together."""
        return int(self.offsets[-1])

    @property
    def owner(self) -> np.ndarray:
        """The client index of every row."""
        return np.repeat(np.arange(self.clients), self.sizes)

    def client(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Views of client i's x and y."""
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return self.x[rows], self.y[rows]

    def take(self, clients: np.ndarray) -> "Split":
        """The split of the given client indexes only, in that order (a copy)."""
        sizes = self.sizes[clients]
        offsets = offsets_of(sizes)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][clients] - offsets[:-1], sizes)
        return Split(self.x[rows], self.y[rows], offsets)


@dataclass(frozen=True, eq=False)
class Federation:
    """Clients and their examples, split into train, validation and test; the same clients in the same order in each.

    `y` indexes `classes` when the task is classification. When it is "next_character", an example is a sequence: x and
    y are [rows, length] indexes of `classes`, the characters, and y is x one character later (-1: there is none).
    `new` holds clients that never train, in the same schema. `notes` are what a reader of results should know.
    `truth` holds what a generator knows: entries whose name starts with "personal" have one row per client, the others
    belong to all ("center"). Every client has at least one training example.

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

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", np.asarray(self.ids, np.str_))
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "notes", tuple(self.notes))
        if self.task not in TASKS:
            raise UserError(f"unknown task '{self.task}': {suggest(self.task, TASKS)}")
        if self.ids.ndim != 1 or not _all_differ(self.ids):
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
        raise UserError(f"no client '{client_id}' in {self.name}: {_suggest_id(str(client_id), self.ids)}")

    def take(self, clients: Listed) -> "Federation":
        """The federation of the given client indexes only, in that order (a copy; `new` is kept).

        >>> from apiece.data.sources.synthetic import quadratics
        >>> quadratics().take([2, 0]).truth["personal"].tolist()
        [[-1.0, 1.0], [1.0, 1.0]]
        """
        chosen = np.asarray(clients, np.int64)
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
        return self._rescaled(mean, np.where(spread > 0, spread, 1.0))

    def scales(self) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard deviation) of every feature over all training examples."""
        return statistics.mean_and_spread(self.train.x, self.train.offsets)

    def scale_warnings(self) -> list[str]:
        """A warning if features are far from unit scale: one step size for all of them then crawls or blows up.

        >>> f = from_rows(np.array([[60.0], [70.0], [80.0]]), np.zeros(3), np.zeros(3, int), features=("age",))
        >>> print(f.scale_warnings()[0].split(";")[0])
        features far from unit scale, up to 60: 'age'
        """
        if self.train.x.dtype.kind != "f" or self.train.x.ndim != 2 or self.task == "custom":
            return []
        size = np.maximum(*map(np.abs, self.scales()))
        far = np.flatnonzero(size > FAR_FROM_UNIT)
        if not len(far):
            return []
        names = [f"'{self.features[k]}'" if self.features else str(k) for k in far]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        return [
            f"features far from unit scale, up to {size.max():.3g}: {shown}; training may crawl or diverge. "
            "Scale them, or let apiece do it with standardize=true (-D standardize=true)"
        ]

    def _rescaled(self, mean: np.ndarray, spread: np.ndarray) -> "Federation":
        scaled = lambda x: ((x - mean) / spread).astype(self.train.x.dtype)
        parts = {part: replace(getattr(self, part), x=scaled(getattr(self, part).x)) for part in SPLITS}
        new = None if self.new is None else self.new._rescaled(mean, spread)
        return replace(self, new=new, **parts)

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
            "examples_per_client": _spread(total),
            "train_examples_per_client": _spread(self.train.sizes),
            "feature_shape": list(self.train.x.shape[1:]),
            "dtype": str(self.train.x.dtype),
        }
        if self.task == "classification":
            owner = np.concatenate([getattr(self, part).owner for part in SPLITS])
            y = np.concatenate([getattr(self, part).y for part in SPLITS])
            held, skew = _label_skew(owner, y, self.clients, len(self.classes))
            shuffled = np.random.default_rng(0).permutation(y)
            report["classes"] = len(self.classes)
            report["classes_per_client"] = _spread(held)
            report["label_skew"] = round(skew, 6)
            report["label_skew_by_chance"] = round(_label_skew(owner, shuffled, self.clients, len(self.classes))[1], 6)
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
        return storage.write(Path(path), *self._described(""))

    def _described(self, prefix: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What goes into the JSON file, and the arrays by name."""
        described: dict[str, Any] = {
            "name": self.name,
            "task": self.task,
            "classes": list(self.classes),
            "features": list(self.features),
            "notes": list(self.notes),
            "truth": sorted(self.truth),
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
        kinds |= dict.fromkeys(("classes", "features", "notes", "truth"), list)
        described = {"notes": [], **described}  # folders written before there were notes have none
        for key, kind in kinds.items():
            if key not in described or not isinstance(described[key], kind):
                raise UserError(f"{folder / storage.DESCRIBED} has no valid '{key}'; the federation is damaged")
        parts: dict[str, Any] = {}
        for part in SPLITS:
            x, y = (storage.read(folder, f"{prefix}{part}.{key}", mapped=True) for key in ("x", "y"))
            offsets = storage.read(folder, f"{prefix}{part}.offsets")
            try:
                parts[part] = Split(x, y, offsets)
            except UserError as error:
                raise UserError(f"{folder / prefix}{part}.offsets.npy: {error}; the federation is damaged") from error
        ids = storage.read(folder, f"{prefix}ids")
        truth = {str(key): storage.read(folder, f"{prefix}truth.{key}") for key in described["truth"]}
        new = cls._opened(folder, described["new"], f"{prefix}new.") if described["new"] is not None else None
        words: dict[str, Any] = {key: tuple(str(word) for word in described[key]) for key in _WORDS}
        try:
            return cls(described["name"], ids, task=described["task"], truth=truth, new=new, **parts, **words)
        except UserError as error:
            raise UserError(f"{folder}: {error}; the federation is damaged") from error


def from_rows(
    x: Listed,
    y: Listed,
    client: Listed,
    *,
    name: str = "rows",
    ids: Sequence[str] | np.ndarray | None = None,
    classes: Sequence[str] = (),
    features: Sequence[str] = (),
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    split: Listed | None = None,
    notes: Sequence[str] = (),
    seed: int = 0,
) -> Federation:
    """A federation from flat rows, the client index of each row, and labels (`classes` given) or targets.

    Labels of shape [rows, length] are sequences of characters.

    Each client's rows are dealt to train, validation and test by `shares` (see `deal`), or by `split`, an array with
    0, 1 or 2 for each row. Rows keep their order within a client and a split.

    >>> x = np.arange(10, dtype=np.uint8)[:, None]
    >>> f = from_rows(x, np.arange(10) % 2, np.arange(10) // 5, ids=["a", "b"], classes=("even", "odd"))
    >>> f.train.sizes.tolist(), f.validation.sizes.tolist(), f.test.sizes.tolist()
    ([3, 3], [1, 1], [1, 1])
    """
    x, y, client = np.asanyarray(x), np.asarray(y), np.asarray(client)
    clients = len(ids) if ids is not None else int(client.max(initial=-1)) + 1
    if not len(client) == len(x) == len(y):
        raise UserError(f"x has {len(x)} rows, y {len(y)} and client {len(client)}; they must be as many")
    if len(client) == 0 or client.min() < 0 or client.max() >= clients:
        raise UserError(f"client indexes must lie in 0..{clients - 1} and there must be at least one row")
    names = np.asarray(ids) if ids is not None else ids_of(clients)
    sizes = np.bincount(client, minlength=clients)
    if (sizes == 0).any():
        raise UserError(f"client '{names[sizes.argmin()]}' has no examples; drop it")
    if classes:
        y = y.astype(np.int32, copy=False)
    elif y.dtype != np.float64:
        y = y.astype(np.float32, copy=False)
    number = deal(client, shares, seed) if split is None else np.asarray(split)
    by_client = np.argsort(client, kind="stable")
    parts: dict[str, Any] = {}
    for i, part in enumerate(SPLITS):
        rows = by_client[number[by_client] == i]
        parts[part] = Split(x[rows], y[rows], offsets_of(np.bincount(client[rows], minlength=clients)))
    task = "regression" if not classes else "classification" if y.ndim == 1 else "next_character"
    words: dict[str, Any] = {"classes": tuple(classes), "features": tuple(features), "notes": tuple(notes)}
    return Federation(name, names, task=task, **words, **parts)


def deal(
    client: Listed, shares: Sequence[float] = (0.6, 0.2, 0.2), seed: int = 0, in_order: bool = False
) -> np.ndarray:
    """Deal every client's rows to train (0), validation (1) and test (2) by shares, at random.

    `in_order` deals in time instead: a client's first rows train, the last ones test. Each client keeps at least one
    row in train; a client with three rows or more has at least one in each split whose share is not zero.

    >>> np.bincount(deal(np.zeros(10, int), shares=(0.5, 0.3, 0.2))).tolist()
    [5, 3, 2]
    >>> deal(np.zeros(5, int), in_order=True).tolist()
    [0, 0, 0, 1, 2]
    """
    share = check_shares(shares)
    owners = np.asarray(client)
    sizes = np.bincount(owners)
    wanted = np.floor(sizes[:, None] * share[None, 1:] + 0.5).astype(np.int64)
    wanted = np.where((sizes[:, None] >= 3) & (share[None, 1:] > 0), np.maximum(wanted, 1), wanted)
    for column in (0, 1):  # rounding may have asked for more rows than there are: give back until train has one
        excess = np.maximum(wanted.sum(1) - np.maximum(sizes - 1, 0), 0)
        keep = ((sizes >= 3) & (share[1 + column] > 0)).astype(np.int64)
        wanted[:, column] -= np.minimum(excess, np.maximum(wanted[:, column] - keep, 0))
    last_first = np.arange(len(owners))[::-1]
    shuffled = last_first if in_order else np.random.default_rng([seed, 0x6465616C]).permutation(len(owners))
    order = shuffled[np.argsort(owners[shuffled], kind="stable")]
    owner = owners[order]
    rank = np.arange(len(owners)) - offsets_of(sizes)[:-1][owner]
    split = np.empty(len(owners), np.int8)
    in_test = rank < wanted[owner, 1]
    in_held_out = rank < wanted[owner].sum(1)
    split[order] = np.where(in_test, 2, np.where(in_held_out, 1, 0))
    return split


def check_shares(shares: Sequence[float]) -> np.ndarray:
    """The shares of train, validation and test as an array that sums to 1, or an error that says what is wrong.

    >>> check_shares((8, 1, 1)).tolist()
    [0.8, 0.1, 0.1]
    """
    share = np.asarray(shares, np.float64)
    if share.shape != (3,) or not np.isfinite(share).all() or (share < 0).any() or share[0] == 0:
        raise UserError(f"shares {tuple(shares)} must be three numbers (train, validation, test), train above zero")
    return share / share.sum()


def offsets_of(sizes: Listed) -> np.ndarray:
    """Where each client's rows begin, and at the end their number.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def ids_of(clients: int) -> np.ndarray:
    """The ids of clients that have no names: their numbers.

    >>> ids_of(3).tolist()
    ['0', '1', '2']
    """
    return np.arange(clients).astype(f"U{len(str(max(clients - 1, 0)))}")


def _spread(values: np.ndarray) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}


def _label_skew(owner: np.ndarray, y: np.ndarray, clients: int, classes: int) -> tuple[np.ndarray, float]:
    """Classes held by each client, and the mean over clients of sum_c max(p_client(c) - p_pooled(c), 0).

    That sum is the total-variation distance, and only runs over classes the client has: clients x classes may be huge.
    """
    pairs, count = np.unique(owner * classes + y, return_counts=True)
    who, what = np.divmod(pairs, classes)
    pooled = np.bincount(y, minlength=classes) / len(y)
    sizes = np.bincount(owner, minlength=clients)
    excess = np.maximum(count / sizes[who] - pooled[what], 0)
    return np.bincount(who, minlength=clients), float(excess.sum() / clients)


def _all_differ(ids: np.ndarray) -> bool:
    """Whether no id repeats. Sorting a million strings takes seconds; sorting their hashes a tenth of that."""
    if ids.dtype.itemsize == 0:
        return len(ids) <= 1
    letters = np.ascontiguousarray(ids).view(np.uint32).reshape(len(ids), -1).astype(np.uint64)
    hashed = np.zeros(len(ids), np.uint64)
    for column in letters.T:
        hashed = (hashed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    hashed.sort()
    return bool((hashed[1:] != hashed[:-1]).all()) or len(set(ids.tolist())) == len(ids)


def _suggest_id(word: str, ids: np.ndarray) -> str:
    """`suggest` compares with every name: fine for hundreds, so look among the ids with the longest common prefix."""
    near = ids
    for end in range(1, len(word) + 1):
        narrower = near[np.char.startswith(near, word[:end])]
        if len(narrower) == 0:
            break
        near = narrower
    tail = suggest(word, near[:500].tolist())
    if len(ids) > 20 and tail.startswith("known: "):
        return f"there are {len(ids)} clients, such as " + ", ".join(f"'{i}'" for i in ids[:3])
    return tail
