"""Self-FL by default: against the Bayes estimate where that is known, against FedAvg and training alone on real data.

APIECE_DATA=/path/to/data python -m benchmarks self_fl --markdown
Another method on the same natural federations: ... self_fl --draws 0 --method all_for_all --rounds 100
"""

import argparse
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from apiece import fit
from apiece.data import Federation, source
from apiece.engines.simulation.vectorized import Vectorized
from apiece.evaluate import half_over_clients, per_client
from apiece.experiment.judge import Outcome, judge
from apiece.methods import CATALOG
from apiece.models import linear, objective

from .speed import grid

HELP = "Self-FL with its defaults, against the Bayes estimate, FedAvg and training alone (ten minutes)"
NOISES = (0.01, 0.1, 1.0, 10.0)
SMALLEST, LARGEST, CLIENTS = 10, 200, 20
MOST = 40  # clients of a natural federation: a small part of a large one
NATURAL = (
    "heart_by_hospital",
    "school_by_school",
    "vehicle_by_sensor",
    "har_by_subject",
    "mnist_by_writer",
    "audiomnist_by_speaker",
)
RIVALS = ("local", "fed_avg")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=20, help="of the two-level federation (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=60, help="of each run (default: %(default)s)")
    parser.add_argument("--splits", type=int, default=2, help="of each natural federation (default: %(default)s)")
    parser.add_argument("--method", default="self_fl", help="on natural federations (default: %(default)s)")
    parser.add_argument("--natural", nargs="*", default=NATURAL, help="which of them (default: all that are at hand)")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    rows = []
    for noise, found in two_level(args.draws, args.rounds, NOISES if args.draws else ()).items():
        rows.append({"system": "self_fl", "federation": f"two levels, noise variance {noise:g}", **found})
        say(f"{rows[-1]}")
    for name in args.natural if "APIECE_DATA" in os.environ else ():
        found = natural(name, args.rounds, args.splits, args.method)
        rows.append({"system": args.method, "federation": name, **found})
        say(f"{rows[-1]}")
    return {"rounds": args.rounds, "draws": args.draws, "splits": args.splits, "method": args.method, "rows": rows}


def two_level(draws: int, rounds: int, noises: Any = NOISES, **options: Any) -> dict[float, dict[str, float]]:
    """By noise variance: the mean |error| of each client's own estimate, by Self-FL, alone, and by Bayes' rule with
    both variances known; means over draws of the federation."""
    model, engine, table = linear((1,)), None, {}
    loss = objective(model, "regression").loss
    for noise in noises:
        errors = []
        for seed in range(draws):
            made = source("two_level_gaussian", clients=CLIENTS, within=noise, seed=seed)
            x, y, offsets = _as_large(made)
            if engine is None:  # one program for all draws: they are filled up to the same size
                build = lambda hyper, round: CATALOG["self_fl"](loss, population=CLIENTS, **options)
                engine = Vectorized(build, x, y, offsets, population=CLIENTS, block=rounds)
            engine.train = engine.examples(x, y, offsets)
            run = engine.advance(engine.start(model.init, seed, {}), rounds)
            used = engine.personal(run, np.arange(CLIENTS))
            own = np.asarray(used["w"]).reshape(CLIENTS) + np.asarray(used["b"]).reshape(CLIENTS)
            alone, bayes = estimates(made)
            truth = made.truth["personal"][:, 0]
            errors.append([np.abs(each - truth).mean() for each in (own, alone, bayes)])
        table[noise] = dict(zip(("self_fl", "local", "bayes"), np.mean(errors, axis=0).tolist(), strict=True))
    return table


def estimates(made: Federation) -> tuple[np.ndarray, np.ndarray]:
    """(every client's own mean, the posterior mean of what it estimates, both variances known)."""
    alone = np.array([made.train.client(i)[1].mean() for i in range(made.clients)])
    s, s0 = made.truth["personal_variance"], float(made.truth["between"])
    weight = 1 / (s0 + s)
    centre = weight @ alone / weight.sum()
    return alone, centre + s0 / (s0 + s) * (alone - centre)


def _as_large(made: Federation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Its training rows with one more client, who never takes part and makes every draw as large."""
    spare = (CLIENTS + 1) * LARGEST - len(made.train.x)
    x = np.concatenate([made.train.x, np.zeros((spare, 1), np.float32)])
    y = np.concatenate([made.train.y, np.zeros(spare, np.float32)])
    return x, y, np.append(made.train.offsets, made.train.offsets[-1] + LARGEST)


def natural(name: str, rounds: int, splits: int, mine: str = "self_fl") -> dict[str, Any]:
    """Test errors of all rows, by method; and how far `mine` is ahead of the better of the two others, with half the
    90 % interval over clients, of their means over splits."""
    methods = (*RIVALS, mine)
    errors: dict[str, list] = {method: [] for method in methods}
    for seed in range(splits):
        federation = source(name, seed=seed)
        if federation.clients > MOST:
            chosen = np.random.default_rng(seed=0).permutation(federation.clients)[:MOST]
            federation = federation.take(np.sort(chosen).tolist())
        for method in methods:
            found = fit(method, federation=federation, rounds=rounds, evaluate_every=rounds, seed=seed)
            judged, arrays = judge(found.engine, found.place, found.run)
            scores = Outcome(judged, arrays, found.curve, found.costs).scores("test", "error")
            errors[method].append(per_client(*scores)[: found.place.population])
        sizes = np.asarray(found.place.sizes("test"))[: found.place.population]
    mean = {method: np.mean(each, axis=0) for method, each in errors.items()}
    pooled = {method: float(np.average(np.nan_to_num(each), weights=sizes)) for method, each in mean.items()}
    better = min(RIVALS, key=pooled.__getitem__)
    ahead = pooled[better] - pooled[mine]
    half = half_over_clients(mean[mine], mean[better], sizes, level=0.9)
    return {**pooled, "better": better, "ahead": ahead, "half": half, "clients": len(sizes)}


def table(result: dict[str, Any], markdown: bool) -> str:
    """Two tables: where the best estimate is known, and where it is not."""
    digits, ratio, mine = "{:.4f}".format, "{:.3f}".format, result["method"]
    known = [
        {**row, "to_bayes": row["self_fl"] / row["bayes"], "alone": row["local"] / row["bayes"]}
        for row in result["rows"]
        if "bayes" in row
    ]
    rest = [{**row, "gap": f"{row['ahead']:+.4f} ± {row['half']:.4f}"} for row in result["rows"] if "ahead" in row]
    first = [("federation", "federation", str), ("self_fl", "self_fl", digits), ("alone", "local", digits),
             ("Bayes", "bayes", digits), ("self_fl / Bayes", "to_bayes", ratio),
             ("alone / Bayes", "alone", ratio)]  # fmt: skip
    second = [("federation", "federation", str), ("the better", "better", str), ("clients", "clients", str),
              (mine, mine, digits), ("fed_avg", "fed_avg", digits), ("local", "local", digits),
              (f"{mine} ahead of the better", "gap", str)]  # fmt: skip
    tables = [grid(columns, rows, markdown) for columns, rows in ((first, known), (second, rest)) if rows]
    return "\n\n".join("\n".join(lines) for lines in tables)
