"""The small, ragged federation of the contract, and who takes part in it when: clients of 1, 3, 7 and 20 examples,
and one of 5 that never does.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from apiece.engines.world.arrivals import Journal
from apiece.engines.world.cohort import Participation
from apiece.protocol import Cohort

SIZES = (1, 3, 7, 20, 5)
POPULATION = 4  # the last client is known, but never sampled
FIRST_EVERYBODY = ((0, 1, 2, 3), (1, 3), (0, 2, 3))
Schedule = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Chosen(Participation):
    """A round's clients as written down, in the order written down.

    >>> Chosen(schedule=((3, 1), (0,))).draw(seed=0, round=0, population=4).tolist()
    [3, 1]
    """

    schedule: Schedule = ()

    def places(self, population: int) -> int:
        """Room for everybody, so that one compiled program serves every schedule."""
        return population

    def draw(self, seed: int, round: int, population: int) -> np.ndarray:
        """The clients written down for this round."""
        return np.array(self.schedule[round])


@dataclasses.dataclass(frozen=True)
class Punctual:
    """Arrivals without delay: a round's clients as written down start together and arrive together.

    >>> Punctual(((3, 1), (0,))).journal(seed=0, population=4, merges=2).merge.tolist()
    [0, 0, 1]
    """

    schedule: Schedule = ()
    buffer: int = POPULATION

    def in_flight(self) -> int:
        """Room for everybody, so that one compiled program serves every schedule."""
        return POPULATION

    def journal(self, seed: int, population: int, merges: int) -> Journal:
        """The clients written down, round after round."""
        round = np.repeat(np.arange(len(self.schedule)), [len(cohort) for cohort in self.schedule])
        client = np.array([i for cohort in self.schedule for i in cohort])
        return Journal(client, round, round, np.arange(1.0, len(self.schedule) + 1))


def cohort_of(ids: tuple[int, ...]) -> Cohort:
    """These clients, none of them late, weighted by their examples."""
    weight = jnp.array([SIZES[i] for i in ids], jnp.float32)
    return Cohort(jnp.array(ids, jnp.int32), weight, jnp.zeros(len(ids), jnp.int32), jnp.int32(POPULATION))
