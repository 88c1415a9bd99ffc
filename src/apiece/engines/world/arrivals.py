"""When replies arrive: planned on the host before anything is computed, because no number that is computed changes it.

Three ways to say it, one thing that comes out, a `Journal` of jobs: from how fast clients are (`Speeds`), from delays
(`Delays`), or from a record of real ones (`Recorded`). The server's version is the number of merges it has made.
"""

import dataclasses
import heapq
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from apiece.engines.world.pace import Pace
from apiece.errors import UserError, suggest

POLICIES = ("new", "same")
LATER = np.iinfo(np.int32).max  # merged beyond the horizon


class Journal(NamedTuple):
    """Jobs in the order in which they start: whose, from which server version, into which merge; and merges' times.

    Job j sees the server after `start[j]` merges, and is merged as part of merge number `merge[j]`, `merge[j] -
    start[j]` versions late.
    """

    client: np.ndarray
    start: np.ndarray
    merge: np.ndarray
    clock: np.ndarray


@runtime_checkable
class Arrivals(Protocol):
    """What an asynchronous engine asks for."""

    @property
    def buffer(self) -> int:
        """Replies that make a merge."""

    def journal(self, seed: int, population: int, merges: int) -> Journal:
        """At least so many merges, from the first one on; a longer journal begins like a shorter one."""

    def in_flight(self) -> int:
        """The most jobs that are started and not merged yet, at any time."""


@dataclasses.dataclass(frozen=True)
class Speeds:
    """So many clients are at work at any time; each takes its own time; who has answered is followed by another.

    Args:
        active: clients at work. buffer: replies that make a merge. pace: how long clients take.
        policy: "new": a client drawn uniformly from all follows (it may be one that is at work; theory needs this);
            "same": the one that answered goes on, which favours fast clients.

    >>> journal = Speeds(active=2, pace=Pace("zipf")).journal(seed=0, population=4, merges=3)
    >>> (journal.merge - journal.start)[:3].tolist(), journal.clock.tolist()
    ([1, 0, 1], [1.0, 2.0, 2.0])
    """

    active: int
    buffer: int = 1
    policy: str = "new"
    pace: Pace = dataclasses.field(default_factory=lambda: Pace(jitter="exponential"))

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UserError(f"policy = '{self.policy}' is unknown: {suggest(self.policy, POLICIES)}")
        _at_least_one(active=self.active, buffer=self.buffer)

    def in_flight(self) -> int:
        """Those at work, and those that wait in the buffer."""
        return self.active + self.buffer - 1

    def journal(self, seed: int, population: int, merges: int) -> Journal:
        """An event queue: the next to finish arrives, and another starts."""
        if self.active > population:
            raise UserError(f"{self.active} clients at work are more than the {population} there are; lower 'active'")
        rng = np.random.default_rng([seed, 3])
        typical = self.pace.typical(seed, population)
        client: list[int] = []
        start: list[int] = []
        merge: list[int] = []
        clock: list[float] = []
        working: list[tuple[float, int]] = []

        def send(i: int, now: float) -> None:
            heapq.heappush(working, (now + float(self.pace.draw(rng, typical[i])), len(client)))
            client.append(i)
            start.append(len(clock))
            merge.append(LATER)

        for i in rng.choice(population, self.active, replace=False):
            send(int(i), 0.0)
        waiting = 0
        while len(clock) < merges:
            now, job = heapq.heappop(working)
            merge[job], waiting = len(clock), waiting + 1
            if waiting == self.buffer:
                clock.append(now)
                waiting = 0
            send(client[job] if self.policy == "same" else int(rng.integers(population)), now)
        return Journal(np.array(client), np.array(start), np.array(merge), np.array(clock))


