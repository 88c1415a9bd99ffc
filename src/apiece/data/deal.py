"""Flat rows become a federation: each client's are dealt to train, validation and test."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from apiece.data.federation import Federation
from apiece.data.ids import number_clients, suggest_id
from apiece.data.labels import check_finite, is_text, number_labels
from apiece.data.splits import SPLITS, Listed, Split, offsets_of
from apiece.errors import UserError


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
    """A federation from flat rows, the client of each row, and labels (`classes` given) or targets.

    A row's client is its place in `ids`, or its name; a label is the number of its class, or its name. Labels of shape
    [rows, length] are sequences of characters.

    Each client's rows are dealt to train, validation and test by `shares` (see `deal`), or by `split`, an array with
    0, 1 or 2 for each row. Rows keep their order within a client and a split.

    >>> x = np.arange(10, dtype=np.uint8)[:, None]
    >>> f = from_rows(x, np.arange(10) % 2, np.arange(10) // 5, ids=["a", "b"], classes=("even", "odd"))
    >>> f.train.sizes.tolist(), f.validation.sizes.tolist(), f.test.sizes.tolist()
    ([3, 3], [1, 1], [1, 1])
    >>> from_rows(x, np.arange(10.0), np.repeat(["b", "a"], 5)).ids.tolist()
    ['a', 'b']
    """
    x, y, client = np.asanyarray(x), np.asarray(y), np.asarray(client)
    if is_text(client) and client.size:
        client, ids = _number_names(client.astype(str), ids)
    if is_text(y) and classes and y.size:
        y = number_labels(y, tuple(classes))
    _check_numbers(x, y, client, bool(classes))
    clients = len(ids) if ids is not None else int(client.max(initial=-1)) + 1
    if not len(client) == len(x) == len(y):
        raise UserError(f"x has {len(x)} rows, y {len(y)} and client {len(client)}; they must be as many")
    if len(client) == 0 or client.min() < 0 or client.max() >= clients:
        raise UserError(f"client indexes must lie in 0..{clients - 1} and there must be at least one row")
    names = np.asarray(ids) if ids is not None else number_clients(clients)
    sizes = np.bincount(client, minlength=clients)
    if (sizes == 0).any():
        raise UserError(f"client '{names[sizes.argmin()]}' has no examples; drop it")
    if classes:
        y = y.astype(np.int32, copy=False)
    elif y.dtype != np.float64:
        y = y.astype(np.float32, copy=False)
    number = deal(client, shares, seed) if split is None else np.asarray(split)
    if number.shape != client.shape or not np.isin(number, range(len(SPLITS))).all():
        raise UserError(f"split needs 0 (train), 1 (validation) or 2 (test) for each of {len(client)} rows")
    by_client = np.argsort(client, kind="stable")
    parts: dict[str, Any] = {}
    for i, part in enumerate(SPLITS):
        rows = by_client[number[by_client] == i]
        parts[part] = Split(x[rows], y[rows], offsets_of(np.bincount(client[rows], minlength=clients)))
    task = "regression" if not classes else "classification" if y.ndim == 1 else "next_character"
    words: dict[str, Any] = {"classes": tuple(classes), "features": tuple(features), "notes": tuple(notes)}
    return Federation(name, names, task=task, **words, **parts)


def _number_names(client: np.ndarray, ids: Sequence[str] | np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(the number of each row's client, everybody's names): in the order of `ids` or, without, of the alphabet."""
    names, number = np.unique(client, return_inverse=True)
    if ids is None:
        return number, names
    known = np.asarray(ids).astype(str)
    places = {name: at for at, name in enumerate(known.tolist())}
    for name in names.tolist():
        if name not in places:
            raise UserError(f"client '{name}' of row {int((client == name).argmax())} is not among the ids: "
                            f"{suggest_id(name, known)}")  # fmt: skip
    return np.array([places[name] for name in names.tolist()])[number], known


def _check_numbers(x: np.ndarray, y: np.ndarray, client: np.ndarray, labels: bool) -> None:
    """What must be numbers is, before NumPy says something about casts."""
    if client.dtype.kind not in "iu":
        raise UserError(f"client holds {client.dtype}, neither the whole number nor the name of each row's client; "
                        "make it so: ids, client = np.unique(client, return_inverse=True)")  # fmt: skip
    check_finite("x", x)
    if labels and (y.dtype.kind not in "biuf" or (y.dtype.kind == "f" and (y != np.floor(y)).any())):
        raise UserError("y must hold the number of each row's class, whole numbers from 0; make it so: "
                        "classes, y = np.unique(y, return_inverse=True)")  # fmt: skip
    if not labels and y.dtype.kind not in "biuf":
        raise UserError(f"y holds {y.dtype}, not amounts; if these are labels, name them: classes=[...]")
    check_finite("y", y)


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
    if seed < 0:
        raise UserError(f"seed = {seed} is wrong: a seed is not negative")
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
