"""What a comparison found, put together from its finished trials: record.json and the two tables."""

import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from apiece.data.federation import HITS
from apiece.evaluate import binary_metrics, hurt, interval, paired_interval, per_client, regression_metrics, summarize
from apiece.experiment.build import Arena
from apiece.experiment.trial import Outcome, finite
from apiece.files import replacing

Trials = dict[str, dict[int, Outcome]]  # method -> seed -> what it left


def metrics(place: Arena, outcome: Outcome) -> dict[str, Any]:
    """One trial's numbers: training clients on validation and test, new clients on test."""
    old = outcome.judged < place.population
    parts = {"validation": old, "test": old} | ({"new_clients": ~old} if (~old).any() else {})
    return {part: _summary(place, outcome, part, chosen) for part, chosen in parts.items()}


def _summary(place: Arena, outcome: Outcome, part: str, chosen: np.ndarray) -> dict[str, Any]:
    split = "test" if part == "new_clients" else part
    train_sizes = np.diff(place.offsets)[outcome.judged][chosen]
    result: dict[str, Any] = {}
    for kind in ("loss", "error"):
        values, offsets = outcome.scores(split, kind)
        per = finite(per_client(values, offsets))
        sizes = np.diff(offsets)[chosen]
        name, score, higher = kind, per[chosen], False
        if kind == "error" and place.federation.task in HITS:
            name, score, higher = "accuracy", 1 - score, True
        result[name] = summarize(score, sizes, higher, train_sizes=train_sizes)
    regression = place.federation.task == "regression"
    kind, of_task = ("error", regression_metrics) if regression else ("margin", binary_metrics)
    if f"{split}_{kind}" not in outcome.arrays or not (regression or place.federation.binary):
        return result
    values, offsets = outcome.scores(split, kind)
    mine = np.repeat(chosen, np.diff(offsets))
    ends = np.concatenate([[0], np.cumsum(np.diff(offsets)[chosen])])
    targets = _targets(place, split, outcome.judged)[mine]
    return result | of_task(finite(values[mine]), targets, ends, train_sizes)


def _targets(place: Arena, split: str, judged: np.ndarray) -> np.ndarray:
    _, targets, offsets = place.splits[split]
    y = np.asarray(targets)
    return np.concatenate([y[offsets[i] : offsets[i + 1]] for i in judged])


def gains(place: Arena, trials: Trials) -> dict[str, dict[str, Any]]:
    """Per method, over all seeds: who is better off than alone, and who is hurt (points of test error)."""
    if "local" not in trials:
        return {}
    found: dict[str, dict[str, Any]] = {}
    scale = error_scale(place, next(iter(trials["local"].values())))
    for name, by_seed in trials.items():
        if name == "local":
            continue
        seeds = [seed for seed in by_seed if seed in trials["local"]]
        pairs = [(by_seed[s].scores("test", "error"), trials["local"][s].scores("test", "error")) for s in seeds]
        old = next(iter(by_seed.values())).judged < place.population
        offsets = pairs[0][0][1]
        mine, ends = np.repeat(old, np.diff(offsets)), np.concatenate([[0], np.cumsum(np.diff(offsets)[old])])
        error, alone = (np.stack([pair[k][0][mine] for pair in pairs]).astype(np.float64) for k in (0, 1))
        if not (np.isfinite(error).all() and np.isfinite(alone).all()):
            found[name] = {"diverged": True}
            continue
        found[name] = hurt(error, alone, ends, scale=scale).as_dict()
        means = [np.nanmean(per_client(a, ends) - per_client(e, ends)) for e, a in zip(error, alone, strict=True)]
        found[name]["gain_over_local"] = _interval(interval(100 * np.array(means) / scale))
    return found


def error_scale(place: Arena, outcome: Outcome) -> float:
    """What one hundred points of error are: 1 for mistakes, the variance of the targets for squared errors."""
    if place.federation.task != "regression":
        return 1.0
    return float(np.var(_targets(place, "test", outcome.judged))) or 1.0


