"""The speed comparison: which jobs to run, what to derive from their times, and how to print it."""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from . import limits
from .measure import Job, measure
from .workloads import WORKLOADS, Workload

HELP = "apiece against a PyTorch loop, a NumPy program and pfl-research, on the workloads W1, W2 and MLP"

SYSTEMS: dict[str, str] = {
    "apiece": "system_apiece",
    "numpy": "rival_numpy",
    "torch": "rival_torch",
    "pfl": "rival_pfl",
}
VARIANTS = {"numpy": [{"variant": "batched"}, {"variant": "per_client"}]}
THREADS: dict[str, list[int]] = {"numpy": [1]}
# apiece's personalized methods on one workload are enough: what they cost beyond FedAvg is per gradient
METHODS = {("apiece", "W1"): ("fed_avg", "ditto", "pfedme", "scaffold")}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="which, by comma (default: %(default)s)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="which, by comma (default: %(default)s)")
    parser.add_argument("--threads", default="1,2", help="thread counts, by comma (default: %(default)s; numpy: 1)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds in a timed repeat (default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """All rows, workload after workload, with the derived columns filled in."""
    systems = chosen(args.systems, SYSTEMS, "system")
    if not all(t.isdecimal() and int(t) for t in args.threads.split(",")):
        raise ValueError(f"--threads takes whole numbers by comma, such as 1,2; got {args.threads}")
    threads = [int(t) for t in args.threads.split(",")]
    names = chosen(args.workloads, WORKLOADS, "workload")
    measured = {
        n: measure(jobs(WORKLOADS[n], systems, threads), args.rounds, args.repeats, args.seconds, say) for n in names
    }
    peak = best_peak([row for rows in measured.values() for row in rows if row["system"] == "sgemm"])
    rows = []
    for name, found in measured.items():
        rows += derive(WORKLOADS[name], better_variants([r for r in found if r["system"] != "sgemm"]), peak)
    return {"rounds": args.rounds, "repeats": args.repeats, "peak_gflops": peak, "rows": rows}


def best_peak(rows: list[dict[str, Any]]) -> dict[int, float]:
    """Threads -> the most GFLOP/s seen in this run on at most so many: a busy neighbour is not the machine's limit.

    >>> products = [(1, 0.05), (1, 0.06), (2, 0.1)]
    >>> found = best_peak([{"threads": t, "best_seconds_per_round": s} for t, s in products])
    >>> {threads: round(peak) for threads, peak in found.items()}
    {1: 145, 2: 145}
    """
    seen = [(r["threads"], limits.gflops(r["best_seconds_per_round"])) for r in rows if "missing" not in r]
    return {threads: max(g for t, g in seen if t <= threads) for threads, _ in seen}


def chosen(text: str, known: dict[str, Any], what: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        raise ValueError(f"no {what} {', '.join(wrong)}; there are {', '.join(known)}")
    return names


def jobs(w: Workload, systems: list[str], counts: list[int]) -> list[Job]:
    shape = dataclasses.asdict(w)
    out = [Job("limits", "sgemm", shape, "peak", threads) for threads in counts]
    for system in systems:
        for method in METHODS.get((system, w.name), ("fed_avg",)):
            for threads in THREADS.get(system, counts):
                for options in VARIANTS.get(system, [{}]):
                    out.append(Job(SYSTEMS[system], system, shape, method, threads, options))
    return out


def better_variants(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of a system's ways to do the same thing, the fastest."""
    best: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        key = (row["system"], row["method"], row["threads"])
        best[key] = min(best.get(key, row), row, key=lambda r: r.get("seconds_per_round", float("inf")))
    return list(best.values())


def derive(w: Workload, rows: list[dict[str, Any]], peak: dict[int, float]) -> list[dict[str, Any]]:
    """Adds, to every row that was measured, its share of the limit; to apiece's, how it compares.

    `ratio_to_torch` and `ratio_to_numpy`: how many times faster, each rival at its best thread count, by the median
    times; `best_ratio_...`: by the best times, which a busy neighbour disturbs less.
    `cost_per_gradient`: time per gradient evaluation in units of FedAvg's on as many threads.
    """
    timed = [r for r in rows if "missing" not in r]

    def fastest(system: str, key: str) -> float | None:
        return min((r[key] for r in timed if r["system"] == system), default=None)

    base = {r["threads"]: r for r in timed if r["system"] == "apiece" and r["method"] == "fed_avg"}
    for row in timed:
        seconds, threads = row["seconds_per_round"], row["threads"]
        gradients = row.get("gradients_per_client", w.steps)
        row["gflops"] = w.flops * gradients / w.steps / seconds / 1e9
        if threads in peak:
            row["share_of_limit"] = row["gflops"] / peak[threads]
        if row["system"] != "apiece":
            continue
        if row["method"] == "fed_avg":
            for rival in ("torch", "numpy"):
                for ratio, key in (
                    (f"ratio_to_{rival}", "seconds_per_round"),
                    (f"best_ratio_to_{rival}", "best_seconds_per_round"),
                ):
                    other = fastest(rival, key)
                    row[ratio] = other / row[key] if other else None
        if threads in base:
            plain = base[threads]
            row["cost_per_gradient"] = (seconds / gradients) / (
                plain["seconds_per_round"] / plain["gradients_per_client"]
            )
    return rows


# title, key, how to show it
COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("work", "workload", str),
    ("system", "system", str),
    ("method", "method", str),
    ("thr", "threads", str),
    ("ms/round", "seconds_per_round", lambda s: f"{s * 1e3:.1f}"),
    ("best", "best_seconds_per_round", lambda s: f"{s * 1e3:.1f}"),
    ("MB", "peak_mb", lambda m: f"{m:.0f}"),
    ("compile", "compile_seconds", lambda s: f"{s:.1f}" if s else ""),
    ("x torch", "ratio_to_torch", lambda r: f"{r:.1f}"),
    ("x numpy", "ratio_to_numpy", lambda r: f"{r:.2f}"),
    ("/grad", "cost_per_gradient", lambda r: f"{r:.2f}"),
    ("limit", "share_of_limit", lambda r: f"{r:.0%}"),
]


