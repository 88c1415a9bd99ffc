"""`python -m benchmarks speed`: apiece and its rivals on the same work, on this machine, in one run.

Progress goes to stderr, the result to stdout: a table, a Markdown table, or one JSON document.
"""

import argparse
import importlib.metadata
import json
import platform
import sys
from typing import Any

from apiece.machine import count_cores

from . import (
    advice,
    advice_seconds,
    answers,
    deep,
    faults,
    jobs,
    memory,
    methods,
    pages,
    population,
    privacy,
    scale,
    self_fl,
    server,
    soak,
    speed,
    steps,
)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    versions: dict[str, str | None] = {}
    for package in ("apiece", "jax", "jaxlib", "numpy", "torch", "pfl"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    cores = count_cores()
    return {"cores": cores, "machine": platform.machine(), "python": platform.python_version(), "versions": versions}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (speed, deep, methods, scale, population, server, memory, jobs, steps, answers, advice,
                   advice_seconds, self_fl, privacy, faults, soak, pages):  # fmt: skip
        command = commands.add_parser(module.__name__.split(".")[-1], help=module.HELP, description=module.HELP)
        module.arguments(command)
        often = getattr(module, "REPEATS", 5)
        command.add_argument("--repeats", type=int, default=often, help="timed repeats of a system; the median counts")
        command.add_argument("--seconds", type=float, default=5.0, help="at most so long a system (fewer rounds then)")
        form = command.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="one JSON document on stdout")
        form.add_argument("--markdown", action="store_true", help="the table for the documentation")
        command.set_defaults(module=module)
    args = parser.parse_args(argv)
    try:
        result = args.module.run(args, say=lambda line: print(line, file=sys.stderr, flush=True))
    except ValueError as error:
        parser.error(str(error))
    result = {"command": args.command, **machine(), **result}
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(args.module.table(result, markdown=args.markdown))
    return 1 if any(r.get("failed") or (r["system"] == "apiece" and "missing" in r) for r in result["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
