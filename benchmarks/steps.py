"""Does anything diverge with default settings? Federations of all scales and conditions, the usual methods on each.

Beside them, on one in twenty: the same federations as they come, step sizes tuned over 0.01 to 3 whatever the data.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import apiece
from apiece.methods import CATALOG, USUAL
from apiece.registry import StepSize

from .speed import grid

HELP = "how many of 200 federations of all scales and conditions diverge with default settings (half an hour)"
CLIENTS, ROWS, FEATURES, CLASSES = 5, 20, 5, 3  # the same for all: programs are compiled once
CONDITIONS = (1.0, 1e2, 1e4)
TASKS = ("regression", "classification")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--federations", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="of each run (default: %(default)s)")
    parser.add_argument("--tune", type=int, default=2, help="trials a method (default: %(default)s)")


def federation(task: str, condition: float, seed: int) -> apiece.Federation:
    """Features and targets of scales from 1e-3 to 1e3, anywhere; rows whose covariance has this condition; clients
    that differ, one of them far from the others."""
    rng = np.random.default_rng([seed, 0x737465])
    owner = np.repeat(np.arange(CLIENTS), ROWS)
    turn = np.linalg.qr(rng.normal(size=(FEATURES, FEATURES)))[0]
    z = rng.normal(size=(len(owner), FEATURES)) * condition ** -np.linspace(0, 0.5, FEATURES) @ turn
    z += rng.normal(size=(CLIENTS, FEATURES))[owner]
    z[owner == 1] += 3 * rng.normal(size=FEATURES)
    scale = lambda *shape: 10 ** rng.uniform(-3, 3, shape)
    x = (z + rng.normal(size=FEATURES) * 10 ** rng.uniform(-1, 1, FEATURES)) * scale(FEATURES)
    say = z @ rng.normal(size=(FEATURES, CLASSES)) + 0.3 * rng.normal(size=(len(owner), CLASSES))
    about: dict[str, Any] = {"name": f"{task} {seed}"}
    if task == "classification":
        about["classes"] = tuple("abc")
        return apiece.data.from_rows(x.astype(np.float32), say.argmax(1), owner, **about)
    y = (say[:, 0] + rng.normal() * 3) * scale()
    return apiece.data.from_rows(x.astype(np.float32), y.astype(np.float32), owner, **about)


def compared(made: apiece.Federation, rounds: int, tune: int, methods: Any = USUAL, **how: Any) -> dict[str, int]:
    """How many methods, tuning trials and clients diverged in one comparison."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        record = apiece.compare(made, methods, rounds=rounds, seeds=1, tune=tune, out=out, **how).record
    lost = set(record.ranking.diverged)
    return {
        "methods": len(record.methods),
        "diverged": len(lost),
        "trials lost": sum(not np.isfinite(one.validation_loss) for m in record.methods.values() for one in m.tuning),
        "clients lost": sum(len(method.fallen) for method in record.methods.values()),
    }


def as_declared() -> dict[str, dict[str, Any]]:
    """The usual methods, their step sizes searched where they say, whatever the data."""
    steps = lambda name: [key for key, option in CATALOG.options(name).items() if StepSize in option.kinds]
    return {name: {key: {"range": [0.01, 3.0]} for key in steps(name)} for name in USUAL}


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row for each task, condition and way."""
    cases = [(task, condition) for task in TASKS for condition in CONDITIONS]
    found: dict[tuple, list[dict[str, int]]] = {}
    for seed in range(args.federations):
        task, condition = cases[seed % len(cases)]
        made = federation(task, condition, seed)
        defaults = compared(made, args.rounds, args.tune)
        found.setdefault((task, condition, "defaults"), []).append(defaults)
        if seed // len(cases) % 20 == 0:
            before = compared(made, args.rounds, args.tune, as_declared(), standardize=False)
            found.setdefault((task, condition, "as declared"), []).append(before)
        say(f"{seed + 1} of {args.federations}: {made.name}, condition {condition:g}: {defaults}")
    rows = []
    for (task, condition, way), each in sorted(found.items(), key=lambda item: (item[0][2] != "defaults", item[0])):
        total = {name: sum(one[name] for one in each) for name in each[0]}
        row = {"system": "apiece", "task": task, "condition": f"{condition:g}", "with": way, "federations": len(each)}
        rows.append({**row, **total, "failed": way == "defaults" and bool(total["diverged"])})
    return {"rows": rows}


def table(result: dict[str, Any], markdown: bool) -> str:
    names = ["task", "condition", "with", "federations", "methods", "diverged", "trials lost", "clients lost"]
    return "\n".join(grid([(name, name, str) for name in names], result["rows"], markdown))
