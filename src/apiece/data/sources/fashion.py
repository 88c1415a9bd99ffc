"""Fashion-MNIST as Debian packages it, and a reader for its IDX files."""

import gzip
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from apiece.data.federation import Federation
from apiece.data.partition import partitioned
from apiece.errors import UserError

PLACE = "/usr/share/datasets/fashion-mnist"
PACKAGE = "dataset-fashion-mnist"
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FILES = {
    "x": ("train-images-idx3-ubyte", "t10k-images-idx3-ubyte"),
    "y": ("train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"),
}
KINDS = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(file: Path) -> np.ndarray:
    """The array in an IDX file: two zero bytes, the kind of number, the dimensions, their sizes, the numbers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "labels").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
    ...     read_idx(Path(folder, "labels")).tolist()
    [7, 8, 9]
    """
    try:
        data = file.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as error:
        raise UserError(f"{file} cannot be read ({error})") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in KINDS or len(data) < 4 + 4 * data[3]:
        raise UserError(f"{file} is not an IDX file; copy it again")
    kind, begin = np.dtype(KINDS[data[2]]), 4 + 4 * data[3]
    shape = np.frombuffer(data, ">u4", data[3], 4).tolist()
    if len(data) - begin != math.prod(shape) * kind.itemsize:
        raise UserError(f"{file} holds {len(data) - begin} bytes where {shape} numbers should be; copy it again")
    return np.frombuffer(data, kind, offset=begin).reshape(shape).astype(kind.newbyteorder("="))


def fashion_mnist(
    clients: int = 100,
    partition: str = "dirichlet_per_client",
    alpha: float | None = None,
    k: int | None = None,
    exponent: float | None = None,
    min_size: int = 5,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    folder: str = PLACE,
    seed: int = 0,
) -> Federation:
    """70,000 pictures of clothes of 28x28 pixels, cut into clients by a partition (Debian: dataset-fashion-mnist).

    `folder` holds the four IDX files, as they are or gzipped; `alpha`, `k`, `exponent` go to the partition.
    """
    arrays = {
        name: np.concatenate([read_idx(_found(Path(folder), file)) for file in pair]) for name, pair in FILES.items()
    }
    return partitioned(
        arrays["x"],
        arrays["y"],
        clients,
        partition,
        name="fashion_mnist",
        classes=CLASSES,
        shares=shares,
        seed=seed,
        alpha=alpha,
        k=k,
        exponent=exponent,
        min_size=min_size,
    )


def _found(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise UserError(
        f"there is no {name} in {folder}: install the Debian package {PACKAGE} (apt install {PACKAGE}), or name the "
        f"folder that holds the four IDX files (-D folder=...)"
    )
