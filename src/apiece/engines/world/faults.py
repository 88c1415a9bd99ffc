"""What goes wrong in a round: clients that never answer, clients that answer too late.

Drawn on the host from (seed, round), like the cohort itself, so that every engine and every restart sees the same
misfortunes. Replies that are themselves broken are the business of `apiece.wrap`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from apiece.engines.world.cohort import Participation
from apiece.engines.world.pace import Pace
from apiece.errors import UserError


class Fate(NamedTuple):
    """Of a round's clients: who works at all, whose reply counts; and how long the round took."""

    works: np.ndarray
    counts: np.ndarray
    duration: float


@dataclasses.dataclass(frozen=True)
class Faults:
    """Drop-outs and stragglers.

    A client that drops out does nothing and remembers nothing of the round. A straggler does its work, but its reply
    comes too late to count: its state is not committed, but for what is the client's own progress. A round that nobody
    answers leaves the server as it was.

    Args:
        dropout: the probability that a sampled client drops out.
        deadline: the time after which replies no longer count. quorum: the round ends with so many replies
            (k of n: sample n, wait for k). pace: how long clients take.

    >>> fate = Faults(quorum=2, pace=Pace("zipf")).draw(seed=0, round=3, ids=np.arange(4), population=4)
    >>> fate.counts.tolist(), fate.duration
    ([False, True, False, True], 2.0)
    """

    dropout: float = 0.0
    deadline: float | None = None
    quorum: int | None = None
    pace: Pace = dataclasses.field(default_factory=Pace)

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise UserError(f"the probability of dropping out lies in [0, 1); got {self.dropout}")
        if self.deadline is not None and not self.deadline > 0:
            raise UserError(f"a deadline is above 0; got {self.deadline}")
        if self.quorum is not None and self.quorum < 1:
            raise UserError(f"a quorum is at least 1; got {self.quorum}")

    @property
    def none(self) -> bool:
        """Nothing can go wrong, and every round takes 1."""
        return self == Faults()

    def draw(self, seed: int, round: int, ids: np.ndarray, population: int) -> Fate:
        """What happens to these clients in this round."""
        everybody = np.ones(len(ids), bool)
        if self.none:
            return Fate(everybody, everybody, 1.0)
        rng = np.random.default_rng([seed, round, 2])
        # Drawn for the whole population, so that a client's misfortune does not depend on who else was sampled.
        works = rng.random(population)[ids] >= self.dropout
        time = self.pace.draw(rng, self.pace.typical(seed, population))[ids]
        end = np.inf if self.deadline is None else self.deadline
        answered = np.sort(time[works])
        if self.quorum is not None and len(answered) >= self.quorum:
            end = min(end, answered[self.quorum - 1])
        counts = works & (time <= end)
        # The server waits for the last reply; for the deadline, if one is missing; a lost connection it notices.
        last = float(answered[-1]) if len(answered) else 0.0
        return Fate(works, counts, last if end == np.inf or counts.all() else float(end))

    def visited(self, participation: Participation, seed: int, rounds: int, population: int) -> np.ndarray:
        """How many visits each client makes in so many rounds.

        >>> Faults().visited(Participation(size=2), seed=0, rounds=3, population=4).sum()
        np.int64(6)
        """
        count = np.zeros(population, np.int64)
        for r in range(rounds):
            ids = participation.draw(seed, r, population)
            count[ids[self.draw(seed, r, ids, population).works]] += 1
        return count
