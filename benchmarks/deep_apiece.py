"""apiece's vectorized engine on a network; its clock includes drawing, gathering and conversion."""

import time

import jax
import numpy as np

from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.methods import fed_avg
from apiece.models import named_model, objective
from apiece.protocol import Batch

from . import workloads
from .deep import examples

COMPILES = True


class System:
    """FedAvg on one federation; `threads` is the number of host devices (set before JAX starts)."""

    def __init__(self, w: workloads.Workload, method: str, threads: int):
        if len(jax.devices()) != threads:
            raise RuntimeError(f"asked for {threads} devices, JAX has {len(jax.devices())}")
        self.data = examples(w)
        x, y = self.data
        every = y.ndim > 1
        task = "next_character" if every else "classification"
        model = named_model(w.model, task, x.shape[1:], w.classes, w.classes, every)
        self.objective = objective(model, task)
        build = lambda hyper, round: fed_avg(self.objective.loss, steps=w.steps, batch=w.batch, lr=w.lr)
        offsets = np.arange(w.clients + 1) * w.examples
        self.engine = Vectorized(build, x, y, offsets, participation=Participation(size=w.cohort), block=1)
        self.state = self.engine.start(model.init, seed=0)

    def run(self, rounds: int) -> tuple[float, float]:
        """Seconds of this many rounds, drawing included."""
        start = time.perf_counter()
        self.state = self.engine.advance(self.state, rounds)
        jax.block_until_ready(self.state.server)
        return time.perf_counter() - start, 0.0

    def loss(self) -> float:
        """Of the shared model on the first examples."""
        x, y = (part[:64] for part in self.data)
        params = jax.device_put(jax.tree.map(np.asarray, self.state.server), jax.devices()[0])
        return float(self.objective.loss(params, Batch(jax.numpy.asarray(x), jax.numpy.asarray(y), np.ones(64)), None))
