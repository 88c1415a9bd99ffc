"""Who takes part in a round: drawn on the host from (seed, round), so any engine and any restart draws the same."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from apiece.errors import UserError, suggest

PATTERNS = ("always", "daily", "random", "given")


@dataclasses.dataclass(frozen=True)
class Availability:
    """Which clients can take part in a round at all.

    Args:
        pattern: "always"; "daily": each client is there for a `share` of every `period` rounds, at its own time of
            the day; "random": each is there with its own probability, uniform between `share` and 1; "given".
        given: with pattern="given": for each round in turn (and from the beginning again) the clients that are there.

    >>> Availability("daily", share=0.5, period=4).there(seed=0, round=1, population=5).tolist()
    [1, 3, 4]
    """

    pattern: str = "always"
    share: float = 0.5
    period: int = 24
    given: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.pattern not in PATTERNS:
            raise UserError(f"pattern = '{self.pattern}' is unknown: {suggest(self.pattern, PATTERNS)}")
        if not 0 < self.share <= 1:
            raise UserError(f"the share of the time that a client is there lies above 0 and at most at 1: {self.share}")
        if self.period < 1:
            raise UserError(f"a period has at least one round; got {self.period}")
        if (self.pattern == "given") != bool(self.given):
            raise UserError("a list of who is there goes with pattern = 'given', which needs it")

    def there(self, seed: int, round: int, population: int) -> np.ndarray:
        """The clients that are there in this round, in ascending order; possibly none."""
        if self.pattern == "always":
            return np.arange(population)
        if self.pattern == "given":
            ids = np.unique(np.array(self.given[round % len(self.given)], int))
            if len(ids) and not 0 <= ids[0] <= ids[-1] < population:
                raise UserError(f"availability names client {ids[-1]}, but there are {population} clients")
            return ids
        own = np.random.default_rng([seed, population, 4]).random(population)
        if self.pattern == "daily":
            return np.flatnonzero((round / self.period + own) % 1 < self.share)
        chance = self.share + (1 - self.share) * own
        # A stream apart from that of the chances: a round may have the number of the population.
        return np.flatnonzero(np.random.default_rng([seed, round, 5]).random(population) < chance)


@dataclasses.dataclass(frozen=True)
class Participation:
    """Everybody; a cohort of `size` clients without replacement; or each client with `probability`.

    Of those who are available; when too few are, fewer come. Or whom `chosen(seed, round, population)` names, a
    function of one's own that gives the same clients whenever it is asked; `size` is then the most that it names.
    `exact`: with a probability, each client's coin alone decides, so that a round may have nobody: what differential
    privacy counts on.

    >>> Participation(size=3).draw(seed=0, round=5, population=1000).tolist()
    [381, 695, 831]
    >>> Participation(chosen=take_turns).draw(seed=0, round=3, population=20).tolist()
    [3, 13]
    """

    size: int | None = None
    probability: float | None = None
    availability: Availability = dataclasses.field(default_factory=Availability)
    chosen: Callable[[int, int, int], Any] | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and self.probability is not None:
            raise UserError("give a cohort size or a participation probability, not both")
        if self.size is not None and self.size < 1:
            raise UserError(f"a cohort needs at least one client; cohort = {self.size}")
        if self.probability is not None and not 0 < self.probability <= 1:
            raise UserError(f"a participation probability lies above 0 and at most at 1; got {self.probability}")
        if self.chosen is not None and (self.probability is not None or self.availability != Availability()):
            raise UserError(
                "a participation of one's own says itself who is there: leave probability and availability out"
            )

    def places(self, population: int) -> int:
        """The most clients that a round can have (a fixed number: it is a shape of the compiled program).

        >>> Participation(probability=0.1).places(1000)
        158
        """
        if self.size is not None:
            if self.size > population:
                raise UserError(f"a cohort of {self.size} clients is more than the {population} there are; lower it")
            return self.size
        if self.probability is not None:
            # Six standard deviations: exceeded about once in a billion rounds, and then cut; ten: never.
            spread = math.sqrt(population * self.probability * (1 - self.probability))
            return min(population, math.ceil(population * self.probability + (10 if self.exact else 6) * spread) + 1)
        return population

    def draw(self, seed: int, round: int, population: int) -> np.ndarray:
        """The ids of this round's clients, in ascending order; at least one, if any is available and coins are not
        `exact`."""
        if self.chosen is not None:
            return self._checked(self.chosen(seed, round, population), round, population)
        always = self.availability.pattern == "always"  # then nobody has to be listed
        there = None if always else self.availability.there(seed, round, population)
        available = population if there is None else len(there)
        places = min(self.places(population), available)
        if places == available and self.probability is None:
            return np.arange(population) if there is None else there
        rng = np.random.default_rng([seed, round])
        count = places
        if self.probability is not None:
            count = min(max(0 if self.exact else 1, rng.binomial(available, self.probability)), places)
        drawn = np.sort(rng.choice(available, count, replace=False, shuffle=False))
        return drawn if there is None else there[drawn]

    def _checked(self, named: Any, round: int, population: int) -> np.ndarray:
        """What a stranger's function named: numbers of clients that there are, none twice, no more than told of."""
        ids = np.asarray(named)
        said = f"the participation of one's own, asked for round {round},"
        if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
            raise UserError(f"{said} gives a list of clients' numbers, not {named!r}")
        ids = np.sort(ids.astype(int))
        if len(ids) and not 0 <= ids[0] <= ids[-1] < population:
            wrong = ids[0] if ids[0] < 0 else ids[-1]
            raise UserError(f"{said} named client {wrong}; clients are numbered from 0 to {population - 1}")
        if (ids[1:] == ids[:-1]).any():
            raise UserError(f"{said} named a client twice: {ids.tolist()}")
        if len(ids) > self.places(population):
            raise UserError(
                f"{said} named {len(ids)} clients, and at most {self.size} were told of by 'cohort'; raise it"
            )
        return ids

    def visits_each(self, rounds: int, population: int) -> int:
        """How many visits a client makes on average in so many rounds; at least one.

        >>> Participation(size=5).visits_each(100, population=50)
        10
        """
        share = self.probability or self.places(population) / population
        return max(1, round(rounds * share))


def take_turns(seed: int, round: int, population: int) -> np.ndarray:
    """A tenth of the clients in each round, one tenth after another: cyclic participation, as of time zones.

    >>> take_turns(seed=0, round=1, population=20).tolist()
    [1, 11]
    """
    return np.arange(round % min(10, population), population, min(10, population))
