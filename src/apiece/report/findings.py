"""What a run found, in sentences that claim no more than the numbers carry."""

from typing import Any

import numpy as np
from scipy.stats import t as t_distribution

from apiece.evaluate import Interval, paired_interval
from apiece.report.numbers import counted, fixed, known, listed, number, percent, places_for, plus_minus, span
from apiece.report.run import Run

NAMED = 8  # methods that a sentence lists; a longer list is the table's business


def findings(run: Run) -> list[str]:
    """The sentences at the head of the page, the most important first."""
    order = [name for name in run.ordered() if run.score(name)]
    lost = [name for name in run.methods if name not in order]
    if not order:
        return ["No method has a test result: every one diverged." if lost else "The run holds no method."]
    sentences = [*ranking(run, order), *told_apart(run, order)]
    partner = beside_local(run)
    sentences += [against_local(run, partner)] if partner else []
    sentences += [*by_validation(run, order), *newcomers(run, order)]
    if lost:
        sentences.append(f"{listed(lost)} diverged: a model gave no finite number, so there is no test result.")
    return sentences


def ranking(run: Run, order: list[str]) -> list[str]:
    """The methods by weighted test score."""
    metric = run.metric
    if len(order) == 1:
        return [f"{order[0]} has a test {metric.label} of {_score(run, order[0])}."]
    rest = [f"{name} {_score(run, name)}" for name in order[1:]]
    rest = rest if len(rest) <= NAMED else rest[:NAMED] + [f"{len(rest) - NAMED} more in the table"]
    best = "highest" if metric.higher else "lowest"
    return [f"{order[0]} has the {best} test {metric.label}: {_score(run, order[0])}.", f"Next: {listed(rest)}."]


def _score(run: Run, name: str, part: str = "test") -> str:
    return _written(run, run.score(name, part))


def _written(run: Run, found: dict[str, Any] | None) -> str:
    unit = f" {run.metric.unit}" if run.metric.unit else ""
    text = plus_minus(found, run.metric.factor, run.metric.places) + unit
    return text.replace(" ", "\N{NO-BREAK SPACE}")  # a number and its unit stay on one line


def rivals(run: Run) -> dict[str, Interval]:
    """How far every method is behind the best (positive: worse), in points or units of the error.

    The interval is the wider of two: over seeds (the luck of training) and over clients (the luck of the test
    examples), paired in both. Seeds alone would tell methods apart by a single test example, when training is steady.
    """
    order = [name for name in run.ordered() if run.score(name)]
    key, factor = run.metric.key, run.metric.factor * (1 if run.metric.higher else -1)
    found = {}
    for name in order[1:]:
        best, other = (_by_seed(run.methods[m], key) for m in (order[0], name))
        seeds = [seed for seed in best if seed in other]
        if seeds:
            over_seeds = paired_interval([factor * best[s] for s in seeds], [factor * other[s] for s in seeds])
            half = np.maximum(over_seeds.half_width, _over_clients(run, order[0], name))
            found[name] = Interval(over_seeds.mean, over_seeds.mean - half, over_seeds.mean + half, float(half))
    return found


def _over_clients(run: Run, best: str, other: str) -> float:
    """Half the 95% interval of the weighted difference, were other clients drawn; 0 where there is only one."""
    ours, theirs = run.clients[best], run.clients[other]
    there = ~ours.new & (ours.test > 0) & np.isfinite(ours.score) & np.isfinite(theirs.score)
    count = int(there.sum())
    if count < 2:
        return 0.0
    share = ours.test[there] / ours.test[there].sum()
    gap = run.metric.factor * (ours.score - theirs.score)[there]
    variance = np.sum(share**2 * (gap - share @ gap) ** 2) * count / (count - 1)
    return float(t_distribution.ppf(0.975, count - 1) * np.sqrt(variance))


def _by_seed(method: dict[str, Any], key: str) -> dict[int, float]:
    values = {one["seed"]: one["metrics"]["test"][key]["mean_weighted"] for one in method["seeds"]}
    return {seed: value for seed, value in values.items() if known(value)}


def separate(found: Interval) -> bool:
    """Whether the interval excludes a tie; one seed excludes nothing.

    >>> separate(Interval(1.0, 0.5, 1.5, 0.5)), separate(Interval(1.0, *[float("nan")] * 3))
    (True, False)
    """
    return bool(found.low > 0 or found.high < 0)


