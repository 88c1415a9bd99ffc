"""Who is worse off than alone, and how sure is that?

Delta_i is the expected error, in points, of client i under a method minus under tuned Local trained on the same data.
Client i is *hurt* if Delta_i > delta; delta is 1 point, for at 0 ties would decide. Delta_i is never seen: what is seen
is t_i, the mean paired difference on the client's few test examples, with standard error s_i. The share of clients
with t_i > 0 is therefore 39 to 47 % for two identical methods (20 to 300 test examples each). Three numbers are
honest, and are given together:

- `hurt_proved`: share of clients whose one-sided p-value against Delta_i <= delta is rejected by Benjamini-Hochberg at
  5 %. A lower bound.
- `hurt_expected`: mean over clients of P(Delta_i > delta | data) by empirical Bayes, with a bootstrap interval over
  clients. Honest when clients differ; too pessimistic at exact ties with few examples, where the interval is wide.
- `worst_client`, `worst_tenth`: largest posterior mean of Delta_i, and the mean of the largest tenth. Not the raw
  ones, which are mostly noise.

Decisions:

- s_i: own variance shrunken to the pooled one with 20 pseudo-examples (`empirical_bayes.mean_variance`).
- p-value: the larger of two. (1) Student's t of (t_i - delta) / s_i with 19 + n_i degrees of freedom, those of the
  shrunken variance. (2) A sign test against a tie (`ties.sign_p_values`), valid for any n_i. With 3 to 20 examples the
  differences take few values and (1) alone is too bold: for 1000 identical clients with 3 examples it accuses somebody
  in up to 30 % of the runs, a normal statistic in half of them, and both promise 5 %. The larger of the two
  cannot exceed 5 % at ties, and costs almost no power: (2) rarely decides once there are 50 examples.
- prior: normal, unless the t_i are visibly two-humped (`npmle.two_humps`: BIC), then the NPMLE on 81 grid points.
  `prior` tells which. The bootstrap keeps that choice and repeats everything after it.
- Several seeds: each example's error is averaged over the seeds first, so the examples stay the units.
- Regression: errors are squared errors and a point is a hundredth of the target's pooled variance: pass it as `scale`.
- All ties: nothing is proved, s_i = 0, and every Delta_i is taken to be 0. One client: its posterior is N(t_i, s_i^2),
  and there is no interval over clients (NaN). With fewer than eight clients the interval is rough.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from apiece.errors import UserError
from apiece.evaluate.clients import sizes_of, sum_per_client
from apiece.evaluate.empirical_bayes import PSEUDO_EXAMPLES, fit_normal, mean_variance, posterior
from apiece.evaluate.npmle import TINY, fit_grid, grid_likelihood, posterior_on_grid, two_humps
from apiece.evaluate.ties import RADEMACHER, chance_above_zero, sign_p_values

# Numbers held at once by the bootstrap: 2^22 float64 are 32 MB.
CHUNK = 2**22


@dataclass(frozen=True)
class Hurt:
    """Clients hurt against tuned Local. Shares are of `clients`; differences in points, positive = worse than alone.

    The arrays have one entry per client, NaN (False) for those without test examples; `as_dict` leaves them out.

    >>> alone = np.zeros((1, 40))
    >>> hurt(alone, alone, offsets=[0, 20, 40]).hurt_proved
    0.0
    """

    clients: int
    clients_empty: int
    delta: float
    hurt_proved: float
    hurt_expected: float
    hurt_expected_low: float
    hurt_expected_high: float
    prior: Literal["normal", "npmle"]
    worst_client: float
    worst_tenth: float
    naive: float
    naive_if_tied: float
    difference: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    p_value: NDArray[np.float64]
    proved: NDArray[np.bool_]
    posterior_mean: NDArray[np.float64]
    risk: NDArray[np.float64]

    def as_dict(self) -> dict[str, Any]:
        """The numbers about the federation, ready for JSON (but for NaN).

        >>> found = hurt([0, 1, 1, 0], [0, 1, 0, 0], [0, 2, 4])
        >>> found.as_dict()["naive"], found.as_dict()["naive_if_tied"]
        (0.5, 0.25)
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if not isinstance(value, np.ndarray)}


