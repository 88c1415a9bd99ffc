"""The same networks in a plain PyTorch loop; the clock stands still while batches are drawn and gathered."""

import torch
from torch.nn import functional as F

from . import rival_torch, workloads
from .deep import examples
from .deep_networks import network


class System(rival_torch.System):
    """FedAvg as in `rival_torch`, with another network and, for images, PyTorch's other memory format."""

    def __init__(self, w: workloads.Workload, method: str, threads: int, form: str):
        torch.set_num_threads(threads)
        self.w, self.rng = w, workloads.np.random.default_rng(0)
        x, y = examples(w)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y).long()
        self.net, self.form = network(w), torch.contiguous_format
        if w.shape:
            self.x = self.x.float() / 255
            self.x = self.x[:, None] if len(w.shape) == 2 and w.model != "sensor_cnn" else self.x.movedim(-1, 1)
            self.form = torch.channels_last if form == "channels_last" else self.form
            self.net = self.net.to(memory_format=self.form)
        else:
            self.x = self.x.long()
        self.shared = {k: v.clone() for k, v in self.net.state_dict().items()}

    def local(self, xs: torch.Tensor, ys: torch.Tensor) -> None:
        self.net.load_state_dict(self.shared)
        optimizer = torch.optim.SGD(self.net.parameters(), lr=self.w.lr)
        for x, y in zip(xs, ys, strict=True):
            optimizer.zero_grad()
            self.judged(x, y).backward()
            optimizer.step()

    def judged(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.ndim == 4:
            x = x.contiguous(memory_format=self.form)
        return F.cross_entropy(self.net(x).flatten(0, -2), y.flatten())

    def loss(self) -> float:
        self.net.load_state_dict(self.shared)
        with torch.no_grad():
            return float(self.judged(self.x[:64], self.y[:64]))
