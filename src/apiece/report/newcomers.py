"""New clients by how many examples they bring: a picture, and the same numbers in a table."""

import numpy as np

from apiece.report.figure import Figure as Drawing
from apiece.report.figure import Line, Panel, checked
from apiece.report.numbers import counted, plus_minus
from apiece.report.panel import panel_svg
from apiece.report.pictures import Figure
from apiece.report.run import Run
from apiece.report.tables import Table


def newcomers_figure(run: Run) -> Figure | None:
    """The score of new clients against the number of their examples, a line for each method; None without any."""
    found = {name: mine for name in run.ordered() if (mine := run.newcomers(name))}
    if not found:
        return None
    metric, lines = run.metric, []
    for name, (examples, scores) in found.items():
        mean, low, high = (metric.factor * np.array([score[key] for score in scores], np.float64)
                           for key in ("mean", "low", "high"))  # fmt: skip
        line = Line(name, examples, mean, style=list(run.methods).index(name))
        if np.isfinite(low).any():  # no score is below 0, no share above 100 %: neither is a band
            line = line._replace(low=np.maximum(low, 0), high=np.minimum(high, 100) if metric.higher else high)
        lines.append(line)
    means = np.concatenate([line.y for line in lines])
    means = means[np.isfinite(means)]
    log = bool(not metric.higher and means.size and means.min() > 0 and means.max() / means.min() > 30)
    unit = f", {metric.unit}" if metric.unit else ""
    panel = Panel("", "training examples of a new client, at most (logarithmic)", f"test {metric.label}{unit}"
                  + (" (logarithmic)" if log else ""), lines, log_x=True, log_y=log)  # fmt: skip
    (panel,) = checked(Drawing("", "", [panel])).panels
    return Figure(panel_svg("newcomers", panel), _caption(run))


def _caption(run: Run) -> str:
    first = next(mine for mine in (method.get("newcomers") for method in run.methods.values()) if mine)
    most = first["examples"][-1]
    who = counted(first["clients"], "client")
    seeds = f"Band: 95 % interval over {run.seeds} seeds." if run.seeds > 1 else "One seed: no band."
    return (
        f"{who} that never trained, the same at every point, each with at most so many of its own training examples; "
        f"the largest has {most:,}. All their test examples count alike. {seeds} The clients are the same for every "
        "seed: a band says nothing about other newcomers."
    )


def newcomers_table(run: Run) -> Table | None:
    """The numbers of the picture, best first as in the other tables."""
    rows, heads = [], []
    for name in run.ordered():
        if mine := run.newcomers(name):
            examples, scores = mine
            heads = [(f"{count:,}", "") for count in examples]
            rows.append([name, *(plus_minus(score, run.metric.factor, run.metric.places) for score in scores)])
    return Table([("method", ""), *heads], rows) if rows else None
