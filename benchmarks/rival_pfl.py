"""pfl-research (`pip install pfl`): its own FederatedAveraging on its own SimulatedBackend, PyTorch model.

Set up in its favour: every client's data is a ready float32 tensor in a Dataset made once, whose batches it caches; no
evaluation (but the one it always makes in the first round, which is warm-up), no callbacks, no metrics printed.
pfl counts local work in epochs: 120 examples in batches of 32 are 4 steps an epoch, so 5 epochs are the 20 steps.
"""

import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn import functional as F

from . import workloads
from .rival_torch import network, weights


class Net(torch.nn.Module):
    """The network with the two functions pfl asks a module for."""

    def __init__(self, w: workloads.Workload):
        super().__init__()
        self.net = network(w)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(F.cross_entropy(self.net(x), y, reduction="sum").item(), len(y))}


class System:
    """FedAvg."""

    def __init__(self, w: workloads.Workload, method: str, threads: int):
        torch.set_num_threads(threads)
        np.random.seed(0)  # pfl draws its cohorts from the global generator
        self.w, self.done = w, 0
        self.data = workloads.ready(workloads.make(w))
        x, y = torch.from_numpy(self.data.x), torch.from_numpy(self.data.y).long()
        n = w.examples
        users = [Dataset((x[i * n : i * n + n], y[i * n : i * n + n]), user_id=str(i)) for i in range(w.clients)]
        federation = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(list(range(w.clients))))
        self.backend = SimulatedBackend(federation, federation)
        self.net = Net(w)
        server = torch.optim.SGD(self.net.parameters(), lr=1.0)
        self.model = PyTorchModel(self.net, torch.optim.SGD, server)
        self.algorithm = FederatedAveraging()
        epochs, rest = divmod(w.steps, -(-w.examples // w.batch))
        if rest:
            raise ValueError(f"pfl trains whole epochs, and {w.steps} steps are not: choose another workload")
        self.local = NNTrainHyperParams(local_batch_size=w.batch, local_num_epochs=epochs, local_learning_rate=w.lr)

    def run(self, rounds: int) -> tuple[float, float]:
        """Seconds of these many rounds; its batches are cached slices, so that drawing is nothing."""
        self.done += rounds
        plan = NNAlgorithmParams(
            central_num_iterations=self.done,
            evaluation_frequency=10**9,
            train_cohort_size=self.w.cohort,
            val_cohort_size=None,
        )
        start = time.perf_counter()
        self.algorithm.run(plan, self.backend, self.model, self.local, send_metrics_to_platform=False)
        return time.perf_counter() - start, 0.0

    def loss(self) -> float:
        return workloads.mean_loss(weights(self.net), self.data)
