"""MNIST as many small clients: a few of the ten digits each, sizes by a power law; writers are ignored."""

import numpy as np

from apiece.data.federation import Federation
from apiece.data.load.read import read
from apiece.data.partition import partitioned
from apiece.data.sources.real import file_of
from apiece.errors import UserError

EXPONENT = 0.65  # the spread of sizes is then about 1.5 times their mean, as in the usual cut (69 +- 106)
USUAL = 1_000  # clients that the digits are enough for, at the usual size


def digit_clients(clients: int, digits: int, seed: int = 0) -> Federation:
    """So many clients with so many of the digits each, from a share of all 70,000 that keeps sizes the same."""
    table = read(file_of("mnist_by_writer.npz"))
    lacking = [name for name in ("x_train", "y_train", "x_test", "y_test") if name not in table.names]
    if lacking:
        raise UserError(f"{table.file} lacks {', '.join(lacking)}: is it another file?")
    x, y = (np.concatenate([table.column(f"{name}_{part}") for part in ("train", "test")]) for name in ("x", "y"))
    taken = np.random.default_rng([seed, 2]).permutation(len(y))[: len(y) * clients // USUAL]
    return partitioned(
        x[taken], y[taken], clients, "by_classes", name=f"mnist, {digits} digits each",
        classes=[str(digit) for digit in range(10)], k=digits, exponent=EXPONENT, seed=seed,
    )  # fmt: skip
