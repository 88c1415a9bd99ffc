"""A figure as plain numbers: panels of lines and dots, which a page (`figure_page`) and a PNG (`raster`) draw alike."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apiece.errors import UserError
from apiece.report.outside import LOG_TIMES, TIMES, Far, far_out, farthest, limits, within

KINDS = ("line", "dots")


class Line(NamedTuple):
    """A named curve (`kind` "line", with a band from `low` to `high`) or measurements ("dots", with whiskers).

    `style` is its place among the colours and dashes: lines of one style belong together, in every panel. Left out, it
    is the place in the panel.
    """

    name: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    kind: str = "line"
    style: int | None = None


class Panel(NamedTuple):
    """One pair of axes; the labels say what is shown in which unit."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False


class Figure(NamedTuple):
    """Panels side by side, two in a row, with what must be said about them."""

    title: str
    caption: str
    panels: Sequence[Panel]


def checked(figure: Figure) -> Figure:
    """The figure with NumPy columns and every style filled in; a mistake in it is named.

    >>> try: checked(Figure("", "", [Panel("risk", "x", "y", [Line("a", [0, 1], [1])])]))
    ... except UserError as error: print(error)
    figure: line 'a' of panel 'risk' has 2 places and 1 values
    """
    panels = [panel._replace(lines=[_checked(li, at, panel) for at, li in enumerate(panel.lines)])
              for panel in figure.panels]  # fmt: skip
    return figure._replace(panels=panels)


def _checked(li: Line, at: int, panel: Panel) -> Line:
    x, y = np.asarray(li.x, float), np.asarray(li.y, float)
    if x.shape != y.shape or x.ndim != 1:
        raise UserError(f"figure: line '{li.name}' of panel '{panel.title}' has {x.size} places and {y.size} values")
    if li.kind not in KINDS:
        raise UserError(f"figure: line '{li.name}' is of kind '{li.kind}', not {' or '.join(KINDS)}")
    edge = lambda values: None if values is None else np.broadcast_to(np.asarray(values, float), y.shape)
    return li._replace(x=x, y=y, low=edge(li.low), high=edge(li.high), style=at if li.style is None else li.style)


def scales(panel: Panel) -> tuple[tuple[float, float], tuple[float, float]]:
    """The ends of both axes of a checked panel, which page and PNG share; upwards they follow the sensible lines."""
    xs = np.concatenate([li.x for li in panel.lines] or [np.zeros(0)])
    ys = [edge for li in panel.lines for edge in (li.y, li.low, li.high) if edge is not None]
    limit = farthest([li.y[shown(li, panel)] for li in panel.lines], LOG_TIMES if panel.log_y else TIMES)
    across = limits(xs, log=panel.log_x, room=0.02)
    return across, limits(within(np.concatenate(ys or [np.zeros(0)]), limit), log=panel.log_y)


def lines_outside(panel: Panel) -> list[Far]:
    """The lines of a checked panel that leave its axis."""
    _, (low, high) = scales(panel)
    seen = [(li, shown(li, panel)) for li in panel.lines]
    return far_out([(li.name, li.y[there]) for li, there in seen if li.y[there].size], low, high)


def shown(li: Line, panel: Panel) -> NDArray:
    """Which points of a checked line can be drawn: a logarithmic axis has no place for what is not above zero."""
    inside = lambda values, log: np.isfinite(values) & ((values > 0) | (not log))
    return inside(li.x, panel.log_x) & inside(li.y, panel.log_y)
