"""Do verdicts of a run with default options stand? Beside them, those of a long, finely tuned run on the same rows.

Twenty federations of each of five kinds, made anew. On each: `compare` as a new user calls it, and where long runs end
(`long_run.py`: convex problems, solved). Of the nine usual methods the four are compared whose ends are known exactly;
a row of a comparison does not depend on the others, so these are the rows of the default run.

A statement of the default run is *contradicted* if the long run says the opposite, sure of it: who is told apart,
better than whom; the sign of a gain over the baseline; a client that is proved to be hurt and in the long run proved
not to be.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import apiece
from apiece.evaluate import half_over_clients, hurt
from apiece.experiment.baseline import error_scale, loss_scale
from apiece.experiment.compare import Comparison

from .answer_data import KINDS
from .long_run import METHODS, long_runs, score
from .speed import grid

HELP = "do verdicts of default runs stand beside those of long, finely tuned ones? (an hour)"
DRAWS = 20
Arrays = Mapping[str, np.ndarray]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=DRAWS, help="federations of each kind (default: %(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of %(default)s")
    parser.add_argument("--keep", default=None, help="a file of draws that were done (JSON lines): go on from it")


def run(args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """A row for each kind."""
    kinds = args.kinds.split(",")
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"there is no kind '{kind}'; there are {', '.join(KINDS)}")
    path = Path(args.keep) if args.keep else None
    done = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []
    known = {(one["kind"], one["draw"]): one for one in done}
    for kind in kinds:
        for draw in range(args.draws):
            if (kind, draw) in known:
                continue
            one = known[kind, draw] = one_draw(kind, draw)
            say(f"{kind} {draw}: {one['seconds']:.0f} s, contradicted: {one['contradicted'] or 'nothing'}")
            if path:
                with path.open("a") as file:
                    file.write(json.dumps(one) + "\n")
    rows = [summed(kind, [known[kind, draw] for draw in range(args.draws)]) for kind in kinds]
    return {"rows": rows, "draws": [known[kind, draw] for kind in kinds for draw in range(args.draws)]}


def one_draw(kind: str, draw: int, **options: Any) -> dict[str, Any]:
    """What the default run says of a federation, what the long one says, and where they contradict each other."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = apiece.compare(KINDS[kind](draw), list(METHODS), out=Path(folder) / "run", **options)
    ends = long_runs(found.place)
    said = {"default": default_verdicts(found), "long": long_verdicts(found, ends)}
    against = contradicted(found, ends)
    return {"kind": kind, "draw": draw, **said, "contradicted": against, "seconds": time.monotonic() - began}


def default_verdicts(found: Comparison) -> dict[str, Any]:
    """Of the record, what it claims."""
    record, ranking = found.record, found.record.ranking
    loss = lambda method: method.statistic("validation", "loss", "mean")
    return {
        "best": ranking.order[0],
        "behind": [name for name, gap in ranking.behind.items() if gap.told_apart],
        "so_far": [name for name, gap in ranking.behind.items() if gap.so_far],
        "baseline": record.over,
        "hurt": {name: m.harm.named for name, m in record.methods.items() if m.harm and not m.harm.so_far},
        "state": {name: m.convergence.state for name, m in record.methods.items() if m.convergence},
        "loss": {name: mean.mean for name, m in record.methods.items() if (mean := loss(m))},
        "score": {name: _mean(found, name) for name in record.methods},
    }


def _mean(found: Comparison, name: str) -> float | None:
    mean = found.record.methods[name].statistic("test", found.record.ranking.metric, "mean_weighted")
    return None if mean is None else mean.mean


def long_verdicts(found: Comparison, ends: Mapping[str, Any]) -> dict[str, Any]:
    """The same of the long runs; their luck is that of the test examples alone."""
    scores = {name: score(found.place, arrays) for name, arrays in ends.items()}
    sign = 1 if found.place.criterion.higher else -1
    best = max(scores, key=lambda name: sign * scores[name])
    behind = [name for name in ends if name != best and is_better(found, ends[best], ends[name])]
    loss = lambda arrays: _mean_over_clients(arrays["validation_loss"], arrays["validation_offsets"])
    return {"best": best, "behind": behind, "score": scores, "loss": {name: loss(ends[name]) for name in ends}}


