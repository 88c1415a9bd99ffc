"""What the methods of a run say together: judged once, when the record is made, and only worded by the report."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from apiece.evaluate import excludes_tie, gap_to_best, half_over_clients, ranked
from apiece.experiment.metric import Criterion
from apiece.experiment.record import Amount, BesideLocal, Convergence, Gap, MethodRecord, Ranking
from apiece.experiment.tables import ClientMeans

DOUBLINGS = 4  # of the rounds, each with the gain that the next one promises: sixteen times the rounds


def rank(
    by: Criterion, methods: Mapping[str, MethodRecord], clients: Mapping[str, ClientMeans], baseline: str = "local"
) -> Ranking:
    """The ranking of methods by weighted test score: order, gaps to the best, and what validation would choose."""
    key, higher = by.metric, by.higher
    factor = 100.0 if key == "accuracy" else 1.0
    scores = {name: _mean(method, "test", key, "mean_weighted") for name, method in methods.items()}
    order = ranked(scores, higher)
    diverged = [name for name in methods if np.isnan(scores[name])]
    scored = [name for name in order if name not in diverged]
    by_seed = {name: _by_seed(methods[name], key, factor if higher else -factor) for name in scored}
    behind = {}
    for name in scored[1:]:
        half = _over_clients(clients[scored[0]], clients[name])
        found = gap_to_best(by_seed[scored[0]], by_seed[name], factor * half)
        if found is not None:
            apart, best = excludes_tie(found), methods[scored[0]].convergence
            closing = may_close_gap(best, methods[name].convergence)
            behind[name] = Gap(interval=found, told_apart=apart and not closing, so_far=apart and closing)
    by_loss = by.chosen_by[0] == "validation_loss"
    wanted = ("loss", "mean") if by_loss else (key, "mean_weighted")
    losses = {name: _mean(methods[name], "validation", *wanted) for name in scored}
    losses = {name: loss for name, loss in losses.items() if not np.isnan(loss)}
    chosen = ranked(losses, higher_is_better=higher and not by_loss)[0] if len(losses) > 1 else None
    beside = [name for name in scored if name != baseline and methods[name].harm]
    return Ranking(
        metric=key,
        higher=higher,
        order=order,
        diverged=diverged,
        behind=behind,
        by_validation=chosen,
        beside_local=chosen if chosen in beside else next(iter(beside), None),
        chosen_by=by.chosen_by[0].removeprefix("validation_"),
    )


def may_close_gap(best: Convergence | None, other: Convergence | None) -> bool:
    """Whether the one behind still improves, and so much that it may yet catch up.

    Twice the rounds are expected to lower its validation loss by its `gain`. If even `DOUBLINGS` such gains do not take
    it to the loss that the best has already, the order stands: the best can only move further ahead.
    """
    if best is None or other is None or not other.improves:
        return False
    return not other.loss - best.loss > DOUBLINGS * other.gain


def _mean(method: MethodRecord, *names: str) -> float:
    found = method.statistic(*names)
    return float("nan") if found is None else found.mean


def _by_seed(method: MethodRecord, key: str, factor: float) -> dict[int, float]:
    found: dict[int, float] = {}
    for one in method.seeds:
        statistics = one.metrics["test"][key]
        value = statistics["mean_weighted"] if isinstance(statistics, dict) else statistics
        if np.isfinite(value):
            found[one.seed] = factor * value
    return found


def _over_clients(best: ClientMeans, other: ClientMeans) -> float:
    return half_over_clients(best.score, other.score, np.where(best.new, 0, best.test))


def mean_costs(costs: list[dict[str, Any]]) -> dict[str, Amount]:
    """Means over seeds of what a run cost; of memory the peak. A cost that is known of no seed is NaN.

    >>> mean_costs([{"seconds": 1.0, "peak_memory_mb": 5.0}, {"seconds": 2.0, "peak_memory_mb": 9.0}])
    {'seconds': 1.5, 'peak_memory_mb': 9.0}
    """
    found = {}
    for key in dict.fromkeys(key for one in costs for key in one):
        values = [one[key] for one in costs if one.get(key) is not None and np.isfinite(one[key])]
        found[key] = (max if key == "peak_memory_mb" else fmean)(values) if values else float("nan")
    return found


def count_beside_local(clients: ClientMeans) -> BesideLocal | None:
    """How many training clients gain, and how many lose; None if no gain is known.

    >>> some = np.array([False, False, True])
    >>> count_beside_local(ClientMeans([], some, some, some, some, np.array([1.5, 0.0, 2.0])))
    BesideLocal(better=1, same=1, worse=0)
    """
    gain = np.round(clients.gain[~clients.new & np.isfinite(clients.gain)], 9)  # sums in another order are a tie
    if not gain.size:
        return None
    better, worse = int((gain > 0).sum()), int((gain < 0).sum())
    return BesideLocal(better=better, same=gain.size - better - worse, worse=worse)
