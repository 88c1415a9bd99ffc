"""The pictures in which a client can be clicked: plots over one data source, which the page's script fills."""

from typing import Any, NamedTuple

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    DataTable,
    FactorRange,
    FixedTicker,
    HoverTool,
    InlineStyleSheet,
    LinearColorMapper,
    NumberFormatter,
    Plot,
    Range1d,
    Span,
    StringFormatter,
    TableColumn,
)

from apiece.report.look import INK, SOFT
from apiece.report.plots import HEIGHT, new_plot

# From white to dark blue, and from orange over white to blue: both are read alike by every kind of colour vision.
SHARE = ["#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"]
ALIKE = ["#7f3b08", "#b35806", "#e08214", "#fdb863", "#f7f7f7", "#b3cde3", "#6497b1", "#1b6ca8", "#08306b"]
FRAME = "#D55E00"  # around a row of cells, which are white to dark blue in the dark, too
STRIP = 28  # pixels of height for a method in the histogram
CHOSEN = {"size": 15, "fill_alpha": 1.0, "line_color": INK, "line_width": 3, "name": "mark", "level": "overlay"}
TABLE = """
:host { color: var(--ink); }
.slick-header-column, .slick-cell, .slick-row, .slick-viewport, .bk-data-table { color: var(--ink) !important;
  background: var(--ground) !important; border-color: var(--line) !important; font: 13px system-ui, sans-serif; }
.slick-header-column { font-weight: 600; }
.slick-cell.selected, .slick-cell.bk-cell-special-defaults.selected { background: var(--chosen) !important; }
.slick-row:hover .slick-cell { background: var(--wash) !important; }
.slick-sort-indicator { color: var(--ink); }
"""


class Sources(NamedTuple):
    """All clients, for the table; and the chosen one, which is drawn above the others, in a layer of its own.

    Every picture has a source of its own for its dots: a click then draws one picture again, and not all of them.
    """

    every: ColumnDataSource
    chosen: ColumnDataSource
    columns: list[str]

    def drawn(self, name: str) -> ColumnDataSource:
        """The dots of a picture."""
        return ColumnDataSource({column: [] for column in self.columns}, name=f"drawn-{name}")


def client_sources(data: dict[str, Any]) -> Sources:
    """Empty until the page is open."""
    names = ["at", "client", "train", "test", "kind", "group", "colour", "map_x", "map_y"]
    of_method = ["score", "gain", "rank", "degree", *(["score_rank", "degree_rank"] if data["same_size"] else [])]
    methods = range(len(data["methods"]))
    names += [f"{what}{k}" for k in methods for what in of_method]
    empty = lambda name, *more: ColumnDataSource({column: [] for column in [*names, *more]}, name=name)
    return Sources(empty("clients"), empty("chosen", *(f"strip{k}" for k in methods)), names)


def client_plots(data: dict[str, Any], main: int = 0) -> dict[str, Any]:
    """Every picture for which there are numbers, by name; and the table of clients, the main method's numbers first."""
    source = client_sources(data)
    plots: dict[str, Any] = {}
    if data["references"]:
        plots["gains"] = _dots("gains", _sorted_by("gain"), "gain", source, data, "rank", "gain")
        _join(plots["gains"], data)
        plots["histogram"] = _histogram(source, data)
        if not data["same_size"]:
            plots["sizes"] = _dots("sizes", "training examples", "gain", source, data, "train", "gain")
        for name in plots.keys() & {"gains", "sizes"}:
            plots[name].add_layout(Span(location=0, dimension="width", line_color=SOFT, line_width=1.5, name="zero"))
    plots["scores"] = _by_size("scores", "score", source, data, "score")
    if data.get("degree"):
        plots["degrees"] = _by_size("degrees", "0: the model of all; 1: trained alone", source, data, "degree")
        plots["degrees"].y_range = Range1d(-0.04, 1.04)
    if "map_x" in data:
        plots["map"] = _map(source)
    if "similarity" in data or data.get("group_names", 0) > 1:
        plots["similarity"] = _similarity(data)
    if "labels" in data:
        plots["labels"] = _labels(data)
    plots["table"] = client_table(source.every, data, main)
    return plots


def _sorted_by(what: str) -> str:
    return f"clients, from the least {what} to the largest, %"


def _by_size(name: str, y_label: str, source: Sources, data: dict[str, Any], y: str) -> Plot:
    """Against training examples; where all have about as many, sorted: side by side there would be no side."""
    if data["same_size"]:
        return _dots(name, _sorted_by(y), y_label, source, data, f"{y}_rank", y)
    return _dots(name, "training examples", y_label, source, data, "train", y)


