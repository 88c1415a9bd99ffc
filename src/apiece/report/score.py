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


def metric_of(record: Record) -> Metric:
    """The score of a run."""
    ranking = record.ranking
    own = (ranking.metric, "", 1.0, None, "")  # an objective's own error
    named = ranking.metric in ("accuracy", "error")
    label, unit, factor, places, counted = WORDS[record.federation.task] if named else own
    return Metric(ranking.metric, label, unit, factor, ranking.higher, places, counted)
