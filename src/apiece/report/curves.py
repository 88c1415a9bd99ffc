"""The picture of progress: validation against rounds, or against what was sent."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apiece.report.numbers import number
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
    values = np.concatenate([v for c in curves for v in (c.low, c.high)] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    log = bool(values.size and values.min() > 0 and values.max() / values.min() > 30)
    height = top + 276
    y = axis_over(values, height - 50, top + 30, log=log)
    spread = np.concatenate([c.x for c in curves] or [np.zeros(0)])
    x = axis_over(np.append(spread, 0.0), 58.0, 466.0, room=0.02)._replace(low=0.0)
    parts = [*legend, *frame(x, y, x_label, y_label + (" (logarithmic)" if log else ""))]
    ranges, lines = [], []
    for curve in curves:
        ranges += _range(curve, x, y)
        lines += _line(curve, x, y)
    about = "; ".join(f"{c.method} ends at {number(_last(c.mean))}" for c in curves)
    return picture(name, 480.0, height, f"{y_label} against {x_label}", about, [*parts, *ranges, *lines])


def _few(curve: Curve) -> Curve:
    keep = np.unique(np.linspace(0, len(curve.x) - 1, min(POINTS, len(curve.x))).astype(int))
    return curve._replace(**{part: getattr(curve, part)[keep] for part in ("x", "mean", "low", "high", "error")})


def _range(curve: Curve, x: Axis, y: Axis) -> list[Markup]:
    curve = _few(curve)
    there = np.isfinite(curve.low) & np.isfinite(curve.high)
    if there.sum() < 2 or np.ptp(curve.x) == 0:
        return []
    at = x(curve.x[there])
    edge = zip(np.append(at, at[::-1]), np.append(y(curve.high[there]), y(curve.low[there])[::-1]), strict=True)
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
        level = y.at(curve.mean[-1])
        return [tag("polyline", points=points([(x.start, level), (x.end, level)]), **style)]
    at, mean = x(curve.x), y(curve.mean)
    parts = [tag("polyline", points=points(zip(at[there], mean[there], strict=True)), **style)]
    if there.sum() == 1 or len(curve.x) <= 20:
        pairs = zip(at[there], mean[there], strict=True)
        parts += [tag("circle", cx=float(a), cy=float(b), r=3.0, fill=colour) for a, b in pairs]
    for k in np.flatnonzero(there & (curve.error > 0)):
        low, high = y(curve.mean[k] + curve.error[k] * np.array([-1, 1]))
        parts.append(line(float(at[k]), float(low), float(at[k]), float(high), colour, stroke_width=1.2))
    return parts


def _last(values: NDArray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-1]) if finite.size else math.nan
