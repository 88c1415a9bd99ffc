"""A large network for each of many clients: what does it take? Everybody's state is written once, and then judged.

Every round has its own clients, so that after the last one all have been visited: nothing is left as cheap zeros.
"""

import argparse
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import apiece
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.states import bytes_of_a_row, disk, store_of
from apiece.engines.world.cohort import Availability, Participation
from apiece.experiment import build as setup
from apiece.experiment import measure
from apiece.experiment.judge import Outcome, judge
from apiece.machine import memory, peak_memory_mb
from apiece.methods.bind import bind

from .speed import grid

HELP = "peak memory, disk and seconds of a ResNet-18 apiece for 500 clients (needs 25 GB of disk)"
SIDE, CLASSES = 8, 10


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=500, help="each gets a network (default: %(default)s)")
    parser.add_argument("--cohort", type=int, default=10, help="clients a round (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage (default: %(default)s)")
    parser.add_argument("--method", default="ditto", help="a method that keeps a model (default: %(default)s)")


class LeastFree:
    """Samples the free space of a disk until it is closed: how much of it was taken at most."""

    def __init__(self, folder: str, every: float = 1.0) -> None:
        self.folder, self.every, self.ended = folder, every, threading.Event()
        self.before = self.least = shutil.disk_usage(folder).free
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self) -> None:
        while not self.ended.wait(self.every):
            self.least = min(self.least, shutil.disk_usage(self.folder).free)

    def close(self) -> int:
        """Bytes taken at most, by whomever."""
        self.ended.set()
        self.thread.join(timeout=10)
        return self.before - min(self.least, shutil.disk_usage(self.folder).free)


def federation(clients: int, seed: int = 0) -> apiece.Federation:
    """Small pictures whose brightest row tells the class; four to train on, one to validate, one to eight to test."""
    rng = np.random.default_rng(seed)
    sizes = 5 + rng.integers(1, 9, clients)
    client = np.repeat(np.arange(clients), sizes)
    y = rng.integers(0, CLASSES, len(client))
    x = rng.integers(0, 100, (len(y), SIDE, SIDE), np.uint8)
    x[np.arange(len(y)), y % SIDE] += 100
    place = np.concatenate([np.arange(size) for size in sizes])
    split = np.where(place < 4, 0, np.where(place < 5, 1, 2))
    classes = tuple(map(str, range(CLASSES)))
    return apiece.data.from_rows(x, y, client, classes=classes, split=split, name=f"{clients} clients")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """One row."""
    if args.clients % args.cohort:
        raise ValueError(f"{args.clients} clients are not divided by a cohort of {args.cohort}")
    model = apiece.models.resnet18((SIDE, SIDE), CLASSES, width=args.width)
    place = setup.arena(federation(args.clients), model)
    build, hyper = bind(args.method, place.objective.loss, {"steps": 1, "batch": 2, "lr": 0.01})
    turns = tuple(map(tuple, np.arange(args.clients).reshape(-1, args.cohort).tolist()))
    each_in_turn = Participation(size=args.cohort, availability=Availability("given", given=turns))
    laid_out = (place.x, place.y, place.offsets)
    engine = Vectorized(build, *laid_out, held_out=place.splits, participation=each_in_turn)
    taken, began = LeastFree(disk()), time.monotonic()
    state, seconds = engine.start(model.init, 0, hyper), []
    for turn in range(len(turns)):
        before = time.monotonic()
        state = engine.advance(state, 1)
        jax.block_until_ready(state.server)
        seconds.append(time.monotonic() - before)
        if turn % 5 == 4:
            passed = time.monotonic() - began
            say(f"round {turn + 1} of {len(turns)}: {peak_memory_mb():.0f} MB at most, {passed:.0f} s")
    assert state.known.all(), "everybody has been visited"
    say(f"judging {args.clients} models")
    before = time.monotonic()
    metrics = measure.metrics(place, Outcome(*judge(engine, place, state), [], {}))
    accuracy = metrics["test"]["accuracy"]["mean_weighted"]
    judging = time.monotonic() - before
    on_disk = store_of(state.rows) is not None
    row = {
        "workload": f"{args.clients} x {model.name}",
        "system": "apiece",
        "method": args.method,
        "cohort": args.cohort,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state.params)),
        "states_gb": bytes_of_a_row(state.rows) * args.clients / 1e9,
        "kept": "disk" if on_disk else "memory",
        "disk_gb": taken.close() / 1e9,
        "peak_mb": peak_memory_mb(),
        "memory_gb": memory() / 1e9,
        "seconds_per_round": statistics.median(seconds),
        "judging_seconds": judging,
        "accuracy": accuracy,
    }
    return {"rows": [row]}


COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("work", "workload", str),
    ("method", "method", str),
    ("cohort", "cohort", str),
    ("parameters", "parameters", lambda n: f"{n:,}"),
    ("states GB", "states_gb", lambda g: f"{g:.1f}"),
    ("kept", "kept", str),
    ("disk GB", "disk_gb", lambda g: f"{g:.1f}"),
    ("peak GB", "peak_mb", lambda m: f"{m / 1024:.1f}"),
    ("machine's", "memory_gb", lambda g: f"{g:.1f}"),
    ("s/round", "seconds_per_round", lambda s: f"{s:.1f}"),
    ("judging s", "judging_seconds", lambda s: f"{s:.0f}"),
]


def table(result: dict[str, Any], markdown: bool) -> str:
    return "\n".join(grid(COLUMNS, result["rows"], markdown))
