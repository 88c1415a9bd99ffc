"""The methods of the last-layer experiment, the grids they are tuned over, and fine-tuning by the number of passes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from apiece.engines.engine import RunState
from apiece.engines.simulation.base import Simulation
from apiece.experiment.build import Arena
from apiece.experiment.contest import After, Rival
from apiece.experiment.train import Look
from apiece.methods import fed_avg, maml_fl
from apiece.protocol import Loss, Method, Tree
from apiece.wrap import fine_tuned

PASSES = (0, 1, 2, 3, 5, 10, 15, 20)  # of personalization; the methods are tuned and compared at 10
STEPS = (1e-4, 1e-3, 0.01, 0.1, 1.0)  # whole decades, as published
DELTAS = (1e-3, 1e-5)  # of Hessian-free MAML, as published
SWEPT = ("ftfa", "maml_fl (first)")  # whose passes are counted


def ftfa_in_passes(loss: Loss, *, lr: Tree = 0.1, tune_lr: Tree = 0.1, passes: Tree = 10.0) -> Method:
    """FTFA whose number of passes is traced: one program for all of them.

    >>> ftfa_in_passes(lambda params, batch, key: 0.0).message("the model", 3)
    'the model'
    """
    return fine_tuned(fed_avg(loss, lr=lr), loss, epochs=_whole(passes), lr=tune_lr)


def maml_in_passes(loss: Loss, *, lr: Tree = 0.1, tune_lr: Tree = 0.1, passes: Tree = 10.0) -> Method:
    """First-order MAML, likewise.

    >>> maml_in_passes(lambda params, batch, key: 0.0).message("the model", 3)
    'the model'
    """
    shared = maml_fl(loss, order="first", lr=lr, tune_lr=tune_lr)._replace(personal=fed_avg(loss).personal)
    return fine_tuned(shared, loss, epochs=_whole(passes), lr=tune_lr)


def _whole(passes: Tree) -> Tree:
    return int(passes) if isinstance(passes, int | float) else passes.astype(jnp.int32)


def rivals(quick: bool = False) -> dict[str, Rival]:
    """Every method with its grid; 20 local steps, batches of 32 and 10 passes of personalization are the defaults.

    FedAvg's training does not know how clients tune: FTFA and RTFA train once for each step size. Both widths of
    Hessian-free MAML take what was chosen with the width set by rule. `quick` has coarser grids and leaves Hessian-free
    MAML out: each method takes seconds to compile.

    >>> [(len(rival.early_points), len(rival.late_points)) for rival in rivals().values()]
    [(5, 1), (5, 1), (5, 5), (5, 25), (25, 1), (25, 1), (1, 1), (1, 1), (10, 1)]
    """
    sizes = STEPS[3:] if quick else STEPS
    alone, both = dict(lr=sizes), dict(lr=sizes, tune_lr=sizes)
    pulled = {**both, "lam": (0.1,) if quick else STEPS}
    centre = dict(lr=(0.05,) if quick else (5e-5, 5e-4, 0.005, 0.05, 0.5), beta=(1.0, 2.0))
    free = {
        f"maml_fl (delta {delta:g})": Rival("maml_fl", dict(order="free", delta=delta), like="maml_fl (free)")
        for delta in DELTAS
    }
    every = {
        "local": Rival("local", grid=alone),
        "fed_avg": Rival("fed_avg", grid=alone),
        "ftfa": Rival(ftfa_in_passes, grid=both, late=("tune_lr",)),
        "rtfa": Rival("rtfa", grid=pulled, late=("tune_lr", "lam")),
        "maml_fl (first)": Rival(maml_in_passes, grid=both),
        "maml_fl (free)": Rival("maml_fl", dict(order="free"), both),
        **free,
        "pfedme": Rival("pfedme", dict(lam=15.0, prox_lr=0.05), centre),
    }
    return {name: rival for name, rival in every.items() if not (quick and (name in free or name == "maml_fl (free)"))}


def pooled(place: Arena, part: str) -> Callable[[Simulation, RunState], tuple[float, float]]:
    """(engine, run) -> (loss, error) of the clients that trained, all their examples of a split together."""
    everybody = np.arange(place.population)

    def judged(engine: Simulation, run: RunState) -> tuple[float, float]:
        loss, error = engine.outcomes(run, everybody, place.objective.outcomes, (part,))[part]
        return float(loss.mean(dtype=np.float64)), float(error.mean(dtype=np.float64))

    return judged


def pooled_beside(place: Arena) -> Look:
    """Adds the pooled test error, as the paper draws it, to every point of a curve; nobody chooses by it."""
    judged = pooled(place, "test")

    def look(engine: Any, run: RunState, seen: dict[str, Any]) -> None:
        seen["test_error"] = judged(engine, run)[1]

    return look


def by_passes(place: Arena) -> After:
    """Asked of those whose passes are traced: test accuracy after each number of passes; of others nothing."""
    judged = pooled(place, "test")

    def ask(engine: Simulation, run: RunState) -> Any:
        if "passes" not in run.hyper:
            return None
        again = lambda passes: dataclasses.replace(run, hyper={**run.hyper, "passes": float(passes)})
        return [1 - judged(engine, again(passes))[1] for passes in PASSES]

    return ask