@dataclasses.dataclass(frozen=True)
class Delays:
    """The k-th reply to arrive is so many versions late, or as many as there have been; each merge takes 1.

    Args:
        delays: one per reply, repeated from the beginning when they are used up.
        clients: whose replies, likewise; none: drawn uniformly. buffer: replies that make a merge.

    >>> Delays((0, 2), clients=(5, 6)).journal(seed=0, population=9, merges=4).start[:4].tolist()
    [0, 0, 1, 2]
    """

    delays: tuple[int, ...]
    clients: tuple[int, ...] = ()
    buffer: int = 1

    def __post_init__(self) -> None:
        _at_least_one(delays=len(self.delays), buffer=self.buffer)
        if min(self.delays) < 0:
            raise UserError(f"a delay is at least 0 server versions; got {min(self.delays)}")

    def in_flight(self) -> int:
        """Every reply that can be on its way."""
        return (max(self.delays) + 1) * self.buffer

    def journal(self, seed: int, population: int, merges: int) -> Journal:
        """Replies in the order of arrival, turned into jobs in the order of their start."""
        arrival = np.arange((merges + max(self.delays)) * self.buffer)  # enough to know who works at the horizon
        _known_clients(np.array(self.clients, int), population)
        if len(self.clients):
            client = np.resize(np.array(self.clients), len(arrival))
        else:
            client = np.array([np.random.default_rng([seed, int(k), 3]).integers(population) for k in arrival])
        merge = arrival // self.buffer
        start = np.maximum(merge - np.resize(np.array(self.delays), len(arrival)), 0)
        order = np.argsort(start, kind="stable")
        return Journal(client[order], start[order], merge[order], np.arange(1.0, merges + 1))


@dataclasses.dataclass(frozen=True)
class Recorded:
    """Jobs as they were: whose, when it began and when its reply arrived, e.g. from a deployment's log.

    >>> log = Recorded(client=(3, 1, 3), began=(0.0, 0.0, 2.5), ended=(2.0, 7.0, 4.0))
    >>> journal = log.journal(seed=0, population=4, merges=3)
    >>> journal.client.tolist(), journal.start.tolist(), journal.merge.tolist()
    ([3, 1, 3], [0, 0, 1], [0, 2, 1])
    """

    client: tuple[int, ...]
    began: tuple[float, ...]
    ended: tuple[float, ...]
    buffer: int = 1

    def __post_init__(self) -> None:
        if not len(self.client) == len(self.began) == len(self.ended):
            raise UserError("a record has a client, a beginning and an end for every job")
        _at_least_one(jobs=len(self.client), buffer=self.buffer)
        if np.any(np.array(self.ended) < np.array(self.began)):
            raise UserError(f"job {int(np.argmax(np.array(self.ended) < np.array(self.began)))} ends before it begins")

    def in_flight(self) -> int:
        """The most jobs between their start and their merge."""
        journal = self._whole()
        version = np.arange(len(journal.clock))
        started = np.searchsorted(journal.start, version, side="right")
        merged = np.searchsorted(np.sort(journal.merge), version)
        return int((started - merged).max(initial=1))

    def journal(self, seed: int, population: int, merges: int) -> Journal:
        """All that was recorded, which may be less than what is asked for."""
        whole = self._whole()
        _known_clients(whole.client, population)
        return whole

    def _whole(self) -> Journal:
        began, ended = np.array(self.began, float), np.array(self.ended, float)
        rank = np.empty(len(ended), int)
        rank[np.argsort(ended, kind="stable")] = np.arange(len(ended))
        merge = rank // self.buffer
        clock = np.sort(ended)[self.buffer - 1 :: self.buffer]
        start = np.searchsorted(clock, began, side="right")
        order = np.lexsort((began, start))
        merge = np.where(merge < len(clock), merge, LATER)  # the last buffer may never have been filled
        return Journal(np.array(self.client)[order], start[order], merge[order], clock)


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UserError(f"{name} must be at least 1; got {count}")


def _known_clients(ids: np.ndarray, population: int) -> None:
    if len(ids) and not 0 <= ids.min() <= ids.max() < population:
        raise UserError(f"client {ids.max() if ids.min() >= 0 else ids.min()} is not one of the {population} clients")
