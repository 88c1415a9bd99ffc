"""How long clients take: each its own typical time, and chance around it. Drawn on the host, from the seed."""

import dataclasses
import functools
from typing import Any

import numpy as np

from apiece.errors import UserError, suggest

LAWS = ("equal", "lognormal", "zipf", "given")
JITTERS = ("none", "exponential")


@dataclasses.dataclass(frozen=True)
class Pace:
    """Who is slow.

    Args:
        law: each client's typical time: "equal" (1 for all), "lognormal" (median 1), "zipf" (the k-th fastest takes
            k**spread, who is which by the seed), or "given". spread: sigma of the logarithm, or the exponent.
        times: the typical times, with law="given": one per client.
        jitter: "none", or "exponential": a visit takes an exponential time of that mean.

    >>> Pace("zipf", spread=1.0).typical(seed=0, population=4).tolist()
    [3.0, 2.0, 4.0, 1.0]
    """

    law: str = "equal"
    spread: float = 1.0
    times: tuple[float, ...] = ()
    jitter: str = "none"

    def __post_init__(self) -> None:
        for what, word, known in (("law", self.law, LAWS), ("jitter", self.jitter, JITTERS)):
            if word not in known:
                raise UserError(f"{what} = '{word}' is unknown: {suggest(word, known)}")
        if self.spread < 0:
            raise UserError(f"the spread of the clients' times is at least 0; got {self.spread}")
        if (self.law == "given") != bool(len(self.times)):
            raise UserError("times go with law = 'given', which needs them: one typical time per client")
        if any(not 0 < time < np.inf for time in self.times):
            raise UserError("every client's typical time must be above 0 and finite")

    def typical(self, seed: int, population: int) -> np.ndarray:
        """Each client's typical time."""
        return _typical(self, seed, population)

    def draw(self, rng: np.random.Generator, typical: Any) -> Any:
        """How long visits of these typical times take; for one or many."""
        return typical * rng.exponential(size=np.shape(typical)) if self.jitter == "exponential" else typical


@functools.lru_cache(maxsize=32)
def _typical(pace: Pace, seed: int, population: int) -> np.ndarray:
    rng = np.random.default_rng([seed, population, 1])
    if pace.law == "given":
        if len(pace.times) < population:
            raise UserError(f"{len(pace.times)} typical times for {population} clients; give one per client")
        return np.array(pace.times[:population], float)
    if pace.law == "lognormal":
        return np.exp(pace.spread * rng.standard_normal(population))
    if pace.law == "zipf":
        return (1.0 + rng.permutation(population)) ** pace.spread
    return np.ones(population)
