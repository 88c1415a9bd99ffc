"""What the pictures of clients show, in one sentence each and as a table: for those who cannot see or click them."""

import numpy as np
from numpy.typing import NDArray

from apiece.experiment.conclude import recommended
from apiece.report.client_data import same_size
from apiece.report.look import shortened
from apiece.report.numbers import counted, fixed, known, listed, number, percent
from apiece.report.story import Story
from apiece.report.tables import ReportTable

QUANTILES = {"least": 0.0, "lowest tenth": 0.1, "lower quarter": 0.25, "median": 0.5, "upper quarter": 0.75,
             "highest tenth": 0.9, "most": 1.0}  # fmt: skip
THIRDS = ("smallest third", "middle third", "largest third")


def gains(story: Story) -> tuple[str, ReportTable | None]:
    """Who gains over the baseline, and how much."""
    found = {name: values for name in story.order if (values := _gains(story, name)).size and name != story.baseline}
    if not found:
        return "", None
    name = story.record.ranking.beside_local if story.record.ranking.beside_local in found else next(iter(found))
    values = found[name]
    low, median = np.quantile(values, [0, 0.5])
    unit = "points of accuracy" if story.metric.percent else "points"
    better = f"{int((values > 0).sum()):,} of {counted(values.size, 'client')}"
    said = (f"With {name} {better} gain over being {story.alone}: "
            f"the median {fixed(median, sign=True)}, the least {fixed(low, sign=True)} {unit}.")  # fmt: skip
    if story.baseline not in story.methods:
        said = said.replace("being ", "")
    if story.record.federation.task == "regression":
        said += " A point is a hundredth of the variance of the test targets."
    tests = story.clients[name].test[~story.clients[name].new & (story.clients[name].test > 0)]
    if tests.size:
        few = float(np.median(tests))
        said += f" The median client has {counted(round(few), 'test example')}"
        said += f", so one example is {fixed(100 / few)} points" if story.metric.percent else ""
        said += ": a single dot is mostly noise, all of them together are not."
    rows = [[name, *(fixed(value, sign=True) for value in np.quantile(values, list(QUANTILES.values())))]
            for name, values in found.items()]  # fmt: skip
    return said, ReportTable([("method", ""), *((head, "") for head in QUANTILES)], rows)


def _gains(story: Story, name: str) -> NDArray:
    if name not in story.clients:
        return np.zeros(0)
    values = story.clients[name].gain[~story.clients[name].new]
    return np.round(values[np.isfinite(values)], 9)  # means of the same numbers, differently summed, are a tie


def sizes(story: Story) -> tuple[str, ReportTable | None]:
    """Whether small clients gain more than large ones."""
    name = story.record.ranking.beside_local
    if name is None or name not in story.clients:
        return "", None
    mine = story.clients[name]
    old = np.flatnonzero(~mine.new & np.isfinite(mine.gain))
    if old.size < 6:
        return "Too few clients to tell small ones from large ones.", None
    if same_size(mine):
        least, most = (number(end, 9) for end in (mine.train[old].min(), mine.train[old].max()))
        return f"All clients are of about the same size, {least} to {most} training examples.", None
    thirds = np.array_split(old[np.argsort(mine.train[old], kind="stable")], 3)
    medians = [float(np.median(mine.gain[part])) for part in thirds]
    apart = "more than" if medians[0] > medians[2] else "less than" if medians[0] < medians[2] else "as much as"
    said = (f"Small clients gain {apart} large ones with {name}: median {fixed(medians[0], sign=True)} points in the "
            f"smallest third, {fixed(medians[2], sign=True)} in the largest.")  # fmt: skip
    rows = []
    for head, part in zip(THIRDS, thirds, strict=True):
        least, most = mine.train[part].min(), mine.train[part].max()
        each = []
        for other in story.order:
            if other != story.baseline and other in story.clients:
                gain = story.clients[other].gain
                there = part[np.isfinite(gain[part])] if len(gain) == len(mine.gain) else part[:0]
                each.append(fixed(float(np.median(gain[there])), sign=True) if there.size else "–")
        rows.append([head, f"{number(least, 9)} to {number(most, 9)}", *each])
    heads = [("clients", "by training examples"), ("training examples", "")]
    heads += [
        (other, "median gain, points") for other in story.order if other != story.baseline and other in story.clients
    ]
    return said, ReportTable(heads, rows)


