"""Is the advice right? `apiece advise` against a sweep of tuned methods, on federations drawn when this runs.

Every row (a federation, a seed) is kept in a folder as soon as it is done, and so is every method of its sweep: what
was interrupted goes on, and a changed advisor is run anew beside sweeps that are not (`--again`).
"""

import argparse
import dataclasses
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from apiece import advise
from apiece.data import Federation, from_rows
from apiece.engines.devices import remember_compiled
from apiece.experiment.advice_judge import SWEPT, Judged, Swept, judge_advice, summarize_judged, sweep_methods
from apiece.experiment.advice_judge.judge import without_test
from apiece.experiment.advice_judge.sweep import cost_of_sweep, train_method, winner_of
from apiece.files import as_plain, write_json

from .advice_federations import DESIGN, Drawn, draw, families_at_hand, made
from .speed import grid

HELP = "advice against a sweep of tuned methods: regret, cost, hurt, coverage (hours; every row is kept)"
CONSTANTS = ("fed_avg", "local_ridge", "ftfa", "rtfa", "dynamic_lambda", "self_fl", "all_for_all")
SEARCHED = "random search of equal cost"
ALONE = ("local_ridge", "local")
LIMIT = 0.12  # of the usual sweep
KEPT = Path(__file__).parent / "kept" / "advice.json"
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
    parser.add_argument("--kept", type=Path, default=KEPT, help="file of sweeps that were run before")
    parser.add_argument("--keep", action="store_true", help="write the sweeps of this word to that file")
    parser.add_argument("--no-controls", dest="controls", action="store_false", help="without the controls")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    remember_compiled()
    if args.quick:
        args.tune, args.rounds, args.seeds, args.each = 2, "20", 1, 1
        args.limit = np.inf  # of a sweep that is hardly one, any advice is too dear
        args.families, args.half = args.families or ["linear"], "reported"
    wanted = args.families or families_at_hand(args.half)
    rounds = args.rounds if args.rounds == "auto" else int(args.rounds)
    swept_by, home = QUICK if args.quick else SWEPT, args.cache / f"{args.word}-t{args.tune}-r{args.rounds}"
    rows, added = [], 0
    # Those of one shape one after the other: their programs are the same.
    order = [(seed, family, number) for seed in range(args.seeds) for odd in (0, 1) for family in wanted
             for number in range(odd, args.each, 2)]  # fmt: skip
    for seed, family, number in order:
        folder = home / f"{family}-{number}-{seed}"
        if not (folder / "row.json").exists() or args.again:
            if args.most is not None and added >= args.most:
                continue
            added += 1
            began = time.monotonic()
            drawn = draw(family, args.word, number, seed)
            kept = read_kept(args.kept, f"{home.name} {family}-{number}-{seed}", drawn.federation)
            row = judge_row(drawn, folder, swept_by, args.tune, rounds, seed, args.limit, kept)
            row |= {"family": family, "number": number, "seed": seed, "seconds": time.monotonic() - began}
            write_json(folder / "row.json", as_plain(row))
            say(f"{family} {number}, seed {seed}: {row['advise']['method']}, regret "
                f"{row['advise']['regret']:+.2f}, {row['seconds']:.0f} s")  # fmt: skip
        rows.append(json.loads((folder / "row.json").read_text()))
    if args.keep:
        keep_sweeps(home, args.kept, lambda row: draw(row["family"], args.word, row["number"], row["seed"]).federation)
    controls = run_controls(args.quick) if args.controls else []
    result = summarize(rows, controls)
    best = best_by_design(home) if args.half == "reported" else None
    if best is not None and f"always {best}, tuned" in result["baselines"]:
        result["baselines"]["the best of the design half"] = result["baselines"][f"always {best}, tuned"]
    return result


def judge_row(
    drawn: Drawn, folder: Path, methods: tuple[str, ...], tune: int, rounds: Any, seed: int, limit: float,
    kept: dict[str, dict[str, Swept]],
) -> dict[str, Any]:  # fmt: skip
    """One federation: the sweep (from what is kept), then every advisor."""
    federation, model = drawn.federation, drawn.model
    alone = "local_ridge" if model is None else "local"
    methods = tuple(dict.fromkeys(alone if name == "local_ridge" else name for name in methods))
    known = kept.get("sweep", {}) | read_swept(folder / "sweep")
    keep = lambda swept, part="sweep": write_json(folder / part / f"{swept.method}.json", as_plain(swept._asdict()))
    how: dict[str, Any] = dict(model=model, rounds=rounds, seed=seed)
    if not set(methods) <= set(known):
        known = sweep_methods(federation, known=known, keep=keep, methods=methods, tune=tune, **how)
    found = {"advise": judge_advice(federation, advise, limit=limit, name="advise", swept=known, **how).plain()}
    defaults = kept.get("defaults", {}) | read_swept(folder / "defaults")

    def constant(name: str, method: str, table: dict[str, Any]) -> None:
        if name not in defaults:
            same = known.get(method)  # what tuning chose may be just that
            if same is None or not table or same.options != {**same.options, **table}:
                same = train_method(federation, method, table, tune=1, **how)
            defaults[name] = same._replace(method=name)
            keep(defaults[name], "defaults")
        one = defaults[name]
        found[f"always {name}" if name == method else name] = {"options": one.options, "points": one.points,
                                                               "regret": _regret(one, known)}  # fmt: skip

    for name in dict.fromkeys(alone if name == "local_ridge" else name for name in CONSTANTS):
        if name in methods or methods[-1] == SWEPT[-1]:
            constant(name, name, {})
    constant(SEARCHED, *search_at_random(known, found["advise"]["passes"], seed))
    return {"hidden": drawn.hidden, "model": "linear" if model is None else model["name"],
            "clients": federation.clients, "tuned": {name: _regret(one, known) for name, one in known.items()},
            **found}  # fmt: skip


