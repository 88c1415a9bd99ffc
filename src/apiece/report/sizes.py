"""The picture of small and large clients: score against training examples."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apiece.report.numbers import counted
from apiece.report.outside import edge_marks, far_out, farthest, held, within
from apiece.report.svg import Axis, axis_over, frame, legend_of, look, picture, points, tag, thinned

DOTS = 400  # a method


class Series(NamedTuple):
    """One method's clients in the picture of sizes."""

    method: str
    sizes: NDArray
    values: NDArray
    hint: Callable[[int], str]  # for the few that are drawn
    style: int = 0  # place among the colours, the same in every picture


def sizes_svg(first: Series, second: Series | None, x_label: str, y_label: str) -> Markup:
    """Each client's score against how much it has to train on, for one method or two, with means of groups of clients.

    >>> dots = Series("ditto", np.array([10.0, 20.0]), np.array([0.5, 0.7]), str)
    >>> sizes_svg(dots, None, "training examples", "accuracy").count("<circle")
    3
    """
    both = [series for series in (first, second) if series is not None]
    legend, top = legend_of([(series.method, series.style) for series in both], 540.0, dots=True)
    sizes = np.concatenate([series.sizes for series in both])
    values = np.concatenate([series.values for series in both])
    sizes = sizes[np.isfinite(values) & (sizes > 0)]
    log = bool(sizes.size and sizes.max() / sizes.min() > 20)
    height = top + 320
    x = axis_over(sizes, 58.0, 528.0, log=log)
    if not log and sizes.size:  # a federation of equals: no axis of half examples
        x = x._replace(low=min(x.low, sizes.min() - 2), high=max(x.high, sizes.max() + 2))
    usual = [np.quantile(s.values[np.isfinite(s.values)], [0.05, 0.95]) for s in both if np.isfinite(s.values).any()]
    y = axis_over(within(values, farthest(usual)), height - 50, top + 30)
    parts = [*legend, *frame(x, y, x_label + (" (logarithmic)" if log else ""), y_label)]
    drawn = [part for k, series in enumerate(both) for part in _scatter(series, x, y, hollow=k > 0)]
    drawn += [part for series in both for part in _grouped(series, x, y)]
    far = far_out([(series.method, series.style, series.values) for series in both], y)
    places = {series.method: (series.sizes, series.values) for series in both}
    parts += [*drawn, *edge_marks(far, places, x, y)]
    about = f"{' and '.join(series.method for series in both)}, {counted(len(first.sizes), 'client')}"
    return picture("sizes", 540.0, height, f"{y_label} against {x_label}", about, parts)


def _scatter(series: Series, x: Axis, y: Axis, hollow: bool) -> list[Markup]:
    there = np.flatnonzero((series.values >= y.low) & (series.values <= y.high))
    there = there[np.sort(thinned(series.values[there], DOTS))]
    colour = look(series.style)[0]
    paint = {"fill": "none" if hollow else colour, "fill_opacity": 0.5, "stroke": colour, "stroke_width": 1.2}
    # Scores of few test examples coincide: a step to the side, the same at every drawing, lets each be seen. Where
    # sizes are few there is room for more: the first method goes to the left, the second to the right.
    places = x(np.unique(series.sizes))
    room = 0.45 * float(np.min(np.diff(places), initial=160.0)) if len(places) <= 8 else 6.0
    aside = np.random.default_rng(0).uniform(1, max(room, 6.0), len(series.values)) * (1 if hollow else -1)
    at = np.clip(x(series.sizes) + aside, x.start, x.end)
    return [
        tag("circle", tag("title", series.hint(int(i))), cx=float(at[i]), cy=y.at(series.values[i]), r=3.5, **paint)
        for i in there
    ]


def _grouped(series: Series, x: Axis, y: Axis, groups: int = 6) -> list[Markup]:
    """A line through the means of groups of clients of like size: what the eye cannot average."""
    there = np.flatnonzero(np.isfinite(series.values) & (series.sizes > 0))
    if there.size < 5 * groups or np.unique(series.sizes[there]).size < groups:
        return []
    parts = np.array_split(there[np.argsort(series.sizes[there], kind="stable")], groups)
    at = x([np.median(series.sizes[part]) for part in parts])
    mean = held(y, [series.values[part].mean() for part in parts])
    through = points(zip(at, mean, strict=True))
    under = tag("polyline", points=through, fill="none", stroke="#ffffff", stroke_width=6.0)
    return [under, tag("polyline", points=through, fill="none", stroke=look(series.style)[0], stroke_width=3.0)]
