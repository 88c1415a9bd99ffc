"""The few pieces of SVG that the charts are made of: escaped elements, an axis with round ticks, a frame, a legend."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import ArrayLike, NDArray

from apiece.report.numbers import number

FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
INK, SOFT, GRID = "#1a1a1a", "#595959", "#dddddd"
# Okabe and Ito's colours, told apart by every kind of colour vision; the yellow is left out, too pale on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("", "7 3", "2 3", "9 3 2 3")
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """An element; text and attributes are escaped, and characters that no XML file may hold are replaced.

    >>> tag("text", "a < b", x=1.25, text_anchor="end")
    Markup('<text x="1.25" text-anchor="end">a &lt; b</text>')
    """
    written = "".join(f' {key.replace("_", "-")}="{_text(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{''.join(map(_text, children))}</{name}>")


def _text(value: Any) -> str:
    if isinstance(value, Markup):
        return value
    if isinstance(value, float | np.floating):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return escape(clean(str(value)))


def clean(text: str) -> str:
    """The text without the characters that no XML or HTML file may hold: control codes, halves of pairs.

    >>> clean("a\\x00b") == "a\N{REPLACEMENT CHARACTER}b"
    True
    """
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def label(text: str, x: float, y: float, size: float = 13, **attributes: Any) -> Markup:
    """A line of text."""
    return tag("text", text, x=x, y=y, font_size=size, **({"fill": INK} | attributes))


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = GRID, **attributes: Any) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, **attributes)


def picture(
    name: str,
    width: float,
    height: float,
    title: str,
    about: str,
    parts: Sequence[Markup],
    *,
    standalone: bool = False,
) -> Markup:
    """A whole picture with its own white ground, a title and a description for those who cannot see it.

    `name` keeps the ids of several pictures on one page apart. Inside HTML neither a namespace nor a size is needed;
    `standalone` adds both.
    """
    title_id, about_id = f"{name}-title", f"{name}-about"
    ground = tag("rect", width=width, height=height, fill="#ffffff")
    head = (tag("title", title, id=title_id), tag("desc", about, id=about_id), ground)
    root = {"viewBox": f"0 0 {width:g} {height:g}", "role": "img", "aria-labelledby": f"{title_id} {about_id}"}
    if standalone:
        root |= {"xmlns": "http://www.w3.org/2000/svg", "width": f"{width:g}", "height": f"{height:g}"}
    return tag("svg", *head, *parts, **root, font_family=FONT)


class Axis(NamedTuple):
    """From values to pixels: `low` lies at pixel `start`, `high` at pixel `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, given: ArrayLike) -> NDArray[np.float64]:
        """Pixels; NaN stays NaN."""
        values, low, high = np.asarray(given, np.float64), self.low, self.high
        if self.log:
            values, low, high = np.log(np.maximum(values, self.low)), math.log(low), math.log(high)
        return self.start + (values - low) / (high - low) * (self.end - self.start)

    def at(self, value: float) -> float:
        """The pixel of one value."""
        return float(self(np.array([value]))[0])

    def ticks(self, wanted: int = 6) -> list[float]:
        """Round values inside the axis: steps of 1, 2 or 5; on a logarithmic axis 1, 2, 5, or powers of ten.

        >>> Axis(0, 1, 0, 100).ticks(), Axis(3, 300, 0, 100, log=True).ticks()
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [5.0, 10.0, 20.0, 50.0, 100.0, 200.0])
        >>> Axis(1.2, 4, 0, 100, log=True).ticks()
        [1.5, 2.0, 2.5, 3.0, 3.5, 4.0]
        """
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            every = lambda digits: [float(m * 10.0**d) for d in decades for m in digits]
            inside = lambda digits: [t for t in every(digits) if self.low <= t <= self.high]
            found = next((t for t in (inside((1, 2, 5)), inside((1,))) if 2 <= len(t) <= wanted + 1), inside((1,)))
            if len(found) > 2 or (len(found) == 2 and self.high / self.low > 10):
                return found[:: math.ceil(len(found) / wanted)]
            # Less than a decade, between two round numbers: steps as on a linear axis.
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / wanted))
        step = next(s * step for s in (1, 2, 5, 10) if (self.high - self.low) / (s * step) <= wanted + 1e-9)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def axis_over(given: ArrayLike, start: float, end: float, *, log: bool = False, room: float = 0.04) -> Axis:
    """An axis that shows all finite values, with a little room on both sides; one value alone gets room as well.

    >>> axis_over([0.0, 1.0], 0, 100, room=0.1)
    Axis(low=-0.1, high=1.1, start=0, end=100, log=False)
    """
    values = np.asarray(given, np.float64)
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.5, 1.0)
    if log:
        by = max((high / low) ** room, 1.05)
        return Axis(low / by, high * by, start, end, True)
    largest = max(abs(low), abs(high))
    by = room * (high - low) if high - low > 1e-6 * largest else 0.1 * largest or 1.0
    return Axis(low - by, high + by, start, end)


def tick(value: float) -> str:
    """A number beside an axis, where there is little room.

    >>> tick(20_000), tick(10_000_000)
    ('20,000', '1e7')
    """
    return number(value) if abs(value) < 1e6 else f"{value:.3g}".replace("e+0", "e").replace("e+", "e")


def frame(x: Axis, y: Axis, x_label: str, y_label: str) -> list[Markup]:
    """Grid lines, ticks and the names of both axes; the vertical name stands above the axis, to be read upright."""
    parts = [label(y_label, x.start - 48, y.end - 16, 12, fill=SOFT)]
    for value, at in zip(y.ticks(), y(y.ticks()), strict=True):
        parts += [line(x.start, at, x.end, at)]
        parts += [label(tick(value), x.start - 6, at + 4, 12, text_anchor="end", fill=SOFT)]
    for value, at in zip(x.ticks(), x(x.ticks()), strict=True):
        parts += [line(at, y.start, at, y.start + 5, SOFT)]
        parts += [label(tick(value), at, y.start + 18, 12, text_anchor="middle", fill=SOFT)]
    parts += [line(x.start, y.start, x.end, y.start, SOFT)]
    return [*parts, label(x_label, (x.start + x.end) / 2, y.start + 36, 12, text_anchor="middle", fill=SOFT)]


def shortened(text: str, most: int = 40) -> str:
    """The text, or its beginning: names are the user's, and a picture has only so much room.

    >>> shortened("a" * 50, 5)
    'aaaa…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def thinned(values: NDArray, most: int) -> NDArray:
    """Which of many values to draw: all, or every so-many-th in their order, from the least to the largest.

    >>> thinned(np.array([3.0, 1.0, 2.0]), 10).tolist()
    [0, 1, 2]
    >>> len(thinned(np.random.default_rng(0).normal(size=20_000), 400))
    400
    """
    if values.size <= most:
        return np.arange(values.size)
    return np.argsort(values, kind="stable")[np.linspace(0, values.size - 1, most).astype(int)]


def legend_of(
    entries: Sequence[tuple[str, int]], width: float, dots: bool = False, filled: Sequence[bool] = ()
) -> tuple[list[Markup], float]:
    """Names beside a piece of their line (or a dot), in as many lines as they need; and where the picture may begin.

    `dots`: all are dots, the first full, others hollow; `filled`: which entries are full dots, the others being lines.
    """
    parts: list[Markup] = []
    at, top = 10.0, 16.0
    for k, (method, style) in enumerate(entries):
        name = shortened(method, 30)
        room = 46 + 7.6 * len(name)  # no font is at hand to measure with: a wide guess
        if at + room > width and at > 10:
            at, top = 10.0, top + 20
        colour, dash = look(style)
        if dots:
            fill = "none" if k else colour
            parts.append(tag("circle", cx=at + 14, cy=top - 4, r=4.5, fill=fill, stroke=colour, stroke_width=1.5))
        elif filled and filled[k]:
            parts.append(dot(style, at + 14, top - 4, 4.5, stroke_width=1.5))
        else:
            parts.append(line(at, top - 4, at + 28, top - 4, colour, stroke_width=2.6, stroke_dasharray=dash or "none"))
        parts.append(label(name, at + 34, top, 13))
        at += room
    return parts, top + 8


def look(style: int) -> tuple[str, str]:
    """Colour and dash: both change from one method to the next, so that neither is needed; 28 pairs differ.

    >>> len({look(style) for style in range(28)})
    28
    """
    return COLOURS[style % len(COLOURS)], DASHES[style % len(DASHES)]


def hollow(style: int) -> bool:
    """Whether dots are hollow: every other time that all colours are used, and begin again."""
    return style // len(COLOURS) % 2 == 1


def square(style: int) -> bool:
    """Whether dots are squares: once all colours are used, full and hollow."""
    return style // (2 * len(COLOURS)) % 2 == 1


def dot(style: int, x: float, y: float, r: float = 3.6, **attributes: Any) -> Markup:
    """A measurement: round or square, full or hollow, in its colour; 28 differ.

    >>> len({dot(style, 0.0, 0.0) for style in range(28)})
    28
    """
    colour = look(style)[0]
    paint = {"fill": "none" if hollow(style) else colour, "stroke": colour, **attributes}
    if square(style):
        return tag("rect", x=x - 0.9 * r, y=y - 0.9 * r, width=1.8 * r, height=1.8 * r, **paint)
    return tag("circle", cx=x, cy=y, r=r, **paint)


def key(style: int) -> Markup:
    """A piece of a method's line, to stand before its name in a table.

    >>> key(1)
    Markup('<span class="key" style="background:repeating-linear-gradient(90deg,#D55E00 0 7px,#fff0 7px 10px)"></span>')
    """
    colour, dash = look(style)
    stops, at = [], 0
    for k, length in enumerate(map(int, dash.split())):
        stops.append(f"{'#fff0' if k % 2 else colour} {at or 0}{'px' * bool(at)} {at + length}px")
        at += length
    paint = f"repeating-linear-gradient(90deg,{','.join(stops)})" if stops else colour
    return tag("span", **{"class": "key", "style": f"background:{paint}"})


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """What a polyline or polygon runs through."""
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)
