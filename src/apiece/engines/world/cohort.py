"""Who takes part in a round: drawn on the host from (seed, round), so any engine and any restart draws the same."""

import dataclasses
import math

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

    Of those who are available; when too few are, fewer come.

    >>> Participation(size=3).draw(seed=0, round=5, population=1000).tolist()
    [381, 695, 831]
    """

    size: int | None = None
    probability: float | None = None
    availability: Availability = dataclasses.field(default_factory=Availability)

    def __post_init__(self) -> None:
        if self.size is not None and self.probability is not None:
            raise UserError("give a cohort size or a participation probability, not both")
        if self.size is not None and self.size < 1:
            raise UserError(f"a cohort needs at least one client; cohort = {self.size}")
        if self.probability is not None and not 0 < self.probability <= 1:
            raise UserError(f"a participation probability lies above 0 and at most at 1; got {self.probability}")

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
            # Six standard deviations: exceeded about once in a billion rounds, and then cut.
            spread = math.sqrt(population * self.probability * (1 - self.probability))
            return min(population, math.ceil(population * self.probability + 6 * spread) + 1)
        return population

    def draw(self, seed: int, round: int, population: int) -> np.ndarray:
        """The ids of this round's clients, in ascending order; at least one, if any is available."""
        there = self.availability.there(seed, round, population)
        places = min(self.places(population), len(there))
        if places == len(there) and self.probability is None:
            return there
        rng = np.random.default_rng([seed, round])
        count = places
        if self.probability is not None:
            count = min(max(1, rng.binomial(len(there), self.probability)), places)
        return there[np.sort(rng.choice(len(there), count, replace=False, shuffle=False))]

    def visits_each(self, rounds: int, population: int) -> int:
        """How many visits a client makes on average in so many rounds; at least one.

        >>> Participation(size=5).visits_each(100, population=50)
        10
        """
        share = self.probability or self.places(population) / population
        return max(1, round(rounds * share))
