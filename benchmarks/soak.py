"""A deployed run of many rounds on loopback whose sites come and go: do memory, files or processes grow?"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apiece.data import digits
from apiece.experiment.claim import CLAIM
from apiece.files import PART

from .speed import grid

HELP = "a long deployed run whose sites come and go: memory, files and processes at its beginning and at its end"
REPEATS = 1
ROOM_MB, ROOM_SHARE = 40, 1.15  # what is no growth: allocators keep some, logs are buffered
EARLY = 0.2  # of the rounds: by then everybody has compiled


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--sites", type=int, default=8, help="(default: %(default)s)")
    parser.add_argument("--every", type=int, default=10, help="rounds between a site's leaving (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=7200.0, help="seconds that it may take (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of who leaves (default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    from apiece.deploy.journal import read_log
    from apiece.deploy.local import local_project, running, seconds_per_round
    from apiece.deploy.project import deployed_spec

    chance, federation = random.Random(args.seed), digits(clients=args.sites)
    plan = {"rounds": args.rounds, "evaluate_every": args.rounds}
    spec = deployed_spec({"methods": {"scaffold": {"steps": 2}}, "train": plan}, "soak")
    samples: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        # Six of eight answers end a round: two may be away at any time.
        folder = local_project(Path(place, "project"), federation, spec, goal=0.75, least=0.5, again=10.0)
        began, away, looks, went = time.monotonic(), "", 0, 0
        with running(folder) as deployed:
            others = deployed.names[1:]  # the first one stays, so that its memory can be compared
            while not deployed.finished():
                if time.monotonic() - began > args.limit:
                    raise SystemExit(f"the run is not over after {args.limit:g} s")
                log = [one for one in read_log(folder / "server" / "log.jsonl") if one.get("row") == "scaffold~0"]
                done = max((one["round"] for one in log if one["event"] == "round"), default=0)
                if done // args.every > looks:
                    looks = done // args.every
                    samples.append({"round": done, **_measured(deployed, folder)})
                    say(f"round {done}: {samples[-1]}")
                    if away:
                        deployed.start_node(away)
                    if done + args.every < args.rounds:  # at the end all are there, to be judged
                        away = chance.choice([name for name in others if name != away])
                        went += 1
                        # Every second one goes without a word, as in a power cut.
                        deployed.nodes[away].kill() if went % 2 else deployed.nodes[away].stop()
                    else:
                        away = ""
                time.sleep(0.1)
        took, pace = time.monotonic() - began, sorted(seconds_per_round(folder))
    early = next((one for one in samples if one["round"] >= EARLY * args.rounds), samples[0])
    rows = []
    for what in ("server_mb", "site_mb", "files", "processes"):
        first, last = early[what], samples[-1][what]
        room = ROOM_SHARE * first + ROOM_MB if what.endswith("mb") else first
        rows.append({"system": "apiece", "what": what, "early": first, "late": last, "failed": last > room})
    return {"rows": rows, "seconds": took, "rounds": args.rounds, "came_and_went": went,
            "seconds_per_round": pace[len(pace) // 2]}  # fmt: skip


def _measured(deployed: Any, folder: Path) -> dict[str, int]:
    server = [_group(child.pid) for child in deployed.link.children.values()]
    first = _group(deployed.nodes[deployed.names[0]].pid)
    kept = [path for path in folder.rglob("*") if path.is_file() and _stays(path)]
    everybody = server + [_group(node.pid) for node in deployed.nodes.values() if node.alive()]
    away = sum(not node.alive() for node in deployed.nodes.values())
    return {
        "server_mb": sum(memory for memory, _ in server),
        "site_mb": first[0],
        "files": len(kept),
        "processes": sum(count for _, count in everybody) + away,
    }


def _stays(path: Path) -> bool:
    """Whether a file is one that could pile up: not a reply of this round, nor a claim, nor one that is written now."""
    try:
        young = path.name.endswith(PART) and time.time() - path.stat().st_mtime < 5.0
    except OSError:
        return False  # it is gone
    return not young and "replies" not in path.parts and path.name != CLAIM


def _group(leader: int) -> tuple[int, int]:
    """(MB, processes) of a session: a process and all that it started."""
    memory, count = 0, 0
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                if os.getsid(int(place.name)) == leader:
                    memory += int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                    count += 1
            except OSError:
                continue  # it is gone
    return memory >> 20, count


def table(result: dict[str, Any], markdown: bool = False) -> str:
    columns = [
        ("what", "what", str),
        ("early", "early", str),
        ("at the end", "late", str),
        ("grew", "failed", lambda failed: "yes" if failed else "no"),
    ]
    return "\n".join(grid(columns, result["rows"], markdown))
