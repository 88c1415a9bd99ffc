"""What identical methods would look like on these very test examples.

If two methods are equally good at a client, each of its paired differences is as likely to have the other sign (0/1
errors of one model each: exactly; otherwise if the differences are symmetric). Turning signs at random while keeping
sizes therefore gives the tie's distribution for any number of examples, where a normal curve is wrong for few.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from apiece.evaluate.clients import sizes_of, sum_per_client

# Smallest c with P(sum a_e eps_e >= x) <= c P(N(0, 1) >= x) for random signs eps and sum a_e^2 = 1 (V. K. Bentkus,
# D. Dzindzalieta, A tight Gaussian bound for weighted sums of Rademacher random variables, Bernoulli 21, 2015).
RADEMACHER = 1 / (4 * stats.norm.sf(np.sqrt(2)))


def disagreements(differences: ArrayLike, offsets: ArrayLike) -> tuple[NDArray, NDArray, NDArray]:
    """Per client: positive differences, non-zero differences, and whether the non-zero ones all have one size.

    >>> disagreements([1, -1, 0, 1, 0.5, -1], [0, 4, 6])
    (array([2., 1.]), array([3., 2.]), array([ True, False]))
    """
    differences = np.asarray(differences, dtype=np.float64)
    size = np.abs(differences)
    positive = sum_per_client(differences > 0, offsets)
    unequal = sum_per_client(size > 0, offsets)
    # Compared with the client's largest size, exactly: sizes that differ by rounding only merely get the bound.
    clients = sizes_of(offsets, differences.size)
    largest = np.zeros(clients.size)
    np.maximum.at(largest, np.repeat(np.arange(clients.size), clients), size)
    one_size = sum_per_client(size == np.repeat(largest, clients), offsets) == unequal
    return positive, unequal, one_size | (unequal == 0)


def sign_p_values(differences: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """One-sided p-value of each client's sum of differences against a tie, valid for any number of examples.

    Exact (binomial) where a client's non-zero differences have one size, as 0/1 errors have; else the tight Gaussian
    bound on sums with random signs, 3.178 P(N(0, 1) >= sum d / sqrt(sum d^2)), at most 1. Without disagreement: 1.

    >>> sign_p_values([1, 1, 1, 0, 1, 1, 1, 0.5, -0.5], [0, 4, 9, 9]).round(3)
    array([0.125, 0.173, 1.   ])
    """
    differences = np.asarray(differences, dtype=np.float64)
    positive, unequal, one_size = disagreements(differences, offsets)
    exact = stats.binom.sf(positive - 1, unequal, 0.5)
    squares = sum_per_client(differences**2, offsets)
    z = sum_per_client(differences, offsets) / np.sqrt(np.where(squares > 0, squares, 1))
    bound = np.minimum(1, RADEMACHER * stats.norm.sf(z))
    return np.where(one_size, exact, bound)


def chance_above_zero(
    differences: ArrayLike, offsets: ArrayLike, flips: int = 256, seed: int = 0
) -> NDArray[np.float64]:
    """P(sum of differences > 0) for each client if the methods tie: below 1/2, for a sum may also be 0.

    Exact for one size of difference; by `flips` seeded random sign changes otherwise.

    >>> chance_above_zero([1, 0, 1, 1, 0, 0], [0, 2, 4, 6])
    array([0.5 , 0.25, 0.  ])
    """
    differences = np.asarray(differences, dtype=np.float64)
    _, unequal, one_size = disagreements(differences, offsets)
    balanced = np.where(unequal % 2 == 0, stats.binom.pmf(unequal // 2, unequal, 0.5), 0)
    chance = (1 - balanced) / 2
    if not one_size.all():
        sizes = sizes_of(offsets, differences.size)
        size = np.abs(differences[np.repeat(~one_size, sizes)])
        bounds = np.concatenate([[0], np.cumsum(sizes[~one_size])])
        rng = np.random.default_rng(seed)
        above = np.zeros(bounds.size - 1)
        for _ in range(flips):
            above += sum_per_client(np.where(rng.random(size.size) < 0.5, size, -size), bounds) > 0
        chance[~one_size] = above / flips
    return chance
