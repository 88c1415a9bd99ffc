"""apiece's vectorized engine, as a user runs it: flat uint8 examples in, batches drawn inside the compiled program.

Its clock runs all the time: choosing the cohort, drawing, gathering, conversion from uint8 and the clients' kept state
are inside, none of which the rivals are charged for.
"""

import time
from typing import Any

import jax
import numpy as np

from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.methods import CATALOG
from apiece.models import mlp, objective, softmax

from . import workloads

COMPILES = True

# Options beyond steps, lr and batch; and how many gradients a client evaluates in a round, per local step.
OPTIONS: dict[str, dict[str, Any]] = {"ditto": {"lam": 0.1}, "pfedme": {"lam": 15.0, "prox_steps": 5}}
GRADIENTS_PER_STEP = {"fed_avg": 1, "ditto": 2, "pfedme": OPTIONS["pfedme"]["prox_steps"], "scaffold": 1}


class System:
    """One method on one federation; `threads` is the number of host devices (set before JAX starts)."""

    def __init__(self, w: workloads.Workload, method: str, threads: int):
        if len(jax.devices()) != threads:
            raise RuntimeError(f"asked for {threads} devices, JAX has {len(jax.devices())}")
        self.w, self.method = w, method
        self.data = workloads.make(w)
        model = mlp((w.features,), w.classes, w.hidden) if w.hidden else softmax((w.features,), w.classes)
        loss = objective(model, "classification").loss
        factory, fixed = CATALOG[method], {"steps": w.steps, "batch": w.batch, **OPTIONS.get(method, {})}
        self.engine = Vectorized(
            lambda hyper, round: factory(loss, **fixed, **hyper),
            self.data.x,
            self.data.y,
            np.arange(w.clients + 1) * w.examples,
            participation=Participation(size=w.cohort),
        )
        hyper = {"lr": w.lr} | ({"prox_lr": w.lr} if method == "pfedme" else {})
        self.state = self.engine.start(lambda key: self.first(), seed=0, hyper=hyper)
        self.facts = {"gradients_per_client": w.steps * GRADIENTS_PER_STEP[method]}

    def first(self) -> Any:
        """The weights every system starts from, under apiece's names."""
        layers = [{"w": jax.numpy.asarray(a.T), "b": jax.numpy.asarray(b)} for a, b in workloads.first_model(self.w)]
        names = [f"hidden{k}" for k in range(len(self.w.hidden))] + ["out"]
        return dict(zip(names, layers, strict=True)) if self.w.hidden else layers[0]

    def run(self, rounds: int) -> tuple[float, float]:
        """Seconds of this many rounds, drawing included."""
        start = time.perf_counter()
        self.state = self.engine.advance(self.state, rounds)
        jax.block_until_ready(self.state.server)
        return time.perf_counter() - start, 0.0

    def loss(self) -> float:
        """Of the shared model."""
        shared = self.state.server[0] if self.method == "scaffold" else self.state.server
        layers = [*shared.values()] if self.w.hidden else [shared]
        return workloads.mean_loss([(np.asarray(p["w"]).T, np.asarray(p["b"])) for p in layers], self.data)
