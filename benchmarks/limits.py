"""What this machine can do at most: float32 matrix products per second, measured beside everything else.

A workload's share of the limit is its floating-point operations per second (`Workload.flops`, matrix products only)
over the peak measured here on as many cores. Softmax regression multiplies by ten columns and takes an exponential
per logit: no program reaches the peak of square products there. The share says how much is left at the very most.
"""

import time

import numpy as np

from . import workloads

SIZE = 1536


class System:
    """Square matrix products through NumPy's BLAS; a "round" is one product."""

    def __init__(self, w: workloads.Workload, method: str, threads: int):
        rng = np.random.default_rng(0)
        self.a, self.b = (rng.random((SIZE, SIZE), np.float32) for _ in range(2))
        self.out = np.empty_like(self.a)

    def run(self, rounds: int) -> tuple[float, float]:
        """Seconds of this many products, counted at the fastest of them: a limit is what went well once."""
        best = float("inf")
        for _ in range(rounds):
            start = time.perf_counter()
            np.matmul(self.a, self.b, out=self.out)
            best = min(best, time.perf_counter() - start)
        return best * rounds, 0.0

    def loss(self) -> None:
        return None


def gflops(seconds_per_product: float) -> float:
    """Billions of operations per second.

    >>> round(gflops(0.05))
    145
    """
    return 2 * SIZE**3 / seconds_per_product / 1e9
