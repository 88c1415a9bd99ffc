"""One of two processes that share a run: `python one_of_two.py FILE [COORDINATOR PROCESS]`; alone without these."""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from apiece.engines.simulation.asynchronous import Asynchronous
from apiece.engines.simulation.multihost import join
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.arrivals import Speeds
from apiece.engines.world.cohort import Participation
from apiece.engines.world.pace import Pace
from apiece.methods import ditto
from apiece.models import linear, objective

SIZES = np.array([1, 3, 7, 20, 2, 9])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
MODEL = linear((3,))
JUDGE = objective(MODEL, "regression")


def main(file, coordinator=None, process=0):
    jax.config.update("jax_num_cpu_devices", 1)
    if coordinator:
        join(coordinator, 2, int(process), wait=60)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(SIZES.sum(), 3)).astype(np.float32), rng.normal(size=SIZES.sum()).astype(np.float32)
    worked, out = [], {}

    def spied(factory):
        """Notes each client's work in the process that does it."""

        def build(hyper, round):
            method = factory(JUDGE.loss, steps=2, batch=4, lr=0.1)

            def local(client, message, data, key):
                jax.debug.callback(lambda start: worked.append(int(start)), data.start)
                return method.local(client, message, data, key)

            return method._replace(local=local)

        return build

    engines = {
        "ditto": Vectorized(spied(ditto), x, y, OFFSETS, participation=Participation(size=4), block=3),
        "late": Asynchronous(
            spied(ditto), x, y, OFFSETS, arrivals=Speeds(4, buffer=2, pace=Pace("zipf", jitter="exponential"))
        ),
    }
    for name, engine in engines.items():
        worked.clear()
        run = engine.advance(engine.start(MODEL.init, 0), 5)
        models = engine.personal(run, np.arange(6))
        loss, _ = engine.outcomes(run, np.arange(6), JUDGE.outcomes, {"train": engine.train})["train"]
        jax.effects_barrier()
        leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves((run.server, run.rows, models))]
        out[name] = {"numbers": np.concatenate([*leaves, loss]).tolist(), "worked": list(worked)}
    out["devices"] = len(jax.devices())
    Path(file).write_text(json.dumps(out), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
