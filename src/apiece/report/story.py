"""What a report tells: the record and the two tables of a run folder, and nothing else."""

from pathlib import Path
from typing import NamedTuple

from apiece.evaluate import Interval
from apiece.experiment.folder import RunFolder, read_record
from apiece.experiment.record import MethodRecord, Record
from apiece.experiment.tables import ClientMeans, Progress, means_of_clients, progress_of_methods, read_table


class Metric(NamedTuple):
    """The test score of a task: how it is called, its unit, what to multiply it with, which way is better."""

    key: str
    label: str
    unit: str
    factor: float
    higher: bool
    places: int | None  # after the point; None: as the interval demands


# What a task's score is called, its unit, what to multiply it with, and places after the point.
WORDS = {
    "classification": ("accuracy", "%", 100.0, 1),
    "next_character": ("accuracy", "%", 100.0, 1),
    "regression": ("mean squared error", "", 1.0, None),
    "custom": ("loss", "", 1.0, None),
}


class Story(NamedTuple):
    """A finished run as its files tell it."""

    name: str
    record: Record
    progress: dict[str, Progress]
    clients: dict[str, ClientMeans]

    @property
    def metric(self) -> Metric:
        """The score that the report is about."""
        ranking = self.record.ranking
        own = (ranking.metric, "", 1.0, None)  # an objective's own error
        label, unit, factor, places = (
            WORDS[self.record.federation.task] if ranking.metric in ("accuracy", "error") else own
        )
        return Metric(ranking.metric, label, unit, factor, ranking.higher, places)

    @property
    def methods(self) -> dict[str, MethodRecord]:
        """The methods' part of the record, in the order of the spec."""
        return self.record.methods

    @property
    def order(self) -> list[str]:
        """The methods by weighted test score, best first; diverged ones last."""
        return self.record.ranking.order

    @property
    def seeds(self) -> int:
        """How many seeds every method was run with."""
        return self.record.seeds

    def score(self, method: str, part: str = "test", statistic: str = "mean_weighted") -> Interval | None:
        """The interval over seeds of one statistic, or None if there is no such number."""
        return self.methods[method].statistic(part, self.metric.key, statistic)


def read_story(folder: Path) -> Story:
    """The run in a folder; a `UserError` says what is missing."""
    run = RunFolder(folder)
    record = read_record(folder)
    progress = progress_of_methods(read_table(run.rounds))
    return Story(folder.resolve().name, record, progress, means_of_clients(read_table(run.clients)))