def bins(story: Story) -> tuple[str, ReportTable | None]:
    """Where most clients' gains lie."""
    name = story.record.ranking.beside_local
    values = _gains(story, name) if name else np.zeros(0)
    if not values.size:
        return "", None
    low, high = np.quantile(values, [0.1, 0.9])
    said = f"With {name}, eight of ten clients gain {fixed(low, sign=True)} to {fixed(high, sign=True)} points."
    if values.size < 10:
        said = f"With {name}, clients gain {fixed(values.min(), sign=True)} to {fixed(values.max(), sign=True)} points."
    how = "A strip for each method, all to one scale; the mark on a strip's ground line is the chosen client."
    rows = []
    for other in story.order:
        mine = _gains(story, other)
        if other == story.baseline or not mine.size:
            continue
        parts = (mine < -10, (mine >= -10) & (mine < 0), mine == 0, (mine > 0) & (mine <= 10), mine > 10)
        rows.append([other, *(f"{int(part.sum()):,}" for part in parts)])
    heads = ["lose more than 10", "lose up to 10", "neither", "gain up to 10", "gain more than 10"]
    return f"{said} {how}", ReportTable([("method", ""), *((head, "points, clients") for head in heads)], rows)


def scores(story: Story) -> tuple[str, ReportTable | None]:
    """How far apart clients' own scores are."""
    metric, found = story.metric, {}
    for name in story.order:
        if name in story.clients:
            values = metric.factor * story.clients[name].score[~story.clients[name].new]
            if np.isfinite(values).any():
                found[name] = values[np.isfinite(values)]
    if not found:
        return "", None
    chosen = recommended(story.record)
    name = chosen if chosen in found else next(iter(found))
    write = lambda value: fixed(value, metric.places) if metric.places is not None else number(value)
    low, median, high = (write(float(value)) for value in np.quantile(found[name], [0, 0.5, 1]))
    said = (f"With {name}, clients' own test {metric.label} goes from {low} to {high}{f' {metric.unit}'.rstrip()}, "
            f"the median is {median}.")  # fmt: skip
    rows = [[name, *map(write, np.quantile(values, list(QUANTILES.values())).tolist())]
            for name, values in found.items()]  # fmt: skip
    return said, ReportTable([("method", ""), *((head, "") for head in QUANTILES)], rows)


def labels(story: Story) -> tuple[str, ReportTable | None]:
    """How unlike clients' labels are, and who holds which."""
    names = story.about_clients.get("classes")
    if story.profile is None or not names:
        return "", None
    counts = np.array(story.profile["labels"].to_pylist(), np.float64)
    total, held = counts.sum(axis=0), (counts > 0).sum(axis=0)
    summary = story.record.federation.model_dump()
    skew, chance = summary.get("label_skew"), summary.get("label_skew_by_chance")
    kinds = (counts > 0).sum(axis=1)
    what = "classes" if story.record.federation.task != "regression" else "tenths of all targets"
    said = f"The median client has examples of {number(float(np.median(kinds)))} of {len(names)} {what}."
    if known(skew) and known(chance):
        said += (f" Its shares of the labels are {percent(skew)} away from everybody's (total variation, mean over "
                 f"clients; {percent(chance)} would be chance).")  # fmt: skip
    rows = [[name, number(count, 9), f"{number(k, 9)} of {len(counts):,}"]
            for name, count, k in zip(names, total, held, strict=True)]  # fmt: skip
    return said, ReportTable([("label", ""), ("training examples", ""), ("clients that have it", "")], rows)


def likeness(story: Story) -> tuple[str, ReportTable | None]:
    """Whether clients form groups."""
    about = story.about_clients
    if story.profile is None or "groups" not in about:
        return "", None
    group = np.array(story.profile["group"].to_pylist())
    count = np.bincount(group)
    matrix = np.array([[np.nan if one is None else one for one in row] for row in about["groups"]], np.float64)
    made = f"By the {about['likeness_of']}: the cosine of the models' differences from their mean."
    if len(count) == 1:
        said = f"No clear groups of like clients. {made}"
    else:
        said = f"{len(count)} groups of like clients, of {listed([f'{one:,}' for one in count])}. {made}"
    heads = [("group", ""), ("clients", ""), *((f"like group {k + 1}", "mean cosine") for k in range(len(count)))]
    rows = [[str(k + 1), f"{count[k]:,}", *(fixed(value, 2) for value in matrix[k])] for k in range(len(count))]
    return said, ReportTable(heads, rows)


def pairs(story: Story) -> tuple[str, ReportTable | None]:
    """How alike any two clients are, or any two groups."""
    if story.profile is None or "groups" not in story.about_clients:
        return "", None
    read = "Blue: alike (1); white: unrelated; orange: opposite (-1)."
    if "similarity" not in story.profile.column_names:
        return f"Means over the pairs of two groups; a click shows the clients of a group alone. {read}", None
    matrix = np.array(story.profile["similarity"].to_pylist(), np.float64)
    apart = matrix[~np.eye(len(matrix), dtype=bool)]
    if not np.isfinite(apart).any():
        return read, None
    ids = story.profile["client"].to_pylist()
    off = np.where(np.eye(len(matrix), dtype=bool) | ~np.isfinite(matrix), -2, matrix)
    one, other = np.unravel_index(off.argmax(), off.shape)
    nearest = f"{shortened(ids[one], 30)} and {shortened(ids[other], 30)} ({fixed(float(off.max()), 2)})"
    middle = fixed(float(np.nanmedian(apart)), 2)
    return f"Two clients have a similarity of {middle} in the middle; the most alike are {nearest}. {read}", None


