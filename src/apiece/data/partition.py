"""Who gets which example: ways to cut one data set into clients, each an array with the client index of every example.

Every example goes to exactly one client, the same seed gives the same cut, and a cut that cannot be made is an error
that says why. The two Dirichlet schemes share a name in the literature and are not the same:

- `dirichlet_per_class`: each *class* is spread over the clients by proportions ~ Dir(alpha). Client sizes come out
  uneven, the more so the smaller alpha; clients may differ as much in size as in labels.
- `dirichlet_per_client`: each *client* draws its own label distribution ~ Dir(alpha) and then that many examples.
  Client sizes are set (equal, or a power law); only the labels differ.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apiece.data.deal import from_rows
from apiece.data.federation import Federation
from apiece.data.splits import Listed
from apiece.errors import UserError
from apiece.registry import Registry


def iid(n: int, clients: int, *, min_size: int = 1, seed: int = 0) -> np.ndarray:
    """Every client a random share of the n examples, sizes equal up to one.

    >>> np.bincount(iid(10, 3)).tolist()
    [4, 3, 3]
    """
    _check(n, clients, min_size)
    return np.random.default_rng(seed).permutation(np.arange(n) % clients)


def power_law(n: int, clients: int, *, exponent: float = 1.0, min_size: int = 1, seed: int = 0) -> np.ndarray:
    """Random shares of unequal size: the r-th largest client has min_size plus a part proportional to r^-exponent.

    >>> np.sort(np.bincount(power_law(100, 4)))[::-1].tolist()
    [47, 24, 16, 13]
    """
    _check(n, clients, min_size)
    rng = np.random.default_rng(seed)
    return rng.permutation(np.repeat(np.arange(clients), _sizes(rng, n, clients, exponent, min_size)))


def by_classes(
    labels: Listed, clients: int, *, k: int = 2, exponent: float = 0.0, min_size: int = 1, seed: int = 0
) -> np.ndarray:
    """Every client holds exactly k classes; each class is held by as many clients as any other, up to one.

    The examples of a class are shared equally by its holders, or, with an exponent, in proportion to client weights
    that follow a power law (the usual "two digits each, power-law sizes").

    >>> labels = np.repeat([0, 1, 2], 20)
    >>> client = by_classes(labels, clients=6, k=2)
    >>> [len(set(labels[client == i].tolist())) for i in range(6)]
    [2, 2, 2, 2, 2, 2]
    """
    names, label = np.unique(np.asarray(labels), return_inverse=True)
    classes = len(names)
    _check(len(label), clients, min_size)
    if not 1 <= k <= classes:
        raise UserError(f"k={k} classes per client, but the data has {classes} classes; take k in 1..{classes}")
    if clients * k < classes:
        raise UserError(
            f"{clients} clients with {k} classes each leave some of the {classes} classes to nobody; "
            f"take at least {-(-classes // k)} clients or a larger k"
        )
    rng = np.random.default_rng(seed)
    held = _classes_held(rng, clients, classes, k)
    weight = rng.permutation(np.arange(1, clients + 1) ** -float(exponent))
    client = np.empty(len(label), np.int64)
    order = np.argsort(label, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(label))])
    for c in range(classes):
        rows = rng.permutation(order[begin[c] : begin[c + 1]])
        holders = rng.permutation(np.flatnonzero((held == c).any(1)))
        if len(rows) < len(holders):
            raise UserError(
                f"class '{names[c]}' has {len(rows)} examples for the {len(holders)} clients that hold it; "
                f"take fewer clients or a smaller k"
            )
        client[rows] = np.repeat(holders, 1 + _apportion(len(rows) - len(holders), weight[holders]))
    return _large_enough(client, clients, min_size, "take fewer clients, a larger k or a smaller exponent")


def dirichlet_per_class(
    labels: Listed, clients: int, *, alpha: float = 0.5, min_size: int = 1, seed: int = 0
) -> np.ndarray:
    """Spread each class over the clients by proportions ~ Dir(alpha, ..., alpha), one entry per client.

    Sizes are uneven; draws with a client below min_size are repeated, a limited number of times. Yurochkin et al. 2019;
    NIID-Bench (Li et al. 2022).

    >>> np.bincount(dirichlet_per_class(np.repeat([0, 1], 50), clients=4, alpha=1.0, min_size=5)).min() >= 5
    np.True_
    """
    names, label = np.unique(np.asarray(labels), return_inverse=True)
    _check(len(label), clients, min_size)
    _check_alpha(alpha)
    rng = np.random.default_rng(seed)
    count = np.bincount(label)
    tries = int(np.clip(20_000_000 // (clients * len(names)), 20, 1000))
    best = -1
    for _ in range(tries):
        ends = np.cumsum(_dirichlet(rng, alpha, len(names), clients), axis=1) * count[:, None]
        quota = np.diff(np.rint(ends).astype(np.int64), axis=1, prepend=0)
        best = max(best, int(quota.sum(0).min()))
        if best >= min_size:
            break
    else:
        raise UserError(
            f"in {tries} draws of dirichlet_per_class with alpha={alpha} the smallest of {clients} clients never had "
            f"more than {best} examples (min_size={min_size}); take a larger alpha, fewer clients, or "
            f"dirichlet_per_client, whose sizes are set"
        )
    return _hand_out(rng, label, quota.T)


def dirichlet_per_client(
    labels: Listed,
    clients: int,
    *,
    alpha: float = 0.5,
    exponent: float = 0.0,
    min_size: int = 1,
    seed: int = 0,
) -> np.ndarray:
    """Each client draws its own label distribution ~ Dir(alpha, ..., alpha), one entry per class, then its examples.

    Sizes are equal up to one, or follow a power law with the given exponent. All clients draw at once; when a class
    runs out, those left short draw again among the classes that remain, until the pool is empty. Hsu, Qi and Brown
    2019, whose alpha is this one times the number of classes.

    >>> np.bincount(dirichlet_per_client(np.repeat([0, 1], 50), clients=4, alpha=0.1)).tolist()
    [25, 25, 25, 25]
    """
    names, label = np.unique(np.asarray(labels), return_inverse=True)
    _check(len(label), clients, min_size)
    _check_alpha(alpha)
    rng = np.random.default_rng(seed)
    short = _sizes(rng, len(label), clients, exponent, min_size)
    taste = _dirichlet(rng, alpha, clients, len(names))
    left = np.bincount(label)
    quota = np.zeros((clients, len(names)), np.int64)
    while short.any():  # each pass empties a class or ends: at most as many passes as classes
        who = np.flatnonzero(short)
        p = taste[who] * (left > 0)
        total = p.sum(1, keepdims=True)
        p = np.where(total > 1e-12, p / np.maximum(total, 1e-300), left / left.sum())
        p /= p.sum(1, keepdims=True)
        wish = rng.multinomial(short[who], p)
        served = rng.permutation(len(who))
        before = np.cumsum(wish[served], axis=0) - wish[served]
        given = np.empty_like(wish)
        given[served] = np.clip(left - before, 0, wish[served])
        quota[who] += given
        short[who] -= given.sum(1)
        left = left - given.sum(0)
    return _hand_out(rng, label, quota)


def natural(column: Listed) -> tuple[np.ndarray, np.ndarray]:
    """Clients that are already there, named in a column: the client index of every row, and the ids in sorted order.

    >>> client, ids = natural(["rome", "oslo", "rome"])
    >>> client.tolist(), ids.tolist()
    ([1, 0, 1], ['oslo', 'rome'])
    """
    values = np.asarray(column)
    if values.dtype.kind not in "OU":
        ids, client = np.unique(values, return_inverse=True)
        return client, ids.astype(np.str_)
    texts = [str(value) for value in values.tolist()]
    number = {name: i for i, name in enumerate(sorted(set(texts)))}  # many times faster than sorting all the texts
    return np.fromiter((number[name] for name in texts), np.int64, len(texts)), np.array(list(number), np.str_)


PARTITIONS = Registry("partition", group="apiece.partitions", positional=2, given=("seed",), values="typed").add(
    iid=iid,
    power_law=power_law,
    by_classes=by_classes,
    dirichlet_per_class=dirichlet_per_class,
    dirichlet_per_client=dirichlet_per_client,
)


def assign(
    labels: Listed, partition: str | Callable[..., np.ndarray], clients: int, *, seed: int = 0, **options: Any
) -> np.ndarray:
    """The partition of that name; options that are None are left to its defaults, one it does not have is an error.

    A partition is a function of the labels, or of their number `n`, and of the number of clients.

    >>> np.bincount(assign(np.zeros(9, int), "iid", 3, alpha=None)).tolist()
    [3, 3, 3]
    """
    chosen = {key: value for key, value in options.items() if value is not None}
    what = len(np.asarray(labels)) if PARTITIONS.takes(partition, "n") else labels
    return PARTITIONS.make(partition, chosen, what, clients, seed=seed)


def partitioned(
    x: np.ndarray,
    y: np.ndarray,
    clients: int,
    partition: str,
    *,
    name: str,
    classes: Sequence[str],
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    notes: Sequence[str] = (),
    seed: int = 0,
    **options: Any,
) -> Federation:
    """A labelled data set cut into clients: `assign`, then `from_rows`; the options are those of the partition.

    >>> x, y = np.zeros((20, 3), np.uint8), np.arange(20) % 2
    >>> partitioned(x, y, 4, "iid", name="toy", classes=("even", "odd")).train.sizes.tolist()
    [3, 3, 3, 3]
    """
    client = assign(y, partition, clients, seed=seed, **options)
    return from_rows(x, y, client, name=name, classes=classes, shares=shares, notes=notes, seed=seed)


def _check(n: int, clients: int, min_size: int) -> None:
    if clients < 1 or min_size < 0:
        raise UserError(f"there must be at least one client (got {clients}) and min_size must not be negative")
    if n < clients * max(min_size, 1):
        raise UserError(
            f"{n} examples are too few for {clients} clients with at least {max(min_size, 1)} each; "
            f"take at most {n // max(min_size, 1)} clients"
        )


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < np.inf:
        raise UserError(f"alpha must be a positive number, got {alpha}")


def _large_enough(client: np.ndarray, clients: int, min_size: int, remedy: str) -> np.ndarray:
    sizes = np.bincount(client, minlength=clients)
    if sizes.min() < min_size:
        raise UserError(f"client {sizes.argmin()} would have {sizes.min()} examples (min_size={min_size}); {remedy}")
    return client


def _apportion(n: int, weight: np.ndarray) -> np.ndarray:
    """n whole things in proportion to the weights: round the running total, so that nothing is lost."""
    ends = np.rint(n * np.cumsum(weight) / weight.sum()).astype(np.int64)
    return np.diff(ends, prepend=0)


def _sizes(rng: np.random.Generator, n: int, clients: int, exponent: float, min_size: int) -> np.ndarray:
    if not 0 <= exponent < np.inf:
        raise UserError(f"exponent must be zero or a positive number, got {exponent}")
    least = max(min_size, 1)
    spare = n - least * clients
    if exponent == 0:
        return least + rng.permutation(spare // clients + (np.arange(clients) < spare % clients))
    return rng.permutation(least + _apportion(spare, np.arange(1, clients + 1) ** -float(exponent)))


def _dirichlet(rng: np.random.Generator, alpha: float, rows: int, columns: int) -> np.ndarray:
    """Rows ~ Dir(alpha). For tiny alpha every gamma variate can underflow to zero: then one entry takes it all."""
    p = rng.standard_gamma(alpha, (rows, columns))
    dead = np.flatnonzero(p.sum(1) < 1e-290)
    p[dead] = 0
    p[dead, rng.integers(0, columns, len(dead))] = 1
    return p / p.sum(1, keepdims=True)


def _hand_out(rng: np.random.Generator, label: np.ndarray, quota: np.ndarray) -> np.ndarray:
    """Give each client its quota [clients, classes] of random examples of every class."""
    shuffled = rng.permutation(len(label))
    by_class = shuffled[np.argsort(label[shuffled], kind="stable")]
    client = np.empty(len(label), np.int64)
    client[by_class] = np.repeat(np.tile(np.arange(len(quota)), quota.shape[1]), quota.T.ravel())
    return client


def _classes_held(rng: np.random.Generator, clients: int, classes: int, k: int) -> np.ndarray:
    """[clients, k] distinct classes in each row, every class equally often up to one.

    Deal shuffled columns that together hold each class equally often, then swap away repeats within a row. When k is
    more than half of the classes, choose the classes that are left out instead: repeats are then rare.
    """
    drawn = k if 2 * k <= classes else classes - k
    name = rng.permutation(classes)
    dealt = name[(np.arange(clients * drawn) % classes)].reshape(drawn, clients)
    for t in range(drawn):
        dealt[t] = rng.permutation(dealt[t])
        for _ in range(100):
            clash = np.flatnonzero((dealt[:t] == dealt[t]).any(0))
            if len(clash) == 0:
                break
            mixed = np.union1d(clash, rng.choice(clients, min(clients, len(clash) + 1), replace=False))
            dealt[t, mixed] = dealt[t, rng.permutation(mixed)]
        else:  # dealing in turn from one shuffled deck always works; it only repeats the same hands more often
            return name[(np.arange(clients)[:, None] * k + np.arange(k)) % classes]
    if drawn == k:
        return dealt.T
    kept = np.ones((clients, classes), bool)
    kept[np.arange(clients)[None], dealt] = False
    return np.nonzero(kept)[1].reshape(clients, k)
