"""Federations by name: `source("digits", clients=30, partition="by_classes", k=2)`."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from apiece.data import synthetic
from apiece.data.federation import Federation, from_rows
from apiece.data.partition import assign
from apiece.errors import UserError, suggest


def digits(
    clients: int = 30,
    partition: str = "dirichlet_per_client",
    alpha: float | None = None,
    k: int | None = None,
    exponent: float | None = None,
    min_size: int = 5,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
) -> Federation:
    """1,797 handwritten digits of 8x8 pixels (scikit-learn carries them), cut into clients by a partition.

    x is uint8 [rows, 64], 255 for full ink; `alpha`, `k` and `exponent` go to the partition that has them.

    >>> federation = digits(clients=20, partition="dirichlet_per_class", alpha=0.5)
    >>> federation.clients, len(federation.classes), federation.train.x.shape[1:]
    (20, 10, (64,))
    """
    from sklearn.datasets import load_digits  # here, because importing scikit-learn takes a second

    x, y = load_digits(return_X_y=True)
    client = assign(y, partition, clients, seed=seed, alpha=alpha, k=k, exponent=exponent, min_size=min_size)
    pixels = (x.astype(np.int64) * 255 // 16).astype(np.uint8)
    names = tuple(str(c) for c in range(10))
    return from_rows(pixels, y, client, name="digits", classes=names, shares=shares, seed=seed)


SOURCES: dict[str, Callable[..., Federation]] = {
    "digits": digits,
    "quadratics": synthetic.quadratics,
    "linear": synthetic.linear,
    "linear_spectrum": synthetic.linear_spectrum,
    "logistic": synthetic.logistic,
    "two_level_gaussian": synthetic.two_level_gaussian,
    "bernoulli_means": synthetic.bernoulli_means,
    "many": synthetic.many,
}


def source(name: str, **options: Any) -> Federation:
    """Make the federation of that name; options are the arguments of its function.

    >>> source("linear", clients=5, features=3).clients
    5
    >>> try: source("digits", client=30)
    ... except UserError as error: print(error)
    data 'digits' has no option 'client': did you mean 'clients'?
    """
    if name not in SOURCES:
        raise UserError(f"unknown data '{name}': {suggest(name, SOURCES)}")
    known = inspect.signature(SOURCES[name]).parameters
    for option in options:
        if option not in known:
            tail = suggest(option, known) if known else "it takes none"
            raise UserError(f"data '{name}' has no option '{option}': {tail}")
    return SOURCES[name](**options)
