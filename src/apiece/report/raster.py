"""A figure as a PNG or SVG, drawn by Matplotlib (the extra `figures`) with the page's scales, colours and dashes."""

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, NullFormatter

from apiece.report.figure import Figure, Line, Panel, checked, lines_outside, scales, shown
from apiece.report.look import GRID, INK, SOFT, look, mark
from apiece.report.numbers import number
from apiece.report.outside import in_words

# Matplotlib's names of the forms.
FORMS = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "inverted_triangle": "v",
    "hex": "h",
    "star": "*",
}


def draw_png(figure: Figure, path: Path, dots_per_inch: int = 150, form: str = "png") -> None:
    """Write the figure; fonts come with Matplotlib, so that it looks the same everywhere."""
    figure = checked(figure)
    count = len(figure.panels)
    columns = min(2, count)
    rows = -(-count // columns)
    canvas = Canvas(figsize=(5.6 * columns, 4.2 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(canvas)
    canvas.suptitle(figure.title, color=INK, fontsize=13)
    grid = canvas.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, figure.panels, strict=False):
        _panel(axes, panel)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    # No date and no random ids: the same figure is the same file.
    with rc_context({"svg.hashsalt": "apiece"}):
        canvas.savefig(path, dpi=dots_per_inch, format=form, metadata={"Date": None} if form == "svg" else None)


def _panel(axes: Any, panel: Panel) -> None:
    x, y = scales(panel)
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        side.set_minor_formatter(NullFormatter())
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    for li in panel.lines:
        _line(axes, li, panel)
    if far := lines_outside(panel):
        axes.text(1.0, 0.98, in_words(far, 42), transform=axes.transAxes, ha="right", va="top", color=SOFT, fontsize=8)
    axes.set_xlabel(panel.x_label, color=SOFT)
    axes.set_ylabel(panel.y_label, color=SOFT)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=SOFT, length=3)
    # Above the axes, where it can hide nothing.
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=_columns(panel), fontsize=8, frameon=False,
                 handlelength=2.8, borderpad=0, columnspacing=1.2, title=panel.title, alignment="left",
                 title_fontproperties={"size": 10, "weight": "bold"})  # fmt: skip


def _columns(panel: Panel) -> int:
    """As many names beside each other as fit."""
    longest = max((len(li.name) for li in panel.lines), default=1)
    return max(1, min(len(panel.lines), 80 // (longest + 8)))


def tick(value: float) -> str:
    """A number beside an axis, where there is little room.

    >>> tick(20_000), tick(10_000_000)
    ('20,000', '1e7')
    """
    return number(value) if abs(value) < 1e6 else f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


def _line(axes: Any, li: Line, panel: Panel) -> None:
    there = shown(li, panel)
    x, y = li.x[there], li.y[there]
    colour, dash = look(li.style or 0)
    around = None if li.low is None or li.high is None else (li.low[there], li.high[there])
    if li.kind == "dots":
        if around is not None:
            axes.vlines(x, *around, color=colour, linewidth=1.2)
        form, hollow = mark(li.style or 0)
        inside = "white" if hollow else colour
        axes.plot(x, y, FORMS[form], color=colour, markerfacecolor=inside, markersize=4.5, label=li.name)
        return
    style: Any = "-" if not dash else (0, [float(part) / 2 for part in dash.split()])
    axes.plot(x, y, color=colour, linestyle=style, linewidth=1.8, label=li.name)
    if around is not None:
        axes.fill_between(x, *around, color=colour, alpha=0.13, linewidth=0)
