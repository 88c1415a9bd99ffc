"""The workloads: shapes, and data made from a fixed seed.

Pixels are uint8 and mostly dark, as in pictures of digits; labels come from a planted linear model, so that a
system that trains shows a falling loss.
"""

import dataclasses
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
    """A federation, a model, and how much of it one round trains."""

    name: str
    clients: int
    examples: int = 120  # per client
    features: int = 784
    hidden: tuple[int, ...] = ()  # () is softmax regression
    model: str = ""  # of a deep workload: a model of apiece by name; features are then pixels or places
    shape: tuple[int, ...] = ()  # of a picture or signal
    classes: int = 10
    cohort: int = 20  # clients a round
    steps: int = 20  # local steps of a client
    batch: int = 32
    lr: float = 0.02
    seed: int = 0

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.features, *self.hidden, self.classes)

    @property
    def flops(self) -> int:
        """Multiplications and additions of the matrix products of one FedAvg round: all that cannot be avoided.

        Every layer computes its output and the gradient of its weight; every layer but the first also the gradient of
        its input. Each is 2 * batch * in * out.

        >>> WORKLOADS["W1"].flops
        401408000
        """
        layers = zip(self.widths[:-1], self.widths[1:], strict=True)
        step = sum((4 if i == 0 else 6) * self.batch * fan_in * fan_out for i, (fan_in, fan_out) in enumerate(layers))
        return self.cohort * self.steps * step


WORKLOADS = {
    w.name: w
    for w in (
        Workload("W1", clients=100),
        Workload("W2", clients=1_000, cohort=100),
        Workload("MLP", clients=100, hidden=(128,)),
    )
}


class Examples(NamedTuple):
    """All clients' examples, client after client: `x` uint8 [clients * examples, features], `y` int32."""

    x: np.ndarray
    y: np.ndarray


def make(w: Workload) -> Examples:
    """The workload's examples; the same on every machine."""
    rng = np.random.default_rng(w.seed)
    planted = rng.normal(size=(w.features, w.classes)).astype(np.float32)
    x = np.empty((w.clients * w.examples, w.features), np.uint8)
    y = np.empty(len(x), np.int32)
    rows = 20_000  # a slice at a time: making the data must not be the peak of anybody's memory
    for a in range(0, len(x), rows):
        part = x[a : a + rows]
        part[:] = rng.integers(0, 256, part.shape, np.uint8)
        part *= rng.integers(0, 5, part.shape, np.uint8) == 0
        logits = (part / np.float32(255)) @ planted
        y[a : a + rows] = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return Examples(x, y)


def ready(data: Examples) -> Examples:
    """The same with `x` as float32 in [0, 1]: what the rivals get, converted before the clock starts."""
    x = data.x.astype(np.float32)
    x /= 255
    return Examples(x, data.y)


def draw(w: Workload, rng: np.random.Generator) -> np.ndarray:
    """Row numbers [cohort, steps, batch] of one round: a cohort without replacement, batches with."""
    ids = rng.choice(w.clients, w.cohort, replace=False)
    return ids[:, None, None] * w.examples + rng.integers(0, w.examples, (w.cohort, w.steps, w.batch))


def first_model(w: Workload) -> list[tuple[np.ndarray, np.ndarray]]:
    """(weight [in, out], bias [out]) per layer, where every system starts: He's normal; zero for a single layer."""
    rng = np.random.default_rng(w.seed + 1)
    scale = 1.0 if w.hidden else 0.0
    return [
        (rng.normal(0, scale * (2 / i) ** 0.5, (i, o)).astype(np.float32), np.zeros(o, np.float32))
        for i, o in zip(w.widths[:-1], w.widths[1:], strict=True)
    ]


def mean_loss(model: list[tuple[np.ndarray, np.ndarray]], data: Examples, rows: int = 5_000) -> float:
    """Cross-entropy of a model over the first `rows` examples: shows that a timed system did train."""
    h = data.x[:rows].astype(np.float32) / (255 if data.x.dtype == np.uint8 else 1)
    for n, (weight, bias) in enumerate(model):
        h = (np.maximum(h, 0) if n else h) @ weight + bias
    h = h - h.max(1, keepdims=True)
    return float(np.mean(np.log(np.exp(h).sum(1)) - h[np.arange(len(h)), data.y[:rows]]))
