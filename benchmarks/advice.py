"""Is the advice right? `apiece advise` against a sweep of tuned methods, on federations drawn when this runs.

Every row (a federation, a seed) is kept in a folder as soon as it is done, and so is every method of its sweep: what
was interrupted goes on, and a changed advisor is run anew beside sweeps that are not (`--again`).
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from apiece import advise
from apiece.data import Federation, from_rows
from apiece.experiment.advice_judge import SWEPT, Judged, Swept, judge_advice, summarize_judged, sweep_methods
from apiece.experiment.advice_judge.judge import without_test
from apiece.experiment.advice_judge.sweep import train_method
from apiece.files import as_plain, write_json

from .advice_federations import DESIGN, Drawn, draw, families_at_hand, made
from .speed import grid

HELP = "advice against a sweep of tuned methods: regret, cost, hurt, coverage (hours; every row is kept)"
CONSTANTS = ("fed_avg", "local_ridge", "ftfa", "rtfa", "dynamic_lambda", "self_fl", "all_for_all")
LIMIT = 0.12  # of the usual sweep
QUICK = ("fed_avg", "local_ridge", "rtfa")
TOLD = ("method", "points", "winner", "winner_points", "regret", "cost_ratio", "cost_ratio_shared", "hurt_proved",
        "hurt_expected", "gain", "predicted", "covered", "note")  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="two small federations, three methods, two trials each")
    parser.add_argument("--half", choices=("reported", "design"), default="reported", help="of the sources")
    parser.add_argument("--families", nargs="*", help="of that half (default: all whose data are at hand)")
    parser.add_argument("--each", type=int, default=4, help="federations of each family (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="of each federation (default: %(default)s)")
    parser.add_argument("--word", default="smoke", help="what federations are drawn by: any word, such as a date")
    parser.add_argument("--tune", type=int, default=8, help="trials of each method (default: %(default)s)")
    parser.add_argument("--rounds", default="auto", help="of each run; auto: until validation rests")
    parser.add_argument("--limit", type=float, default=LIMIT, help="of the sweep's cost: who spends more is stopped")
    parser.add_argument("--most", type=int, help="rows to add in this call (default: all)")
    parser.add_argument("--again", action="store_true", help="run advisors anew, beside the sweeps that are kept")
    parser.add_argument("--cache", type=Path, default=Path("runs/advice-benchmark"), help="folder of what is kept")
    parser.add_argument("--no-controls", dest="controls", action="store_false", help="without the controls")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    if args.quick:
        args.tune, args.rounds, args.seeds, args.each = 2, "20", 1, 1
        args.limit = np.inf  # of a sweep that is hardly one, any advice is too dear
        args.families, args.half = args.families or ["linear"], "reported"
    wanted = args.families or families_at_hand(args.half)
    rounds = args.rounds if args.rounds == "auto" else int(args.rounds)
    swept_by = QUICK if args.quick else SWEPT
    rows, added = [], 0
    for number in range(args.each):
        for family in wanted:
            for seed in range(args.seeds):
                folder = args.cache / f"{args.word}-t{args.tune}-r{args.rounds}" / f"{family}-{number}-{seed}"
                if not (folder / "row.json").exists() or args.again:
                    if args.most is not None and added >= args.most:
                        continue
                    added += 1
                    began = time.monotonic()
                    row = judge_row(
                        draw(family, args.word, number), folder, swept_by, args.tune, rounds, seed, args.limit
                    )
                    row |= {"family": family, "number": number, "seed": seed, "seconds": time.monotonic() - began}
                    write_json(folder / "row.json", as_plain(row))
                    say(f"{family} {number}, seed {seed}: {row['advise']['method']}, regret "
                        f"{row['advise']['regret']:+.2f}, {row['seconds']:.0f} s")  # fmt: skip
                rows.append(json.loads((folder / "row.json").read_text()))
    controls = run_controls(args.quick) if args.controls else []
    result = summarize(rows, controls)
    best = best_by_design(args.cache / f"{args.word}-t{args.tune}-r{args.rounds}") if args.half == "reported" else None
    if best is not None and f"always {best}, tuned" in result["baselines"]:
        result["baselines"]["the best of the design half"] = result["baselines"][f"always {best}, tuned"]
    return result


def judge_row(
    drawn: Drawn, folder: Path, methods: tuple[str, ...], tune: int, rounds: Any, seed: int, limit: float
) -> dict[str, Any]:
    """One federation: the sweep (from what is kept), then every advisor."""
    federation, model = drawn.federation, drawn.model
    methods = methods if model is None else tuple(name for name in methods if name != "local_ridge")
    known = read_swept(folder / "sweep")
    keep = lambda swept: write_json(folder / "sweep" / f"{swept.method}.json", as_plain(swept._asdict()))
    if not set(methods) <= set(known):
        how: dict[str, Any] = dict(model=model, methods=methods, tune=tune, rounds=rounds, seed=seed)
        known = sweep_methods(federation, known=known, keep=keep, **how)
    how = dict(model=model, seed=seed, swept=known, rounds=rounds)
    found = {"advise": judge_advice(federation, advise, limit=limit, name="advise", **how)}
    defaults = read_swept(folder / "defaults")
    for name in CONSTANTS if model is None else [name for name in CONSTANTS if name != "local_ridge"]:
        if name not in methods and methods == QUICK:
            continue
        if name not in defaults:
            defaults[name] = train_method(federation, name, {}, model=model, tune=1, rounds=rounds, seed=seed)
            write_json(folder / "defaults" / f"{name}.json", as_plain(defaults[name]._asdict()))
        found[f"always {name}"] = told(federation, defaults[name], known, how)
    rng = np.random.default_rng([seed, federation.train.rows])
    lucky = known[str(rng.choice(sorted(name for name in known if name != "mixture")))]
    found["random method, tuned"] = told(federation, lucky, known, how)
    return {"hidden": drawn.hidden, "model": "linear" if model is None else model["name"],
            "clients": federation.clients, "tuned": {name: _regret(one, known) for name, one in known.items()},
            **{name: one.plain() for name, one in found.items()}}  # fmt: skip


def told(federation: Federation, made_: Swept, known: dict[str, Swept], how: dict[str, Any]) -> Judged:
    """An advisor that always says the same, whose result is known: nothing is trained."""
    with_it = {**known, made_.method: made_}
    one = judge_advice(federation, lambda *given, **more: SimpleNamespace(method=made_.method, options=made_.options),
                       **{**how, "swept": with_it}, name=f"always {made_.method}")  # fmt: skip
    best = min(known.values(), key=lambda each: each.validation)
    return Judged(**{**one.plain(), "regret": made_.points - best.points, "winner": best.method,
                     "winner_points": best.points})  # fmt: skip


def _regret(one: Swept, known: dict[str, Swept]) -> float:
    return one.points - min(known.values(), key=lambda each: each.validation).points


def best_by_design(folder: Path) -> str | None:
    """The tuned method of least mean regret on the rows of the design half that are kept; None: there are none."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*/row.json"))]
    tuned = [row["tuned"] for row in rows if row["family"] in DESIGN and row["model"] == "linear"]
    names = sorted(set.intersection(*map(set, tuned))) if tuned else []
    return min(names, key=lambda name: float(np.mean([each[name] for each in tuned])), default=None)