def _dots(name: str, x_label: str, y_label: str, source: Sources, data: dict[str, Any], x: str, y: str) -> Plot:
    """A dot for each client and method, exactly where it belongs; the chosen client's are large, with a ring."""
    plot, drawn, every = new_plot(name, x_label, y_label, log_x=x == "train"), source.drawn(name), []
    for k, method in enumerate(data["methods"]):
        paint = {"marker": method["mark"], "line_color": method["colour"], "fill_color": method["colour"]}
        paint |= {"fill_alpha": 0.0 if method["hollow"] else 0.55, "line_alpha": 0.55, "tags": _tags(method)}
        place = x if x == "train" else f"{x}{k}"
        dots = plot.scatter(place, f"{y}{k}", source=drawn, size=6, **paint)
        _stay(dots)
        every.append(dots)
        plot.scatter(place, f"{y}{k}", source=source.chosen, **(paint | CHOSEN))
        tips = [("", f"@client, {method['name'].replace('@', ' ')}"), ("training examples", "@train{0,0}"),
                ("gain", f"@gain{k}{{+0.[00]}}"), ("score", f"@score{k}{{0.[000]}}")]  # fmt: skip
        plot.add_tools(HoverTool(renderers=[dots], tooltips=tips, visible=False))
    _follow(plot, every)
    return plot


def _tags(method: dict[str, Any]) -> list[Any]:
    return ["method", method["style"]]


def _join(plot: Plot, data: dict[str, Any]) -> None:
    """A line through every method's dots, in their order, so that one curve is told from another."""
    columns: dict[str, list] = {f"{what}{k}": [] for k in range(len(data["methods"])) for what in ("rank", "gain")}
    source = ColumnDataSource(columns, name="sorted")
    for k, method in enumerate(data["methods"]):
        paint = {"line_color": method["colour"], "line_dash": method["dash"], "line_width": 1.5, "line_alpha": 0.8}
        plot.line(f"rank{k}", f"gain{k}", source=source, level="underlay", tags=_tags(method), **paint)


def _stay(dots: Any) -> None:
    """Dots look the same whatever is chosen: the mark is above them."""
    dots.selection_glyph = dots.nonselection_glyph = dots.glyph.clone()


def _follow(plot: Plot, drawn: list[Any]) -> None:
    """Axes follow what is drawn, and not the mark of what is chosen."""
    plot.x_range.renderers = plot.y_range.renderers = drawn


def _histogram(source: Sources, data: dict[str, Any]) -> Plot:
    """How many clients gain how much, a strip for each method; on its ground line, where the chosen client is."""
    count = len(data["methods"])
    plot = new_plot("histogram", "gain", "", y_range=Range1d(0, count))
    plot.height = max(HEIGHT, 80 + STRIP * count)
    columns: dict[str, list] = {name: [] for name in ("left", "right", "bottom", "top", "colour", "method", "count")}
    bins = ColumnDataSource(columns, name="bins")
    bars = plot.quad(left="left", right="right", bottom="bottom", top="top", source=bins, fill_color="colour",
                     line_color="colour", fill_alpha=0.6)  # fmt: skip
    _stay(bars)
    for k, method in enumerate(data["methods"]):
        paint = {"marker": method["mark"], "fill_color": method["colour"], "tags": _tags(method)}
        plot.scatter(f"gain{k}", f"strip{k}", source=source.chosen, **(paint | CHOSEN | {"size": 11}))
    plot.add_layout(Span(location=0, dimension="height", line_color=SOFT, line_width=1.5, name="zero"))
    plot.yaxis[0].ticker = plot.ygrid[0].ticker = FixedTicker(ticks=list(range(count)))
    plot.x_range.renderers = [bars]
    tips = [("", "@method"), ("clients", "@count"), ("gain from", "@left{+0.[00]}"), ("to", "@right{+0.[00]}")]
    plot.add_tools(HoverTool(renderers=[bars], tooltips=tips))
    return plot


def _map(source: Sources) -> Plot:
    plot = new_plot("map", "first main direction of the models", "second")
    paint = {"size": 9, "fill_color": "colour", "line_color": None, "fill_alpha": 0.7}
    dots = plot.scatter("map_x", "map_y", source=source.drawn("map"), **paint)
    _stay(dots)
    _follow(plot, [dots])
    plot.scatter("map_x", "map_y", source=source.chosen, **(paint | CHOSEN))
    tips = [("", "@client"), ("group", "@group"), ("training examples", "@train{0,0}")]
    plot.add_tools(HoverTool(renderers=[dots], tooltips=tips))
    return plot


