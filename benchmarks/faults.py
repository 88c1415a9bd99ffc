"""A deployed run on loopback whose processes are killed at random moments: does it end with the undisturbed numbers?"""

import argparse
import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import apiece
from apiece.data import digits

from .speed import grid

HELP = "kill sites and the server's processes of a deployed run at random moments, and compare with an undisturbed run"
REPEATS = 1
WHO = ("a site", "superlink", "superexec", "serverapp", "server", "everything")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=10, help="in all (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=60, help="of Scaffold (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that it may take (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    from apiece.deploy.journal import read_log
    from apiece.deploy.local import local_project, running
    from apiece.deploy.project import deployed_spec

    chance, federation, options = random.Random(args.seed), digits(clients=4), {"steps": 2}
    plan = {"rounds": args.rounds, "evaluate_every": args.rounds}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "project")
        local_project(folder, federation, deployed_spec({"methods": {"scaffold": options}, "train": plan}, "faults"),
                      again=5.0)  # fmt: skip
        log = lambda: read_log(folder / "server" / "log.jsonl")
        began = time.monotonic()
        with running(folder) as deployed:
            for number in range(args.kills):
                moment = time.monotonic() + chance.uniform(2.0, 20.0)
                over = False
                while time.monotonic() < moment and not over:
                    over = deployed.finished()
                    time.sleep(0.05)
                if over:
                    break
                who = WHO[number % len(WHO)]
                say(f"kill {number + 1} of {args.kills}: {who}, after {time.monotonic() - began:.0f} s")
                _kill(deployed, who, chance)
                rows.append({"system": "apiece", "killed": who, "after": round(time.monotonic() - began, 1)})
            deployed.wait(args.limit)
        took = time.monotonic() - began
        found = apiece.compare(federation, {"scaffold": options}, rounds=args.rounds, seeds=1, tune=1, baselines=False,
                               out=Path(place, "undisturbed"), evaluate_every=args.rounds)  # fmt: skip
        flat = lambda model: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])
        sites = sorted((folder / "sites").iterdir())
        mine = [flat(apiece.open(site / "run").personal(site.name, method="scaffold")) for site in sites]
        theirs = [flat(found.personal("scaffold", str(i))) for i in range(len(sites))]
        apart = float(np.max(np.abs(np.stack(mine) - np.stack(theirs))))
        merged = [line for line in log() if line["event"] == "round" and line["row"] == "scaffold~0"]
        whole = all(line["answers"] == line["of"] for line in merged)
    rows.append(
        {"system": "apiece", "killed": "(all)", "apart": apart, "whole": whole, "failed": whole and apart > 1e-5}
    )
    return {"rows": rows, "seconds": took, "rounds": len(merged)}


def _kill(deployed: Any, who: str, chance: random.Random) -> None:
    """With SIGKILL, as a power cut would; a site's supervisor starts it again, as its unit does."""
    if who in ("a site", "everything"):
        names = [chance.choice(list(deployed.nodes))] if who == "a site" else list(deployed.nodes)
        for name in names:
            deployed.nodes[name].kill()
            deployed.start_node(name)
    if who in ("superlink", "superexec"):
        deployed.link.children[who].kill()
    if who == "serverapp":
        for process in _programs(deployed.link.children["superexec"].pid, "flwr-serverapp"):
            os.kill(process, signal.SIGKILL)
    if who in ("server", "everything"):
        for child in deployed.link.children.values():
            child.kill()


def _programs(session: int, name: str) -> list[int]:
    """The processes of a session that run a program of this name."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):  # it is gone
                if os.getsid(int(place.name)) == session and name in (place / "cmdline").read_text():
                    found.append(int(place.name))
    return found


def table(result: dict[str, Any], markdown: bool = False) -> str:
    columns = [
        ("killed", "killed", str),
        ("after, s", "after", str),
        ("all answered each round", "whole", str),
        ("largest difference", "apart", lambda apart: f"{apart:.1e}"),
    ]
    return "\n".join(grid(columns, result["rows"], markdown))