def read_swept(folder: Path) -> dict[str, Swept]:
    """The methods of a sweep that are kept."""
    found = [Swept(**json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return {one.method: one for one in found}


def summarize(rows: list[dict[str, Any]], controls: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of all rows, of advice and of every other advisor."""
    judged = lambda name: [Judged(**row[name]) for row in rows if name in row]
    names = dict.fromkeys(key for row in rows for key in row if key.startswith(("always", "random")))
    numbers = ("mean_regret", "median_regret", "p90_regret", "max_regret")
    baselines = {name: {key: summarize_judged(judged(name))[key] for key in numbers} for name in names}
    tuned = {}
    for name in dict.fromkeys(key for row in rows for key in row["tuned"]):
        regrets = np.array([row["tuned"][name] for row in rows if name in row["tuned"]])
        found = regrets.mean(), np.median(regrets), np.quantile(regrets, 0.9), regrets.max()
        tuned[name] = dict(zip(numbers, map(float, found), strict=True))
    baselines |= {f"always {name}, tuned": numbers for name, numbers in tuned.items()}
    overall = summarize_judged(judged("advise")) if rows else {}
    federations = [{"system": "apiece", "federation": f"{row['family']} {row['number']}"}
                   | {key: row[key] for key in ("model", "seed", "clients", "hidden")}
                   | {key: row["advise"][key] for key in TOLD} for row in rows]  # fmt: skip
    return {**overall, "baselines": baselines, "federations": federations, "controls": controls, "rows": federations}


def run_controls(quick: bool) -> list[dict[str, Any]]:
    """Federations whose answer is known: each says what was expected, and whether it came."""
    rng = np.random.default_rng(7)
    clients, per, d = (12, 40, 3) if quick else (40, 60, 8)
    owner = np.repeat(np.arange(clients), per)
    x = rng.normal(size=(len(owner), d))
    noise = rng.normal(size=len(owner))
    truth = rng.normal(size=d)
    own = rng.normal(size=(clients, d))
    groups = 4 * rng.normal(size=(2, d))
    targets = {
        "iid": x @ truth + noise,
        "shuffled clients": (x * own[owner]).sum(axis=1) + noise,  # and their rows belong to anybody, below
        "random labels": noise,
        "true groups": (x * groups[owner % 2]).sum(axis=1) + noise,
        "far apart": (x * 5 * own[owner]).sum(axis=1) + 0.1 * noise,
    }
    said = {}
    for name, y in targets.items():
        whose = rng.permutation(owner) if name == "shuffled clients" else owner
        said[name] = advise(without_test(made(np.random.default_rng(1), x, y, whose, (), {}).federation))
    holds = {
        "iid": said["iid"].kind == "shared" or abs(said["iid"].gains["shared"].mean) < 1,
        "shuffled clients": said["shuffled clients"].heterogeneity.z < 3,
        "random labels": all(e.low <= 0 <= e.high for e in [said["random labels"].gains["shared"]]),
        "true groups": said["true groups"].groups is not None,
        "far apart": said["far apart"].degree.own_share > 0.9,
    }
    plain = lambda found: {k: v for k, v in found.plain().items() if k not in ("cost", "environment")}
    federation = made(np.random.default_rng(1), x, targets["iid"], owner, (), {}).federation
    test = federation.test
    turned = dataclasses.replace(federation, test=dataclasses.replace(test, y=np.asarray(test.y)[::-1].copy()))
    holds["permuted test labels"] = plain(advise(turned)) == plain(advise(federation))
    mine = owner == 0  # a client that is there twice is told the same twice
    both = lambda values: np.concatenate([values, values[mine]])
    whose = np.append(owner, np.full(mine.sum(), clients))
    twice = from_rows(both(x), both(targets["true groups"]), whose, split=np.zeros(len(whose), int))
    members = getattr(advise(twice).groups, "members", None)
    holds["a client twice"] = members is None or members[0] == members[clients]
    return [{"control": name, "holds": bool(held), "kind": said[name].kind if name in said else ""}
            for name, held in holds.items()]  # fmt: skip


COLUMNS = [
    ("federation", "federation", str), ("model", "model", str), ("advised", "method", str),
    ("winner", "winner", str), ("advised %", "points", "{:.1f}".format),
    ("winner %", "winner_points", "{:.1f}".format), ("regret", "regret", "{:+.2f}".format),
    ("cost", "cost_ratio", "{:.1%}".format), ("of shared", "cost_ratio_shared", "{:.1%}".format),
    ("proved hurt", "hurt_proved", "{:.1%}".format), ("covered", "covered", str),
]  # fmt: skip
OTHERS = [("advisor", "name", str), ("", "none", str), ("", "none", str), ("mean", "mean_regret", "{:+.2f}".format),
          ("median", "median_regret", "{:+.2f}".format), ("90 %", "p90_regret", "{:+.2f}".format),
          ("max", "max_regret", "{:+.2f}".format)]  # fmt: skip


def table(result: dict[str, Any], markdown: bool = False) -> str:
    """Every federation's row, all advisors, and the controls."""
    if not result["federations"]:
        return "no row yet"
    advisors = [
        {"name": "advise", **result},
        *({"name": name, **numbers} for name, numbers in result["baselines"].items()),
    ]
    lines = [*grid(COLUMNS, result["federations"], markdown), "", *grid(OTHERS, advisors, markdown), ""]
    known = result["coverage"]
    lines.append(f"{len(result['federations'])} rows: cost {result['cost_ratio']:.1%} of the usual sweep, "
                 f"{result['cost_ratio_shared']:.1%} of the shared one; proved hurt {result['hurt_proved']:.2%}, "
                 f"expected {result['hurt_expected']:.1%}; 90 % intervals cover "
                 f"{'?' if known is None else f'{known:.0%}'}.")  # fmt: skip
    lines += [f"control {each['control']}: {'holds' if each['holds'] else 'BROKEN'}" for each in result["controls"]]
    return "\n".join(lines)