def _similarity(data: dict[str, Any]) -> Plot:
    """Rows and columns are clients, group by group, or groups; two lines cross where the chosen one is like itself."""
    matrix, what = data.get("similarity"), "clients, group by group"
    if matrix is None:
        matrix, what = data["group_similarity"], "groups of clients"
    image = np.array([[np.nan if one is None else one for one in row] for row in matrix], np.float32)
    count = len(image)
    ends = {"x_range": Range1d(0, count), "y_range": Range1d(count, 0)}
    plot = new_plot("similarity", what, what.partition(",")[0], **ends)
    source = ColumnDataSource({"image": [image], "x": [0], "y": [0], "w": [count], "h": [count]}, name="similar")
    colours = LinearColorMapper(palette=ALIKE, low=-1, high=1, nan_color="#00000000")
    plot.image("image", x="x", y="y", dw="w", dh="h", source=source, color_mapper=colours)
    for dimension in ("width", "height"):
        line = Span(location=-1, dimension=dimension, line_color=INK, line_width=2, name=f"chosen-{dimension}",
                    level="overlay")  # fmt: skip
        plot.add_layout(line)
    plot.add_tools(HoverTool(tooltips=[("similarity", "@image{0.00}")]))
    if "similarity" in data or count > 20:
        _no_ticks(plot, "xaxis", "yaxis")
    else:
        for axis in (plot.xaxis[0], plot.yaxis[0]):
            axis.ticker = FixedTicker(ticks=[k + 0.5 for k in range(count)])
            axis.major_label_overrides = {k + 0.5: str(k + 1) for k in range(count)}
    return plot


def _labels(data: dict[str, Any]) -> Plot:
    """Rows are clients, columns are classes; the darker, the larger the share. A frame stands around the chosen one."""
    plot = new_plot("labels", "", "clients", x_range=FactorRange(*map(str, range(len(data["classes"])))))
    cells = ColumnDataSource({"x": [], "y": [], "share": [], "client": [], "label": [], "at": []}, name="cells")
    colours = LinearColorMapper(palette=SHARE, low=0, high=1)
    drawn = plot.rect("x", "y", 1, 1, source=cells, fill_color={"field": "share", "transform": colours},
                      line_color=None)  # fmt: skip
    drawn.nonselection_glyph = drawn.selection_glyph = drawn.glyph.clone()
    around = ColumnDataSource({"left": [], "right": [], "top": [], "bottom": []}, name="row")
    plot.quad(left="left", right="right", top="top", bottom="bottom", source=around, fill_color=None, line_color=FRAME,
              line_width=3, name="chosen-row", level="overlay")  # fmt: skip
    tips = [("", "@client"), ("label", "@label"), ("share", "@share{0 %}")]
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=tips))
    plot.xaxis.major_label_overrides = dict(zip(map(str, range(len(data["classes"]))), data["classes"], strict=True))
    if max(map(len, data["classes"])) > 3 and len(data["classes"]) > 4:
        plot.xaxis.major_label_orientation = 0.7
    _no_ticks(plot, "yaxis")
    return plot


def _no_ticks(plot: Plot, *axes: str) -> None:
    for name in axes:
        axis = getattr(plot, name)
        axis.major_label_text_font_size, axis.major_tick_line_color, axis.minor_tick_line_color = "0px", None, None


def client_table(source: ColumnDataSource, data: dict[str, Any], main: int = 0) -> DataTable:
    """Every client: sorted by a click on a head, a row is chosen by a click."""
    number = lambda form: NumberFormatter(format=form, nan_format="–", null_format="–", text_align="right")
    text = StringFormatter()  # which writes text, never markup
    columns = [TableColumn(field="client", title="client", width=130, formatter=text)]
    columns += [TableColumn(field=part, title=title, width=82, formatter=number("0,0"))
                for part, title in (("train", "examples"), ("test", "to test"))]  # fmt: skip
    columns.append(TableColumn(field="kind", title="is", width=64, formatter=text))
    if data.get("group_names", 0) > 1:
        columns.append(TableColumn(field="group", title="group", width=60, formatter=number("0")))
    for what, form in (("gain", "+0.0"), ("score", "0.[0000]")):
        for k, method in sorted(enumerate(data["methods"]), key=lambda one: one[0] != main):
            if what == "gain" and not data["references"]:
                continue
            title = f"{what} {method['name']}"
            columns.append(TableColumn(field=f"{what}{k}", title=title, width=110, formatter=number(form)))
    for column in columns:
        column.tags = [column.width]  # which the script changes where there is little room
    return DataTable(
        source=source,
        columns=columns,
        name="table",
        height=420,
        row_height=28,
        sizing_mode="stretch_width",
        autosize_mode="none",
        index_position=None,
        frozen_columns=1,
        reorderable=False,
        stylesheets=[InlineStyleSheet(css=TABLE)],
    )
