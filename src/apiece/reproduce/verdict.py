"""What was claimed, what came out, and what follows: the claim holds, it does not hold, or this run cannot say.

A claim is an effect and the range in which the effect lies if the claim is true. What a run found is a number, with an
interval where chance is at work. The verdict is no opinion: the interval lies in the range (*holds*), outside of it
(*does not hold*), or in both (*undecided*). A run that had not come to rest decides nothing either. Beside an effect
stands the power of the run: the smallest effect that it would have told from none in four of five repetitions.

"A is at least B, to a point" is true of two equal things, and says nothing: claims are stated as differences or
ratios, and a range with one end does not contain it.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from apiece.report.figure import Figure

FORMAT = 2  # of verdict.json
SOURCES = ("paper", "theory", "reference", "here")
HOLDS, FAILS, UNDECIDED = VERDICTS = ("holds", "does not hold", "undecided")
Range = tuple[float | None, float | None]  # None: no end there


class Claim(NamedTuple):
    """A row of the verdict table.

    name: a sentence or a quantity. published: what is claimed, a number or words. ours: what came out. interval: (low,
    high) for `ours`, or None where nothing is random. verdict: one of `VERDICTS`. source: whose claim it is: the
    "paper"'s; "theory"'s (a proved formula, after correction); that of a "reference" computation, made independently
    with other code; or one that is made "here", to go on from the paper's. wanted: where `ours` lies if the claim
    holds, None for a claim in words. seen: the power, as a distance from the nearest end of `wanted`. because: why
    nothing is decided, where the interval does not say it.
    """

    name: str
    published: float | str
    ours: float | str
    interval: tuple[float, float] | None
    verdict: str
    source: str = "paper"
    wanted: Range | None = None
    seen: float | None = None
    because: str = ""

    @property
    def holds(self) -> bool:
        """Whether it is shown to be so."""
        return self.verdict == HOLDS


class Reproduction(NamedTuple):
    """What a reproduction found: claims with verdicts, a figure, and the settings it ran with."""

    claims: list[Claim]
    figure: Figure
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()


class Mean(NamedTuple):
    """A mean over independent repetitions, its standard error, its 95% interval by Student's t, and the power."""

    value: float
    error: float
    interval: tuple[float, float]
    seen: float = math.nan  # how far from no effect a true one must be, to be told from it in four of five cases


def _mean(middle: float, error: float, free: float) -> Mean:
    wide, power = (float(stats.t.ppf(share, free)) * error for share in (0.975, 0.8))
    return Mean(middle, error, (middle - wide, middle + wide), wide + power)


def mean_of(samples: Any) -> Mean:
    """Of a vector of repetitions.

    >>> mean_of([1.0, 2.0, 3.0]).value, [round(end, 3) for end in mean_of([1.0, 2.0, 3.0]).interval]
    (2.0, [-0.484, 4.484])
    """
    samples = np.asarray(samples, float)
    return _mean(float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(len(samples))), len(samples) - 1)


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
    return _mean(float(samples.mean()), error, len(samples) - 1)


def over_clients_and_seeds(gains: Any, weights: Any) -> Mean:
    """The weighted mean over clients of gains [seeds, clients], for other such clients and other seeds alike.

    Seeds share their clients and clients their seeds: the two errors are added (each holds a part of the other, so
    that the sum is rather too large), with the degrees of freedom of Welch and Satterthwaite.

    >>> clients, seeds = np.array([-1.0, 0.0, 4.0]), np.array([[0.0], [0.1]])
    >>> found = over_clients_and_seeds(clients + seeds, np.ones(3))
    >>> round(found.value, 2), round(found.error**2, 4) == round(7 / 3 + 0.05**2, 4)
    (1.05, True)
    """
    gains, share = np.asarray(gains, float), np.asarray(weights, float) / np.sum(weights)
    each = gains @ share
    middle = float(each.mean())
    parts = [mean_of(each), mean_of(len(share) * share * (gains.mean(0) - middle))]
    squares = np.array([part.error**2 for part in parts])
    freedom = float((squares**2 / (np.array(gains.shape) - 1)).sum())
    free = squares.sum() ** 2 / freedom if freedom > 0 else 1.0
    return _mean(middle, math.sqrt(squares.sum()), free)


def ratio_of(above: Any, below: Any) -> Mean:
    """The ratio of two means over the same repetitions, with the error of `above - ratio below` (the delta method).

    >>> ratio_of([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]).interval
    (2.0, 2.0)
    """
    above, below = np.asarray(above, float), np.asarray(below, float)
    ratio, scale = float(above.mean() / below.mean()), abs(below.mean())
    left = mean_of((above - ratio * below) / scale)
    low, high = left.interval
    return Mean(ratio, left.error, (ratio + low, ratio + high), left.seen)


