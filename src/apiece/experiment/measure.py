"""From finished trials to the numbers of the record: metrics, gains over training alone, intervals over seeds."""

from typing import Any

import numpy as np

from apiece.evaluate import (
    Interval,
    binary_metrics,
    half_over_clients,
    hurt,
    interval,
    paired_interval,
    per_client,
    regression_metrics,
    summarize,
    summarize_defined,
)
from apiece.evaluate.hurt import Hurt
from apiece.experiment.baseline import Baseline, error_scale, loss_scale, points_per_unit, targets_of
from apiece.experiment.build import Arena
from apiece.experiment.judge import Outcome, finite

NAMED = 3  # clients that a sentence names
Trials = dict[str, dict[int, Outcome]]  # method -> seed -> what it left


def metrics(arena: Arena, outcome: Outcome) -> dict[str, Any]:
    """One trial's numbers: training clients on validation and test, new clients on test."""
    old, new = outcome.counts(arena.population), outcome.judged >= arena.population
    parts = {"validation": old, "test": old} | ({"new_clients": new} if new.any() else {})
    return {part: _summary(arena, outcome, part, chosen) for part, chosen in parts.items()}


def _summary(arena: Arena, outcome: Outcome, part: str, chosen: np.ndarray) -> dict[str, Any]:
    split = "test" if part == "new_clients" else part
    train_sizes = np.diff(arena.offsets)[outcome.judged][chosen]
    result: dict[str, Any] = {}
    for kind in ("loss", "error"):
        values, offsets = outcome.scores(split, kind)
        per = finite(per_client(values, offsets))
        sizes = np.diff(offsets)[chosen]
        name, score, higher = kind, per[chosen], False
        if kind == "error":
            name, higher = arena.score, arena.score == "accuracy"
            score = 1 - score if higher else score
        result[name] = summarize(score, sizes, higher, train_sizes=train_sizes)
    for metric in arena.metrics:
        score = outcome.arrays[f"{split}_metric_{metric.name}"][chosen]
        defined = ~np.isnan(score)
        result[metric.name] = summarize_defined(score, sizes, defined, metric.higher_is_better, train_sizes=train_sizes)
    regression = arena.federation.task == "regression"
    kind, of_task = ("error", regression_metrics) if regression else ("margin", binary_metrics)
    if f"{split}_{kind}" not in outcome.arrays or not (regression or arena.federation.binary):
        return result
    values, offsets = outcome.scores(split, kind)
    mine = np.repeat(chosen, np.diff(offsets))
    ends = np.concatenate([[0], np.cumsum(np.diff(offsets)[chosen])])
    targets = targets_of(arena, outcome.judged, split)[mine]
    return result | of_task(finite(values[mine]), targets, ends, train_sizes)


def fallen_clients(arena: Arena, by_seed: dict[int, Outcome]) -> list[str]:
    """The clients whose own model was no number with some seed; none of a method that has diverged altogether."""
    found = set()
    for outcome in by_seed.values():
        fallen = set(outcome.arrays.get("fallen", np.zeros(0, np.int64)).tolist())
        old = outcome.judged[outcome.judged < arena.population]
        found |= set() if fallen.issuperset(old.tolist()) else fallen
    return [str(arena.ids[i]) for i in sorted(found)]


def fallen_note(method: str, clients: list[str]) -> list[str]:
    """A few of them by name.

    >>> fallen_note("ditto", ["ward 1", "ward 2", "ward 3", "ward 4", "ward 9"])[0].partition(",")[0]
    "ditto diverged at 'ward 1'"
    >>> fallen_note("ditto", [])
    []
    """
    if not clients:
        return []
    more = f" and {len(clients) - NAMED} more" if len(clients) > NAMED else ""
    named = ", ".join(f"'{client}'" for client in clients[:NAMED])
    they = "it uses" if len(clients) == 1 else "they use"
    return [f"{method} diverged at {named}{more}: {they} the shared model, or the initial one, instead"]


