"""The plain PyTorch program that most frameworks amount to: one client after another, one batch after another.

Kinder than most: one working model is overwritten instead of copied, there is no data loader, no evaluation, no
logging, and the clock stands still while a client's batches are drawn and gathered.
"""

import time

import numpy as np
import torch
from torch.nn import functional as F

from . import workloads


def network(w: workloads.Workload) -> torch.nn.Sequential:
    """The workload's model, with the first weights that every system starts from."""
    layers: list[torch.nn.Module] = []
    for weight, bias in workloads.first_model(w):
        layer = torch.nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = torch.tensor(weight.T.copy()), torch.tensor(bias)
        layers += [torch.nn.ReLU(), layer] if layers else [layer]
    return torch.nn.Sequential(*layers)


def weights(net: torch.nn.Module) -> list[tuple[np.ndarray, np.ndarray]]:
    """Back to (weight [in, out], bias) pairs."""
    return [
        (m.weight.detach().numpy().T, m.bias.detach().numpy()) for m in net.modules() if isinstance(m, torch.nn.Linear)
    ]


class System:
    """FedAvg, written as one would write it in an afternoon."""

    def __init__(self, w: workloads.Workload, method: str, threads: int):
        torch.set_num_threads(threads)
        self.w, self.rng = w, np.random.default_rng(0)
        self.data = workloads.ready(workloads.make(w))
        self.x, self.y = torch.from_numpy(self.data.x), torch.from_numpy(self.data.y).long()
        self.net = network(w)
        self.shared = {k: v.clone() for k, v in self.net.state_dict().items()}

    def run(self, rounds: int) -> tuple[float, float]:
        """Seconds of training and seconds of drawing, of this many rounds."""
        training = drawing = 0.0
        for _ in range(rounds):
            t0 = time.perf_counter()
            rows = torch.from_numpy(workloads.draw(self.w, self.rng))
            t1 = time.perf_counter()
            total = {k: torch.zeros_like(v) for k, v in self.shared.items()}
            t2 = time.perf_counter()
            drawing, training = drawing + t1 - t0, training + t2 - t1
            for of_client in rows:
                t0 = time.perf_counter()
                xs, ys = self.x[of_client], self.y[of_client]
                t1 = time.perf_counter()
                self.local(xs, ys)
                for k, v in self.net.state_dict().items():
                    total[k] += v / len(rows)  # clients are of equal size
                t2 = time.perf_counter()
                drawing, training = drawing + t1 - t0, training + t2 - t1
            self.shared = total
        return training, drawing

    def local(self, xs: torch.Tensor, ys: torch.Tensor) -> None:
        self.net.load_state_dict(self.shared)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=self.w.lr)
        for x, y in zip(xs, ys, strict=True):
            optimizer.zero_grad()
            F.cross_entropy(self.net(x), y).backward()
            optimizer.step()

    def loss(self) -> float:
        self.net.load_state_dict(self.shared)
        return workloads.mean_loss(weights(self.net), self.data)