def search_at_random(known: dict[str, Swept], passes: float, seed: int) -> tuple[str, dict[str, Any]]:
    """(method, options) of the best by validation of as many trials, drawn from all, as may cost what is allowed.

    That is what advice has cost, or a hundredth of the sweep if that is more; the first trial is always made.
    """
    trials = [(name, *trial, one.passes / (len(one.tried) + 1)) for name, one in known.items() for trial in one.tried]
    usual = cost_of_sweep(known)[0]
    rng = np.random.default_rng([seed, round(usual)])
    left, best = max(passes, usual / 100), None
    for at in rng.permutation(len(trials)):
        name, options, validation, cost = trials[at]
        cost = 0.0 if name == "local_ridge" else cost
        if best is not None and cost > left:
            break
        left -= cost
        worth = np.inf if validation is None or np.isnan(validation) else validation
        best = (worth, name, options) if best is None or worth < best[0] else best
    assert best is not None
    return best[1], dict(best[2])


def _regret(one: Swept, known: dict[str, Swept]) -> float:
    """Of one that diverged: as bad as the worst that did not."""
    worst = max(each.points for each in known.values() if np.isfinite(each.points))
    return (one.points if np.isfinite(one.points) else worst) - winner_of(known).points


def best_by_design(folder: Path) -> str | None:
    """The tuned method of least mean regret on the rows of the design half that are kept; None: there are none."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*/row.json"))]
    tuned = [row["tuned"] for row in rows if row["family"] in DESIGN and row["model"] == "linear"]
    names = sorted(set.intersection(*map(set, tuned))) if tuned else []
    return min(names, key=lambda name: float(np.mean([each[name] for each in tuned])), default=None)


def read_swept(folder: Path) -> dict[str, Swept]:
    """The methods of a sweep that are kept."""
    return {path.stem: swept_of(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}


def swept_of(plain: dict[str, Any]) -> Swept:
    """As it was before it was written: what diverged has no number in JSON."""
    return Swept(**{key: np.nan if value is None else value for key, value in plain.items()})


def read_kept(path: Path, key: str, federation: Federation) -> dict[str, dict[str, Swept]]:
    """The sweep and the defaults of a row as the file has them, if they are of this very federation."""
    found = json.loads(path.read_text()).get(key) if path.exists() else None
    if found is None or found["labels"] not in (None, labels_of(federation)):  # None: nobody wrote them down
        return {}
    every = lambda part: {name: swept_of({"method": name, **one}) for name, one in found[part].items()}
    return {part: every(part) for part in ("sweep", "defaults")}


def keep_sweeps(home: Path, path: Path, again: Callable[[dict], Federation]) -> None:
    """All sweeps of a folder into one file. Single errors are kept of local models alone: hurt is told against them."""
    every = json.loads(path.read_text()) if path.exists() else {}
    for place in sorted(home.glob("*/row.json")):
        folder, row = place.parent, json.loads(place.read_text())
        one: dict[str, Any] = {"labels": labels_of(again(row))}
        for part in ("sweep", "defaults"):
            if not (parts := read_swept(folder / part)):
                continue
            one[part] = {}
            for name, swept in parts.items():
                plain = swept._asdict() | {"errors": swept.errors if name in ALONE and part == "sweep" else []}
                plain.pop("method")
                one[part][name] = short(plain)
        if {"sweep", "defaults"} <= set(one):
            every[f"{home.name} {folder.name}"] = one
    path.parent.mkdir(exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(one, separators=(',', ':'))}" for key, one in sorted(every.items())]
    path.write_text("{" + ",\n".join(lines) + "}\n")


def short(value: Any) -> Any:
    """The same in fewer digits: errors of 0 and 100 as whole numbers, others in six digits."""
    if isinstance(value, dict):
        return {key: short(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [short(each) for each in value]
    if not isinstance(value, float) or not np.isfinite(value):
        return value
    return int(value) if value == int(value) else float(f"{value:.6g}")


def labels_of(federation: Federation) -> int:
    """What tells one drawn federation from another: its sizes and its labels."""
    parts = (federation.train, federation.validation, federation.test)
    told = [*(np.asarray(part.sizes, np.int64) for part in parts)]
    told += [np.round(np.asarray(part.y, np.float64), 2).astype(np.float32) + 0.0 for part in parts]
    return zlib.crc32(b"".join(each.tobytes() for each in told))


def summarize(rows: list[dict[str, Any]], controls: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of all rows, of advice and of every other advisor."""
    numbers = ("mean_regret", "median_regret", "p90_regret", "max_regret")

    def told(regrets: list[float]) -> dict[str, float]:
        found = np.mean(regrets), np.median(regrets), np.quantile(regrets, 0.9), np.max(regrets)
        return dict(zip(numbers, map(float, found), strict=True))

    names = dict.fromkeys(key for row in rows for key in row if key.startswith(("always", "random")))
    baselines = {name: told([row[name]["regret"] for row in rows if name in row]) for name in names}
    tuned = dict.fromkeys(key for row in rows for key in row["tuned"])
    baselines |= {f"always {name}, tuned": told([row["tuned"][name] for row in rows if name in row["tuned"]])
                  for name in tuned}  # fmt: skip
    overall = summarize_judged([Judged(**row["advise"]) for row in rows]) if rows else {}
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
    ("federation", "federation", str), ("seed", "seed", str), ("model", "model", str), ("advised", "method", str),
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
