"""Accuracy against epsilon: shared and personal models of a natural federation under differential privacy."""

import argparse
import os
from collections.abc import Callable
from typing import Any

import numpy as np

import apiece
from apiece.data import digits
from apiece.data.sources.catalog import source

from .speed import grid

HELP = "accuracy against epsilon on digits by their 539 writers (with APIECE_DATA; else on made-up clients)"
REPEATS = 1
OPTIONS: dict[str, dict[str, Any]] = {
    "fed_avg": {"steps": 10, "lr": 0.1},
    "ftfa": {"steps": 10, "lr": 0.1, "tune_lr": 0.03},
    "ditto": {"steps": 10, "lr": 0.1, "lam": 0.1},
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=40, help="of each run (default: %(default)s)")
    parser.add_argument("--probability", type=float, default=0.2, help="of a client, a round (default: %(default)s)")
    parser.add_argument("--delta", type=float, default=1e-4, help="of the promise (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each (default: %(default)s)")
    parser.add_argument("--epsilons", default="16,8,4,2,1", help="separated by commas (default: %(default)s)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    real = bool(os.environ.get("APIECE_DATA"))
    federation = source("mnist_by_writer") if real else digits(clients=100)
    epsilons = [None, *(float(word) for word in args.epsilons.split(","))]
    rows: list[dict[str, Any]] = [_row("local", None, _scores("local", {}, federation, args, None), None)]
    for epsilon in epsilons:
        for method, options in OPTIONS.items():
            table = None if epsilon is None else {"epsilon": epsilon, "delta": args.delta, "quantile": 0.5}
            found = _scores(method, options, federation, args, table)
            rows.append(_row(method, epsilon, found, found[0][1]))
            say(f"{method}, epsilon {epsilon}: accuracy {rows[-1]['accuracy']:.3f}")
    clients = federation.clients
    return {"federation": federation.name, "clients": clients, "rounds": args.rounds, "delta": args.delta, "rows": rows}


def _scores(
    method: str, options: dict[str, Any], federation: Any, args: argparse.Namespace, table: dict[str, Any] | None
) -> list[tuple[float, float | None]]:
    how: dict[str, Any] = {"private": table} if table else {}
    found = []
    for seed in range(args.seeds):
        fitted = apiece.fit(method, federation=federation, rounds=args.rounds, seed=seed, options=options,
                            probability=args.probability, evaluate_every=args.rounds, **how)  # fmt: skip
        noise = fitted.privacy.noise if fitted.privacy is not None else None
        found.append((fitted.evaluate()["test"]["accuracy"]["mean"], noise))
    return found


def _row(method: str, epsilon: float | None, found: list, noise: float | None) -> dict[str, Any]:
    scores = [score for score, _ in found]
    told = "none is sent" if method == "local" else "no noise" if epsilon is None else f"{epsilon:g}"
    apart = float(np.ptp(scores)) if len(scores) > 1 else None
    return {"system": "apiece", "method": method, "epsilon": told, "noise": noise, "accuracy": float(np.mean(scores)),
            "apart": apart}  # fmt: skip


def table(result: dict[str, Any], markdown: bool) -> str:
    head = (
        f"{result['federation']}: {result['clients']} clients, {result['rounds']} rounds, delta = {result['delta']:g}, "
        "clip at the median length"
    )
    percent = lambda value: f"{100 * value:.1f}"
    columns = [
        ("method", "method", str),
        ("epsilon", "epsilon", str),
        ("noise / clip", "noise", lambda value: f"{value:.2f}"),
        ("accuracy, %", "accuracy", percent),
        ("seeds apart", "apart", percent),
    ]
    return "\n".join([head, "", *grid(columns, result["rows"], markdown)])
