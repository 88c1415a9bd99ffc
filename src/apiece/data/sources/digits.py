"""The handwritten digits that scikit-learn carries."""

from collections.abc import Sequence

import numpy as np

from apiece.data.federation import Federation
from apiece.data.partition import partitioned
from apiece.data.sources.checked import checked


@checked
def digits(
    clients: int = 30,
    partition: str = "dirichlet_per_client",
    alpha: float | None = None,
    k: int | None = None,
    exponent: float | None = None,
    min_size: int = 5,
    shares: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    image: bool = False,
) -> Federation:
    """1,797 handwritten digits of 8x8 pixels (scikit-learn carries them), cut into clients by a partition.

    x is uint8 [rows, 64], or [rows, 8, 8] as an `image` for convolutions, 255 for full ink; `alpha`, `k` and `exponent`
    go to the partition that has them.

    >>> federation = digits(clients=20, partition="dirichlet_per_class", alpha=0.5)
    >>> federation.clients, len(federation.classes), federation.train.x.shape[1:]
    (20, 10, (64,))
    >>> digits(image=True).train.x.shape[1:]
    (8, 8)
    """
    from sklearn.datasets import load_digits  # here, because importing scikit-learn takes a second

    x, y = load_digits(return_X_y=True)
    pixels = (x.astype(np.int64) * 255 // 16).astype(np.uint8).reshape(-1, *((8, 8) if image else (64,)))
    return partitioned(
        pixels,
        y,
        clients,
        partition,
        name="digits",
        classes=[str(c) for c in range(10)],
        shares=shares,
        seed=seed,
        alpha=alpha,
        k=k,
        exponent=exponent,
        min_size=min_size,
    )
