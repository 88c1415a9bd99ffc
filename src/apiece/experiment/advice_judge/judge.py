"""One advice judged: what it cost, how far it is from the winner of the sweep, whom it hurts, and whether it knew."""

import dataclasses
import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from apiece.data import Federation
from apiece.data.splits import Split
from apiece.evaluate import hurt
from apiece.experiment.advice_judge.meter import BudgetSpent, metered
from apiece.experiment.advice_judge.sweep import Swept, cost_of_sweep, sweep_methods, train_method, winner_of

LEVEL = 1.645  # of a normal 90 % interval
Advisor = Callable[..., Any]  # (federation, model=None, seed=0) -> .method, .options, and, if it likes, .gains


@dataclasses.dataclass(frozen=True)
class Judged:
    """One row of the benchmark: an advisor on a federation.

    `regret` is in points of test error (of regressions: of the targets' variance), below 0 where the advice beats the
    sweep's winner; `cost_ratio` is of the usual sweep, `cost_ratio_shared` of one that shares what it can. `covered`:
    whether the predicted 90 % interval of the gain over local holds what was found; None without a prediction.
    """

    federation: str
    advisor: str
    method: str
    options: dict[str, Any]
    points: float
    winner: str
    winner_points: float
    oracle_points: float
    regret: float
    regret_of_oracle: float
    passes: float
    cost_ratio: float
    cost_ratio_shared: float
    hurt_proved: float
    hurt_expected: float
    worst_tenth: float
    gain: float
    predicted: list[float] | None
    covered: bool | None
    interval_score: float | None
    seconds: float
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)


def judge_advice(
    federation: Federation,
    advisor: Advisor | None = None,
    *,
    model: Any = None,
    seed: int = 0,
    swept: Mapping[str, Swept] | None = None,
    limit: float = 0.25,
    tune: int = 8,
    rounds: int | str = "auto",
    name: str | None = None,
) -> Judged:
    """Judge an advisor (default: `apiece.advise`) on a federation of one's own.

    The advisor gets the federation without its test examples; what its engines do is metered, and above `limit` of the
    sweep's cost it is stopped. What it advises is trained by the ordinary engine and tested once, beside the sweep:
    every method tuned with as many trials.

    Args:
        federation: with train, validation and test examples. advisor: a function of (federation, model=None, seed=0)
            whose answer has `method` and `options`; predicted gains, if it has them, are judged, too.
        swept: the sweep's results, if they are known (`sweep_methods`). tune, rounds: of the sweep.

    >>> from apiece.data import source
    >>> from types import SimpleNamespace
    >>> few = source("linear", clients=4, examples=12, features=2)
    >>> alone = lambda federation, model=None, seed=0: SimpleNamespace(method="local_ridge", options={})
    >>> swept = {"local_ridge": train_method(few, "local_ridge", {}, tune=1, rounds=1)}
    >>> round(judge_advice(few, alone, swept=swept, rounds=1).regret, 6)
    0.0
    """
    advisor = importlib.import_module("apiece").advise if advisor is None else advisor
    assert advisor is not None
    called = name or str(getattr(advisor, "__name__", "advisor"))
    how: dict[str, Any] = dict(model=model, rounds=rounds, seed=seed)
    found = dict(swept) if swept is not None else sweep_methods(federation, tune=tune, **how)
    usual, shared = cost_of_sweep(found)
    began, note = time.monotonic(), ""
    with metered(federation, model, limit * usual if usual else math.inf) as meter:
        try:
            advice = advisor(without_test(federation), model=model, seed=seed)
        except BudgetSpent as error:
            advice, note = None, str(error)
    seconds = time.monotonic() - began
    if advice is None:
        # Who has no answer gets the worst.
        made = max(found.values(), key=lambda one: np.nan_to_num(one.points, nan=-np.inf))
        told = None
    else:
        made = _trained(federation, advice, found, how)
        told = _predicted(advice)
    best, oracle = winner_of(found), min(found.values(), key=lambda one: np.nan_to_num(one.points, nan=np.inf))
    alone = found.get("local_ridge") or found.get("local") or made
    ends = np.asarray(federation.test.offsets)
    harm = hurt(np.asarray([made.errors]) / 100, np.asarray([alone.errors]) / 100, offsets=ends)
    gain = alone.points - made.points
    noise = _noise(np.asarray(alone.errors) - np.asarray(made.errors), ends)
    covered, score = _interval(told, gain, noise)
    return Judged(
        federation=federation.name, advisor=called, method=made.method, options=made.options, points=made.points,
        winner=best.method, winner_points=best.points, oracle_points=oracle.points, regret=made.points - best.points,
        regret_of_oracle=made.points - oracle.points, passes=meter.passes,
        cost_ratio=meter.passes / usual if usual else math.nan,
        cost_ratio_shared=meter.passes / shared if shared else math.nan,
        hurt_proved=harm.hurt_proved, hurt_expected=harm.hurt_expected, worst_tenth=harm.worst_tenth, gain=gain,
        predicted=told, covered=covered, interval_score=score, seconds=seconds, note=note,
    )  # fmt: skip