def gains(
    arena: Arena, trials: Trials, baseline: Baseline | None = None, keep: dict[str, Hurt] | None = None
) -> dict[str, dict[str, Any]]:
    """Per method, over all seeds: who is better off than with the baseline (default: `local`), and who is hurt.

    `keep` is filled with what is believed of every client that does not always attack.
    The gain is in points of the criterion; who is hurt is judged example by example, by what the criterion says harms.
    """
    if baseline is None and "local" in trials:
        baseline = Baseline("local", trials["local"], {}, False)
    if baseline is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    some, kind = next(iter(baseline.trials.values())), arena.criterion.harm
    scale = error_scale(arena, some) if kind == "error" else loss_scale(arena, some)
    for name, by_seed in trials.items():
        if name == baseline.name:
            continue
        seeds = [seed for seed in by_seed if seed in baseline.trials]
        pairs = [(by_seed[s].scores("test", kind), baseline.trials[s].scores("test", kind)) for s in seeds]
        judged = next(iter(by_seed.values())).judged
        old, offsets = judged < arena.population, pairs[0][0][1]
        mine, ends = np.repeat(old, np.diff(offsets)), np.concatenate([[0], np.cumsum(np.diff(offsets)[old])])
        error, alone = (np.stack([pair[k][0][mine] for pair in pairs]).astype(np.float64) for k in (0, 1))
        counts = np.stack([by_seed[s].counts(arena.population)[old] for s in seeds])  # [seeds, clients]
        heard = np.repeat(counts, np.diff(ends), axis=1)
        if not (np.isfinite(error[heard]).all() and np.isfinite(alone[heard]).all()):
            found[name] = {"diverged": True}
            continue
        harm = hurt(*_of_honest(error, alone, ends, counts, heard), scale=scale)
        if keep is not None:
            keep[name] = harm
        gained = [client_gains(arena, by_seed[s], baseline.trials[s])[old] for s in seeds]
        gain = mean_gain(np.where(counts, np.stack(gained), np.nan))
        ids = arena.ids[judged][old][counts.any(axis=0)][harm.proved].tolist()
        found[name] = harm.as_dict() | {"baseline": baseline.name, "gain": gain, "named": ids}
    return found


def mean_gain(gained: np.ndarray) -> Interval:
    """The mean over clients of gains [seeds, clients], NaN where there is none; the interval is the wider of two.

    Over seeds (the luck of training) and over clients (the luck of who is there, and of their few test examples), as
    for the gap to the best: training that is steady would else be sure of a gain that other clients do not have.

    >>> [round(number, 2) for number in mean_gain(np.array([[1.0, 3.0, 5.0], [1.0, 3.0, 5.0]]))]
    [3.0, -1.97, 7.97, 4.97]
    """
    over_seeds = interval(np.nanmean(gained, axis=1))
    there = np.isfinite(gained).any(axis=0)
    each = np.nanmean(gained[:, there], axis=0)
    half = float(np.maximum(over_seeds.half_width, half_over_clients(each, np.zeros_like(each), np.ones_like(each))))
    return Interval(over_seeds.mean, over_seeds.mean - half, over_seeds.mean + half, half)


def client_gains(arena: Arena, outcome: Outcome, baseline: Outcome) -> np.ndarray:
    """Every client's gain over the baseline in points of the criterion; NaN where one of the two has no score."""
    mine, theirs = (arena.criterion.of_clients(one.arrays, "test") for one in (outcome, baseline))
    better = mine - theirs if arena.criterion.higher else theirs - mine
    return finite(points_per_unit(arena, arena.criterion, outcome) * better)


def _of_honest(
    error: np.ndarray, alone: np.ndarray, ends: np.ndarray, counts: np.ndarray, heard: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(error, alone, ends) without attackers: seeds have their own, so every client's mean is over its honest seeds."""
    if heard.all():
        return error, alone, ends
    ever = heard.any(axis=0)
    means = [np.mean(values[:, ever], axis=0, where=heard[:, ever], keepdims=True) for values in (error, alone)]
    return *means, np.concatenate([[0], np.cumsum(np.diff(ends)[counts.any(axis=0)])])


def over_seeds(per_seed: list[dict[str, Any]]) -> dict[str, Any]:
    """The same nested numbers with an interval over the seeds in place of each number.

    >>> over_seeds([{"a": {"mean": 1.0}}, {"a": {"mean": 3.0}}])["a"]["mean"].mean
    2.0
    """
    first = per_seed[0]
    return {
        key: over_seeds([m[key] for m in per_seed])
        if isinstance(value, dict)
        else interval(np.array([m[key] for m in per_seed], np.float64))
        for key, value in first.items()
    }


def against(trials: Trials, arena: Arena, name: str, other: str) -> Interval | None:
    """The paired difference in weighted test error (points), method minus the other, with its interval over seeds."""
    seeds = [s for s in trials.get(name, {}) if s in trials.get(other, {})]
    if not seeds or name == other:
        return None
    scale = error_scale(arena, trials[name][seeds[0]])

    def mean(outcome: Outcome) -> float:
        errors, offsets = outcome.scores("test", "error")
        trained = np.repeat(outcome.counts(arena.population), np.diff(offsets))
        return 100 * float(finite(errors[trained]).mean(dtype=np.float64)) / scale

    return paired_interval([mean(trials[name][s]) for s in seeds], [mean(trials[other][s]) for s in seeds])


def attack_notes(place: Arena, trials: Trials) -> list[str]:
    """Who attacked, seed by seed (the same under every method): their own numbers are in no mean."""
    some = next(iter(trials.values()), {})
    who = {seed: place.ids[one.judged[one.attacks]].tolist() for seed, one in some.items() if one.attacks.any()}
    return [
        f"seed {seed}: {len(ids)} clients attack and count in no mean ({', '.join(ids[:NAMED])}"
        f"{', ...' if len(ids) > NAMED else ''})"
        for seed, ids in who.items()
    ]