def over_seeds(per_seed: list[dict[str, Any]]) -> dict[str, Any]:
    """The same nested numbers with an interval over the seeds in place of each number.

    >>> over_seeds([{"a": {"mean": 1.0}}, {"a": {"mean": 3.0}}])["a"]["mean"]["mean"]
    2.0
    """
    first = per_seed[0]
    return {
        key: over_seeds([m[key] for m in per_seed])
        if isinstance(value, dict)
        else _interval(interval(np.array([m[key] for m in per_seed], np.float64)))
        for key, value in first.items()
    }


def _interval(found: Any) -> dict[str, float]:
    return dict(found._asdict())


def against(trials: Trials, place: Arena, name: str, other: str) -> dict[str, float] | None:
    """The paired difference in weighted test error (points), method minus the other, with its interval over seeds."""
    seeds = [s for s in trials.get(name, {}) if s in trials.get(other, {})]
    if not seeds or name == other:
        return None
    scale = error_scale(place, trials[name][seeds[0]])

    def mean(outcome: Outcome) -> float:
        errors, offsets = outcome.scores("test", "error")
        trained = np.repeat(outcome.judged < place.population, np.diff(offsets))
        return 100 * float(finite(errors[trained]).mean(dtype=np.float64)) / scale

    return _interval(paired_interval([mean(trials[name][s]) for s in seeds], [mean(trials[other][s]) for s in seeds]))


def environment() -> dict[str, Any]:
    """Where this ran: versions, platform, devices."""
    packages = {name: version(name) for name in ("apiece", "jax", "jaxlib", "numpy", "optax", "scipy")}
    devices = [f"{d.platform}:{d.device_kind}" for d in jax.devices()]
    return {"python": platform.python_version(), "platform": platform.platform(), "packages": packages,
            "devices": devices}  # fmt: skip


def revision() -> str | None:
    """The git revision of the working folder, if it is one."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def write_rounds(path: Path, trials: Trials) -> None:
    """rounds.parquet: one row per method, seed and evaluation; costs grow in proportion to the rounds done."""
    rows = []
    for name, by_seed in trials.items():
        for seed, outcome in by_seed.items():
            for point in outcome.curve:
                share = point["round"] / outcome.costs["rounds"]
                spent = {key: outcome.costs[key] * share for key in ("bytes_up", "bytes_down", "gradients")}
                rows.append({"method": name, "seed": seed, **point, **spent})
    _write(path, rows)


def write_clients(path: Path, place: Arena, trials: Trials) -> None:
    """clients.parquet: one row per method, seed and client, its gains over the baselines in points."""
    tables = []
    test = "accuracy" if place.federation.task in HITS else "error"
    scale = error_scale(place, next(iter(next(iter(trials.values())).values())))
    for name, by_seed in trials.items():
        for seed, outcome in by_seed.items():
            error = finite(per_client(*outcome.scores("test", "error")))
            who = outcome.judged
            columns: dict[str, Any] = {
                "method": [name] * len(who),
                "seed": np.full(len(who), seed),
                "client": place.ids[who].tolist(),
                "new": who >= place.population,
                "train_examples": np.diff(place.offsets)[who],
                "test_examples": np.diff(outcome.scores("test", "error")[1]),
                "test_loss": finite(per_client(*outcome.scores("test", "loss"))),
                f"test_{test}": 1 - error if test == "accuracy" else error,
            }
            for other in ("local", "fed_avg", "ftfa"):
                if seed in trials.get(other, {}):
                    theirs = finite(per_client(*trials[other][seed].scores("test", "error")))
                    columns[f"gain_over_{other}"] = 100 * (theirs - error) / scale
            tables.append(pa.table(columns))
    with replacing(path) as temporary:
        pq.write_table(pa.concat_tables(tables), temporary)


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with replacing(path) as temporary:
        pq.write_table(pa.Table.from_pylist(list(rows)), temporary)
