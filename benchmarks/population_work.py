"""One population of `python -m benchmarks population`, in a process of its own: its numbers as JSON on stdout."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.states import bytes_of_a_row, disk, store_of
from apiece.engines.world.cohort import Participation
from apiece.machine import memory, peak_memory_mb
from apiece.methods import ditto
from apiece.models import mlp, objective

EXAMPLES, FEATURES, CLASSES, HIDDEN, COHORT = 10, 64, 10, 107, 100  # 8,035 parameters
AT_ONCE = 20_000  # clients whose examples, or states, are made at a time


def write_examples(folder: Path, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes whose brightest eighth tells the class, in files; mapped, not read."""
    rows, rng = clients * EXAMPLES, np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.uint8, (rows, FEATURES))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int32, (rows,))
    for first in range(0, rows, AT_ONCE * EXAMPLES):
        some = slice(first, min(first + AT_ONCE * EXAMPLES, rows))
        label = rng.integers(0, CLASSES, some.stop - some.start)
        pixels = rng.integers(0, 100, (len(label), FEATURES), np.uint8)
        pixels[np.arange(len(label)), label] += 100
        x[some], y[some] = pixels, label
    x.flush()
    y.flush()
    return np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")


def fill(run: Any, clients: int) -> None:
    """Everybody has been visited once: every state is there, as after a long run."""
    for first in range(0, clients, AT_ONCE):
        who = np.arange(first, min(first + AT_ONCE, clients))
        start = jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf), (len(who), *leaf.shape)), run.params)  # noqa: B023
        store = store_of(run.rows)
        if store is None:
            jax.tree.map(lambda leaf, new: leaf.__setitem__(who, new), run.rows, start)  # noqa: B023
        else:
            store.put(who, start)
            store.settle()
    run.known[:] = True


def measure(clients: int, rounds: int, filled: bool, where: str, folder: Path) -> dict[str, Any]:
    """Gets ready, says so, and takes turns with the other population: a line on stdin is a repeat, its end the end."""
    model = mlp((FEATURES,), CLASSES, hidden=(HIDDEN,))
    x, y = write_examples(folder, clients)
    judge = objective(model, "classification")
    build = lambda hyper, round: ditto(judge.loss, steps=20, batch=10, lr=0.05)
    offsets = np.arange(clients + 1) * EXAMPLES
    engine = Vectorized(build, x, y, offsets, participation=Participation(size=COHORT), states=where, examples="host")
    run = engine.start(model.init, 0)
    path = folder / "run.safetensors"
    engine.save(run, path, {}, beside=True)  # as `train` does: the file of states begins where it will stay
    began = time.monotonic()
    if filled:
        fill(run, clients)
    filling = time.monotonic() - began
    save_seconds = []
    for _ in range(2):  # the first one also waits until all that filling wrote is on the disk
        run = engine.advance(run, 10)
        before = time.monotonic()
        engine.save(run, path, {}, beside=True)
        save_seconds.append(time.monotonic() - before)
    print("ready", flush=True)
    seconds = []
    for _ in sys.stdin:
        before = time.monotonic()
        run = engine.advance(run, rounds)
        jax.block_until_ready(run.server)
        if (store := store_of(run.rows)) is not None:
            store.settle()  # what is still to be written counts
        seconds.append((time.monotonic() - before) / rounds)
        print(seconds[-1], flush=True)
    engine.save(run, path, {}, beside=True)
    saved, run = run.round, engine.advance(run, 10)
    killed, _ = engine.restore(path, engine.start(model.init, 0))
    again = engine.advance(killed, run.round - saved)
    same = jax.tree.map(lambda a, b: bool((np.asarray(a) == np.asarray(b)).all()), run.server, again.server)
    return {
        "clients": clients,
        "kept": "memory" if store_of(run.rows) is None else "disk",
        "states_gb": bytes_of_a_row(run.rows) * clients / 1e9,
        "filled": filled,
        "fill_seconds": filling,
        "seconds_per_round": float(np.median(seconds)),
        "best_seconds_per_round": float(np.min(seconds)),
        "save_seconds": save_seconds[-1],
        "resumed_equal": killed.round == saved and all(jax.tree.leaves(same)),
        "peak_mb": peak_memory_mb(),
        "memory_gb": memory() / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("clients", "rounds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--filled", action="store_true")
    parser.add_argument("--states", default="auto")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="apiece-population-", dir=disk()))
    try:
        row = measure(args.clients, args.rounds, args.filled, args.states, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    json.dump(row, sys.stdout)


if __name__ == "__main__":
    main()
