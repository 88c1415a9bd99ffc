"""Small experiments that the tests of this folder share, and how two of them are compared."""

import fcntl
import json
import shutil
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np

from apiece import files
from apiece.data import Federation
from apiece.experiment import build as setup
from apiece.experiment import make_spec, run_spec

# Clients of unequal sizes, one of them new; a cohort, so that some clients have met the server and others have not.
DATA = {"source": "digits", "options": {"clients": 12, "partition": "dirichlet_per_class", "alpha": 1.0}}
SMALL = {
    "data": DATA,
    "train": {"rounds": 3, "cohort": 5, "evaluate_every": 1, "checkpoint_seconds": 0.0},
    "methods": {"ditto": {"lam": 0.5}},
    "seeds": [0, 1],
    "tune": 2,
}


@cache
def federation() -> Federation:
    """The data of `SMALL`. Tests that need another federation change labels, not shapes: programs are compiled once."""
    return setup.federation_of(make_spec({"data": DATA}).data)


@contextmanager
def only_one(lock: Path):
    """One worker at a time; what the first one made, the others find."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_once(place: Path, name: str, make) -> Path:
    """The folder `place / name`, filled by `make(folder)` of whichever worker comes first."""
    with only_one(place / f"{name}.lock"):
        done = place / f"{name}.done"
        if not done.exists():
            shutil.rmtree(place / name, ignore_errors=True)  # what a worker left that failed
            make(place / name)
            done.touch()
    return place / name


def run(values: dict, out: Path):
    return run_spec(make_spec(values), out)


def record_of(out: Path) -> dict:
    return json.loads((out / "record.json").read_text())


def numbers_of(out: Path) -> str:
    """Every number of a run that must be the same each time, as text: all but times and memory."""
    found = {}
    for name, method in record_of(out)["methods"].items():
        for spent in (method["costs"], *(trial["costs"] for trial in method["seeds"])):
            for clock in ("seconds", "peak_memory_mb"):
                spent.pop(clock)
        found[name] = method
    return json.dumps(found)


def models_of(out: Path) -> dict[str, bytes]:
    """Every array of every model file, bit for bit."""
    found = {}
    for path in sorted((out / "models").glob("*.safetensors")):
        for name, array in files.read_arrays(path)[0].items():
            found[f"{path.name}: {name}"] = array.dtype.str.encode() + np.ascontiguousarray(array).tobytes()
    return found


def content_of(place: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(p.relative_to(place)): p.read_bytes() for p in sorted(place.rglob("*")) if p.is_file()}
