"""What was claimed, what came out, and whether the claim holds."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from apiece.report.figure import Figure

SOURCES = ("paper", "theory", "reference", "here")


class Claim(NamedTuple):
    """A row of the verdict table.

    name: a sentence or a quantity. published: what is claimed, a number or words. ours: what came out. interval: (low,
    high) for `ours`, or None where nothing is random or no interval was computed. holds: whether it is so.
    source: whose claim it is: the "paper"'s; "theory"'s (a proved formula, after correction); that of a "reference"
    computation, made independently with other code; or one that is made "here", to go on from the paper's.
    """

    name: str
    published: float | str
    ours: float | str
    interval: tuple[float, float] | None
    holds: bool
    source: str = "paper"


class Reproduction(NamedTuple):
    """What a reproduction found: claims with verdicts, a figure, and the settings it ran with."""

    claims: list[Claim]
    figure: Figure
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()


class Mean(NamedTuple):
    """A mean over independent repetitions, its standard error, and its 95% interval by Student's t."""

    value: float
    error: float
    interval: tuple[float, float]


def mean_of(samples: Any) -> Mean:
    """Of a vector of repetitions.

    >>> mean_of([1.0, 2.0, 3.0]).value, [round(end, 3) for end in mean_of([1.0, 2.0, 3.0]).interval]
    (2.0, [-0.484, 4.484])
    """
    samples = np.asarray(samples, float)
    error = float(samples.std(ddof=1) / np.sqrt(len(samples)))
    middle, wide = float(samples.mean()), float(stats.t.ppf(0.975, len(samples) - 1)) * error
    return Mean(middle, error, (middle - wide, middle + wide))


def over_splits(samples: Any, exchanged: float = 0.25) -> Mean:
    """A mean over random splits of the same rows, with an interval that knows that they share most of them.

    Splits overlap, so that their spread alone promises too much: with J splits the variance of the mean is taken as
    (1/J + exchanged) times that of one, where `exchanged` is how many rows are dealt out for each that is learned from
    (Nadeau and Bengio 2003); by default 20 % test against 80 % that train and validate.

    >>> plain, honest = 2.484, over_splits([1.0, 2.0, 3.0])
    >>> honest.value, round(honest.interval[1] - 2, 3), round(plain * (1 + 3 * 0.25) ** 0.5, 3)
    (2.0, 3.286, 3.286)
    """
    samples = np.asarray(samples, float)
    error = float(samples.std(ddof=1) * math.sqrt(1 / len(samples) + exchanged))
    middle, wide = float(samples.mean()), float(stats.t.ppf(0.975, len(samples) - 1)) * error
    return Mean(middle, error, (middle - wide, middle + wide))


def ratio_of(above: Any, below: Any) -> Mean:
    """The ratio of two means over the same repetitions, with the error of `above - ratio below` (the delta method).

    >>> ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]).interval
    (2.0, 2.0)
    """
    above, below = np.asarray(above, float), np.asarray(below, float)
    ratio, scale = above.mean() / below.mean(), abs(below.mean())
    left = mean_of((above - ratio * below) / scale)
    low, high = left.interval
    return Mean(float(ratio), left.error, (float(ratio) + low, float(ratio) + high))


def within(name: str, published: float, ours: Any, share: float = 0.0, by: float = 0.0, source: str = "paper") -> Claim:
    """Agreement: `ours`, a number or a `Mean`, is `published` up to that share of it, or up to `by`, if that is more.

    >>> within("rounds", 24, 25, share=0.15).holds, within("rounds", 24, 29, share=0.15, by=2).holds
    (True, False)
    """
    value, interval = (ours.value, ours.interval) if isinstance(ours, Mean) else (float(ours), None)
    holds = abs(value - published) <= max(share * abs(published), by)
    return Claim(name, float(published), value, interval, bool(holds), source)


def stated(
    name: str,
    published: float | str,
    ours: Any,
    holds: Any,
    interval: tuple[float, float] | None = None,
    source: str = "paper",
) -> Claim:
    """A claim in words, judged by the caller; `ours` may be a `Mean`.

    >>> stated("more local work, lower floor", "yes", 0.5, True).published
    'yes'
    """
    if isinstance(ours, Mean):
        ours, interval = ours.value, ours.interval
    return Claim(name, published, ours if isinstance(ours, str) else float(ours), interval, bool(holds), source)
