"""The picture of who gains: every client a dot, a row for each method."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apiece.report.numbers import counted, fixed, number
from apiece.report.outside import farthest, within
from apiece.report.svg import INK, SOFT, Axis, label, line, picture, shortened, tag, thinned

BETTER, WORSE, EQUAL = "#0072B2", "#C04C00", "#767676"  # blue and orange, dark enough to be read as text
DOTS = 400  # a method; of more clients the picture shows some


class Strip(NamedTuple):
    """One method's row of the gains: a value and a hint for every client."""

    method: str
    values: NDArray
    hint: Callable[[int], str]  # for the few that are drawn


def gains_svg(
    strips: Sequence[Strip], *, points: str = "points", alone: str = "alone", standalone: bool = False
) -> Markup:
    """Every client a dot: its gain over training alone, or over another baseline, a row for each method.

    `standalone` makes it a file's content.

    >>> strip = Strip("ditto", np.array([2.0, -1.0, np.nan]), str)
    >>> gains_svg([strip]).count("<circle")
    2
    """
    width, left, right, row, top = 540.0, 10.0, 10.0, 74.0, 8.0
    height = top + row * len(strips) + 50
    finite = [s.values[np.isfinite(s.values)] for s in strips]
    limit = farthest([np.quantile(values, [0.05, 0.95]) for values in finite if values.size])
    every = within(np.concatenate([*finite, np.zeros(0)]), limit)
    x = _around_zero(every, left + 10, width - right - 10)
    floor = top + row * len(strips)
    parts = [line(at, top + 4, at, floor) for at in x(x.ticks())]
    for k, strip in enumerate(strips):
        parts += _strip(strip, x, top + row * k, row, width - right)
    zero = x.at(0.0)
    parts += [line(zero, top + 4, zero, floor, INK, stroke_width=1.5), line(left, floor, width - right, floor, SOFT)]
    for value, at in zip(x.ticks(), x(x.ticks()), strict=True):
        parts.append(label(number(value, sign=True), at, floor + 18, 13, text_anchor="middle", fill=SOFT))
    bold = {"font_weight": 600}
    parts.append(label(f"← worse than {alone}", left, floor + 40, 13, fill=WORSE, **bold))
    parts.append(label(f"better than {alone} →", width - right, floor + 40, 13, text_anchor="end", fill=BETTER, **bold))
    parts.append(label(f"gain, {points}", width / 2, floor + 40, 13, text_anchor="middle", fill=SOFT))
    about = "; ".join(f"{s.method}: {_in_words(s.values)}" for s in strips)
    title = f"Gain of every client over {'training alone' if alone == 'alone' else alone}, in {points}"
    return picture("gains", width, height, title, about, parts, standalone=standalone)


def _around_zero(values: NDArray, start: float, end: float) -> Axis:
    """An axis with zero well inside; a few clients far out do not squeeze the others."""
    if not values.size:
        return Axis(-1.0, 1.0, start, end)
    low, middle, high = np.quantile(values, [0.05, 0.5, 0.95])
    reach = 4 * (high - low) or np.inf
    inside = values[abs(values - middle) <= reach]
    low, high = min(0.0, float(inside.min())), max(0.0, float(inside.max()))
    span = (high - low) or 1.0
    return Axis(min(low - 0.03 * span, -0.08 * span), max(high + 0.03 * span, 0.08 * span), start, end)


def _strip(strip: Strip, x: Axis, top: float, row: float, right: float) -> list[Markup]:
    """One row: quartiles, median, dots, and at the edges arrows for what lies beyond."""
    middle, radius = top + 20 + (row - 26) / 2, 4.0 if len(strip.values) <= 150 else 3.0
    finite = np.flatnonzero(np.isfinite(strip.values))
    name = label(shortened(strip.method, 30), x.start - 8, top + 15, 14, font_weight=600)
    if not finite.size:
        return [name, label("diverged: no gain to show", right, top + 15, 13, text_anchor="end", fill=SOFT)]
    values = strip.values[finite]
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    said = f"median {fixed(median, sign=True)}"
    parts = [name, label(said, right, top + 15, 13, text_anchor="end", fill=SOFT)]
    box = np.clip(x([low, high]), x.start, x.end)
    parts.append(tag("rect", x=box[0], y=middle - 20, width=max(box[1] - box[0], 1.0), height=40.0, fill="#ececec"))
    shown = finite[thinned(values, DOTS)]
    shown = shown[np.argsort(strip.values[shown], kind="stable")]
    inside = shown[(strip.values[shown] >= x.low) & (strip.values[shown] <= x.high)]
    at = x(strip.values[inside])
    for client, cx, dy in zip(inside, at, swarm(at, radius, 40.0), strict=True):
        value = strip.values[client]
        colour = BETTER if value > 0 else WORSE if value < 0 else EQUAL
        hint = tag("title", strip.hint(int(client)))
        dot = {"cx": float(cx), "cy": float(middle + dy), "r": radius, "fill": colour, "fill_opacity": 0.6}
        parts.append(tag("circle", hint, **dot))
    tick = float(np.clip(x.at(median), x.start, x.end))
    parts.append(line(tick, middle - 22, tick, middle + 22, INK, stroke_width=2.5))
    for beyond, edge, way in ((values < x.low, x.start, -1), (values > x.high, x.end, 1)):
        if beyond.any():
            parts += _beyond(values[beyond], edge, middle, way)
    return parts


def _beyond(values: NDArray, edge: float, middle: float, way: int) -> list[Markup]:
    far = values.min() if way < 0 else values.max()
    arrow = f"M{edge:.1f} {middle - 6:.1f}l{8 * way} 6l{-8 * way} 6z"
    text = f"{counted(values.size, 'client')} farther out, to {number(far, sign=True)}"
    anchor = "start" if way < 0 else "end"
    return [
        tag("path", tag("title", text), d=arrow, fill=WORSE if way < 0 else BETTER),
        label(text, edge, middle + 25, 11, text_anchor=anchor, fill=SOFT),
    ]


def _in_words(values: NDArray) -> str:
    values = values[np.isfinite(values)]
    if not values.size:
        return "diverged"
    least, median, most = (fixed(v, sign=True) for v in np.quantile(values, [0, 0.5, 1]))
    return f"{counted(values.size, 'client')}, from {least} to {most}, median {median}"


def swarm(at: NDArray, radius: float, height: float) -> NDArray[np.float64]:
    """How far from the middle line each dot goes, so that dots at the same place stand around it side by side.

    >>> swarm(np.array([10.0, 10.0, 10.0, 50.0]), 4.0, 40.0)
    array([ 0.,  8., -8.,  0.])
    """
    offsets = np.zeros(len(at))
    columns = np.round(at / (2 * radius))
    for column in np.unique(columns):
        mine = np.flatnonzero(columns == column)
        rank = np.arange(len(mine))
        outwards = np.where(rank % 2, 1, -1) * ((rank + 1) // 2)
        step = min(2 * radius, (height - 2 * radius) / max(len(mine) - 1, 1))
        offsets[mine] = outwards * step
    return offsets + 0.0