def told_apart(run: Run, order: list[str]) -> list[str]:
    """Which differences to the best method the seeds support."""
    behind = rivals(run)
    if not behind:
        return []
    if run.seeds < 2:
        return ["One seed: no interval. A second seed may reverse the order; run three or more to tell methods apart."]
    unit = " points" if run.metric.higher else ""

    def gap(name: str) -> str:
        mean, low, high, half = behind[name]
        places = max(1, places_for(half, mean)) if run.metric.higher else places_for(half, mean)
        return f"{name} ({fixed(mean, places)}{unit} behind, interval {fixed(low, places)} to {fixed(high, places)})"

    close = [name for name in behind if not separate(behind[name])]
    if close:
        clear = [name for name in behind if name not in close]
        rest = f"; it is told apart from {listed(clear)}" if clear else ""
        near = listed([gap(name) for name in close[:NAMED]])
        return [f"{order[0]} is not told apart by {run.seeds} seeds and these test examples from {near}{rest}."]
    nearest = min(behind, key=lambda name: behind[name].mean)
    every = "every other method; the nearest is " if len(behind) > 1 else ""
    return [f"{run.seeds} seeds and these test examples tell {order[0]} apart from {every}{gap(nearest)}."]


def beside_local(run: Run) -> str | None:
    """The best method that can be compared with training alone, if any."""
    compared = [n for n in run.ordered() if n != "local" and run.score(n) and _hurt(run, n)]
    return compared[0] if compared else None


def _hurt(run: Run, name: str) -> dict[str, Any] | None:
    found = run.methods[name].get("hurt")
    return found if found and not found.get("diverged") else None


def against_local(run: Run, name: str) -> str:
    """Who is better off than alone, who is hurt; the raw count only beside what chance would make of a tie."""
    found = _hurt(run, name)
    assert found is not None
    clients = run.clients[name]
    gain = clients.gain[~clients.new & np.isfinite(clients.gain)]
    up, down = int((gain > 0).sum()), int((gain < 0).sum())
    equal, scores = gain.size - up - down, "scores" if up == 1 else "score"
    text = f"Of {counted(gain.size, 'client')}, {up:,} {scores} better with {name} than trained alone"
    tied = found.get("naive_if_tied")
    if known(tied):
        text += (f", {equal:,} the same" if equal else "") + f", {down:,} worse"
        text += f" (with no true difference, chance alone would make {percent(tied)} look worse)"
    proved, share = round(found["hurt_proved"] * found["clients"]), percent(found["hurt_expected"])
    between = span(found.get("hurt_expected_low"), found.get("hurt_expected_high"))
    whom = "none is" if proved == 0 else f"{proved:,} {'is' if proved == 1 else 'are'}"
    text += f"; {whom} proved hurt; the expected share hurt by more than {counted_points(found['delta'])} is {share}"
    return text + (f" ({between})." if between else ".")


def counted_points(points: float) -> str:
    """A margin in words.

    >>> counted_points(1.0), counted_points(2.5)
    ('1 point', '2.5 points')
    """
    return f"{number(points)} {'point' if points == 1 else 'points'}"


def by_validation(run: Run, order: list[str]) -> list[str]:
    """Whom validation alone would choose: the honest choice, as test results chose nothing."""
    losses: dict[str, Any] = {}
    for name in order:
        found = run.methods[name]["summary"].get("validation", {}).get("loss", {}).get("mean")
        if found and known(found["mean"]):
            losses[name] = found["mean"]
    if len(losses) < 2:
        return []
    chosen = min(losses, key=lambda name: losses[name])
    if chosen == order[0]:
        return [f"Validation loss alone, which the test data did not touch, chooses {chosen} too."]
    return [
        f"Validation loss alone would choose {chosen} instead (test {run.metric.label} {_score(run, chosen)}): "
        "that is the choice a deployment could have made without looking at test data."
    ]


def newcomers(run: Run, order: list[str]) -> list[str]:
    """How clients fare that never took part in training."""
    count = run.record["federation"].get("new_clients") or 0
    scored = [name for name in order if run.score(name, "new_clients")]
    if not count or not scored:
        return []
    write = lambda name: f"{name} {_score(run, name, 'new_clients')}"
    named = [name for name in scored if name in (order[0], "local")] or scored[:1]
    few = "; too few for a judgement" if count < 10 else ""
    told = [f"{counted(count, 'new client')} that never trained: {listed([write(n) for n in named])}{few}."]
    return told + by_examples(run, [name for name in named if run.newcomers(name)])


def by_examples(run: Run, named: list[str]) -> list[str]:
    """How the same newcomers fare with the fewest examples, and with about the middle number of those looked at."""
    if not named:
        return []
    examples = (run.newcomers(named[0]) or ([], []))[0]
    told = []
    for at in sorted({0, (len(examples) - 1) // 2} - {len(examples) - 1}):  # with all of them was said before
        scores = {name: found[1][at] for name in named if (found := run.newcomers(name))}
        each = [f"{name} {_written(run, score)}" for name, score in scores.items() if known(score["mean"])]
        told += [f"with {examples[at]:,}, {listed(each)}"] if each else []
    return [f"The same clients by how many of their training examples they may use: {'; '.join(told)}."] if told else []
