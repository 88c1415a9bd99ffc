"""The folder of a tuning: what its files are called, and what is written when it is done."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from apiece import files
from apiece.experiment.folder import RunFolder, name_file
from apiece.experiment.tables import write_table
from apiece.experiment.tuning.search import Trial


class TuningFolder(NamedTuple):
    """Where everything of a tuning lies.

    >>> TuningFolder(Path("runs/tune-1")).method("ditto").as_posix()
    'runs/tune-1/methods/ditto.toml'
    """

    path: Path

    @property
    def asked(self) -> Path:
        """The spec that is tuned."""
        return self.run.asked

    @property
    def search(self) -> Path:
        """How it is searched."""
        return self.path / "checkpoints" / "search.json"

    @property
    def study(self) -> Path:
        """Optuna's database, if it is searched by that."""
        return self.path / "checkpoints" / "study.sqlite"

    @property
    def workers(self) -> Path:
        """The locked files of the processes at work."""
        return self.path / "checkpoints" / "workers"

    @property
    def spec(self) -> Path:
        """All methods as tuned: what `compare` takes."""
        return self.path / "spec.toml"

    def method(self, name: str) -> Path:
        """One of them: what `run` takes."""
        return self.path / "methods" / f"{name_file(name)}.toml"

    @property
    def table(self) -> Path:
        """A row per trial."""
        return self.path / "tuning.parquet"

    @property
    def record(self) -> Path:
        """What was found: written last."""
        return self.path / "tuning.json"

    @property
    def run(self) -> RunFolder:
        """The same folder, for files that runs have, too."""
        return RunFolder(self.path)


def is_tuning(folder: str | Path) -> bool:
    """Whether a folder holds a tuning, finished or not.

    >>> is_tuning("no-such-folder")
    False
    """
    return TuningFolder(Path(folder)).asked.exists()


def trial_rows(trials: Mapping[str, Sequence[Trial]], chosen: Mapping[str, int | None]) -> pa.Table:
    """A row per trial: its method, number and state, every option as a column of its own where it is a number.

    >>> told = Trial(0, {"lr": 0.1}, "finished", {"validation_loss": 0.5}, 10, 400.0, 1.5)
    >>> trial_rows({"ditto": [told]}, {"ditto": 0}).to_pylist()[0]["option_lr"]
    0.1
    """
    every = [(name, trial) for name, mine in trials.items() for trial in mine]
    numbers = lambda value: float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    options = sorted({option for _, trial in every for option in trial.options})
    looks = sorted({key for _, trial in every for key in trial.validation})
    columns: dict[str, Any] = {
        "method": pa.array([name for name, _ in every], pa.string()),
        "number": pa.array([trial.number for _, trial in every], pa.int64()),
        "state": pa.array([trial.state for _, trial in every], pa.string()),
        "chosen": pa.array([chosen[name] == trial.number for name, trial in every], pa.bool_()),
        "options": pa.array([json.dumps(files.as_plain(trial.options)) for _, trial in every], pa.string()),
    }
    of = lambda get: pa.array([get(trial) for _, trial in every], pa.float64())
    columns |= {f"option_{name}": of(lambda trial, name=name: numbers(trial.options.get(name))) for name in options}
    columns |= {name: of(lambda trial, name=name: trial.validation.get(name)) for name in looks}
    columns |= {name: of(lambda trial, name=name: float(getattr(trial, name)))
                for name in ("rounds", "gradients", "seconds")}  # fmt: skip
    return pa.table(columns)


def tuned_values(values: Mapping[str, Any], chosen: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A spec's plain values with these options in the tables of its methods, and nothing left to tune.

    >>> spec = {"methods": {"ditto": {"lam": {"grid": [0.1, 1.0]}}}, "tune": 8}
    >>> tuned_values(spec, {"ditto": {"lam": 1.0, "lr": 0.1}})
    {'methods': {'ditto': {'lam': 1.0, 'lr': 0.1}}, 'tune': 1}
    """
    tables = {name: {**table, **chosen[name]} for name, table in values["methods"].items() if name in chosen}
    return {**values, "methods": tables, "tune": 1}


def write_results(
    folder: TuningFolder,
    values: Mapping[str, Any],
    trials: Mapping[str, Sequence[Trial]],
    record: Mapping[str, Any],
) -> None:
    """The specs, the table and, last, the record."""
    rows = record["methods"]
    tuned = tuned_values(values, {name: row["options"] for name, row in rows.items()})
    for name, table in tuned["methods"].items():
        files.write_toml(folder.method(name), {**tuned, "methods": {name: table}, "every": {}, "baselines": False})
    files.write_toml(folder.spec, tuned)
    write_table(folder.table, trial_rows(trials, {name: row["chosen"] for name, row in rows.items()}))
    files.write_json(folder.record, record)
