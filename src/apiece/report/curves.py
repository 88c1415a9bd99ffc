"""The picture of progress: validation against rounds, or against what was sent."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apiece.report.numbers import number
from apiece.report.outside import Far, edge_marks, far_out, farthest, held, pieces, within
from apiece.report.svg import Axis, axis_over, frame, legend_of, line, look, picture, points, tag

POINTS = 150  # a curve


class Curve(NamedTuple):
    """One method's curve: mean, least and largest over seeds, and the standard error of the mean from sampling."""

    method: str
    x: NDArray
    mean: NDArray
    low: NDArray
    high: NDArray
    error: NDArray
    style: int  # place among the colours and dashes, the same in every picture


def curves_svg(name: str, curves: Sequence[Curve], x_label: str, y_label: str) -> Markup:
    """Curves with the range over seeds behind them, and whiskers where a sample of clients was looked at.

    A curve that never moves along x (a method that sends nothing) is drawn across, at its last value.

    >>> flat = np.array([1.0, 2.0])
    >>> curve = Curve("ditto", flat, flat, flat, flat, 0 * flat, 0)
    >>> curves_svg("loss", [curve], "rounds", "loss").count("<polyline")
    1
    """
    legend, top = legend_of([(c.method, c.style) for c in curves], 480.0)
    height = top + 276
    y = _upwards(curves, height - 50, top + 30)
    spread = np.concatenate([c.x for c in curves] or [np.zeros(0)])
    x = axis_over(np.append(spread, 0.0), 58.0, 466.0, room=0.02)._replace(low=0.0)
    parts = [*legend, *frame(x, y, x_label, y_label + (" (logarithmic)" if y.log else ""))]
    ranges, lines = [], []
    for curve in curves:
        ranges += _range(curve, x, y)
        lines += _line(curve, x, y)
    places = {c.method: (c.x, c.mean) for c in curves}
    drawn = [*ranges, *lines, *edge_marks(outside(curves), places, x, y)]
    about = "; ".join(f"{c.method} ends at {number(_last(c.mean))}" for c in curves)
    return picture(name, 480.0, height, f"{y_label} against {x_label}", about, [*parts, *drawn])


def outside(curves: Sequence[Curve]) -> list[Far]:
    """The curves that leave the axis, which follows the sensible ones."""
    return far_out([(c.method, c.style, c.mean) for c in curves], _upwards(curves, 0.0, 1.0))


def _upwards(curves: Sequence[Curve], start: float, end: float) -> Axis:
    """The axis of what is shown: ten times what half of the curves keep within, and where sensible ones come from."""
    ends = [c for c in curves if c.mean.size and np.isfinite(c.mean[-1])]  # who diverged is no measure
    limit = farthest([c.mean for c in ends or curves], 10.0)
    most = lambda c: 10 * limit if abs(_last(c.mean)) <= limit else limit
    values = np.concatenate([within(v, most(c)) for c in curves for v in (c.low, c.high)] or [np.zeros(0)])
    log = bool(values.size and values.min() > 0 and values.max() / values.min() > 30)
    return axis_over(values, start, end, log=log)


def _few(curve: Curve) -> Curve:
    keep = np.unique(np.linspace(0, len(curve.x) - 1, min(POINTS, len(curve.x))).astype(int))
    return curve._replace(**{part: getattr(curve, part)[keep] for part in ("x", "mean", "low", "high", "error")})


def _range(curve: Curve, x: Axis, y: Axis) -> list[Markup]:
    curve = _few(curve)
    there = np.isfinite(curve.low) & np.isfinite(curve.high)
    if there.sum() < 2 or np.ptp(curve.x) == 0:
        return []
    at = x(curve.x[there])
    edge = zip(np.append(at, at[::-1]), held(y, np.append(curve.high[there], curve.low[there][::-1])), strict=True)
    return [tag("polygon", points=points(edge), fill=look(curve.style)[0], fill_opacity=0.12)]


def _line(curve: Curve, x: Axis, y: Axis) -> list[Markup]:
    curve = _few(curve)
    there = np.isfinite(curve.mean)
    if not there.any():
        return []
    colour, dash = look(curve.style)
    style = {"fill": "none", "stroke": colour, "stroke_width": 2.2, "stroke_dasharray": dash or "none"}
    if np.ptp(curve.x) == 0 and not curve.x.any():
        if not there[-1]:
            return []
        level = float(held(y, curve.mean)[-1])
        return [tag("polyline", points=points([(x.start, level), (x.end, level)]), **style)]
    at, mean = x(curve.x), held(y, curve.mean)
    pairs = list(zip(at[there].tolist(), mean[there].tolist(), strict=True))
    runs = pieces(y, curve.mean[there])
    parts = [tag("polyline", points=points(pairs[k] for k in run), **style) for run in runs]
    if there.sum() == 1 or len(curve.x) <= 20:
        inside = (curve.mean[there] >= y.low) & (curve.mean[there] <= y.high)
        parts += [tag("circle", cx=pairs[k][0], cy=pairs[k][1], r=3.0, fill=colour) for k in np.flatnonzero(inside)]
    for k in np.flatnonzero(there & (curve.error > 0)):
        low, high = held(y, curve.mean[k] + curve.error[k] * np.array([-1, 1]))
        parts.append(line(float(at[k]), float(low), float(at[k]), float(high), colour, stroke_width=1.2))
    return parts


def _last(values: NDArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else math.nan
