"""Who learns from whom, as a method tells it: weights W_ij, the b_ij behind them, and the groups that follow."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from apiece.experiment import record

DIGITS = 4  # of the numbers in a record


class Partner(NamedTuple):
    """`client` learns from `partner`: by this weight, at most `bias` worse off with its optimum (NaN: not known).

    >>> Partner("a", "b", 0.5, 0.01).partner
    'b'
    """

    client: str
    partner: str
    weight: float
    bias: float


class Partners(NamedTuple):
    """Of all clients that train: their group (who learn from one another, directly or through others), weights and b.

    >>> alone = Partners(["a", "b"], [0, 1], np.eye(2), np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> alone.of("a"), alone.members
    ([], [['a'], ['b']])
    """

    clients: list[str]
    groups: list[int]
    weights: np.ndarray
    bias: np.ndarray

    def of(self, client: str) -> list[Partner]:
        """From whom a client learns beside itself, those that count most first."""
        i = self.clients.index(client)
        others = [j for j in np.argsort(-self.weights[i], kind="stable") if j != i and self.weights[i, j] > 0]
        return [Partner(client, self.clients[j], float(self.weights[i, j]), float(self.bias[i, j])) for j in others]

    @property
    def rows(self) -> list[Partner]:
        """All of it as a table."""
        return [partner for client in self.clients for partner in self.of(client)]

    @property
    def members(self) -> list[list[str]]:
        """The clients of each group."""
        count = max(self.groups, default=-1) + 1
        return [[c for c, g in zip(self.clients, self.groups, strict=True) if g == k] for k in range(count)]

    def __str__(self) -> str:
        """A line for each group."""
        return "\n".join(f"group {k + 1}, {len(names)}: {', '.join(names)}" for k, names in enumerate(self.members))


def find_partners(clients: Sequence[str], told: Mapping[str, Any]) -> Partners | None:
    """The partners, from what a method reports under the names "w" and "b"; None if it does not.

    >>> print(find_partners(["a", "b", "c"], {"w": [0.5, 0.5, 0.0, 0.5, 0.5, 0.0, 0.0, 0.0, 1.0]}))
    group 1, 2: a, b
    group 2, 1: c
    """
    count = len(clients)
    given, measured = (np.asarray(told.get(name, ()), float) for name in ("w", "b"))
    if given.size != count * count:
        return None
    weights = given.reshape(count, count)
    bias = measured.reshape(count, count) if measured.size == count * count else np.full((count, count), np.nan)
    groups = connected_components(weights > 0, directed=False)[1]
    return Partners([str(client) for client in clients], groups.tolist(), weights, np.where(bias < 0, np.nan, bias))


def record_partners(clients: Sequence[str], look: Mapping[str, Any]) -> "record.Partners | None":
    """The same of the last look at a run, as the record keeps it; None of a method without, or of very many clients.

    >>> record_partners(["a"], {"reported_w": [1.0], "reported_b": [0.0]}).groups
    [0]
    """
    told = {name.removeprefix("reported_"): value for name, value in look.items() if name.startswith("reported_")}
    found = find_partners(clients, told)
    if found is None:
        return None
    short = lambda matrix: [[float(f"{value:.{DIGITS}g}") for value in row] for row in matrix]
    return record.Partners(
        clients=found.clients, groups=found.groups, weights=short(found.weights), bias=short(found.bias)
    )
