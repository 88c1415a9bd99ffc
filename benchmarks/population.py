"""A million clients with a model each, more than the memory holds: what does a round cost, and a checkpoint?"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from apiece.engines.states import disk

from .speed import grid

HELP = "a million personal models of 8,035 parameters (32 GB) on disk against ten thousand in memory, cohort 100"
RECORD = 32_160  # bytes of a client on disk
REPEATS = 7
LONGEST = 1800  # seconds for one answer


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, nargs=2, default=(10_000, 1_000_000), metavar="N", help="few and many")
    parser.add_argument("--rounds", type=int, default=50, help="rounds in a timed repeat (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="2,000 clients on disk against 1,000, a few rounds")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row per population; the larger one's `ratio_to_few` is what the disk costs."""
    few, many = (1_000, 2_000) if args.quick else args.clients
    rounds, repeats = (10, 2) if args.quick else (args.rounds, args.repeats)
    room = shutil.disk_usage(disk()).free > 1.2 * many * RECORD + (4 << 30)
    workers = []
    try:
        for clients, where in ((few, "memory"), (many, "disk" if args.quick else "auto")):
            filled = room or clients == few
            say(f"{clients:,} clients" + ("" if filled else f": no room on {disk()} for all, only for visited ones"))
            command = [sys.executable, "-m", "benchmarks.population_work", "--clients", str(clients), "--states", where]
            command += ["--rounds", str(rounds), *(["--filled"] if filled else [])]
            workers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            _answer(workers[-1])
        ratios = []
        for at in range(repeats):  # in turns, so that a neighbour's burst of work falls on both
            took = [float(_answer(worker, "go\n")) for worker in workers]
            ratios.append(took[1] / took[0])
            say(f"repeat {at + 1}: " + " and ".join(f"{1000 * seconds:.0f} ms" for seconds in took))
        rows = []
        for worker, clients in zip(workers, (few, many), strict=True):
            said, _ = worker.communicate(timeout=LONGEST)
            rows.append({"workload": f"{clients:,} clients", "system": "apiece", **json.loads(said)})
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    rows[1]["ratio_to_few"] = statistics.median(ratios)  # of repeats that followed one another
    return {"rounds": rounds, "repeats": repeats, "rows": rows}


def _answer(worker: subprocess.Popen, asked: str = "") -> str:
    """The next line of a worker; what it says of a failure is on stderr."""
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(asked)
    worker.stdin.flush()
    late = threading.Timer(LONGEST, worker.kill)
    late.start()
    said = worker.stdout.readline()
    late.cancel()
    if not said:
        raise ValueError("a population's process ended before its time")
    return said


COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("work", "workload", str),
    ("states GB", "states_gb", lambda g: f"{g:.1f}"),
    ("kept in", "kept", str),
    ("all there", "filled", lambda f: "yes" if f else "no"),
    ("ms/round", "seconds_per_round", lambda s: f"{1000 * s:.0f}"),
    ("best", "best_seconds_per_round", lambda s: f"{1000 * s:.0f}"),
    ("x few", "ratio_to_few", lambda r: f"{r:.2f}"),
    ("checkpoint s", "save_seconds", lambda s: f"{s:.2f}"),
    ("resumed equal", "resumed_equal", lambda e: "yes" if e else "NO"),
    ("peak GB", "peak_mb", lambda m: f"{m / 1024:.1f}"),
]


def table(result: dict[str, Any], markdown: bool) -> str:
    return "\n".join(grid(COLUMNS, result["rows"], markdown))
