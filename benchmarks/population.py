"""A million clients with a model each, more than the memory holds: what does a round cost, and a checkpoint?"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from apiece.engines.states import disk

from .speed import grid

HELP = "a million personal models of 8,035 parameters (32 GB) on disk against ten thousand in memory, cohort 100"
RECORD = 32_160  # bytes of a client on disk
REPEATS = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, nargs=2, default=(10_000, 1_000_000), metavar="N", help="few and many")
    parser.add_argument("--rounds", type=int, default=50, help="rounds in a timed repeat (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="2,000 clients on disk against 1,000, a few rounds")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row per population; the larger one's `ratio_to_few` is what the disk costs."""
    few, many = (1_000, 2_000) if args.quick else args.clients
    rounds, repeats = (10, 2) if args.quick else (args.rounds, args.repeats)
    room = shutil.disk_usage(disk()).free > 1.2 * many * RECORD + (4 << 30)
    rows = []
    for clients, where in ((few, "memory"), (many, "disk" if args.quick else "auto")):
        filled = room or clients == few
        say(
            f"{clients:,} clients"
            + ("" if filled else f": no room on {disk()} for all, so only visited ones are there")
        )
        command = [sys.executable, "-m", "benchmarks.population_work", "--clients", str(clients), "--states", where]
        command += ["--rounds", str(rounds), "--repeats", str(repeats), *(["--filled"] if filled else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=3600)
        base = {"workload": f"{clients:,} clients", "system": "apiece"}
        if done.returncode:
            rows.append(base | {"failed": f"the process ended with {done.returncode}"})
        else:
            rows.append(base | json.loads(done.stdout))
    if all("failed" not in row for row in rows):
        rows[1]["ratio_to_few"] = rows[1]["seconds_per_round"] / rows[0]["seconds_per_round"]
    return {"rounds": rounds, "repeats": repeats, "rows": rows}


COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("work", "workload", str),
    ("states GB", "states_gb", lambda g: f"{g:.1f}"),
    ("kept in", "kept", str),
    ("all there", "filled", lambda f: "yes" if f else "no"),
    ("ms/round", "seconds_per_round", lambda s: f"{1000 * s:.0f}"),
    ("best", "best_seconds_per_round", lambda s: f"{1000 * s:.0f}"),
    ("x few", "ratio_to_few", lambda r: f"{r:.2f}"),
    ("checkpoint s", "save_seconds", lambda s: f"{s:.2f}"),
    ("first s", "first_save_seconds", lambda s: f"{s:.1f}"),
    ("resumed equal", "resumed_equal", lambda e: "yes" if e else "NO"),
    ("peak GB", "peak_mb", lambda m: f"{m / 1024:.1f}"),
]


def table(result: dict[str, Any], markdown: bool) -> str:
    return "\n".join(grid(COLUMNS, result["rows"], markdown))
