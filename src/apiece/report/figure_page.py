"""A figure as a page that answers to the mouse and to keys, one file that opens offline; and as a PNG beside it."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from apiece.files import as_plain, replace_file
from apiece.report.figure import Figure, Panel, checked
from apiece.report.page import TEMPLATES
from apiece.report.panel import layout, panel_svg
from apiece.report.svg import clean


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
    if not can_draw_png():
        return [page]
    from apiece.report.raster import draw_png

    image = Path(folder) / f"{name}.png"
    with replace_file(image) as temporary:
        draw_png(figure, temporary)
    return [page, image]


def can_draw_png() -> bool:
    """Whether Matplotlib is installed (the extra `figures`)."""
    return importlib.util.find_spec("matplotlib") is not None


def render(figure: Figure, tables: Sequence[Grid] = ()) -> str:
    """The page: one file, no network needed; pointing at a panel reads its lines, a click on a name hides one."""
    figure = checked(figure)
    page = TEMPLATES.get_template("figure.html").render(
        figure=figure,
        svgs=[panel_svg(f"panel{at}", panel) for at, panel in enumerate(figure.panels)],
        numbers=Markup(_script_safe([_numbers(panel) for panel in figure.panels])),
        tables=tables,
    )
    return clean(page)


def _numbers(panel: Panel) -> dict[str, Any]:
    """What the page's script needs: which value is at which pixel, and everybody's values."""
    lines = [{"name": li.name, "x": li.x, "y": li.y, "low": li.low, "high": li.high} for li in panel.lines]
    return {"x": layout(panel).x._asdict(), "label": panel.x_label, "lines": lines}


def _script_safe(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(as_plain(value), allow_nan=False).replace("<", "\\u003c")
