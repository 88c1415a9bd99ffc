"""Sums that are released with noise, and what they spend together: one purse for a whole advice.

A client's answer to each question is clipped where it is made; the sum of all answers gets Gaussian noise of the
operating system's randomness before anything is made of it. The unit is a client with all that it answers. Gaussian
sums compose by 1/noise^2, so that a purse of one noise is divided by shares: noise / sqrt(share) for each.
"""

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from apiece.advise.keep import Kept
from apiece.errors import UserError
from apiece.wrap.accountant import Draw, epsilon_of_sums, noise_for

Sum = Callable[[], Any]  # asks the clients, whose answers are clipped
LENGTHS = tuple(2.0**power for power in range(-8, 8))  # among which a clip is looked for: four questions
WITHIN = 0.75  # of the clients, that a clip leaves as they are


class Release(NamedTuple):
    """A sum that was released: its name, how long an answer may be, the noise in clips, and how many numbers it has."""

    name: str
    clip: float
    noise: float
    numbers: int


def draw_normal(count: int) -> np.ndarray:
    """So many standard normals of the operating system's randomness: nobody can draw them again.

    >>> draw_normal(3).shape
    (3,)
    """
    bits = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(11)
    return special.ndtri((bits.astype(np.float64) + 0.5) / 2.0**53)


class Purse:
    """What an advice may spend, and what it has spent.

    Args:
        epsilon, delta: the promise. clients: how many there are, which is no secret. kept: releases of an interrupted
            advice, which are not made again. draw: where noise comes from.

    >>> purse = Purse(8.0, 1e-5, clients=50, kept=Kept(None, ""))
    >>> purse.release("sizes", lambda: np.array([3.0, 4.0]), clip=5.0, share=1.0).shape
    (2,)
    >>> 7.9 < purse.spent() <= 8.0
    True
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        clients: int,
        kept: Kept,
        draw: Callable[[int], np.ndarray] = draw_normal,
    ) -> None:
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < math.inf:
            raise UserError(f"private = {epsilon!r}: an epsilon is a number above 0")
        if not 0 < delta < 1:
            raise UserError(f"delta = {delta!r}: a chance, above 0 and far below 1")
        if delta >= 1 / clients:
            raise UserError(f"delta = {delta:g} is no promise to {clients} clients: whoever publishes one of them at "
                            f"random keeps it; take one far below {1 / clients:.2g}")  # fmt: skip
        self.epsilon, self.delta, self.clients, self.kept, self.draw = float(epsilon), delta, clients, kept, draw
        self.noise = noise_for(self.epsilon, delta, 1, Draw("everybody", clients))
        self.releases: list[Release] = []
        self.left = 1.0

    def noise_of(self, share: float) -> float:
        """The noise, in clips, of a sum that may spend this share."""
        return self.noise / math.sqrt(share)

    def release(self, name: str, total: Sum, clip: float, share: float) -> np.ndarray:
        """The sum with its noise; `total` asks for it, unless an earlier advice had it released."""
        if share > self.left + 1e-9:
            raise AssertionError(f"'{name}' would spend more than there is")
        self.left -= share
        noise = self.noise_of(share)

        def noised() -> np.ndarray:
            clean = np.asarray(total(), np.float64)
            return clean + noise * clip * self.draw(clean.size).reshape(clean.shape)

        found = np.asarray(self.kept.tree(name.replace(" ", "-"), noised), np.float64)
        self.releases.append(Release(name, float(clip), noise, found.size))
        return found

    def find_clip(
        self, name: str, within: Callable[[float], Any], share: float, among: tuple[float, ...] = LENGTHS
    ) -> float:
        """A length that about `WITHIN` of the clients' answers have at most, by halving.

        `within(length)` gives the sum over clients of 1/2 where their answer is no longer, and -1/2 where it is.
        """
        low, high, turns = 0, len(among) - 1, math.ceil(math.log2(len(among)))
        for turn in range(turns):
            middle = (low + high) // 2
            asked = lambda middle=middle: within(among[middle])
            bits = self.release(f"{name} {turn + 1}", asked, 0.5, share / turns)
            low, high = (low, middle) if 0.5 + float(bits) / self.clients >= WITHIN else (middle + 1, high)
        return among[low]

    def times(self, share: float, numbers: int, within: float, most: int) -> int:
        """How often a sum of so many numbers may be asked anew, so that each time the noise of the mean over clients
        is no longer than `within` clips: at least once."""
        once = self.noise_of(share) * math.sqrt(numbers) / self.clients
        return int(min(max((within / once) ** 2, 1), most))

    def spent(self) -> float:
        """The accountant's epsilon, at the purse's delta, of all that was released."""
        return epsilon_of_sums([each.noise for each in self.releases], self.delta)