def judge(value: float, interval: tuple[float, float] | None, wanted: Range) -> str:
    """What follows from a number, its interval, and where it should lie. A range with one end does not contain it.

    >>> judge(1.0, (0.5, 1.5), (0.0, None)), judge(1.0, (-0.5, 2.5), (0.0, None)), judge(-1.0, None, (0.0, None))
    ('holds', 'undecided', 'does not hold')
    >>> judge(0.0, None, (0.0, None)), judge(0.0, None, (0.0, 0.0))
    ('does not hold', 'holds')
    """
    low, high = (-math.inf if wanted[0] is None else wanted[0]), (math.inf if wanted[1] is None else wanted[1])
    first, last = interval or (value, value)
    if math.isnan(first) or math.isnan(last) or math.isnan(value):
        return FAILS if interval is None else UNDECIDED
    closed = None not in wanted
    if (low <= first and last <= high) if closed else (low < first and last < high):
        return HOLDS
    return FAILS if (last < low or high < first) or (not closed and (last <= low or high <= first)) else UNDECIDED


def effect(
    name: str,
    published: float | str,
    ours: Mean | float,
    *,
    above: float | None = None,
    below: float | None = None,
    source: str = "paper",
    unfinished: str = "",
) -> Claim:
    """An effect, a number or a `Mean`, that lies above or below something, or between two; the verdict follows.

    `unfinished` says what had not come to rest when it was measured: then nothing is decided.

    >>> effect("gain over local, points", "above 0", mean_of([1.0, 1.1, 0.9]), above=0).verdict
    'holds'
    >>> effect("gain over local, points", "above 0", mean_of([1.0, -2.0, 1.5]), above=0).verdict
    'undecided'
    >>> effect("rounds", "below 3", 4.0, below=3).verdict, effect("rounds", "below 3", 2.0, below=3).verdict
    ('does not hold', 'holds')
    """
    found = ours if isinstance(ours, Mean) else None
    value, interval = (found.value, found.interval) if found else (float(ours), None)  # type: ignore[arg-type]
    wanted: Range = (None if above is None else float(above), None if below is None else float(below))
    verdict = UNDECIDED if unfinished else judge(value, interval, wanted)
    seen = found.seen if found and math.isfinite(found.seen) else None
    return Claim(name, published, value, interval, verdict, source, wanted, seen, unfinished)


def within(name: str, published: float, ours: Any, share: float = 0.0, by: float = 0.0, source: str = "paper") -> Claim:
    """Agreement: `ours`, a number or a `Mean`, is `published` up to that share of it, or up to `by`, if that is more.

    A `Mean` agrees if its whole interval does. Where both sides saw the same draws there is no chance: give the number.

    >>> within("rounds", 24, 25, share=0.15).verdict, within("rounds", 24, 29, share=0.15, by=2).verdict
    ('holds', 'does not hold')
    """
    off = max(share * abs(published), by)
    found = ours if isinstance(ours, Mean) else float(ours)
    return effect(name, float(published), found, above=published - off, below=published + off, source=source)


def weakest(steps: Sequence[Mean]) -> Mean:
    """Of several effects that all have to be above 0: the one that decides, a sure fall or else the least sure rise.

    >>> weakest([mean_of([1.0, 1.1]), mean_of([-1.0, -1.01]), mean_of([3.0, -2.0])]).value
    -1.005
    """
    falls = [step for step in steps if step.interval[1] < 0]
    return min(falls, key=lambda step: step.value) if falls else min(steps, key=lambda step: step.interval[0])


def against_some(claim: Claim, absent: Sequence[str]) -> Claim:
    """A claim over all rivals, some of whom did not run: what holds over the others is not shown over these.

    >>> better = effect("error over the least of the others", "below 1", 0.9, below=1)
    >>> against_some(better, ["ditto"]).verdict, against_some(better, []).verdict
    ('undecided', 'holds')
    """
    if not absent or claim.verdict != HOLDS:
        return claim
    return claim._replace(verdict=UNDECIDED, because=f"{' and '.join(absent)} did not run")


def stated(
    name: str, published: float | str, ours: float | str, holds: Any, source: str = "paper", because: str = ""
) -> Claim:
    """A claim in words about what is not random, judged by the caller; `because`: why nobody can judge it.

    >>> stated("l2gd, printed step", "converges", "diverges", False).verdict
    'does not hold'
    """
    verdict = UNDECIDED if because else HOLDS if holds else FAILS
    value = ours if isinstance(ours, str) else float(ours)
    return Claim(name, published, value, None, verdict, source, None, None, because)


def claim_of(row: dict[str, Any]) -> Claim:
    """From a row of verdict.json.

    >>> claim_of(stated("a", 1.0, 2.0, False)._asdict()).verdict
    'does not hold'
    """
    pair = lambda value: None if value is None else tuple(value)
    return Claim(**{**row, "interval": pair(row["interval"]), "wanted": pair(row["wanted"])})
