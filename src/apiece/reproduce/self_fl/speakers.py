"""Speakers as the users of a wake word: who trains the warm start, who federates, who comes later; five device types.

Every speaker of AudioMNIST has as many recordings as any other, and nothing is known of the devices. Both are made
here: speakers are ordered by how bright their recordings sound (where on the frequency axis the energy lies), which
follows voice and microphone; the order is cut into five groups A to E, and sizes fall along it by a power law. So the
users with most data also sound alike, as those of one device type do.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from apiece.data.federation import Federation
from apiece.data.sources.real import audiomnist_by_speaker
from apiece.data.splits import SPLITS, Split, offsets_of

GROUPS = "ABCDE"
SHARES = (0.4, 0.1, 0.5)  # false accepts of a good detector are few: much has to be tested
EXPONENT = 0.75
WORD = 7


class Speakers(NamedTuple):
    """`pool`: examples of those who train the warm start; `federation`: the users, ordered from A to E, and new ones.

    `group`: the group of each user; `clusters`: the same examples with each group as one client.
    """

    pool: Split
    federation: Federation
    group: np.ndarray
    clusters: Federation


def speakers(pooled: int, users: int, new: int, seed: int = 0) -> Speakers:
    """Of the 60, `pooled` train the warm start, `users` federate, `new` come later."""
    everybody = audiomnist_by_speaker(word=WORD, shares=SHARES, seed=seed)
    order = np.random.default_rng([seed, 60]).permutation(everybody.clients)
    first, rest = everybody.take(order[:pooled]), everybody.take(order[pooled:])
    here = np.argsort([brightness(rest.train.client(i)[0]) for i in range(users)])
    rng = np.random.default_rng([seed, 75])
    sizes = power_sizes(users, int(rest.train.sizes.max()))
    federation = rest.take(here)
    federation = replace(federation, train=shuffled(federation.train, rng, sizes))
    late = rest.take(np.arange(users, users + new))
    federation = replace(federation, new=replace(late, train=shuffled(late.train, rng, late.train.sizes)))
    group = np.arange(users) * len(GROUPS) // users
    return Speakers(first.train, federation, group, as_one(federation, group))


def power_sizes(clients: int, largest: int) -> np.ndarray:
    """The r-th client has largest r^-EXPONENT examples.

    >>> power_sizes(4, 200).tolist()
    [200, 118, 87, 70]
    """
    return (largest * np.arange(1, clients + 1) ** -EXPONENT).astype(np.int64)


def brightness(x: np.ndarray) -> float:
    """Where on the frequency axis (the first one of a picture) the energy lies, from 0 (low) to 1 (high).

    >>> brightness(np.array([[[0, 0], [9, 9]]], np.uint8))
    1.0
    """
    energy = x.sum(axis=(0, 2), dtype=np.float64)
    return float(energy @ np.linspace(0, 1, len(energy)) / energy.sum())


def shuffled(split: Split, rng: np.random.Generator, sizes: np.ndarray) -> Split:
    """The clients' rows in random order (recordings are stored word by word), and only so many of them."""
    rows = np.concatenate([
        begin + rng.permutation(full)[:size]
        for begin, full, size in zip(split.offsets[:-1], split.sizes, sizes, strict=True)
    ])  # fmt: skip
    return Split(split.x[rows], split.y[rows], offsets_of(sizes))


def as_one(federation: Federation, group: np.ndarray) -> Federation:
    """Each group as one client; clients of a group stand side by side, so only the offsets change."""
    last = np.flatnonzero(np.diff(group, append=group[-1] + 1)) + 1
    parts = {
        part: replace(split, offsets=split.offsets[np.concatenate([[0], last])])
        for part, split in ((part, getattr(federation, part)) for part in SPLITS)
    }
    return replace(federation, ids=np.array(list(GROUPS)[: len(last)]), new=None, **parts)


def in_parts(groups: Federation, parts: int, seed: int = 0) -> Federation:
    """Each group as `parts` clients with equal random shares of its training examples; other rows stay in order."""
    rng = np.random.default_rng([seed, 20])
    train = shuffled(groups.train, rng, groups.train.sizes)
    cut = lambda split: replace(split, offsets=_cut(split.offsets, parts))
    ids = np.array([f"{group}{k}" for group in groups.ids for k in range(parts)])
    return replace(groups, ids=ids, train=cut(train), validation=cut(groups.validation), test=cut(groups.test))


def _cut(offsets: np.ndarray, parts: int) -> np.ndarray:
    begin, end = offsets[:-1, None], offsets[1:, None]
    inner = begin + (end - begin) * np.arange(parts) // parts
    return np.append(inner.reshape(-1), offsets[-1])
