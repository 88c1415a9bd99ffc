"""A figure as a page that answers to the mouse, one file that opens offline; and as a PNG or SVG beside it."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from apiece.errors import UserError
from apiece.files import replace_file
from apiece.report.embed import bokeh_scripts, describe_plots, script_safe
from apiece.report.figure import Figure, Panel, checked
from apiece.report.look import clean, key
from apiece.report.numbers import number
from apiece.report.page import TEMPLATES
from apiece.report.plots import outside_words, panel_plot
from apiece.report.tables import ReportTable

ROWS = 25  # of the table of a panel: of more points some are shown


class Grid(NamedTuple):
    """A table below a figure: its heads, and rows of text."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_figure(figure: Figure, folder: Path, name: str = "figure", tables: Sequence[Grid] = ()) -> list[Path]:
    """Write NAME.html, and NAME.png if Matplotlib is there; the files written.

    >>> import tempfile
    >>> from apiece.report.figure import Line
    >>> figure = Figure("Growth", "Made up.", [Panel("", "x", "y", [Line("a", [0, 1], [1, 2])])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_figure(figure, Path(folder))[0].name
    'figure.html'
    """
    page = Path(folder) / f"{name}.html"
    with replace_file(page) as temporary:
        temporary.write_text(render(figure, tables), encoding="utf-8")
    return [page, draw(figure, Path(folder) / f"{name}.png")] if can_draw_png() else [page]


def draw(figure: Figure, path: Path) -> Path:
    """The figure as a file of the kind its name ends in: .png or .svg; by Matplotlib, the extra `figures`."""
    if not can_draw_png():
        raise UserError(f"{path.name} is drawn by Matplotlib, which is not installed: pip install 'apiece[figures]'")
    from apiece.report.raster import draw_png

    with replace_file(path) as temporary:
        draw_png(figure, temporary, form=path.suffix.removeprefix("."))
    return path


def can_draw_png() -> bool:
    """Whether Matplotlib is installed (the extra `figures`)."""
    return importlib.util.find_spec("matplotlib") is not None


def render(figure: Figure, tables: Sequence[Grid] = ()) -> str:
    """The page: one file, no network needed; pointing at a panel reads its lines, a click on a name hides one."""
    figure = checked(figure)
    plots = {f"panel{at}": panel_plot(f"panel{at}", panel, 360) for at, panel in enumerate(figure.panels)}
    page = TEMPLATES.get_template("figure.html").render(
        figure=figure,
        panels=[described_panel(f"panel{at}", panel) for at, panel in enumerate(figure.panels)],
        outside={f"panel{at}": outside_words(panel) for at, panel in enumerate(figure.panels)},
        key_of={},
        described=script_safe(describe_plots(plots)),
        scripts=bokeh_scripts(tables=False),
        tables=tables,
    )
    return clean(page)


def described_panel(name: str, panel: Panel) -> dict[str, object]:
    """A panel's title, its lines' names with their looks, what it shows in words, and its numbers."""
    title = panel.title or f"{panel.y_label} against {panel.x_label}"
    ends = [(li.name, [value for value in li.y.tolist() if value == value]) for li in panel.lines]
    about = "; ".join(f"{line} from {number(values[0])} to {number(values[-1])}" for line, values in ends if values)
    lines = [(li.name, key(li.style or 0), li.style or 0) for li in panel.lines]
    return {"name": name, "title": title, "lines": lines, "about": (f"{about}." if about else "", _numbers(panel))}


def _numbers(panel: Panel) -> ReportTable:
    rows = []
    for li in panel.lines:
        step = max(1, -(-len(li.x) // ROWS))
        for at in range(0, len(li.x), step):
            ends = [number(edge[at], 4) if edge is not None else "–" for edge in (li.low, li.high)]
            rows.append([li.name, number(li.x[at], 4), number(li.y[at], 4), *ends])
    return ReportTable([("line", ""), (panel.x_label, ""), (panel.y_label, ""), ("from", ""), ("to", "")], rows)
