"""Does a round cost what its cohort costs, or what the population costs? A thousand clients against a million."""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from .measure import Job, measure
from .speed import COLUMNS, grid
from .workloads import Workload

HELP = "seconds per round and peak memory of 1,000,000 clients against 1,000, with the same cohort of 100"
METHODS = ("fed_avg", "ditto")
SHAPE = Workload("", clients=0, examples=10, features=64, cohort=100, batch=10)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, nargs=2, default=(1_000, 1_000_000), metavar="N", help="few and many")
    parser.add_argument("--threads", type=int, default=2, help="host devices (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds in a timed repeat (default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row per method and population; the larger one's `ratio_to_few` is what a thousandfold population costs."""
    jobs = [
        Job("system_apiece", "apiece", dataclasses.asdict(workload), method, args.threads)
        for method in METHODS
        for workload in (dataclasses.replace(SHAPE, name=f"{n:,} clients", clients=n) for n in args.clients)
    ]
    rows = measure(jobs, args.rounds, args.repeats, args.seconds, say)
    for few, many in zip(rows[::2], rows[1::2], strict=True):
        if "missing" not in few and "missing" not in many:
            many["ratio_to_few"] = many["seconds_per_round"] / few["seconds_per_round"]
    return {"rounds": args.rounds, "repeats": args.repeats, "rows": rows}


def table(result: dict[str, Any], markdown: bool) -> str:
    shown = {
        "workload",
        "system",
        "method",
        "threads",
        "seconds_per_round",
        "best_seconds_per_round",
        "peak_mb",
        "compile_seconds",
    }
    columns = [c for c in COLUMNS if c[1] in shown]
    return "\n".join(grid([*columns, ("x few", "ratio_to_few", lambda r: f"{r:.2f}")], result["rows"], markdown))
