"""What a report reads: record.json and the two tables of a run folder, and nothing else."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from apiece.errors import UserError
from apiece.files import read_json
from apiece.report.numbers import known


class Metric(NamedTuple):
    """The test score of a task: how it is called, its unit, what to multiply it with, which way is better."""

    key: str
    label: str
    unit: str
    factor: float
    higher: bool
    places: int | None  # after the point; None: as the interval demands


METRICS = {
    "classification": Metric("accuracy", "accuracy", "%", 100.0, True, 1),
    "next_character": Metric("accuracy", "accuracy", "%", 100.0, True, 1),
    "regression": Metric("error", "mean squared error", "", 1.0, False, None),
    "custom": Metric("error", "loss", "", 1.0, False, None),
}


class Clients(NamedTuple):
    """The clients of one method, means over seeds: NaN where a client has no test example or its model diverged."""

    ids: list[str]
    new: NDArray
    train: NDArray
    test: NDArray
    score: NDArray
    gain: NDArray  # over local, points; all NaN without local


class Run(NamedTuple):
    """A run as its files tell it."""

    name: str
    record: dict[str, Any]
    rounds: dict[str, NDArray]
    clients: dict[str, Clients]

    @property
    def metric(self) -> Metric:
        """The score that the report is about."""
        return METRICS[self.record["federation"]["task"]]

    @property
    def methods(self) -> dict[str, Any]:
        """The methods' part of the record, in the order of the spec."""
        return self.record["methods"]

    @property
    def seeds(self) -> int:
        """How many seeds every method was run with."""
        return max((len(method["seeds"]) for method in self.methods.values()), default=0)

    def score(self, method: str, part: str = "test", statistic: str = "mean_weighted") -> dict[str, Any] | None:
        """The interval over seeds of one statistic, or None if there is no such number."""
        found = self.methods[method]["summary"].get(part, {}).get(self.metric.key, {}).get(statistic)
        return found if found and known(found["mean"]) else None

    def newcomers(self, method: str) -> tuple[list[int], list[dict[str, Any]]] | None:
        """(numbers of examples, an interval of the score over seeds for each) of new clients, or None."""
        found = self.methods[method].get("newcomers")
        return (found["examples"], found[self.metric.key]) if found else None

    def ordered(self) -> list[str]:
        """The methods by weighted test score, best first; diverged ones last."""
        sign = -1 if self.metric.higher else 1

        def place(method: str) -> tuple[bool, float]:
            found = self.score(method)
            return (found is None, sign * found["mean"] if found else 0.0)

        return sorted(self.methods, key=place)


def read_run(folder: Path) -> Run:
    """The run in a folder; a `UserError` says what is missing."""
    for name in ("record.json", "rounds.parquet", "clients.parquet"):
        if not (folder / name).is_file():
            raise UserError(f"'{folder}' holds no finished run: there is no {name}. Finish it: apiece resume {folder}")
    record = read_json(folder / "record.json")
    try:
        rounds = pq.read_table(folder / "rounds.parquet")
        clients = pq.read_table(folder / "clients.parquet")
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"a table of '{folder}' cannot be read ({error}); delete it and resume") from None
    columns = {name: rounds[name].to_numpy() for name in rounds.column_names}
    return Run(folder.resolve().name, record, columns, by_method(clients))


def by_method(table: pa.Table) -> dict[str, Clients]:
    """The client table with the seeds averaged away, split by method.

    >>> table = pa.table({"method": ["a", "a"], "seed": [0, 1], "client": ["x", "x"], "new": [False, False],
    ...                   "train_examples": [3, 3], "test_examples": [2, 2], "test_error": [1.0, 3.0]})
    >>> by_method(table)["a"].score
    array([2.])
    """
    score = "test_accuracy" if "test_accuracy" in table.column_names else "test_error"
    numbers = [name for name in (score, "gain_over_local") if name in table.column_names]
    facts = ["new", "train_examples", "test_examples"]
    wanted = [(name, "mean") for name in numbers] + [(name, "max") for name in facts]
    # Without threads the clients keep the order of the table.
    means = table.group_by(["method", "client"], use_threads=False).aggregate(wanted)
    methods = means["method"].to_numpy()
    found = {}
    for method in dict.fromkeys(methods.tolist()):
        mine = means.filter(pa.array(methods == method))
        column = lambda name, mine=mine: mine[name].to_numpy().astype(np.float64)
        gain = column("gain_over_local_mean") if "gain_over_local" in numbers else np.full(len(mine), np.nan)
        found[method] = Clients(
            mine["client"].to_pylist(),
            column("new_max").astype(bool),
            column("train_examples_max"),
            column("test_examples_max"),
            column(f"{score}_mean"),
            gain,
        )
    return found
