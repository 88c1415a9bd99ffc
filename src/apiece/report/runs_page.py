"""Several runs side by side, in one page: what each answers and costs, where settings differ, client by client."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apiece.errors import UserError
from apiece.experiment.conclude import recommended
from apiece.files import replace_file
from apiece.report.answer import answer
from apiece.report.embed import bokeh_scripts, describe_plots, script_safe
from apiece.report.figure import Figure, Line, Panel, checked
from apiece.report.figure_page import described_panel
from apiece.report.findings import score_text
from apiece.report.look import clean, shortened
from apiece.report.numbers import counted, percent, plus_minus, size
from apiece.report.page import TEMPLATES
from apiece.report.pictures import task_label
from apiece.report.plots import outside_words, panel_plot
from apiece.report.story import Story, read_story
from apiece.report.tables import ReportTable, facts

DOTS = 2000  # clients of a picture


def write_runs(folders: Sequence[Path], path: Path) -> Path:
    """Write one page about several finished runs; the path of the page.

    >>> try: write_runs([Path("one"), Path("two")], Path("both.html"))
    ... except UserError as error: print(error)
    'one' holds no finished run: there is no record.json. Finish it: apiece resume one
    """
    stories = [read_story(Path(folder)) for folder in folders]
    html = render(named_apart(stories, [Path(folder) for folder in folders]))
    with replace_file(Path(path)) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return Path(path)


def named_apart(stories: list[Story], folders: list[Path]) -> list[Story]:
    """The stories under different names: by their folders, with those above where these are the same."""
    names = [story.name for story in stories]
    if len(set(names)) == len(names):
        return stories
    whole = [folder.resolve().as_posix() for folder in folders]
    if len(set(whole)) < len(whole):
        raise UserError("the same run folder is named twice; a comparison needs different ones")
    return [story._replace(name="/".join(Path(path).parts[-2:])) for story, path in zip(stories, whole, strict=True)]


def render(stories: list[Story]) -> str:
    """The page, as text."""
    figure = checked(Figure("", "", [panel for panel in (_curves(stories), *_clients(stories)) if panel is not None]))
    plots = {f"panel{at}": panel_plot(f"panel{at}", panel, 360) for at, panel in enumerate(figure.panels)}
    page = TEMPLATES.get_template("runs.html").render(
        title=f"{counted(len(stories), 'run')} side by side",
        answers=[(story, answer(story)) for story in stories],
        summary=_summary(stories),
        differences=_differences(stories),
        panels=[described_panel(f"panel{at}", panel) for at, panel in enumerate(figure.panels)],
        outside={f"panel{at}": outside_words(panel) for at, panel in enumerate(figure.panels)},
        key_of={},
        described=script_safe(describe_plots(plots)),
        scripts=bokeh_scripts(tables=False),
    )
    return clean(page)


def _summary(stories: list[Story]) -> ReportTable:
    heads = [("run", ""), ("federation", ""), ("validation chooses", ""), ("test score", "weighted, over seeds"),
             ("gain, points", "over its baseline"), ("proved hurt", ""), ("expected hurt", ""), ("sent", "all clients"),
             ("rounds", ""), ("seeds", ""), ("still improving", "")]  # fmt: skip
    rows = []
    for story in stories:
        name = recommended(story.record) if story.record.ranking.order else "–"
        method = story.methods.get(name)
        harm = method.harm if method else None
        spent: dict[str, Any] = method.costs if method else {}
        rows.append([
            story.name,
            f"{story.record.federation.name}, {counted(story.record.federation.clients, 'client')}",
            name,
            f"{story.metric.label} {score_text(story, name)}" if method else "–",
            plus_minus(harm.gain, 1, 1, sign=True) if harm else "–",
            f"{len(harm.named) or round(harm.hurt_proved * harm.clients):,} of {harm.clients:,}" if harm else "–",
            percent(harm.hurt_expected) if harm else "–",
            size(spent.get("bytes_up", 0) + spent.get("bytes_down", 0)),
            f"{int(spent.get('rounds') or 0):,}",
            str(story.seeds),
            "yes" if method and method.improves else "no",
        ])  # fmt: skip
    return ReportTable(heads, rows)


def _differences(stories: list[Story]) -> ReportTable | None:
    """The settings in which the runs differ."""
    told = [dict(facts(story.record.spec)) for story in stories]
    names = [
        name for name in dict.fromkeys(key for one in told for key in one) if len({one.get(name) for one in told}) > 1
    ]
    heads = [("setting", ""), *((story.name, "") for story in stories)]
    rows = [[name, *(shortened(one.get(name, "–"), 60) for one in told)] for name in names]
    return ReportTable(heads, rows) if rows else None


def _curves(stories: list[Story]) -> Panel | None:
    """The validation loss of what each run chooses."""
    lines = []
    for style, story in enumerate(stories):
        name = recommended(story.record) if story.record.ranking.order else ""
        if name in story.progress:
            mine = story.progress[name]
            lines.append(Line(f"{story.name}: {name}", mine.rounds, mine.mean, mine.least, mine.largest, style=style))
    return Panel("Validation while training", "rounds", "validation loss", lines) if lines else None


def _clients(stories: list[Story]) -> list[Panel]:
    """Clients that the first run shares with another: their scores in both, each with the method that it chooses."""
    first, panels = stories[0], []
    mine = _scores(first)
    for style, other in enumerate(stories[1:], 1):
        theirs = _scores(other)
        both = [client for client in mine if client in theirs]
        if len(both) < 2 or first.metric.key != other.metric.key:
            continue
        step = max(1, -(-len(both) // DOTS))
        x, y = (np.array([one[client] for client in both[::step]]) for one in (mine, theirs))
        ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
        label = f"test {task_label(first.metric)}"
        dots = Line(f"{counted(len(x), 'client')}", x, y, kind="dots", style=style)
        title = f"Client by client: {first.name} and {other.name}"
        panels.append(
            Panel(title, f"{label}, {first.name}", f"{label}, {other.name}", [dots, Line("equal", ends, ends, style=0)])
        )
    return panels


def _scores(story: Story) -> dict[str, float]:
    name = recommended(story.record) if story.record.ranking.order else ""
    if name not in story.clients:
        return {}
    found, score = story.clients[name], story.metric.factor * story.clients[name].score
    return {client: value for client, value in zip(found.ids, score.tolist(), strict=True) if np.isfinite(value)}
