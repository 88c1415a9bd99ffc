"""Whole jobs, as users run them, against an earlier version: processor and wall seconds, compiling included."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HELP = "whole jobs against an earlier version: the demo, many fits, options by seeds, a first and a second fit"
HERE = Path(__file__).resolve().parents[1]
BEFORE = "758b2a7"
REPEATS = 1  # a job takes minutes


class Side(NamedTuple):
    """One way to do a job: by which version, and by what function of `job_work`."""

    system: str  # "before", "apiece" or a rival
    form: str
    call: tuple[str, ...]


# A job's first line is what the others are measured against.
JOBS: dict[str, list[Side]] = {
    "demo": [Side("before", "", ("demo",)), Side("apiece", "", ("demo",)), Side("torch", "loop", ("torch_loop",))],
    "fits": [Side("before", "", ("fits",)), Side("apiece", "", ("fits",))],
    "first": [Side("before", "", ("first_fit",)), Side("apiece", "", ("first_fit",))],
    "digits": [
        Side("apiece", "one by one", ("lams_one_by_one", "digits")),
        Side("apiece", "sweep", ("lams_by_sweep", "digits")),
    ],
    "check": [Side("apiece", "", ("check",))],
    "W1": [Side("apiece", "one by one", ("lams_one_by_one", "W1")), Side("apiece", "sweep", ("lams_by_sweep", "W1"))],
}
SAYS = {
    "demo": "nine methods, eight trials, three seeds",
    "fits": "25 fits: five `lr` by five `lam`",
    "first": "a first and a second fit",
    "digits": "five `lam` by eleven seeds, digits",
    "check": "`check_method` of a small method",
    "W1": "five `lam` by eleven seeds, W1",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", default=",".join(JOBS), help="which, by comma (default: %(default)s)")
    parser.add_argument("--before", default=BEFORE, help="the commit to compare with (default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row per job and side; the sides of a job take turns."""
    names = args.jobs.split(",")
    for name in names:
        if name not in JOBS:
            raise ValueError(f"there is no job '{name}'; known: {', '.join(JOBS)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sources = {"before": check_out(args.before, Path(folder))}
        for name in names:
            found: dict[Side, list[dict[str, Any]]] = {side: [] for side in JOBS[name]}
            for _ in range(args.repeats):
                for side in JOBS[name]:
                    answer = do(side, sources.get(side.system, HERE / "src"))
                    say(f"{name} {side.system} {side.form}: {answer.get('processor_seconds', answer)}")
                    found[side].append(answer)
            rows += [row(name, side, answers) for side, answers in found.items()]
    for one in rows:
        first = next(other for other in rows if other["job"] == one["job"])
        if "processor_seconds" in one and "processor_seconds" in first:
            one["ratio"] = one["processor_seconds"] / first["processor_seconds"]
    return {"before": args.before, "rows": rows}


def check_out(commit: str, folder: Path) -> Path:
    """The sources of a commit, in a folder."""
    packed = folder / "before.tar"
    with packed.open("wb") as file:
        subprocess.run(["git", "archive", commit, "src"], cwd=HERE, stdout=file, check=True)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def do(side: Side, source: Path) -> dict[str, Any]:
    """What the side's process says of itself; `missing` if it cannot be had."""
    command = [sys.executable, str(HERE / "benchmarks" / "job_work.py"), *side.call]
    # As on a machine that has never run it: whoever keeps compiled programs by default keeps them, and finds none.
    with tempfile.TemporaryDirectory() as caches:
        env = dict(os.environ, PYTHONPATH=str(source), XDG_CACHE_HOME=caches)
        env.pop("JAX_COMPILATION_CACHE_DIR", None)
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {"missing": last, "failed": "ModuleNotFoundError: No module named 'torch'" not in last}


def row(name: str, side: Side, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """The JSON row of a side; seconds are medians over repeats."""
    out: dict[str, Any] = {"job": name, "system": side.system, "form": side.form}
    numbers = [key for key, value in answers[0].items() if isinstance(value, int | float) and key != "failed"]
    if "missing" in answers[0]:
        return out | answers[0]
    out |= {key: statistics.median(answer[key] for answer in answers) for key in numbers}
    return out | {key: value for key, value in answers[0].items() if key not in numbers}


def table(result: dict[str, Any], markdown: bool = False) -> str:
    """A line a row: processor seconds, wall seconds, the ratio, and of a fit how the second one compares."""
    heads = ["job", "by", "processor s", "wall s", "ratio", "second fit s", "of that training"]
    lines = [heads]
    for one in result["rows"]:
        by = {"before": result["before"], "apiece": "now"}.get(one["system"], one["system"])
        number = lambda key, form, one=one: format(one[key], form) if key in one else ""
        seconds = [number("processor_seconds", ".1f"), number("seconds", ".1f") if one["system"] != "torch" else ""]
        second = [number("second_seconds", ".2f"), number("second_training_seconds", ".2f")]
        told = [*seconds, number("ratio", ".2f"), *second] if "missing" not in one else [one["missing"], *[""] * 4]
        lines.append([SAYS[one["job"]], f"{by} {one['form']}".strip(), *told])
    if markdown:
        rule = ["---"] * len(heads)
        return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines[1:]))
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