LEGEND = """thr: threads. MB: peak memory. compile: seconds. x torch, x numpy: times faster than the rival at its best.
/grad: time per gradient evaluation against FedAvg's. limit: share of that limit, matrix products only."""


def table(result: dict[str, Any], markdown: bool) -> str:
    lines = grid(COLUMNS, result["rows"], markdown)
    peak = ", ".join(f"{g:.0f} on {t} core{'s' * (int(t) > 1)}" for t, g in result["peak_gflops"].items())
    return "\n".join([*lines, "", f"Limit measured in this run: {peak} (GFLOP/s).", LEGEND])


def grid(columns: list, rows: list[dict[str, Any]], markdown: bool) -> list[str]:
    """Rows under titles, numbers to the right; a row that is missing says why."""
    cells = [[show(r[key]) if r.get(key) is not None else "" for _, key, show in columns] for r in rows]
    titles = [title for title, _, _ in columns]
    widths = [max(len(c[n]) for c in [titles, *cells]) for n in range(len(titles))]
    words = 3  # the first columns are words

    def line(parts: list[str], tail: str = "") -> str:
        aligned = [p.ljust(w) if n < words else p.rjust(w) for n, (p, w) in enumerate(zip(parts, widths, strict=True))]
        if markdown:
            return "| " + " | ".join(aligned) + " |"
        return "  ".join(aligned).rstrip() + tail

    out = [line(titles)]
    if markdown:
        out.append("| " + " | ".join("---" if n < words else "---:" for n in range(len(titles))) + " |")
    for parts, row in zip(cells, rows, strict=True):
        if "missing" not in row:
            out.append(line(parts))
        elif markdown:
            parts[words + 1] = row["missing"]
            out.append("| " + " | ".join(parts) + " |")
        else:
            out.append(line(parts, f"  {row['missing']}"))
    return out