def hurt(
    error: ArrayLike,
    error_local: ArrayLike,
    offsets: ArrayLike,
    *,
    delta: float = 1.0,
    scale: float = 1.0,
    false_discovery_rate: float = 0.05,
    level: float = 0.95,
    resamples: int = 400,
    seed: int = 0,
) -> Hurt:
    """Clients hurt by a method, from its and tuned Local's errors on the same test examples.

    `error` and `error_local` are [rows] or [seeds, rows], 0/1 or squared; the rows of client i are offsets[i] to
    offsets[i + 1]. A point is `scale` / 100. The same arguments give the same answer. See the module for the method.
    The bootstrap is the cost: with 400 resamples 2 s for 10,000 clients, but a minute if they are two-humped.

    >>> local = np.zeros(400)
    >>> method = np.zeros(400)
    >>> method[:30] = 1  # the first of ten clients with 40 examples each loses 75 points
    >>> found = hurt(method, local, np.arange(0, 401, 40))
    >>> found.hurt_proved, round(found.hurt_expected, 2), found.proved.nonzero()[0]
    (0.1, 0.1, array([0]))
    """
    difference = paired_difference(error, error_local)
    sizes = sizes_of(offsets, difference.shape[-1])
    present = sizes > 0
    if not present.any():
        raise UserError("no client has a test example")
    offsets = np.concatenate([[0], np.cumsum(sizes[present])])
    # Sums over seeds and rows are divided last: sums of 0/1 errors are exact, so that a tie is a tie.
    seeds = np.asarray(error).size / difference.size
    t = sum_per_client(difference, offsets) / sizes[present] * (100 / (seeds * scale))
    v = mean_variance(difference, offsets) * (100 / (seeds * scale)) ** 2
    ties = sign_p_values(difference, offsets), chance_above_zero(difference, offsets, seed=seed)
    return _judge(sizes, t, v, *ties, delta, false_discovery_rate, level, resamples, seed)


