"""Data sets of the Hugging Face hub: their Parquet files, from a local copy or through the library `datasets`.

A data set on the hub is a folder of Parquet files named train-..., test-...; pictures are PNG bytes, and the names of
the classes stand in the metadata of the schema. `folder=...` reads such a folder with pyarrow alone. Without it
`datasets` (the extra `hub`) downloads the files once and keeps them in its cache (the folder that HF_HOME names), from
which they are read again without a network. Both ways give the same Arrow tables and share all code that follows.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from apiece.data.federation import Federation
from apiece.data.load.images import decoded
from apiece.data.load.inspect import from_columns
from apiece.data.load.take import Wanted
from apiece.data.partition import partitioned
from apiece.errors import UserError

SHARES = (0.6, 0.2, 0.2)


def arrow_table(repo: str, splits: Sequence[str], folder: str | None, pictures: str | None = None) -> Any:
    """The rows of a data set's splits as one pyarrow table; `pictures` names the column that holds encoded ones."""
    import pyarrow as pa

    tables = [_local(Path(folder), split) if folder else _fetched(repo, split, pictures) for split in splits]
    try:
        return pa.concat_tables(tables)
    except pa.ArrowException as error:
        raise UserError(
            f"the splits of {folder or repo} have different columns ({error}); copy the folder again"
        ) from None


def class_names(table: Any, column: str) -> tuple[str, ...]:
    """The names of the classes of a column, as the hub writes them into the schema's metadata; () without them.

    >>> import pyarrow as pa
    >>> told = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    >>> class_names(pa.table({"label": [0]}).replace_schema_metadata({"huggingface": json.dumps(told)}), "label")
    ('cat', 'dog')
    """
    told = (table.schema.metadata or {}).get(b"huggingface")
    try:
        names = json.loads(told)["info"]["features"][column]["names"] if told else ()
    except (ValueError, KeyError, TypeError):
        return ()
    return tuple(str(name) for name in names)


