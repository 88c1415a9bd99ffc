"""Networks against a plain PyTorch loop: CNNs (also in PyTorch's channels_last format), an LSTM, a transformer."""

import argparse
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .measure import Job, measure
from .speed import chosen, grid
from .workloads import Examples, Workload, make

HELP = "apiece against a PyTorch loop on CNNs (W3, ...), an LSTM and a transformer"


def _pictures(name: str, model: str, shape: tuple[int, ...], steps: int = 5, batch: int = 32) -> Workload:
    how = {"clients": 8, "cohort": 4, "steps": steps, "batch": batch, "features": math.prod(shape)}
    return Workload(name, model=model, shape=shape, **how)


WORKLOADS = {
    w.name: w
    for w in (
        Workload("W3", clients=40, cohort=20, steps=10, model="cnn2_valid", shape=(28, 28), lr=0.05),
        Workload("LSTM", clients=20, features=80, classes=90, cohort=4, steps=4, batch=10, model="char_lstm", lr=1.0),
        Workload(
            "TRANSFORMER", clients=20, features=20, classes=10_000, cohort=4, steps=4, batch=16, model="transformer"
        ),
        _pictures("CNN2", "cnn2", (28, 28)),
        _pictures("CNN3", "cnn3", (32, 32, 3)),
        _pictures("CNN5", "cnn5", (28, 28)),
        _pictures("RESNET18", "resnet18", (32, 32, 3), steps=2, batch=8),
        _pictures("SENSOR", "sensor_cnn", (128, 9), steps=20),
    )
}
# Beside what PyTorch takes by itself, the format that its own documentation advises for convolutions on a CPU.
BOTH = ("NCHW", "channels_last")
FORMATS = {name: BOTH for name, w in WORKLOADS.items() if w.shape and w.model != "sensor_cnn"}
TARGETS = {("W3", "NCHW"): 1.3, ("W3", "channels_last"): 0.85, ("LSTM", "NCHW"): 0.9}
LEAST = 1 / 3  # of all others


def examples(w: Workload) -> Examples:
    """Pictures or signals with planted labels; or texts [rows, length], where a token tells the next one."""
    if w.shape:
        data = make(w)
        return Examples(data.x.reshape(-1, *w.shape), data.y)
    rng = np.random.default_rng(w.seed)
    follows = rng.permutation(w.classes)
    text = np.empty((w.clients * w.examples, w.features + 1), np.int32)
    text[:, 0] = rng.integers(0, w.classes, len(text))
    for place in range(w.features):
        text[:, place + 1] = follows[text[:, place]]
    return Examples(text[:, :-1], text[:, 1:])


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="which, by comma (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="thread counts, by comma (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds in a timed repeat (default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """All rows; apiece's with how many times faster it is than PyTorch, each at its best thread count."""
    threads = [int(t) for t in args.threads.split(",")]
    rows = []
    for name in chosen(args.workloads, WORKLOADS, "workload"):
        rows += compared(name, measure(jobs(name, threads), args.rounds, args.repeats, args.seconds, say))
    return {"rounds": args.rounds, "repeats": args.repeats, "rows": rows}


def jobs(name: str, threads: list[int]) -> list[Job]:
    shape = dataclasses.asdict(WORKLOADS[name])
    ours = [Job("deep_apiece", "apiece", shape, "fed_avg", t) for t in threads]
    formats = FORMATS.get(name, ("NCHW",))
    return ours + [Job("deep_torch", "torch", shape, "fed_avg", t, {"form": f}) for f in formats for t in threads]


def compared(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds to every PyTorch row how many times faster apiece is, at the better thread count of each.

    >>> rows = [{"system": "apiece", "seconds_per_round": 2.0, "best_seconds_per_round": 1.0}]
    >>> for s in (6, 3):
    ...     timed = {"seconds_per_round": s, "best_seconds_per_round": s}
    ...     rows.append({"system": "torch", "form": "NCHW", **timed})
    >>> [(row["ratio"], row["best_ratio"], row["target"]) for row in compared("W3", rows)[1:]]
    [(1.5, 3.0, 1.3), (1.5, 3.0, 1.3)]
    """
    timed = [row for row in rows if "missing" not in row]
    for row in timed:
        w = WORKLOADS[name]
        row["step"] = row["best_seconds_per_round"] / (w.cohort * w.steps)
        if row["system"] == "apiece":
            continue
        for ratio, key in (("ratio", "seconds_per_round"), ("best_ratio", "best_seconds_per_round")):
            ours = min((r[key] for r in timed if r["system"] == "apiece"), default=None)
            theirs = min(r[key] for r in timed if r.get("form") == row["form"])
            row[ratio] = None if ours is None else theirs / ours
        row["target"] = TARGETS.get((name, row["form"]), LEAST)
    return rows


COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("work", "workload", str),
    ("system", "system", str),
    ("form", "form", str),
    ("thr", "threads", str),
    ("ms/round", "seconds_per_round", lambda s: f"{s * 1e3:.0f}"),
    ("best", "best_seconds_per_round", lambda s: f"{s * 1e3:.0f}"),
    ("best/step", "step", lambda s: f"{s * 1e3:.1f}"),
    ("MB", "peak_mb", lambda m: f"{m:.0f}"),
    ("compile", "compile_seconds", lambda s: f"{s:.1f}" if s else ""),
    ("loss", "loss_after_first_round", lambda v: f"{v:.2f}"),
    ("x", "ratio", lambda r: f"{r:.2f}"),
    ("x best", "best_ratio", lambda r: f"{r:.2f}"),
    ("target", "target", lambda r: f"{r:.2f}"),
]

LEGEND = """thr: threads. compile: seconds. loss: after the first round. x: how many times faster apiece is than this
form of PyTorch, each at its best thread count, by median times; x best: by best times, which a busy neighbour disturbs
less."""


def table(result: dict[str, Any], markdown: bool) -> str:
    return "\n".join([*grid(COLUMNS, result["rows"], markdown), "", LEGEND])