def _mean_over_clients(values: np.ndarray, offsets: np.ndarray) -> float:
    each = [mine.mean() for mine in np.split(values, offsets[1:-1]) if len(mine)]
    return float(np.mean(each))


def is_better(found: Comparison, ours: Arrays, theirs: Arrays) -> bool:
    """Whether the interval of the difference of two long runs' test scores, over clients, lies above zero."""
    criterion = found.place.criterion
    mine, other = (criterion.of_clients(dict(arrays), "test") for arrays in (ours, theirs))
    sizes, sign = np.diff(ours["test_offsets"]), 1 if criterion.higher else -1
    there = np.isfinite(mine) & np.isfinite(other) & (sizes > 0)
    gap = sign * np.average((mine - other)[there], weights=sizes[there])
    return bool(gap > half_over_clients(mine, other, sizes))


def contradicted(found: Comparison, ends: Mapping[str, Any]) -> list[str]:
    """The statements of the default run whose opposite the long run is sure of."""
    record, said = found.record, default_verdicts(found)
    best, against = said["best"], []
    for name in said["behind"]:
        if is_better(found, ends[name], ends[best]):
            against.append(f"{best} is told apart from {name}")
    if said["baseline"] not in ends:
        return against  # a constant, which is the same however long one trains
    alone = ends[said["baseline"]]
    for name, method in record.methods.items():
        if name == said["baseline"] or method.harm is None or method.harm.so_far:
            continue
        gain = method.harm.gain
        if gain.low > 0 and is_better(found, alone, ends[name]):
            against.append(f"{name} gains over {said['baseline']}")
        if gain.high < 0 and is_better(found, ends[name], alone):
            against.append(f"{name} loses to {said['baseline']}")
        unhurt = _proved_unhurt(found, ends[name], alone, method.harm.delta)
        against += [f"{name} hurts '{client}'" for client in method.harm.named if client in unhurt]
    return against


def _proved_unhurt(found: Comparison, ours: Arrays, alone: Arrays, delta: float) -> set[str]:
    """The clients whose interval in the long run excludes that they are hurt."""
    place, some = found.place, next(iter(found.trials["local"].values()))
    kind = place.criterion.harm
    scale = error_scale(place, some) if kind == "error" else loss_scale(place, some)
    seen = hurt(ours[f"test_{kind}"], alone[f"test_{kind}"], ours["test_offsets"], scale=scale, resamples=1)
    sizes = np.diff(ours["test_offsets"])
    with np.errstate(invalid="ignore"):
        above = seen.difference + stats.t.ppf(0.975, np.maximum(sizes + 18, 1)) * seen.standard_error
    return {str(place.ids[i]) for i in np.flatnonzero(above < delta)}


def summed(kind: str, each: list[dict[str, Any]]) -> dict[str, Any]:
    """What the draws of a kind say together."""
    told = sum(len(one["long"]["behind"]) for one in each)
    both = sum(len(set(one["long"]["behind"]) & set(one["default"]["behind"])) for one in each)
    decided = [one for one in each if one["long"]["behind"]]
    too = [one for one in decided if set(one["long"]["behind"]) & set(one["default"]["behind"])]
    resting = [(one, name) for one in each for name, state in one["default"]["state"].items() if state == "resting"]
    off = sum(one["default"]["loss"][name] > 1.05 * one["long"]["loss"][name] for one, name in resting)
    wrong = sum(bool(one["contradicted"]) for one in each)
    return {
        "system": "apiece",
        "kind": kind,
        "draws": len(each),
        "contradicted": wrong,
        "long decides": len(decided),
        "default, too": len(too),
        "gaps told by long": told,
        "by default, too": both,
        "at rest": len(resting),
        "and 5 % off": off,
        "same best": sum(one["long"]["best"] == one["default"]["best"] for one in each),
        "seconds": round(float(np.median([one["seconds"] for one in each])), 1),
        # Of twenty draws one may be wrong; and half of the draws that are decided at all.
        "failed": wrong > len(each) // DRAWS or 2 * len(too) < len(decided),
    }


def table(result: dict[str, Any], markdown: bool) -> str:
    names = [name for name in result["rows"][0] if name not in ("system", "failed")]
    return "\n".join(grid([(name, name, str) for name in names], result["rows"], markdown))