def mnist(
    clients: int = 100,
    partition: str = "dirichlet_per_client",
    alpha: float | None = None,
    k: int | None = None,
    exponent: float | None = None,
    min_size: int = 5,
    shares: Sequence[float] = SHARES,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """70,000 handwritten digits of the hub's ylecun/mnist, cut into clients by a partition.

    `folder`: a local copy; `alpha`, `k`, `exponent` go to the partition that has them.
    """
    how = dict(alpha=alpha, k=k, exponent=exponent, min_size=min_size, shares=shares, seed=seed)
    return _pictures("mnist", "ylecun/mnist", "image", "label", folder, clients, partition, how)


def cifar10(
    clients: int = 100,
    partition: str = "dirichlet_per_client",
    alpha: float | None = None,
    k: int | None = None,
    exponent: float | None = None,
    min_size: int = 5,
    shares: Sequence[float] = SHARES,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """60,000 pictures of the hub's uoft-cs/cifar10, cut into clients by a partition.

    `folder`: a local copy; `alpha`, `k`, `exponent` go to the partition that has them.
    """
    how = dict(alpha=alpha, k=k, exponent=exponent, min_size=min_size, shares=shares, seed=seed)
    return _pictures("cifar10", "uoft-cs/cifar10", "img", "label", folder, clients, partition, how)


def cifar100(
    clients: int = 100,
    partition: str = "dirichlet_per_client",
    alpha: float | None = None,
    k: int | None = None,
    exponent: float | None = None,
    min_size: int = 5,
    shares: Sequence[float] = SHARES,
    labels: str = "fine_label",
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """60,000 pictures of the hub's uoft-cs/cifar100, cut into clients by a partition.

    `labels`: fine_label (100 classes) or coarse_label (20); `folder`: a local copy; `alpha`, `k`, `exponent` go to the
    partition that has them.
    """
    how = dict(alpha=alpha, k=k, exponent=exponent, min_size=min_size, shares=shares, seed=seed)
    return _pictures("cifar100", "uoft-cs/cifar100", "img", labels, folder, clients, partition, how)


def femnist(
    writers: int | None = None,
    min_size: int | None = 10,
    shares: Sequence[float] = SHARES,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """Handwritten digits and letters of the hub's flwrlabs/femnist by their writers, 62 classes.

    `writers`: only so many, in the order of their ids (all 3,597 writers are 814,277 pictures); `folder`: a local copy.
    """
    table = arrow_table("flwrlabs/femnist", ["train"], folder, "image")
    need(table, ("image", "writer_id", "character"), folder or "flwrlabs/femnist")
    who = np.asarray(table.column("writer_id").to_pylist(), np.str_)
    if writers is not None:
        rows = np.flatnonzero(np.isin(who, np.unique(who)[:writers]))
        table, who = table.take(rows), who[rows]
    columns = {"image": _decoded(table, "image"), "writer": who, "y": table.column("character").to_numpy()}
    names = class_names(table, "character")
    wanted = Wanted("writer", "y", "image", task="classification", min_size=min_size, shares=tuple(shares), seed=seed)
    federation = from_columns(Path("femnist"), columns, wanted)
    return replace(federation, classes=tuple(names[int(c)] for c in federation.classes)) if names else federation


def shakespeare(
    min_size: int | None = 10,
    shares: Sequence[float] = SHARES,
    folder: str | None = None,
    seed: int = 0,
) -> Federation:
    """The next character in the hub's flwrlabs/shakespeare (LEAF's), 80 characters at a time, by role.

    Windows follow each other by single characters, so neighbours are much alike; the first of a role train and the last
    test. `min_size` is in sequences; `folder`: a local copy.
    """
    table = arrow_table("flwrlabs/shakespeare", ["train"], folder)
    need(table, ("character_id", "x", "y"), folder or "flwrlabs/shakespeare")
    x, y = table.column("x").to_pylist(), table.column("y").to_pylist()
    lengths = {len(text) for text in x}
    if len(lengths) != 1:
        raise UserError(
            f"{folder or 'flwrlabs/shakespeare'}: texts of one length are needed, not of {len(lengths)} lengths"
        )
    length = lengths.pop()
    who = np.asarray(table.column("character_id").to_pylist(), np.str_)
    columns = {"text": np.array([a + b for a, b in zip(x, y, strict=True)], object), "role": who}
    least = None if min_size is None else min_size * (length + 1)
    wanted = Wanted("role", features="text", task="next_character", min_size=least, shares=tuple(shares), seed=seed)
    return from_columns(Path("shakespeare"), columns, wanted._replace(length=length, joined=False))


def _pictures(
    name: str,
    repo: str,
    image: str,
    label: str,
    folder: str | None,
    clients: int,
    partition: str,
    how: dict[str, Any],
) -> Federation:
    table = arrow_table(repo, ["train", "test"], folder, image)
    need(table, (image, label), folder or repo)
    y = table.column(label).to_numpy()
    classes = class_names(table, label) or tuple(str(c) for c in range(int(y.max()) + 1))
    return partitioned(_decoded(table, image), y, clients, partition, name=name, classes=classes, **how)


def need(table: Any, names: Sequence[str], where: str) -> None:
    """Refuse a table that lacks one of these columns."""
    lacking = [name for name in names if name not in table.column_names]
    if lacking:
        raise UserError(f"{where} lacks the column {', '.join(lacking)}; it has {', '.join(table.column_names)}")


def _decoded(table: Any, column: str) -> np.ndarray:
    pictures = [cell["bytes"] for cell in table.column(column).to_pylist()]
    return decoded(pictures, [f"row {i + 1}, column '{column}'" for i in range(len(pictures))])


def _local(folder: Path, split: str) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    files = sorted(file for file in folder.rglob("*.parquet") if file.name.split("-")[0].split(".")[0] == split)
    if not files:
        raise UserError(f"{folder} holds no Parquet file called {split}-...; give the folder of a copy of the data set")
    try:
        return pa.concat_tables([parquet.read_table(file) for file in files])
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{folder}: {files[0].name} cannot be read ({error}); copy it again") from error


def _fetched(repo: str, split: str, pictures: str | None) -> Any:
    try:
        datasets: Any = import_module("datasets")
    except ImportError as error:
        raise UserError(
            f"{repo} comes from the Hugging Face hub, which needs the library datasets: pip install 'apiece[hub]'; or "
            f"give a local copy of its Parquet files (-D folder=...)"
        ) from error
    try:
        rows = datasets.load_dataset(repo, split=split)
    except OSError as error:  # so `datasets` reports a missing network as well as a missing data set
        raise UserError(
            f"{repo} could not be fetched from the Hugging Face hub and is not in its cache ({error}); go online once, "
            f"or give a local copy of its Parquet files (-D folder=...)"
        ) from error
    if pictures is not None:
        rows = rows.cast_column(pictures, datasets.Image(decode=False))
    return rows.with_format("arrow")[:]
