"""One of several processes that share a run: `python one_of_several.py FILE COORDINATOR PROCESSES PROCESS FOLDER WORD`.

With the word "killed", the last process dies in the middle of a run that has a checkpoint in FOLDER; with "resumed",
the run goes on from there. Also what a single process does, for the test to compare with.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import ClassVar

import jax
import numpy as np

from apiece.engines.simulation.crew import LostProcess, join_crew, work_with
from apiece.engines.simulation.hosted import Hosted
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.engines.world.faults import Faults
from apiece.methods import ditto, scaffold
from apiece.models import linear, objective
from apiece.protocol import Question

SIZES = np.array([1, 3, 7, 20, 2, 9, 4, 4, 6, 1, 3, 8, 5, 2])
POPULATION = 12  # and two that are new
ROUNDS, SAVED = 6, 3
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
MODEL = linear((3,))
JUDGE = objective(MODEL, "regression")
EVERYBODY = np.arange(len(SIZES))
TOTAL = Question(lambda message, data, key: message * data.size)


class Watched(np.ndarray):
    """An array that notes which of its rows are read."""

    read: ClassVar[set] = set()

    def __getitem__(self, which):
        rows = np.arange(len(self))[which]
        Watched.read.update(np.atleast_1d(rows).tolist())
        return np.asarray(super().__getitem__(which))


def make(kind, crew=None, states="memory"):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(SIZES.sum(), 3)).astype(np.float32), rng.normal(size=SIZES.sum()).astype(np.float32)
    factory = {"ditto": ditto, "scaffold": scaffold}[kind]
    build = lambda hyper, round: factory(JUDGE.loss, steps=2, batch=4, lr=0.1)
    how = dict(participation=Participation(size=7), population=POPULATION, states=states)
    if kind == "scaffold":
        how["faults"] = Faults(dropout=0.3)  # then not every reply counts
    if crew is None:
        return Vectorized(build, x, y, OFFSETS, block=3, **how)
    return Hosted(build, x.view(Watched), y, OFFSETS, crew=crew, **how)


def numbers(engine, run):
    """All that can be asked of a run, in one row."""
    models = engine.personal(run, EVERYBODY)
    found = engine.outcomes(run, EVERYBODY, JUDGE.outcomes, {"train": engine.train})["train"]
    fewer = engine.outcomes(run, EVERYBODY, JUDGE.outcomes, {"train": engine.train}, most=2)["train"]
    pooled = engine.ask(TOTAL, np.float32(2.0))
    every = jax.tree.leaves((run.server, models, found, fewer, pooled, run.known, engine.visited(run)))
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in every]).tolist()


def whole_run(engine):
    return numbers(engine, engine.advance(engine.start(MODEL.init, 0), ROUNDS))


def killed_run(engine, folder, dies):
    """A run with a checkpoint; then it goes on, and the last process dies."""
    run = engine.advance(engine.start(MODEL.init, 0), SAVED - 1)
    engine.save(run, folder / "run.safetensors", {"seconds": 1.0}, beside=True)
    run = engine.advance(run, 1)
    engine.save(run, folder / "run.safetensors", {"seconds": 2.0}, beside=True)
    run = engine.advance(run, 1)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    engine.advance(run, 1)


def resumed_run(engine, folder):
    run, about = engine.restore(folder / "run.safetensors", engine.start(MODEL.init, 0))
    assert run.round == SAVED and about == {"seconds": 2.0}
    return numbers(engine, engine.advance(run, ROUNDS - SAVED))


def main(file, coordinator, processes, process, folder, word):
    jax.config.update("jax_num_cpu_devices", 1)
    processes, process, out, folder = int(processes), int(process), {}, Path(folder)
    with work_with(join_crew(coordinator, processes, process, "a test", wait=120)) as crew:
        crew.wait = 120
        for kind in ("ditto", "scaffold"):
            engine = make(kind, crew)
            Watched.read.clear()
            out[kind] = whole_run(engine)
            out[f"{kind}_read"] = sorted(Watched.read)
        if word == "resumed":
            out["resumed"] = resumed_run(make("ditto", crew, "disk"), folder)
        else:
            try:
                killed_run(make("ditto", crew, "disk"), folder, dies=process == processes - 1)
            except LostProcess as error:
                out["lost"] = str(error)
    Path(file).write_text(json.dumps(out), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
