"""A panel of a figure as SVG: its title, the names of its lines, the axes, and the lines with their bands."""

from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apiece.report.figure import Line, Panel, lines_outside, scales, shown
from apiece.report.numbers import number
from apiece.report.outside import edge_marks, held, pieces
from apiece.report.svg import SOFT, Axis, dot, frame, label, legend_of, line, look, picture, points, tag

WIDTH, ROOM = 520.0, 24.0  # of a panel; of its title


class Layout(NamedTuple):
    """Where the parts of a panel are, in pixels."""

    legend: list[Markup]
    x: Axis
    y: Axis
    height: float


def layout(panel: Panel) -> Layout:
    """Of a checked panel: the title, below it the names, below them the axes."""
    named = [(li.name, li.style or 0) for li in panel.lines]
    entries, top = legend_of(named, WIDTH, filled=[li.kind == "dots" for li in panel.lines])
    below = ROOM if panel.title else 0.0
    moved = [
        tag("g", *entries[at : at + 2], data_name=at // 2, transform=f"translate(0 {below:g})")
        for at in range(0, len(entries), 2)
    ]
    height = top + below + 310
    x, y = scales(panel, (66.0, WIDTH - 14), (height - 50, top + below + 30))
    return Layout(moved, x, y, height)


def panel_svg(name: str, panel: Panel) -> Markup:
    """One panel of a checked figure."""
    legend, x, y, height = layout(panel)
    parts = [label(panel.title, 10, 16, 14, font_weight="bold")] if panel.title else []
    parts += [*legend, *frame(x, y, panel.x_label, panel.y_label)]
    parts += [tag("g", *_drawn(li, x, y), data_line=at) for at, li in enumerate(panel.lines)]
    seen = {li.name: (li.x[there], li.y[there]) for li in panel.lines for there in [shown(li, panel)]}
    parts += edge_marks(lines_outside(panel), seen, x, y)
    parts.append(line(0, y.start, 0, y.end, SOFT, data_cursor="", visibility="hidden"))
    about = "; ".join(f"{li.name} from {number(_end(li.y, 0))} to {number(_end(li.y, -1))}" for li in panel.lines)
    return picture(name, WIDTH, height, panel.title or f"{panel.y_label} against {panel.x_label}", about, parts)


def _drawn(li: Line, x: Axis, y: Axis) -> list[Markup]:
    there = shown(li, Panel("", "", "", [], x.log, y.log))
    at, value = x(li.x[there]), held(y, li.y[there])
    colour, dash = look(li.style or 0)
    parts: list[Markup] = []
    if li.low is not None and li.high is not None:
        low, high = held(y, li.low[there]), held(y, li.high[there])
        if li.kind == "dots":
            ends = zip(at.tolist(), low.tolist(), high.tolist(), strict=True)
            parts += [line(a, b, a, c, colour, stroke_width=1.4) for a, b, c in ends]
        else:
            edge = zip(np.append(at, at[::-1]), np.append(high, low[::-1]), strict=True)
            parts.append(tag("polygon", points=points(edge), fill=colour, fill_opacity=0.13))
    pairs = list(zip(at.tolist(), value.tolist(), strict=True))
    if li.kind == "dots":
        inside = (li.y[there] >= y.low) & (li.y[there] <= y.high)
        return parts + [dot(li.style or 0, a, b) for (a, b), seen in zip(pairs, inside, strict=True) if seen]
    style = {"fill": "none", "stroke": colour, "stroke_width": 2.2, "stroke_dasharray": dash or "none"}
    runs = pieces(y, li.y[there])
    return parts + [tag("polyline", points=points(pairs[at] for at in run), **style) for run in runs]


def _end(values: NDArray, at: int) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite[at]) if finite.size else None