def hurt_from_sums(
    total: ArrayLike,
    square: ArrayLike,
    count: ArrayLike,
    *,
    mistakes: bool,
    delta: float = 1.0,
    scale: float = 1.0,
    false_discovery_rate: float = 0.05,
    level: float = 0.95,
    resamples: int = 400,
    seed: int = 0,
) -> Hurt:
    """The same from sums that clients tell of their differences from Local: of these, of their squares, how many.

    `mistakes`: errors are 0 or 1, so that sums tell all; else `naive_if_tied` is not known, and 1/2.

    >>> local, method = np.zeros(6), np.array([1, 0, 0, 1, 1, 0.0])
    >>> same = hurt_from_sums([1, 2], [1, 2], [3, 3], mistakes=True), hurt(method, local, [0, 3, 6])
    >>> same[0].as_dict() == same[1].as_dict()
    True
    """
    sizes = np.asarray(count, np.int64)
    there = sizes > 0
    if not there.any():
        raise UserError("no client has a test example")
    total, square = (np.asarray(each, np.float64)[there] for each in (total, square))
    n = sizes[there]
    own = np.maximum(square - total**2 / n, 0)
    own = np.where(own > 1e-12 * square, own, 0)
    pooled = own.sum() / (n - 1).sum() if own.sum() > 0 else square.sum() / n.sum()
    v = (PSEUDO_EXAMPLES * pooled + own) / (PSEUDO_EXAMPLES - 1 + n) / n
    if mistakes:
        unequal = np.round(square)
        tie_p = stats.binom.sf(np.round((square + total) / 2) - 1, unequal, 0.5)
        balanced = np.where(unequal % 2 == 0, stats.binom.pmf(unequal // 2, unequal, 0.5), 0)
        tie_chance = (1 - balanced) / 2
    else:
        tie_p = np.minimum(1, RADEMACHER * stats.norm.sf(total / np.sqrt(np.where(square > 0, square, 1))))
        tie_p, tie_chance = np.where(square > 0, tie_p, 1.0), np.where(square > 0, 0.5, 0.0)
    t, v = total / n * (100 / scale), v * (100 / scale) ** 2
    return _judge(sizes, t, v, tie_p, tie_chance, delta, false_discovery_rate, level, resamples, seed)


def _judge(
    sizes: NDArray, t: NDArray, v: NDArray, tie_p: NDArray, tie_chance: NDArray, delta: float, rate: float,
    level: float, resamples: int, seed: int,
) -> Hurt:  # fmt: skip
    """From each client's mean difference and its variance, of those that have examples, to the three numbers."""
    present = sizes > 0
    p = np.maximum(moderated_p_values(t, v, sizes[present], delta), tie_p)
    proved = stats.false_discovery_control(p) <= rate
    prior, mean, risk, (low, high) = believe(t, v, delta, level, resamples, seed)
    tenth = math.ceil(t.size / 10)

    def for_all(values, missing=np.nan):
        spread = np.full(sizes.size, missing)
        spread[present] = values
        return spread

    return Hurt(
        clients=int(t.size),
        clients_empty=int(sizes.size - t.size),
        delta=float(delta),
        hurt_proved=float(proved.mean()),
        hurt_expected=float(risk.mean()),
        hurt_expected_low=low,
        hurt_expected_high=high,
        prior=prior,
        worst_client=float(mean.max()),
        worst_tenth=float(np.sort(mean)[-tenth:].mean()),
        naive=float((t > 0).mean()),
        naive_if_tied=float(tie_chance.mean()),
        difference=for_all(t),
        standard_error=for_all(np.sqrt(v)),
        p_value=for_all(p),
        proved=for_all(proved, False),
        posterior_mean=for_all(mean),
        risk=for_all(risk),
    )


def paired_difference(error: ArrayLike, error_local: ArrayLike) -> NDArray[np.float64]:
    """Each example's error minus Local's, summed over seeds.

    >>> paired_difference([[1, 0], [1, 1]], [[0, 0], [1, 1]])
    array([1., 0.])
    """
    error, error_local = np.asarray(error, dtype=np.float64), np.asarray(error_local, dtype=np.float64)
    if error.shape != error_local.shape or error.ndim not in (1, 2):
        raise UserError(f"the same seeds and test examples for both: got {error.shape} and {error_local.shape}")
    difference = error - error_local
    if not np.isfinite(difference).all():
        raise UserError("errors must be finite: a model that diverged cannot be compared with Local")
    return difference.sum(axis=0) if difference.ndim == 2 else difference


def moderated_p_values(t: ArrayLike, v: ArrayLike, sizes: ArrayLike, delta: float) -> NDArray[np.float64]:
    """One-sided p against Delta_i <= delta: Student's t of (t_i - delta) / sqrt(v_i) with 19 + n_i degrees of freedom.

    >>> moderated_p_values([1.0, 5.0], [4.0, 4.0], [20, 20], delta=1.0).round(3)
    array([0.5  , 0.026])
    """
    t, v = np.asarray(t, dtype=np.float64), np.asarray(v, dtype=np.float64)
    z = (t - delta) / np.sqrt(np.where(v > 0, v, 1))
    return np.where(v > 0, stats.t.sf(z, PSEUDO_EXAMPLES - 1 + np.asarray(sizes)), 1.0)


def believe(
    t: NDArray, v: NDArray, delta: float, level: float, resamples: int, seed: int
) -> tuple[Literal["normal", "npmle"], NDArray, NDArray, tuple[float, float]]:
    """Which prior, each client's posterior mean and P(Delta_i > delta), and the bootstrap interval of the mean risk.

    >>> prior, mean, risk, interval = believe(np.array([0.0, 4.0]), np.array([1.0, 1.0]), 1.0, 0.95, 100, 0)
    >>> prior, mean.round(2), risk.round(2)
    ('normal', array([0.25, 3.75]), array([0.22, 1.  ]))
    """
    if not (v > 0).all():  # Only if no example was judged differently: then there is nothing to estimate.
        certain = float(delta < 0)
        return "normal", np.zeros_like(t), np.full_like(t, certain), (certain, certain)
    prior: Literal["normal", "npmle"] = "npmle" if two_humps(t, v) else "normal"
    if prior == "npmle":
        grid, likelihood = grid_likelihood(t, v)
        on_grid = posterior_on_grid(likelihood, fit_grid(likelihood))
        mean, risk = on_grid @ grid, on_grid[:, grid > delta].sum(axis=1)
        hurts = likelihood[:, grid > delta]

        def risks(counts):
            g = fit_grid(likelihood, counts)
            return (g[:, grid > delta] @ hurts.T) / np.maximum(g @ likelihood.T, TINY)
    else:
        mean, variance = posterior(t, v, fit_normal(t, v))
        risk = stats.norm.sf((delta - mean) / np.sqrt(variance))

        def risks(counts):
            mean, variance = posterior(t, v, fit_normal(t, v, counts))
            return stats.norm.sf((delta - mean) / np.sqrt(variance))

    return prior, mean, risk, bootstrap(risks, t.size, level, resamples, seed)


def bootstrap(
    risks: Callable[[NDArray], NDArray], clients: int, level: float, resamples: int, seed: int
) -> tuple[float, float]:
    """Percentile interval of the mean risk when clients are drawn again; `risks` maps counts [some, clients] to risks.

    >>> bootstrap(lambda counts: np.array([0.0, 1.0]), clients=2, level=0.95, resamples=100, seed=0)
    (0.0, 1.0)
    """
    if clients < 2:
        return math.nan, math.nan
    rng = np.random.default_rng(seed)
    means, together = [], max(1, CHUNK // clients)
    for start in range(0, resamples, together):
        counts = rng.multinomial(clients, np.full(clients, 1 / clients), size=min(together, resamples - start))
        means.append((counts * risks(counts)).sum(axis=1) / clients)
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