def degrees(story: Story) -> tuple[str, ReportTable | None]:
    """How personal models are."""
    if story.verdicts is None:
        return "", None
    methods, found = story.verdicts["method"].to_numpy(zero_copy_only=False), {}
    for name in story.order:
        values = story.verdicts.filter(methods == name)["degree"].to_numpy().astype(np.float64)
        if np.isfinite(values).any():
            found[name] = values[np.isfinite(values)]
    between = {name: values for name, values in found.items() if name not in ("local", "fed_avg")}
    if not between:
        return "", None
    said = listed([f"{name} {fixed(float(np.median(values)), 2)}" for name, values in between.items()])
    said = (f"Median degree: {said}. It is |p - g| / (|p - g| + |p - a|), with p the client's model, g that of fed_avg "
            "and a the client's own trained alone: 0 is the model of all, 1 is training alone.")  # fmt: skip
    rows = [[name, *(fixed(value, 2) for value in np.quantile(values, list(QUANTILES.values())))]
            for name, values in found.items()]  # fmt: skip
    return said, ReportTable([("method", ""), *((head, "") for head in QUANTILES)], rows)


def convergence(story: Story) -> tuple[str, ReportTable | None]:
    """Who has come to rest, and what validation said on the way."""
    if not story.progress:
        return "", None
    at = ("after a quarter", "after half", "at the end")
    heads = [("method", ""), ("rounds", ""), *((f"loss {when}", "validation, mean over seeds") for when in at)]
    known_state = any(method.convergence for method in story.methods.values())
    heads += [("state", ""), ("expected of as many rounds again", "fall of the validation loss")] if known_state else []
    rows, resting = [], []
    for name in story.order:
        if name not in story.progress:
            continue
        mine, rests = story.progress[name], story.methods[name].convergence
        last = len(mine.mean) - 1
        row = [
            name,
            number(mine.rounds[-1], 9),
            *(number(mine.mean[max(0, round(part * last))], 4) for part in (0.25, 0.5, 1)),
        ]
        if known_state:
            fall = f"{percent(rests.gain / rests.loss)}" if rests and rests.improves and rests.loss else "–"
            row += [rests.state if rests else "–", fall]
        rows.append(row)
        resting += [name] if rests and rests.state == "resting" else []
    moving = [name for name, method in story.methods.items() if method.improves]
    said = (
        f"Still improving: {listed(moving)}."
        if moving
        else "No method is seen to improve still."
        if known_state
        else ""
    )
    said += f" Come to rest: {listed(resting)}." if resting else ""
    seeds = f"Line: mean over {story.seeds} seeds; band: least to largest." if story.seeds > 1 else "One seed: no band."
    lost = [name for name, mine in story.progress.items() if not np.isfinite(mine.mean).all()]
    ends = f" A line ends where a seed diverged ({listed(lost)})." if lost else ""
    sampled = max(
        (float(np.nanmax(mine.error)) for mine in story.progress.values() if np.isfinite(mine.error).any()), default=0
    )
    error = (
        f" Of a sample of the clients: the standard error of the mean is up to {number(sampled)}." if sampled else ""
    )
    return f"{said} {seeds}{ends}{error}".strip(), ReportTable(heads, rows)


def trouble(story: Story) -> tuple[str, ReportTable | None]:
    """Attackers, refused replies and models that were no numbers, where there were any."""
    keys = {"refused": "replies refused", "not_finite": "rejected as no numbers", "too_large": "rejected as too large"}
    first = next(iter(story.clients.values()), None)
    attackers = 0 if first is None or not first.attacks.size else int((first.attacks > 0).sum())
    shown = {key: head for key, head in keys.items() if any(m.costs.get(key) for m in story.methods.values())}
    fallen = any(method.fallen for method in story.methods.values())
    if not attackers and not shown and not fallen:
        return "", None
    who = "client attacks" if attackers == 1 else "clients attack"
    said = (
        f"{attackers:,} {who} in some seed; a seed in which a client attacks does not count for it."
        if attackers
        else ""
    )
    heads = [("method", ""), *((head, "whole run, mean over seeds") for head in shown.values())]
    heads += [("models that were no numbers", "clients that use the shared or the initial one")] if fallen else []
    rows = []
    for name in story.order:
        method = story.methods[name]
        row = [name, *(number(method.costs.get(key)) for key in shown)]
        rows.append(row + ([f"{len(method.fallen):,}"] if fallen else []))
    return said or "Not all replies counted.", ReportTable(heads, rows) if len(heads) > 1 else None
