"""The pictures in which a client can be clicked: plots over one data source, which the page's script fills."""

from typing import Any, NamedTuple

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    DataTable,
    FactorRange,
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
from apiece.report.plots import new_plot

# From white to dark blue, and from orange over white to blue: both are read alike by every kind of colour vision.
SHARE = ["#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"]
ALIKE = ["#7f3b08", "#b35806", "#e08214", "#fdb863", "#f7f7f7", "#b3cde3", "#6497b1", "#1b6ca8", "#08306b"]
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
    names = ["at", "client", "train", "test", "kind", "group", "colour", "map_x", "map_y", "zero"]
    names += [f"{what}{k}" for k in range(len(data["methods"])) for what in ("score", "gain", "rank", "size", "degree")]
    empty = lambda name: ColumnDataSource({column: [] for column in names}, name=name)
    return Sources(empty("clients"), empty("chosen"), names)


def client_plots(data: dict[str, Any]) -> dict[str, Any]:
    """Every picture for which there are numbers, by name; and the table of clients."""
    source = client_sources(data)
    plots: dict[str, Any] = {}
    if data["references"]:
        plots["gains"] = _dots(
            "gains", "clients, from the least gain to the largest, %", "gain", source, data, "rank", "gain"
        )
        plots["histogram"] = _histogram(source, data)
        plots["sizes"] = _dots("sizes", "training examples", "gain", source, data, "size", "gain", log_x=True)
        for name in ("gains", "sizes"):
            plots[name].add_layout(Span(location=0, dimension="width", line_color=SOFT, line_width=1.5, name="zero"))
    plots["scores"] = _dots("scores", "training examples", "score", source, data, "size", "score", log_x=True)
    if data.get("degree"):
        label = "0: the model of all; 1: trained alone"
        plots["degrees"] = _dots("degrees", "training examples", label, source, data, "size", "degree", log_x=True)
        plots["degrees"].y_range = Range1d(-0.04, 1.04)
    if "map_x" in data:
        plots["map"] = _map(source)
    if "similarity" in data:
        plots["similarity"] = _similarity(data)
    if "labels" in data:
        plots["labels"] = _labels(data)
    plots["table"] = client_table(source.every, data)
    return plots


def _dots(
    name: str, x_label: str, y_label: str, source: Sources, data: dict[str, Any], x: str, y: str, **how: Any
) -> Plot:
    """A dot for each client and method; the chosen client's are large, with a ring."""
    plot, drawn, every = new_plot(name, x_label, y_label, **how), source.drawn(name), []
    for k, method in enumerate(data["methods"]):
        paint = {"marker": method["mark"], "fill_color": method["colour"], "line_color": None, "fill_alpha": 0.55}
        paint["tags"] = ["method", method["style"]]
        dots = plot.scatter(f"{x}{k}", f"{y}{k}", source=drawn, size=6, **paint)
        _stay(dots)
        every.append(dots)
        plot.scatter(f"{x}{k}", f"{y}{k}", source=source.chosen, **(paint | CHOSEN))
        tips = [("", f"@client, {method['name'].replace('@', ' ')}"), ("training examples", "@train{0,0}"),
                ("gain", f"@gain{k}{{+0.[00]}}"), ("score", f"@score{k}{{0.[000]}}")]  # fmt: skip
        plot.add_tools(HoverTool(renderers=[dots], tooltips=tips, visible=False))
    _follow(plot, every)
    return plot


def _stay(dots: Any) -> None:
    """Dots look the same whatever is chosen: the mark is above them."""
    dots.selection_glyph = dots.nonselection_glyph = dots.glyph.clone()


def _follow(plot: Plot, drawn: list[Any]) -> None:
    """Axes follow what is drawn, and not the mark of what is chosen."""
    plot.x_range.renderers = plot.y_range.renderers = drawn


def _histogram(source: Sources, data: dict[str, Any]) -> Plot:
    """How many clients gain how much, a line for each method; on the ground line, where the chosen client is."""
    plot = new_plot("histogram", "gain", "clients")
    columns: dict[str, list] = {"left": []} | {f"count{k}": [] for k in range(len(data["methods"]))}
    bins, every = ColumnDataSource(columns, name="bins"), []
    for k, method in enumerate(data["methods"]):
        paint = {"color": method["colour"], "line_dash": method["dash"], "line_width": 2.2}
        every.append(
            plot.step("left", f"count{k}", source=bins, mode="after", tags=["method", method["style"]], **paint)
        )
        paint = {"marker": method["mark"], "fill_color": method["colour"], "tags": ["method", method["style"]]}
        plot.scatter(f"gain{k}", "zero", source=source.chosen, **(paint | CHOSEN))
    plot.add_layout(Span(location=0, dimension="height", line_color=SOFT, line_width=1.5, name="zero"))
    plot.y_range.start = 0
    _follow(plot, every)
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
    """Rows and columns are clients, group by group; two lines cross where the chosen one is like itself."""
    count = len(data["similarity"])
    ends = {"x_range": Range1d(0, count), "y_range": Range1d(count, 0)}
    plot = new_plot("similarity", "clients, group by group", "clients", **ends)
    image = np.array(data["similarity"], np.float32)
    source = ColumnDataSource({"image": [image], "x": [0], "y": [0], "w": [count], "h": [count]}, name="similar")
    colours = LinearColorMapper(palette=ALIKE, low=-1, high=1)
    plot.image("image", x="x", y="y", dw="w", dh="h", source=source, color_mapper=colours)
    for dimension in ("width", "height"):
        line = Span(location=-1, dimension=dimension, line_color=INK, line_width=2, name=f"chosen-{dimension}",
                    level="overlay")  # fmt: skip
        plot.add_layout(line)
    plot.add_tools(HoverTool(tooltips=[("similarity", "@image{0.00}")]))
    _no_ticks(plot, "xaxis", "yaxis")
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
    plot.quad(left="left", right="right", top="top", bottom="bottom", source=around, fill_color=None, line_color=INK,
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


def client_table(source: ColumnDataSource, data: dict[str, Any]) -> DataTable:
    """Every client: sorted by a click on a head, a row is chosen by a click."""
    number = lambda form: NumberFormatter(format=form, nan_format="–", null_format="–", text_align="right")
    text = StringFormatter()  # which writes text, never markup
    columns = [TableColumn(field="client", title="client", width=130, formatter=text)]
    columns += [TableColumn(field=f"{part}", title=f"{part} examples", width=125, formatter=number("0,0"))
                for part in ("train", "test")]  # fmt: skip
    columns.append(TableColumn(field="kind", title="is", width=80, formatter=text))
    if "group" in data:
        columns.append(TableColumn(field="group", title="group", width=60, formatter=number("0")))
    for what, form in (("gain", "+0.0"), ("score", "0.[0000]")):
        for k, method in enumerate(data["methods"]):
            if what == "gain" and not data["references"]:
                continue
            title = f"{what} {method['name']}"
            columns.append(TableColumn(field=f"{what}{k}", title=title, width=110, formatter=number(form)))
    return DataTable(
        source=source,
        columns=columns,
        name="table",
        height=420,
        row_height=28,
        sizing_mode="stretch_width",
        autosize_mode="none",
        index_position=None,
        reorderable=False,
        stylesheets=[InlineStyleSheet(css=TABLE)],
    )
