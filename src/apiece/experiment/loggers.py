"""Loggers that are told of a run while it goes: TensorBoard and MLflow, an extra each."""

import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from apiece.errors import UserError
from apiece.experiment.folder import name_file
from apiece.experiment.progress import Listener

PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow"}


def check_loggers(names: Sequence[str]) -> None:
    """Raise a `UserError` about a logger that is not known, or not installed.

    >>> try: check_loggers(["tensorbord"])
    ... except UserError as error: print(error)
    there is no logger 'tensorbord'; there are: tensorboard, mlflow
    """
    if isinstance(names, str):
        raise UserError(f"log is a list of names: ['{names}']")
    for name in names:
        if name not in PACKAGES:
            raise UserError(f"there is no logger '{name}'; there are: {', '.join(PACKAGES)}")
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise UserError(f"the logger '{name}' needs {PACKAGES[name]}: pip install 'apiece[{name}]'")


def open_loggers(names: Sequence[str], folder: Path) -> list[Listener]:
    """The loggers by name, for the run in a folder."""
    make: dict[str, Callable[[Path], Listener]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
    return [make[name](Path(folder)) for name in dict.fromkeys(names)]


class TensorBoard:
    """Curves for `tensorboard --logdir RUN/tensorboard`: a line for every row and seed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.writers = folder / "tensorboard", {}  # type: ignore[var-annotated]

    def progressed(self, what: str, done: int, total: int) -> None:
        """TensorBoard has no place for it."""

    def seen(self, row: str, seed: int, numbers: dict[str, float]) -> None:
        """A point of every curve."""
        from tensorboardX import SummaryWriter

        if (row, seed) not in self.writers:
            self.writers[row, seed] = SummaryWriter(str(self.folder / f"{name_file(row)}-{seed}"))
        writer = self.writers[row, seed]
        for name, value in curves(numbers).items():
            writer.add_scalar(name, value, int(numbers["round"]))
        writer.flush()

    def close(self) -> None:
        """Close its files."""
        for writer in self.writers.values():
            writer.close()


class MLflow:
    """A run of MLflow for every row and seed, in the experiment that has the folder's name.

    Where MLFLOW_TRACKING_URI says; by default in mlflow.db of the folder.
    """

    def __init__(self, folder: Path) -> None:
        from mlflow.tracking import MlflowClient

        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self.client: Any = MlflowClient(tracking_uri=where)
        self.runs: dict[tuple[str, int], str] = {}
        name = folder.resolve().name
        known = self.client.get_experiment_by_name(name)
        self.experiment = known.experiment_id if known else self.client.create_experiment(name)

    def progressed(self, what: str, done: int, total: int) -> None:
        """MLflow has no place for it."""

    def seen(self, row: str, seed: int, numbers: dict[str, float]) -> None:
        """A point of every metric."""
        if (row, seed) not in self.runs:
            run = self.client.create_run(self.experiment, run_name=f"{row}, seed {seed}")
            self.runs[row, seed] = run.info.run_id
            self.client.log_param(run.info.run_id, "method", row)
            self.client.log_param(run.info.run_id, "seed", seed)
        for name, value in curves(numbers).items():
            self.client.log_metric(self.runs[row, seed], name, value, step=int(numbers["round"]))

    def close(self) -> None:
        """End its runs."""
        for run in self.runs.values():
            self.client.set_terminated(run)


def curves(numbers: dict[str, float]) -> dict[str, float]:
    """What is drawn against rounds: all that is a number.

    >>> curves({"round": 3, "validation_loss": 0.5, "sampling_error": float("nan")})
    {'validation_loss': 0.5}
    """
    return {name: value for name, value in numbers.items() if name != "round" and math.isfinite(value)}
