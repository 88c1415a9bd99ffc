"""A federation as one table that others can read: whose a row is, its split, features and label; and back again.

What a table cannot say (the order of clients and classes, the shape of an example, how it was scaled) stands in the
metadata of the Parquet file, so that reading it gives the same arrays.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.federation import Federation
from apiece.data.load.read import ABOUT, Table
from apiece.data.load.take import Wanted
from apiece.data.scaling import Scaling
from apiece.data.splits import SPLITS
from apiece.errors import UserError
from apiece.files import fill_folder

FILE = "examples.parquet"
FORMAT = 1
ROLES = ("client", "split", "new", "label")
KINDS: dict[str, Any] = {
    **dict.fromkeys((*ROLES, "name", "task"), str),
    **dict.fromkeys(("features", "names", "classes", "shape", "notes"), list),
    "scaling": dict | None,
}


def write_dealt(federation: Federation, folder: Path) -> Path:
    """Write all examples into `examples.parquet` of a new folder, and give its path.

    Features are as models see them: gaps filled, words as columns of 0 and 1, scaled if that was asked for.

    >>> import tempfile
    >>> from apiece.data import digits, load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_dealt(digits(clients=5), Path(folder, "split"))
    ...     bool((load(file).test.x == digits(clients=5).test.x).all())
    True
    """
    import pyarrow as pa
    from pyarrow import parquet

    if federation.task not in ("classification", "regression"):
        raise UserError(f"{federation.name} is no table: its task is {federation.task}; keep it with apiece data save")
    sides = [federation] + ([federation.new] if federation.new is not None else [])
    if len(sides) > 1 and (twice := sorted(set(sides[0].ids.tolist()) & set(sides[1].ids.tolist()))):
        raise UserError(f"'{twice[0]}' is a client that trains and a new one; keep it with apiece data save")
    parts = [(side, part, getattr(side, part)) for side in sides for part in SPLITS]
    joined = lambda values: np.concatenate([values(side, split) for side, _, split in parts])
    x, y = joined(lambda side, split: split.x), joined(lambda side, split: split.y)
    named = x.ndim == 2 and len(set(federation.features)) == x.shape[1]
    features = list(federation.features) if named else ["x"]
    roles = {role: _free(role, features) for role in ROLES}
    columns: dict[str, Any] = {
        roles["client"]: joined(lambda side, split: side.ids[split.owner]),
        roles["split"]: np.repeat([part for _, part, _ in parts], [split.rows for _, _, split in parts]),
        roles["new"]: joined(lambda side, split: np.full(split.rows, int(side is not federation), np.int8)),
        roles["label"]: np.asarray(federation.classes)[y] if federation.classes else _lists(y),
        **({name: x[:, k] for k, name in enumerate(features)} if named else {"x": _lists(x)}),
    }
    about = {
        **roles, "format": FORMAT, "features": features, "names": list(federation.features), "name": federation.name,
        "task": federation.task, "classes": list(federation.classes), "shape": list(x.shape[1:]),
        "notes": list(federation.notes),
        "scaling": None if federation.scaling is None else federation.scaling.as_dict(),
    }  # fmt: skip
    table = pa.table(columns).replace_schema_metadata({ABOUT: json.dumps(about)})
    with fill_folder(folder) as temporary:
        parquet.write_table(table, temporary / FILE)
    return folder / FILE


def find_dealt(path: Path) -> Path:
    """The table in a folder that `write_dealt` made; else the path itself.

    >>> find_dealt(Path("clinics.csv")).name
    'clinics.csv'
    """
    file = path / FILE
    if not file.is_file() or any(other != file for other in path.iterdir() if not other.name.startswith(".")):
        return path
    import pyarrow as pa
    from pyarrow import parquet

    try:
        metadata = parquet.read_schema(file).metadata or {}
    except (pa.ArrowException, OSError):
        return path
    return file if ABOUT.encode() in metadata else path


def as_dealt(table: Table, wanted: Wanted) -> tuple[Table, Wanted]:
    """A table that `write_dealt` wrote, and what is wanted of it; as it is, if the user said what is what."""
    about = table.about
    said = (wanted.client, wanted.label, wanted.features, wanted.split, wanted.new)
    if about.get("format") != FORMAT or any(one is not None for one in said) or wanted.task != "auto":
        return replace(table, about={}), wanted
    lacking = [key for key, kind in KINDS.items() if not isinstance(about.get(key), kind)]
    if lacking:
        raise UserError(f"{table.file}: its metadata has no valid '{lacking[0]}'; write it again (apiece data split)")
    shape, features = tuple(about["shape"]), about["features"]

    def column(name: str) -> np.ndarray:
        values = table.column(name)
        return values.reshape(len(values), *shape) if features == ["x"] == [name] else values

    roles = {role: about[role] for role in ROLES}
    said_there = {"features": features, "task": about["task"], "classes": tuple(about["classes"])}
    return replace(table, column=column), wanted._replace(**roles, **said_there, dealt=True)


def restored(federation: Federation, about: dict[str, Any]) -> Federation:
    """The federation with what only the description of its table knows."""
    scaling, now = None if about["scaling"] is None else Scaling.from_dict(about["scaling"]), federation.scaling
    known: dict[str, Any] = {"name": about["name"], "features": tuple(about["names"])}
    known["scaling"] = scaling if now is None else now.after(scaling)
    new = federation.new and replace(federation.new, **known)
    return replace(federation, new=new, notes=tuple(about["notes"]), **known)


def _free(role: str, features: list[str]) -> str:
    return role if role not in features else _free(f"{role}_", features)


def _lists(values: np.ndarray) -> Any:
    """One list for each row; plain numbers if there is one number for each."""
    import pyarrow as pa

    if values.ndim == 1:
        return pa.array(values)
    flat = np.ascontiguousarray(values).reshape(len(values), -1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
