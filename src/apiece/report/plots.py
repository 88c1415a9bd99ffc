"""Panels of lines and dots as Bokeh plots, which answer to the mouse; and what all plots of a page have in common."""

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter, Plot, Range1d, Whisker
from bokeh.plotting import figure as new_figure

from apiece.report.figure import Panel, lines_outside, scales, shown
from apiece.report.look import GRID, SOFT, look, mark, shortened
from apiece.report.outside import in_words

HEIGHT = 320
FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"


def new_plot(name: str, x_label: str, y_label: str, *, log_x: bool = False, log_y: bool = False, **how: Any) -> Any:
    """An empty plot as wide as its place. Dragging is left to the page, so that a finger can scroll past it."""
    plot = new_figure(
        name=name,
        height=HEIGHT,
        sizing_mode="stretch_width",
        x_axis_type="log" if log_x else "auto",
        y_axis_type="log" if log_y else "auto",
        tools="tap,box_zoom,reset,save",
        toolbar_location="above",
        active_drag=None,
        **how,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.outline_line_color = None
    plot.background_fill_alpha = plot.border_fill_alpha = 0
    plot.xgrid.grid_line_color, plot.ygrid.grid_line_color = None, GRID
    for axis, text, log in ((plot.xaxis[0], x_label, log_x), (plot.yaxis[0], y_label, log_y)):
        axis.axis_label, axis.axis_label_text_font_style = shortened(text, 60), "normal"
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_size, axis.major_label_text_font_size = "13px", "12px"
        axis.axis_label_text_color = axis.major_label_text_color = SOFT
        axis.axis_line_color, axis.minor_tick_line_color, axis.major_tick_line_color = SOFT, None, SOFT
        if not log and axis.__class__.__name__ == "LinearAxis":
            axis.formatter = NumeralTickFormatter(format="0,0.[0000]")
    return plot


def plain(values: Any) -> list[Any]:
    """Numbers as JSON has them, to six digits; None where there is none.

    >>> plain(np.array([1 / 3, np.nan]))
    [0.333333, None]
    """
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in np.asarray(values, np.float64).tolist()]


def round_ticks(low: float, high: float) -> list[float]:
    """Where a logarithmic axis is labelled: at 1, 2 and 5 times powers of ten, or at these powers; none: as Bokeh does.

    >>> round_ticks(0.9, 40), round_ticks(0.01, 3000), round_ticks(34, 38)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0], [])
    """
    if not 1e-4 <= low < high <= 1e6:
        return []
    powers = range(-4, 7)
    for steps in ((1, 2, 5), (1,)):
        ticks = [float(f"{step}e{power}") for power in powers for step in steps]
        found = [tick for tick in ticks if low <= tick <= high]
        if 2 < len(found) < 9:
            return found
    return []


def panel_plot(name: str, panel: Panel, height: int = HEIGHT) -> Plot:
    """One panel of a checked figure. What draws a line has the tags "method" and its style; sources are NAME-PLACE."""
    (left, right), (low, high) = scales(panel)
    ends = {"x_range": Range1d(left, right), "y_range": Range1d(low, high)}
    plot = new_plot(name, panel.x_label, panel.y_label, log_x=panel.log_x, log_y=panel.log_y, **ends)
    plot.height = height
    for axis, log, (start, end) in (
        (plot.xaxis[0], panel.log_x, (left, right)),
        (plot.yaxis[0], panel.log_y, (low, high)),
    ):
        if log and (ticks := round_ticks(start, end)):
            axis.ticker, axis.formatter = FixedTicker(ticks=ticks), NumeralTickFormatter(format="0,0.[0000]")
    drawn = []
    for at, li in enumerate(panel.lines):
        there, style = shown(li, panel), li.style or 0
        colour, dash = look(style)
        columns = {"x": plain(li.x[there]), "y": plain(li.y[there]), "name": [shortened(li.name)] * int(there.sum())}
        if li.low is not None and li.high is not None:
            columns |= {"low": plain(li.low[there]), "high": plain(li.high[there])}
        source, named = ColumnDataSource(columns, name=f"{name}-{at}"), ["method", style]
        dashes = [int(part) for part in dash.split()]
        if "low" in columns and li.kind == "line":
            plot.varea("x", "low", "high", source=source, fill_color=colour, fill_alpha=0.15, tags=named)
        elif "low" in columns:
            whisker = Whisker(base="x", lower="low", upper="high", source=source, line_color=colour, tags=named)
            whisker.upper_head = whisker.lower_head = None
            plot.add_layout(whisker)
        if li.kind == "line":
            plot.line("x", "y", source=source, color=colour, line_width=2.2, line_dash=dashes, tags=named)
        form, hollow = mark(style)
        few = int(there.sum()) <= 30
        size, alpha = (8, 1.0) if li.kind == "dots" else (6, 1.0 if few else 0.0)
        fill = "#00000000" if hollow and li.kind == "dots" else colour
        drawn.append(
            plot.scatter(
                "x",
                "y",
                source=source,
                marker=form,
                size=size,
                alpha=alpha,
                line_color=colour,
                fill_color=fill,
                tags=named,
            )
        )
    tips = [("", "@name"), (shortened(panel.x_label, 30), "@x"), (shortened(panel.y_label, 30), "@y")]
    plot.add_tools(HoverTool(renderers=drawn, tooltips=tips, mode="mouse"))
    return plot


def outside_words(panel: Panel) -> str:
    """Which lines leave the axis, for the caption; nothing if all are inside."""
    return in_words(lines_outside(panel))
