"""What a report tells: the record and the two tables of a run folder, and nothing else."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from apiece.evaluate import Interval
from apiece.experiment.folder import RunFolder, read_record
from apiece.experiment.record import ConstantRecord, MethodRecord, Record
from apiece.experiment.tables import (
    ClientMeans,
    Progress,
    means_of_clients,
    progress_of_methods,
    read_table,
    scores_of_clients,
)
from apiece.files import read_json
from apiece.report.score import Metric, metric_of, task_metric


class Story(NamedTuple):
    """A finished run as its files tell it."""

    name: str
    record: Record
    progress: dict[str, Progress]
    clients: dict[str, ClientMeans]
    scores: dict[str, dict[str, ClientMeans]] = {}  # noqa: RUF012 - by metric: the same clients in everything they are judged by
    errors: dict[str, Progress] = {}  # noqa: RUF012 - as `progress`, of the score of the task instead of the loss
    profile: pa.Table | None = None  # who the clients are; None: an older version finished the run
    verdicts: pa.Table | None = None  # what is believed of every client
    advice: dict[str, Any] | None = None  # what was advised before the run

    @property
    def about_clients(self) -> dict[str, Any]:
        """What the profile says of itself: classes, what likeness is made of, how alike groups are."""
        found = {} if self.profile is None else self.profile.schema.metadata or {}
        return json.loads(found.get(b"apiece", b"{}"))

    @property
    def metric(self) -> Metric:
        """The score that the report is about."""
        return metric_of(self.record)

    @property
    def of_task(self) -> Metric:
        """The score of the task, in which newcomers are told of: accuracy or the error, also an objective's own."""
        return task_metric(self.record)

    @property
    def methods(self) -> dict[str, MethodRecord]:
        """The methods' part of the record, in the order of the spec."""
        return self.record.methods

    @property
    def constants(self) -> dict[str, ConstantRecord]:
        """Answers that look at no example."""
        return self.record.constants

    @property
    def order(self) -> list[str]:
        """The methods by weighted test score, best first; diverged ones last."""
        return self.record.ranking.order

    @property
    def baseline(self) -> str:
        """What gains are told over: `local`, unless another baseline was better on validation."""
        found = self.record.baseline
        return "local" if found is None else found.name

    @property
    def alone(self) -> str:
        """The baseline in a sentence: "than trained alone"."""
        constant = self.record.constants.get(self.baseline)
        if constant is not None and self.record.baseline is not None and self.record.baseline.constant:
            return f"by answering {constant.about}"
        return "trained alone" if self.baseline == "local" else f"trained alone ({self.baseline})"

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
    rounds, clients = read_table(run.rounds), read_table(run.clients)
    return Story(
        folder.resolve().name,
        record,
        progress_of_methods(rounds),
        means_of_clients(clients, record.ranking.metric),
        scores_of_clients(clients),
        progress_of_methods(rounds, "validation_error"),
        read_table(run.profile) if run.profile.exists() else None,
        read_table(run.verdicts) if run.verdicts.exists() else None,
        _advice(run.advice),
    )


def _advice(path: Path) -> dict[str, Any] | None:
    found = read_json(path) if path.exists() else None
    return found if isinstance(found, dict) else None
