"""What a run under differential privacy spends: epsilon from noise, or noise for an epsilon, by `dp-accounting`.

The unit is a client: all that it ever sends. What is accounted for is the sequence of sums that `private` makes public,
one a round: each has sensitivity `clip` and Gaussian noise of `noise` times that. Three ways to draw who takes part:

- "everybody", or a draw that others may know: each round is a Gaussian mechanism, without amplification;
- "poisson": every client on its own with probability `rate`; subsampled Gaussian, neighbours by adding or removing the
  replies of one (that it came is not hidden);
- "fixed": so many clients without replacement; there neighbours differ by replacing one client, which moves a sum by
  twice the clip, so that the noise counts half (Wang, Balle and Kasiviswanathan 2019).
"""

import functools
import logging
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from scipy import stats

from apiece.errors import UserError

SAMPLING = ("everybody", "poisson", "fixed")
# Whole ones: the library's series for the others are slow, and do not always end.
ORDERS = [*range(2, 65), 80, 96, 128, 192, 256, 512, 1024]
MOST_NOISE = 1e4  # times the clip: beyond it nothing can be learnt


class Draw(NamedTuple):
    """How clients are drawn: "everybody", "poisson" or "fixed"; of how many, and which share of them a round.

    >>> Draw("fixed", clients=100, rate=0.1).adjacency
    'replace one client'
    """

    sampling: str
    clients: int
    rate: float = 1.0

    @property
    def adjacency(self) -> str:
        """What two neighbouring populations differ in."""
        return "replace one client" if self.sampling == "fixed" else "add or remove one client's replies"


@functools.lru_cache(maxsize=256)
def epsilon_of(noise: float, delta: float, rounds: int, draw: Draw) -> float:
    """The epsilon that so many rounds spend at this delta, by Rényi's divergences.

    >>> round(epsilon_of(1.0, 1e-5, 1, Draw("everybody", 100)), 2)  # one Gaussian of noise multiplier 1
    4.75
    """
    event = _event(noise, rounds, draw)
    found = library()
    relation = found.NeighboringRelation
    near = relation.REPLACE_ONE if draw.sampling == "fixed" else relation.ADD_OR_REMOVE_ONE
    return float(found.rdp.RdpAccountant(ORDERS, near).compose(event).get_epsilon(delta))


def epsilon_of_sums(noises: Sequence[float], delta: float) -> float:
    """The epsilon that sums of everybody's answers spend together, each with noise of its own, in clips.

    >>> one = epsilon_of(1.0, 1e-5, 1, Draw("everybody", 100))
    >>> bool(abs(epsilon_of_sums([2.0] * 4, 1e-5) - one) < 1e-9)  # four at twice the noise are one
    True
    """
    found = library()
    accountant = found.rdp.RdpAccountant(ORDERS, found.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for noise in noises:
        accountant.compose(found.GaussianDpEvent(noise))
    return float(accountant.get_epsilon(delta))


@functools.lru_cache(maxsize=256)
def noise_for(epsilon: float, delta: float, rounds: int, draw: Draw) -> float:
    """The least noise, in clips, with which so many rounds spend at most epsilon at this delta.

    >>> round(noise_for(4.76, 1e-5, 1, Draw("everybody", 100)), 2)
    1.0
    """
    enough = lambda noise: epsilon_of(noise, delta, rounds, draw) <= epsilon
    high = 1.0
    while not enough(high):
        high *= 2
        if high > MOST_NOISE:
            raise UserError(
                f"no noise is enough for epsilon = {epsilon:g} at delta = {delta:g} in {rounds} rounds; "
                "raise epsilon, or have fewer rounds"
            )
    low = high / 2
    while low > 1e-3 and enough(low):
        low, high = low / 2, low
    while high - low > 0.002 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def slack_of(draw: Draw, places: int, rounds: int) -> float:
    """The chance that in any of the rounds a Poisson draw has more clients than there are places, and is cut. It is
    what the claim's delta is larger by, times 1 + exp(epsilon).

    >>> slack_of(Draw("everybody", 10), 10, 100)
    0.0
    >>> round(slack_of(Draw("poisson", 10, 0.5), 9, 1), 6)  # heads of ten coins
    0.000977
    """
    if draw.sampling != "poisson":
        return 0.0
    return min(1.0, rounds * float(stats.binom.sf(places, draw.clients, draw.rate)))


def split_noise(noise: float, expected: float) -> tuple[float, float]:
    """(noise of the sum in clips, noise of the count of who was clipped): together they spend what `noise` spends.

    The count is of bits less 1/2, so of sensitivity 1/2: noise^-2 = sum's^-2 + (2 count's)^-2 (Andrew et al. 2021).

    >>> of_sum, of_count = split_noise(1.0, expected=100)
    >>> round(of_sum**-2 + (2 * of_count) ** -2, 9)
    1.0
    """
    of_count = max(expected / 20, 1.5 * noise)
    return (noise**-2 - (2 * of_count) ** -2) ** -0.5, of_count


def _event(noise: float, rounds: int, draw: Draw) -> Any:
    if draw.sampling not in SAMPLING or not 0 < draw.rate <= 1 or rounds < 1 or not noise > 0:
        raise UserError(f"no accountant knows noise {noise!r} in {rounds!r} rounds of {draw}")
    found = library()
    one: Any = found.GaussianDpEvent(noise)
    if draw.sampling == "poisson" and draw.rate < 1:
        one = found.PoissonSampledDpEvent(draw.rate, one)
    if draw.sampling == "fixed":
        # To replace a client moves the sum by up to twice the clip.
        size = max(1, math.ceil(draw.rate * draw.clients - 1e-9))
        one = found.SampledWithoutReplacementDpEvent(draw.clients, size, found.GaussianDpEvent(noise / 2))
    return found.SelfComposedDpEvent(one, rounds)


def library() -> Any:
    """The accountant, `dp-accounting`; a `UserError` says how to get it."""
    try:
        import dp_accounting
        from dp_accounting import rdp  # noqa: F401
    except ImportError:
        raise UserError(
            "privacy is only claimed with an accountant's epsilon, and dp-accounting is not installed: "
            "pip install 'apiece[privacy]'"
        ) from None
    # It warns of each order that it leaves out; what is left is a bound all the same.
    logging.getLogger("absl").setLevel(logging.ERROR)
    return dp_accounting
