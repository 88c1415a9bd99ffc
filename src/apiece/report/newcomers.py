"""New clients by how many examples they bring: a picture, and the same numbers in a table."""

import numpy as np

from apiece.report.figure import Figure, Line, Panel, checked
from apiece.report.numbers import counted, plus_minus
from apiece.report.panel import panel_svg
from apiece.report.pictures import Picture
from apiece.report.story import Story
from apiece.report.tables import ReportTable


def newcomers_picture(story: Story) -> Picture | None:
    """The score of new clients against the number of their examples, a line for each method; None without any."""
    found = {name: mine for name in story.order if (mine := story.methods[name].newcomers)}
    if not found:
        return None
    metric, lines = story.of_task, []
    for name, mine in found.items():
        mean, low, high, _ = metric.factor * np.array(mine.scores, np.float64).T
        line = Line(name, mine.examples, mean, style=list(story.methods).index(name))
        if np.isfinite(low).any():  # no score is below 0, no share above 100 %: neither is a band
            line = line._replace(low=np.maximum(low, 0), high=np.minimum(high, 100) if metric.higher else high)
        lines.append(line)
    means = np.concatenate([line.y for line in lines])
    means = means[np.isfinite(means)]
    log = bool(not metric.higher and means.size and means.min() > 0 and means.max() / means.min() > 30)
    unit = f", {metric.unit}" if metric.unit else ""
    panel = Panel("", "training examples of a new client, at most (logarithmic)", f"test {metric.label}{unit}"
                  + (" (logarithmic)" if log else ""), lines, log_x=True, log_y=log)  # fmt: skip
    (panel,) = checked(Figure("", "", [panel])).panels
    return Picture(panel_svg("newcomers", panel), _caption(story))


def _caption(story: Story) -> str:
    first = next(mine for method in story.methods.values() if (mine := method.newcomers))
    most, who = first.examples[-1], counted(first.clients, "client")
    seeds = f"Band: 95 % interval over {story.seeds} seeds." if story.seeds > 1 else "One seed: no band."
    return (
        f"{who} that never trained, the same at every point, each with at most so many of its own training examples; "
        f"the largest has {most:,}. All their test examples count alike. {seeds} The clients are the same for every "
        "seed: a band says nothing about other newcomers."
    )


def newcomers_table(story: Story) -> ReportTable | None:
    """The numbers of the picture, best first as in the other tables."""
    rows, heads = [], []
    for name in story.order:
        if mine := story.methods[name].newcomers:
            heads = [(f"{count:,}", "") for count in mine.examples]
            rows.append(
                [name, *(plus_minus(score, story.of_task.factor, story.of_task.places) for score in mine.scores)]
            )
    return ReportTable([("method", ""), *heads], rows) if rows else None
