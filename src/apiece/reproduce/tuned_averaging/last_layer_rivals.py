"""The methods of the last-layer experiment, the grids they are tuned over, and fine-tuning by the number of passes."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from apiece.engines.engine import RunState
from apiece.engines.simulation.base import Simulation
from apiece.experiment.build import Arena
from apiece.experiment.contest import After, Rival
from apiece.methods import fed_avg
from apiece.protocol import Loss, Method, Tree
from apiece.wrap import fine_tuned

PASSES = (0, 1, 2, 3, 5, 10, 15, 20)  # of personalization; the methods are tuned and compared at 10
STEPS = (0.01, 0.1, 1.0)


def ftfa_in_passes(loss: Loss, *, lr: Tree = 0.1, tune_lr: Tree = 0.1, passes: Tree = 10.0) -> Method:
    """FTFA whose number of passes is traced: one program for all of them.

    >>> ftfa_in_passes(lambda params, batch, key: 0.0).message("the model", 3)
    'the model'
    """
    count = int(passes) if isinstance(passes, int | float) else passes.astype(jnp.int32)
    return fine_tuned(fed_avg(loss, lr=lr), loss, epochs=count, lr=tune_lr)


def rivals(quick: bool = False) -> dict[str, Rival]:
    """Every method with its grid; 20 local steps, batches of 32 and 10 passes of personalization are the defaults.

    `quick` has coarser grids and leaves Hessian-free MAML out: each method takes seconds to compile.

    >>> [len(rival.points) for rival in rivals().values()]
    [4, 4, 9, 27, 9, 9, 6]
    """
    sizes = STEPS[1:] if quick else STEPS
    alone, both = dict(lr=sizes if quick else (0.001, *STEPS)), dict(lr=sizes, tune_lr=sizes)
    pulled = {**both, "lam": (0.1,) if quick else (0.01, 0.1, 1.0)}
    centre = dict(lr=(0.05,) if quick else (0.0005, 0.005, 0.05), beta=(1.0, 2.0))
    every = {
        "local": Rival("local", grid=alone),
        "fed_avg": Rival("fed_avg", grid=alone),
        "ftfa": Rival(ftfa_in_passes, grid=both),
        "rtfa": Rival("rtfa", grid=pulled),
        "maml_fl (first)": Rival("maml_fl", dict(order="first"), both),
        "maml_fl (free)": Rival("maml_fl", dict(order="free"), both),
        "pfedme": Rival("pfedme", dict(lam=15.0, prox_lr=0.05), centre),
    }
    return {name: rival for name, rival in every.items() if not (quick and name == "maml_fl (free)")}


def by_passes(place: Arena) -> After:
    """Asked of a trained FTFA: test accuracy after each number of passes; of others nothing."""

    def ask(engine: Simulation, run: RunState) -> Any:
        if "passes" not in run.hyper:
            return None
        everybody = np.arange(place.population)

        def accuracy(passes: int) -> float:
            again = dataclasses.replace(run, hyper={**run.hyper, "passes": float(passes)})
            return 1 - float(engine.outcomes(again, everybody, place.objective.outcomes, ("test",))["test"][1].mean())

        return [accuracy(passes) for passes in PASSES]

    return ask
