"""The plain NumPy program on one thread: gradients by hand, nothing between the arrays and BLAS.

Two ways to write it, both timed, the better reported: `batched` holds the models of the whole cohort as stacked arrays
and takes every step for all clients at once; `per_client` takes client after client. The same code does both: its
arrays have one more axis in front. The clock stands still while batches are drawn, gathered and one-hot encoded.
"""

import time

import numpy as np

from . import workloads

Layers = list[tuple[np.ndarray, np.ndarray]]


def step(layers: Layers, x: np.ndarray, onehot: np.ndarray, lr: float) -> None:
    """One step of gradient descent, in place. `x` is [..., B, in]; weights [..., out, in]; biases [..., 1, out].

    The weight lies as [out, in]: with ten classes this is the faster of the two.
    """
    inputs = [x]
    for n, (weight, bias) in enumerate(layers):
        out = inputs[-1] @ weight.swapaxes(-1, -2)
        out += bias
        if n < len(layers) - 1:
            np.maximum(out, 0, out=out)
        inputs.append(out)
    g = inputs.pop()
    g -= g.max(-1, keepdims=True)
    np.exp(g, out=g)
    g /= g.sum(-1, keepdims=True)
    g -= onehot
    g *= lr / x.shape[-2]
    for n in reversed(range(len(layers))):
        weight, bias = layers[n]
        below = g @ weight * (inputs[n] > 0) if n else g
        weight -= g.swapaxes(-1, -2) @ inputs[n]
        bias -= g.sum(-2, keepdims=True)
        g = below


class System:
    """FedAvg; `variant` is batched or per_client."""

    def __init__(self, w: workloads.Workload, method: str, threads: int, variant: str):
        self.w, self.rng, self.variant = w, np.random.default_rng(0), variant
        self.data = workloads.ready(workloads.make(w))
        self.onehot = np.eye(w.classes, dtype=np.float32)
        self.shared = [(weight.T.copy(), bias[None]) for weight, bias in workloads.first_model(w)]

    def run(self, rounds: int) -> tuple[float, float]:
        """Seconds of training and seconds of drawing, of this many rounds."""
        training = drawing = 0.0
        for _ in range(rounds):
            t0 = time.perf_counter()
            rows = workloads.draw(self.w, self.rng)
            drawing += time.perf_counter() - t0
            # batched: one group of all clients, a step's batch is [C, B, d]; per_client: C groups, [B, d]
            groups = [rows.swapaxes(0, 1)] if self.variant == "batched" else rows
            total = [(np.zeros_like(weight), np.zeros_like(bias)) for weight, bias in self.shared]
            for group in groups:
                t0 = time.perf_counter()
                xs, onehots = self.data.x[group], self.onehot[self.data.y[group]]
                t1 = time.perf_counter()
                self.local(xs, onehots, total)
                t2 = time.perf_counter()
                drawing, training = drawing + t1 - t0, training + t2 - t1
            self.shared = total
        return training, drawing

    def local(self, xs: np.ndarray, onehots: np.ndarray, total: Layers) -> None:
        many = xs.shape[1:-2]  # (C,) or ()
        layers = [
            (np.broadcast_to(a, (*many, *a.shape)).copy(), np.broadcast_to(b, (*many, *b.shape)).copy())
            for a, b in self.shared
        ]
        for x, onehot in zip(xs, onehots, strict=True):
            step(layers, x, onehot, self.w.lr)
        for into, layer in zip(total, layers, strict=True):
            for t, leaf in zip(into, layer, strict=True):
                t += (leaf.sum(0) if many else leaf) / self.w.cohort  # clients are of equal size

    def loss(self) -> float:
        return workloads.mean_loss([(weight.T, bias[0]) for weight, bias in self.shared], self.data)
