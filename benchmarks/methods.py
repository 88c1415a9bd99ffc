"""What a method costs beyond its gradients: every method of the catalog on W1, in turns with FedAvg.

Gradient evaluations are counted, not assumed: each run is made once with a loss that reports to the host whenever it is
evaluated, and then timed, from the same start and seed, without. Every method takes its turn next to FedAvg, so that a
busy neighbour slows both; the ratio is the median over turns.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.world.cohort import Participation
from apiece.methods import CATALOG
from apiece.methods.bind import bind
from apiece.models import mlp, objective

from . import workloads
from .speed import chosen, grid
from .workloads import WORKLOADS

HELP = "seconds per round and per gradient evaluation of every method, next to FedAvg's, on W1"
LIMIT = 1.5  # of FedAvg's cost per gradient; above it a reason is written down in docs/ref-benchmarks.md
W1 = WORKLOADS["W1"]
OWN: dict[str, dict[str, Any]] = {"fed_bn": {"private": "hidden0/b"}}  # this model has no norm layers


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", default=",".join(CATALOG), help="which, by comma (default: all)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds in a timed repeat (default: %(default)s)")


class Timed:
    """One method on W1's federation; with `evaluated`, whose every gradient leaves an entry there."""

    def __init__(
        self,
        name: str,
        data: workloads.Examples,
        rounds: int,
        hidden: tuple[int, ...],
        evaluated: list[int] | None = None,
    ) -> None:
        model = mlp((W1.features,), W1.classes, hidden)
        loss = objective(model, "classification").loss

        def reporting(params: Any, batch: Any, key: Any) -> Any:
            jax.debug.callback(lambda: evaluated.append(1))
            return loss(params, batch, key)

        fixed = {"steps": W1.steps, "batch": W1.batch, "lr": W1.lr}
        known = CATALOG.options(name)
        options = {option: value for option, value in fixed.items() if option in known} | OWN.get(name, {})
        build, hyper = bind(name, loss if evaluated is None else reporting, options, population=W1.clients, model=model)
        offsets = np.arange(W1.clients + 1) * W1.examples
        self.engine = Vectorized(
            build, data.x, data.y, offsets, participation=Participation(size=W1.cohort), block=rounds
        )
        self.rounds, self.start = rounds, lambda: self.engine.start(model.init, 0, hyper)

    def run(self) -> float:
        """Seconds of the first rounds."""
        run = self.start()
        jax.block_until_ready(run.server)
        began = time.perf_counter()
        jax.block_until_ready(self.engine.advance(run, self.rounds).server)
        return time.perf_counter() - began


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row per method."""
    data, rows = workloads.make(W1), []
    bases: dict[tuple[int, ...], Timed] = {}
    for name in chosen(args.methods, CATALOG, "method"):
        say(f"{name}: compiling")
        evaluated: list[int] = []
        # A split needs two layers; FedAvg beside it then has them too.
        hidden = (16,) if "private" in CATALOG.options(name) else ()
        Timed(name, data, args.rounds, hidden, evaluated).run()
        jax.effects_barrier()
        gradients = len(evaluated) / (args.rounds * W1.cohort)
        timed = Timed(name, data, args.rounds, hidden)
        if hidden not in bases:
            bases[hidden] = Timed("fed_avg", data, args.rounds, hidden)
        plain = bases[hidden]
        for one in (timed, plain):
            one.run()
        turns, until = [], time.perf_counter() + args.seconds
        for turn in itertools.count():
            turns.append((timed.run(), plain.run()))
            if turn + 1 >= args.repeats and time.perf_counter() > until:
                break
        seconds, theirs = (statistics.median(column) / args.rounds for column in zip(*turns, strict=True))
        per_gradient = statistics.median((a / max(gradients, 1e-9)) / (b / W1.steps) for a, b in turns)
        rows.append({"system": "apiece", "workload": "W1", "method": name, "seconds_per_round": seconds,
                     "fed_avg": theirs, "gradients": gradients, "cost_per_gradient": per_gradient,
                     "above": per_gradient > LIMIT})  # fmt: skip
        say(f"{name}: {seconds * 1e3:.1f} ms a round, {gradients:.1f} gradients, {per_gradient:.2f} per gradient")
    return {"rounds": args.rounds, "repeats": args.repeats, "rows": rows}


COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("work", "workload", str),
    ("system", "system", str),
    ("method", "method", str),
    ("ms/round", "seconds_per_round", lambda s: f"{s * 1e3:.1f}"),
    ("FedAvg's", "fed_avg", lambda s: f"{s * 1e3:.1f}"),
    ("gradients", "gradients", lambda g: f"{g:.1f}"),
    ("/grad", "cost_per_gradient", lambda r: f"{r:.2f}"),
    (f"> {LIMIT}", "above", lambda above: "*" if above else ""),
]


def table(result: dict[str, Any], markdown: bool) -> str:
    legend = "gradients: a client evaluates in a round. /grad: time per gradient evaluation against FedAvg's."
    return "\n".join([*grid(COLUMNS, result["rows"], markdown), "", legend])
