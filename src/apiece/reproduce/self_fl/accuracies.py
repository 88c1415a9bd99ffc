"""Test accuracy by seed: of all examples, of the worst tenth of the clients, of the tenth with most samples."""

import numpy as np

from apiece.evaluate import interval
from apiece.experiment import measure
from apiece.experiment.build import Arena
from apiece.experiment.contest import Result
from apiece.reproduce.verdict import Claim, effect, mean_of

WEIGHTED, WORST, LARGEST = "mean_weighted", "worst10", "top10_by_samples"
WORDS = {WEIGHTED: "all examples", WORST: "worst tenth of the clients", LARGEST: "tenth with most samples"}

Scores = dict[str, dict[str, np.ndarray]]  # method -> statistic -> accuracy in points, by seed


def accuracies(place: Arena, result: Result) -> dict[str, np.ndarray]:
    """Test accuracy of the clients that train, in points: three statistics, each by seed."""
    found = [measure.metrics(place, outcome)["test"]["accuracy"] for outcome in result.outcomes.values()]
    return {name: 100 * np.array([row[name] for row in found]) for name in WORDS}


def table(scores: Scores) -> dict[str, dict[str, float]]:
    """Rows for the page: means over seeds, with half their intervals."""
    rows = {}
    for name, by_statistic in scores.items():
        found = {WORDS[statistic]: interval(values) for statistic, values in by_statistic.items()}
        rows[name] = {f"{word}{end}": value for word, each in found.items()
                      for end, value in (("", each.mean), (", +-", each.half_width))}  # fmt: skip
    return rows


def above(what: str, published: float | str, a: np.ndarray, b: np.ndarray, source: str = "paper") -> Claim:
    """A paired difference over seeds, in points, that has to lie above 0 with its interval."""
    return effect(what, published, mean_of(a - b), above=0, source=source)
