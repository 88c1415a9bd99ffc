"""Who takes part in a round: drawn on the host from (seed, round), so any engine and any restart draws the same."""

import dataclasses
import math

import numpy as np

from apiece.errors import UserError


@dataclasses.dataclass(frozen=True)
class Participation:
    """Everybody; a cohort of `size` clients without replacement; or each client with `probability`.

    >>> Participation(size=3).draw(seed=0, round=5, population=1000).tolist()
    [381, 695, 831]
    """

    size: int | None = None
    probability: float | None = None

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
        """The ids of this round's clients, in ascending order; at least one."""
        places = self.places(population)
        if places == population and self.probability is None:
            return np.arange(population)
        rng = np.random.default_rng([seed, round])
        count = places
        if self.probability is not None:
            count = min(max(1, rng.binomial(population, self.probability)), places)
        return np.sort(rng.choice(population, count, replace=False, shuffle=False))
