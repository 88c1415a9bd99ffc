"""The test score that a report is about: how it is called and written, on the page and on the terminal alike."""

from typing import NamedTuple

from apiece.experiment.record import Record


class Metric(NamedTuple):
    """The test score of a task: how it is called, its unit, what to multiply it with, which way is better."""

    key: str
    label: str
    unit: str
    factor: float
    higher: bool
    places: int | None  # after the point; None: as the interval demands
    counted: str = ""  # by what, where that must be said

    @property
    def percent(self) -> bool:
        """Whether it is told in percent, and differences of it in points."""
        return self.factor == 100

    @property
    def text(self) -> str:
        """The score and its unit, in a sentence."""
        by = f", {self.counted}," if self.counted else ""
        return self.label + (f" in {self.unit}" if self.unit else "") + by


# What a task's score is called, its unit, what to multiply it with, places after the point, and by what it is counted.
WORDS: dict[str, tuple[str, str, float, int | None, str]] = {
    "classification": ("accuracy", "%", 100.0, 1, ""),
    "next_character": ("accuracy", "%", 100.0, 1, "character by character"),
    "regression": ("mean squared error", "", 1.0, None, ""),
    "custom": ("loss", "", 1.0, None, ""),
}


# What metrics by name are called in a sentence.
METRICS = {"auc": "AUC", "f1": "macro F1", "balanced_accuracy": "balanced accuracy", "loss": "log loss", "rmse": "RMSE"}


def metric_of(record: Record) -> Metric:
    """The score that methods are ranked by."""
    name = record.ranking.metric
    if ranked_by_task(record):
        return task_metric(record)
    return Metric(name, METRICS.get(name, name), "", 1.0, record.ranking.higher, None)


def ranked_by_task(record: Record) -> bool:
    """Whether methods are ranked by the score of their task, and not by a metric."""
    name = record.ranking.metric
    return name not in ("loss", "rmse") and name not in record.metrics


def task_metric(record: Record) -> Metric:
    """The score of the task, in which newcomers are told of: accuracy or the error, also an objective's own."""
    name = record.ranking.metric
    if ranked_by_task(record) and name not in ("accuracy", "error"):
        return Metric(name, name, "", 1.0, False, None)
    label, unit, factor, places, counted = WORDS[record.federation.task]
    key = "accuracy" if factor == 100 else "error"
    return Metric(key, label, unit, factor, factor == 100, places, counted)