def without_test(federation: Federation) -> Federation:
    """The federation as an advisor gets it: nobody has a test example.

    >>> from apiece.data import digits
    >>> without_test(digits(clients=4)).test.rows
    0
    """
    test = federation.test
    empty = Split(test.x[:0], test.y[:0], np.zeros(federation.clients + 1, np.int64))
    return dataclasses.replace(federation, test=empty, truth={}, new=None)


def _trained(federation: Federation, advice: Any, found: Mapping[str, Swept], how: dict[str, Any]) -> Swept:
    """What is advised, trained; from the sweep, if it is a setting that was trained there."""
    options = dict(advice.options)
    same = found.get(advice.method)
    if same is not None and same.options == options:
        return same
    table = {"method": advice.method, **options}
    return train_method(federation, advice.method, table, tune=1, **how)._replace(method=advice.method)


def _predicted(advice: Any) -> list[float] | None:
    """[mean, low, high] of the predicted gain over local, in points; None if nothing is predicted."""
    gains = getattr(advice, "gains", None) or {}
    found = gains.get("local") if isinstance(gains, Mapping) else None
    if found is None:
        return None
    values = [float(getattr(found, key)) for key in ("mean", "low", "high")]
    return values if all(map(math.isfinite, values)) else None


def _noise(differences: np.ndarray, offsets: np.ndarray) -> float:
    """The standard error of the found gain: test noise, which the judge adds to an interval, not the advisor."""
    sizes = np.diff(offsets)
    parts = [part for part in np.split(differences, offsets[1:-1]) if len(part)]
    pooled = float(np.var(differences)) if len(differences) > 1 else 0.0
    each = [(20 * pooled + len(part) * float(np.var(part))) / (20 + len(part)) / len(part) for part in parts]
    return math.sqrt(sum(each)) / max(int((sizes > 0).sum()), 1)


def _interval(told: list[float] | None, gain: float, noise: float) -> tuple[bool | None, float | None]:
    """(whether the interval holds what was found, its interval score: width and ten times what it misses by)."""
    if told is None:
        return None, None
    mean, low, high = told
    low, high = mean - math.hypot(mean - low, LEVEL * noise), mean + math.hypot(high - mean, LEVEL * noise)
    missed = max(low - gain, gain - high, 0.0)
    return missed == 0.0, (high - low) + 2 / 0.1 * missed


def summarize_judged(rows: Sequence[Judged]) -> dict[str, Any]:
    """The numbers that a table of judged advice ends with."""
    regret = np.array([row.regret for row in rows], np.float64)
    known = [row.covered for row in rows if row.covered is not None]
    mean = lambda key: float(np.mean([getattr(row, key) for row in rows]))
    return {
        "federations": len(rows),
        "mean_regret": float(regret.mean()),
        "median_regret": float(np.median(regret)),
        "p90_regret": float(np.quantile(regret, 0.9)),
        "max_regret": float(regret.max()),
        "mean_regret_of_oracle": mean("regret_of_oracle"),
        "cost_ratio": mean("cost_ratio"),
        "cost_ratio_shared": mean("cost_ratio_shared"),
        "hurt_proved": mean("hurt_proved"),
        "hurt_expected": mean("hurt_expected"),
        "worst_tenth": mean("worst_tenth"),
        "coverage": float(np.mean(known)) if known else None,
    }
