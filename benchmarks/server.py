"""What a server of very many devices does: checks replies, adds them up, and passes sums up a tree. Per core, here.

A reply is what a client sends after a visit, as bytes of `engines/remote/codec.py`. A leaf of the tree reads replies,
refuses those that are no numbers, and adds the rest into one weighted sum; a node above adds the sums of its children.
All leaves share this machine's cores in processes of their own, as a server's would.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from apiece.engines.remote.codec import decode, encode, schema_of
from apiece.machine import count_cores

from .speed import grid

HELP = "replies per second that a server checks and adds up, and the height and cost of a tree of sums above it"
FAN_IN = 64  # children of a node
DIFFERENT = 32  # replies that take turns, so that one does not stay in the cache
MODELS = (1_000, 8_035, 100_000)  # parameters
REPEATS = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="one size, a moment each")
    parser.add_argument("--leaf", type=int, help=argparse.SUPPRESS)  # of so many parameters, in a process of its own


def read_replies(parameters: int, seconds: float) -> tuple[float, float]:
    """(replies a second, bytes of one) of a leaf: each is decoded, checked and added."""
    shapes = {"w": np.zeros(parameters, np.float32)}
    schema, rng = schema_of("reply", shapes), np.random.default_rng(0)
    made = [{"w": rng.normal(size=parameters).astype(np.float32)} for _ in range(DIFFERENT)]
    wires = [encode(schema, reply, {"round": 7, "client": at}) for at, reply in enumerate(made)]
    total, weight, count = np.zeros(parameters, np.float32), 0.0, 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for wire in wires:
            reply, header = decode(schema, wire)
            if header["round"] == 7 and np.isfinite(reply["w"]).all():
                total += 10.0 * np.asarray(reply["w"])
                weight += 10.0
        count += DIFFERENT
    took = time.monotonic() - began
    assert weight == 10.0 * count and np.isfinite(total).all()
    return count / took, float(len(wires[0]))


def add_sums(parameters: int, seconds: float) -> float:
    """Sums a second that a node above adds."""
    sums = np.random.default_rng(0).normal(size=(FAN_IN, parameters)).astype(np.float32)
    total, count, began = np.zeros(parameters, np.float32), 0, time.monotonic()
    while time.monotonic() - began < seconds:
        for one in sums:
            total += one
        count += FAN_IN
    assert np.isfinite(total).all()
    return count / (time.monotonic() - began)


def tree_height(leaves: int, fan_in: int = FAN_IN) -> int:
    """How many levels of nodes stand above so many leaves.

    >>> tree_height(1), tree_height(64), tree_height(65)
    (0, 1, 2)
    """
    height = 0
    while leaves > 1:
        leaves, height = -(-leaves // fan_in), height + 1
    return height


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row per model."""
    cores = count_cores()
    long, repeats = (0.2, 1) if args.quick else (1.0, args.repeats)
    if args.leaf is not None:
        return {"rows": [{"system": "leaf", "replies": read_replies(args.leaf, long)[0]}]}
    rows = []
    for parameters in MODELS[1:2] if args.quick else MODELS:
        say(f"{parameters:,} parameters")
        alone = [read_replies(parameters, long) for _ in range(repeats)]
        size, one = alone[0][1], max(rate for rate, _ in alone)  # of the turn that neighbours disturbed least
        sums = max(add_sums(parameters, long) for _ in range(repeats))
        together = max(_together(parameters, cores, args.quick) for _ in range(repeats))
        rows.append({"workload": f"{parameters:,} parameters", "system": "apiece", "bytes": size, "replies": one,
                     "all_cores": together, "gb": together * size / 1e9, "sums": sums,
                     "day": 1e8 * size / 1e12, "core_seconds": 1e8 / one})  # fmt: skip
    return {"cores_used": cores, "rows": rows}


def _together(parameters: int, cores: int, quick: bool) -> float:
    """Replies a second of a leaf on each core at the same time."""
    command = [sys.executable, "-m", "benchmarks", "server", "--json", "--leaf", str(parameters)]
    command += ["--quick"] if quick else []
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    leaves = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(cores)]
    try:
        return sum(json.loads(leaf.communicate(timeout=300)[0])["rows"][0]["replies"] for leaf in leaves)
    finally:
        for leaf in leaves:
            leaf.kill()
            leaf.wait()


COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("reply", "workload", str),
    ("bytes", "bytes", lambda b: f"{b:,.0f}"),
    ("replies/s, a core", "replies", lambda r: f"{r:,.0f}"),
    ("all cores", "all_cores", lambda r: f"{r:,.0f}"),
    ("GB/s", "gb", lambda g: f"{g:.2f}"),
    ("sums/s, a node", "sums", lambda r: f"{r:,.0f}"),
    ("100M replies, TB", "day", lambda t: f"{t:.2f}"),
    ("core seconds", "core_seconds", lambda s: f"{s:,.0f}"),
]


def table(result: dict[str, Any], markdown: bool) -> str:
    return "\n".join(grid(COLUMNS, result["rows"], markdown))
