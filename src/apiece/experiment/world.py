"""Who takes part in a spec's world, and when replies arrive."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from apiece.engines.world.arrivals import Arrivals, Delays, Recorded, Speeds
from apiece.engines.world.cohort import Availability, Participation
from apiece.engines.world.pace import Pace
from apiece.errors import UserError
from apiece.experiment.spec_tables import ArrivalsSpec, PaceSpec, TrainSpec


def participation_of(train: TrainSpec) -> Participation:
    """Who takes part, and when.

    >>> participation_of(TrainSpec(cohort=3)).size
    3
    """
    said = train.availability.model_dump() if train.availability else {}
    there = Availability(**said | {"given": tuple(map(tuple, said.get("given", ())))})
    return Participation(train.cohort, train.probability, there)


def arrivals_of(spec: ArrivalsSpec) -> Arrivals:
    """When replies arrive: by clients' speeds, by given delays, or as they were recorded.

    >>> arrivals_of(ArrivalsSpec(delays=[0, 3])).in_flight()
    4
    """
    if spec.delays and spec.recorded:
        raise UserError("train.arrivals.delays and train.arrivals.recorded exclude each other; give one")
    if spec.delays:
        return Delays(tuple(spec.delays), tuple(spec.clients), spec.buffer)
    if spec.recorded:
        columns = read_columns(Path(spec.recorded), ("client", "began", "ended"))
        client = tuple(int(i) for i in columns["client"])
        return Recorded(client, tuple(columns["began"]), tuple(columns["ended"]), spec.buffer)
    return Speeds(spec.active, spec.buffer, spec.policy, pace_of(spec.pace))


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[float]]:
    """Columns of numbers of a .csv or .parquet file; a `UserError` names the file, or the column that is missing."""
    if not path.is_file():
        raise UserError(f"there is no file '{path}'")
    try:
        table = pq.read_table(path) if path.suffix == ".parquet" else pacsv.read_csv(path)
        if lost := [name for name in names if name not in table.column_names]:
            raise UserError(f"'{path}' has no column '{lost[0]}'; it has {', '.join(table.column_names)}")
        return {name: [float(value) for value in table[name].to_pylist()] for name in names}
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UserError(f"'{path}' cannot be read as columns of numbers: {error}") from None


def pace_of(spec: PaceSpec) -> Pace:
    """How long clients take."""
    return Pace(spec.law, spec.spread, tuple(spec.times), spec.jitter)
