"""What gains are told over: of training alone and of answers that look at nothing, the best on validation.

One baseline for all clients. The best of several for each client would be chosen on its few validation examples, by
noise (docs/decisions/0021-baselines-hard-to-beat.md).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from apiece.experiment.build import Arena
from apiece.experiment.judge import Outcome
from apiece.experiment.metric import Criterion
from apiece.experiment.variant import Variant
from apiece.methods import CATALOG

ALONE = ("local", "local_ridge")
Trials = Mapping[str, Mapping[int, Outcome]]  # of each name, the outcome of every seed


class Baseline(NamedTuple):
    """The baseline: its name, its trials by seed, and what every candidate scored on validation."""

    name: str
    trials: Mapping[int, Outcome]
    validation: dict[str, float]
    constant: bool


def alone_among(rows: Mapping[str, Variant]) -> list[str]:
    """The rows of a comparison in which everybody trains alone.

    >>> from apiece.experiment.spec import Spec
    >>> alone_among(Spec(methods={"ditto": {}, "plain": {"method": "local", "ridge": 0.0}}).rows)
    ['local', 'plain']
    """
    known = [CATALOG[name] for name in ALONE]
    is_alone = lambda row: isinstance(row.method, str) and CATALOG.find(row.method) in known
    return [name for name, row in rows.items() if is_alone(row)]


def choose_baseline(place: Arena, trials: Trials, alone: list[str], constants: Trials) -> Baseline | None:
    """Of those who train alone and the constants, the best on all validation examples; None where nobody trains alone.

    Of equals the first, so that training alone is preferred to a constant.
    """
    here = [name for name in alone if name in trials]
    if not here:
        return None
    seeds = list(trials[here[0]])
    every: dict[str, Mapping[int, Outcome]] = {name: trials[name] for name in here}
    spread = lambda found: {seed: found.get(seed, next(iter(found.values()))) for seed in seeds}  # of few, the first
    every |= {name: spread(found) for name, found in constants.items() if name not in every}
    scores = {name: _mean(place, by_seed) for name, by_seed in every.items()}
    sign = -1 if place.criterion.higher else 1
    name = min(scores, key=lambda name: (np.isnan(scores[name]), sign * scores[name]))
    return Baseline(name, every[name], scores, name not in here)


def _mean(place: Arena, by_seed: Mapping[int, Outcome]) -> float:
    return float(np.mean([weighted_score(place, outcome, "validation") for outcome in by_seed.values()]))


def weighted_score(place: Arena, outcome: Outcome, part: str) -> float:
    """The criterion's mean over training clients that do not attack, by their examples; NaN if one's model diverged."""
    criterion = place.criterion
    old = outcome.counts(place.population)
    values, sizes = criterion.of_clients(outcome.arrays, part)[old], np.diff(outcome.arrays[f"{part}_offsets"])[old]
    own = f"{part}_metric_{criterion.metric}" in outcome.arrays  # NaN is then a client without such a number
    there = (sizes > 0) & (np.isfinite(values) if own else True)
    return float(np.average(values[there], weights=sizes[there])) if there.any() else float("nan")


def points_per_unit(place: Arena, criterion: Criterion, outcome: Outcome) -> float:
    """By what a difference of the criterion is multiplied when it is told in points.

    Shares (accuracy, AUC, F1) count in points; squared errors in hundredths of the targets' variance, their roots in
    hundredths of its root; log losses in hundredths of the labels' entropy. A metric of one's own has its own unit.
    """
    scale: dict[str, Any] = {"accuracy": lambda: 1.0, "auc": lambda: 1.0, "f1": lambda: 1.0}
    scale |= {"balanced_accuracy": lambda: 1.0, "rmse": lambda: error_scale(place, outcome) ** 0.5}
    scale |= {"loss": lambda: loss_scale(place, outcome)}
    if criterion.metric in scale:
        return 100 / scale[criterion.metric]()
    own = any(metric.name == criterion.metric for metric in place.metrics)
    return 1.0 if own else 100 / error_scale(place, outcome)


def targets_of(place: Arena, judged: np.ndarray, split: str = "test") -> np.ndarray:
    """The labels of these clients' examples, one client after the other; numbers in their own units."""
    y, offsets = place.targets(split), place.splits[split][2]
    return np.concatenate([y[offsets[i] : offsets[i + 1]] for i in judged])


def error_scale(place: Arena, outcome: Outcome) -> float:
    """What one hundred points of error are: 1 for mistakes, the variance of the targets for squared errors."""
    if place.federation.task != "regression":
        return 1.0
    return float(np.var(targets_of(place, outcome.judged))) or 1.0


def loss_scale(place: Arena, outcome: Outcome) -> float:
    """What one hundred points of loss are: the entropy of the labels, or half the variance of targets."""
    if place.federation.task == "regression":
        return error_scale(place, outcome) / 2
    labels = targets_of(place, outcome.judged)
    share = np.bincount(labels[labels >= 0].ravel()) / max((labels >= 0).sum(), 1)
    return float(-(share[share > 0] * np.log(share[share > 0])).sum()) or 1.0
