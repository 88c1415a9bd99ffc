"""What an advice takes: seconds, processor seconds, memory; each in a process of its own that starts from nothing."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import apiece
from apiece.data import from_rows
from apiece.engines.devices import remember_compiled

from .speed import grid

HELP = "seconds and memory of an advice: the digits without and with compiled programs, and many clients"
FEATURES = 20
LONGEST = 3600  # seconds, after which a row is given up
COLUMNS = [("advice for", "work", str), ("seconds", "seconds", "{:.1f}".format),
           ("processor s", "processor", "{:.1f}".format), ("peak GB", "peak_gb", "{:.2f}".format)]  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clients", type=int, default=20_000, help="of the large federation (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=50, help="of each of its clients (default: %(default)s)")
    parser.add_argument("--only", choices=("digits", "many"), help="one of the two")


def many(clients: int, rows: int, seed: int = 0) -> apiece.Federation:
    """Two classes, twenty features; every client has a truth of its own around that of all."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), rows)
    x = rng.normal(size=(len(owner), FEATURES)).astype(np.float32)
    truth = rng.normal(size=FEATURES) + 0.5 * rng.normal(size=(clients, FEATURES))
    y = rng.random(len(x)) < 1 / (1 + np.exp(-(x * truth[owner]).sum(axis=1)))
    return from_rows(x, y.astype(int), owner, split=np.zeros(len(x), int), classes=("no", "yes"), name="many")


def measured(words: list[str], cache: str) -> dict[str, Any]:
    """Seconds, processor seconds and peak memory of a process; `cache`: where compiled programs are kept."""
    began = time.perf_counter()
    job = subprocess.Popen([sys.executable, *words], env={**os.environ, "XDG_CACHE_HOME": cache},
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    while True:
        pid, status, used = os.wait4(job.pid, os.WNOHANG)
        if pid:
            break
        if time.perf_counter() - began > LONGEST:
            job.kill()
        time.sleep(0.05)
    job.returncode = os.waitstatus_to_exitcode(status)
    return {"seconds": time.perf_counter() - began, "processor": used.ru_utime + used.ru_stime,
            "peak_gb": used.ru_maxrss / 1e6, "failed": job.returncode != 0}  # fmt: skip


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row for each kind of start."""
    found = []

    def add(what: str, words: list[str], cache: str) -> None:
        say(what)
        found.append({"system": "apiece", "work": what, **measured(words, cache)})

    with tempfile.TemporaryDirectory() as home:
        if args.only != "many":
            for start in ("nothing compiled", "compiled before"):
                out = os.path.join(home, start.replace(" ", "-"))
                words = ["-m", "apiece.cli", "advise", "digits", "--brief", "--out", out]
                add(f"digits, {start}", words, os.path.join(home, "cache"))
        if args.only != "digits":
            words = ["-m", "benchmarks.advice_seconds", str(args.clients), str(args.rows)]
            add(f"{args.clients:,} clients of {args.rows} rows", words, os.path.join(home, "cache"))
    return {"rows": found}


def table(result: dict[str, Any], markdown: bool = False) -> str:
    """A line a row."""
    return "\n".join(grid(COLUMNS, result["rows"], markdown))


if __name__ == "__main__":
    remember_compiled()
    apiece.advise(many(int(sys.argv[1]), int(sys.argv[2])))
