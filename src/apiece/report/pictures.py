"""Which numbers of a run go into which picture, and what must be said beneath it."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apiece.report.charts import Curve, Series, Strip, curves_svg, gains_svg, sizes_svg
from apiece.report.findings import beside_local
from apiece.report.gains import DOTS
from apiece.report.numbers import counted, fixed, number
from apiece.report.run import Clients, Run
from apiece.report.svg import shortened


class Figure(NamedTuple):
    """A picture and its caption."""

    svg: Markup
    caption: str


def gains_figure(run: Run, standalone: bool = False) -> Figure | None:
    """The gain of every training client over training alone, or None if no method can be compared with `local`."""
    order = [name for name in run.ordered() if name != "local" and name in run.clients]
    if not any(np.isfinite(run.clients[name].gain).any() for name in order):
        return None
    strips, most = [], 0
    for name in order:
        clients = run.clients[name]
        old = np.flatnonzero(~clients.new)
        strips.append(Strip(name, clients.gain[old], partial(_gain_hint, clients, old)))
        most = max(most, int(np.isfinite(clients.gain[old]).sum()))
    points = "points of accuracy" if run.metric.higher else "points"
    return Figure(gains_svg(strips, points=points, standalone=standalone), _gains_caption(run, order[0], most))


def _gains_caption(run: Run, name: str, most: int) -> str:
    clients = run.clients[name]
    tests = clients.test[~clients.new & (clients.test > 0)]
    caption = "A dot is a client" + (f", its gain the mean over {run.seeds} seeds" if run.seeds > 1 else "")
    caption += ". The bar is the median, the grey box the middle half of the clients."
    caption += "" if run.metric.higher else " A point is a hundredth of the variance of the test targets."
    if most > DOTS:
        caption += f" Of {most:,} clients {DOTS} are drawn, evenly in the order of their gains."
    if tests.size:
        median = float(np.median(tests))
        caption += f" The median client has {counted(round(median), 'test example')}"
        caption += f", so one example is {fixed(100 / median)} points" if run.metric.higher else ""
        caption += ": a single dot is mostly noise, the row as a whole is not."
    return caption


def _hint(clients: Clients, i: int, what: str) -> str:
    new = "new client" if clients.new[i] else "client"
    sizes = f"{number(clients.train[i], 9)} training and {number(clients.test[i], 9)} test examples"
    return f"{new} {shortened(clients.ids[i])}: {what}; {sizes}"


def _gain_hint(clients: Clients, old: NDArray, place: int) -> str:
    i = int(old[place])
    return _hint(clients, i, f"{fixed(clients.gain[i], sign=True)} points")


def curve_figures(run: Run) -> list[Figure]:
    """Validation loss against rounds, and against megabytes sent."""
    if not run.rounds or not len(run.rounds["round"]):
        return []
    rounds = [curve for curve in (_curve(run, name, sent=False) for name in run.methods) if curve]
    sent = [curve for curve in (_curve(run, name, sent=True) for name in run.methods) if curve]
    error = max((float(np.nanmax(curve.error)) for curve in rounds if np.isfinite(curve.error).any()), default=0.0)
    seeds = f"Line: mean over {run.seeds} seeds; band: least to largest." if run.seeds > 1 else "One seed: no band."
    caption = f"Mean over clients, each counting once. {seeds}"
    if error > 0:
        caption += f" Only a sample of the clients was looked at; whiskers: standard errors, up to {number(error, 2)}."
    gone = [name for name in run.methods if not np.isfinite(_losses(run, name)).all()]
    caption += f" A line ends where a seed diverged ({', '.join(gone)})." if gone else ""
    still = [curve.method for curve in sent if not curve.x.any()]
    names = " and ".join(still) + (" sends" if len(still) == 1 else " send")
    other = "The same losses against what was sent, up and down, by all clients together."
    other += f" {names} nothing: drawn across, at the last value." if still else ""
    return [
        Figure(curves_svg("rounds", rounds, "rounds", "validation loss"), caption),
        Figure(curves_svg("sent", sent, "megabytes sent", "validation loss"), other),
    ]


def _losses(run: Run, name: str) -> NDArray:
    return run.rounds["validation_loss"][run.rounds["method"] == name]


def _curve(run: Run, name: str, sent: bool) -> Curve | None:
    mine = run.rounds["method"] == name
    if not mine.any():
        return None
    at = run.rounds["round"][mine]
    loss, error = _losses(run, name), run.rounds["sampling_error"][mine]
    sending = (run.rounds["bytes_up"][mine] + run.rounds["bytes_down"][mine]) / 1e6
    rows = [at == r for r in np.unique(at)]
    reduce = lambda how, values: np.array([how(values[row]) for row in rows])
    x = reduce(np.mean, sending) if sent else np.unique(at).astype(np.float64)
    seeds = reduce(len, loss)
    return Curve(
        name,
        x,
        reduce(np.mean, loss),
        reduce(np.min, loss),
        reduce(np.max, loss),
        # Seeds look at samples of their own, so that their errors are independent.
        np.sqrt(reduce(np.sum, error**2)) / seeds,
        list(run.methods).index(name),
    )


def sizes_figure(run: Run) -> Figure | None:
    """Test score against training examples: the best method beside training alone."""
    scored = [name for name in run.ordered() if name in run.clients and run.score(name)]
    if not scored:
        return None
    best = beside_local(run) or scored[0]
    alone = "local" if "local" in scored and best != "local" else None
    unit = f", {run.metric.unit}" if run.metric.unit else ""
    aside = f"{best} to the left of the client's size, {alone} to the right" if alone else "to the left of their size"
    caption = f"Every training client. Dots stand a little aside so that they can be seen: {aside}."
    if len(run.clients[best].ids) >= 30:
        caption += " Lines: means of six equal groups of clients, by size." if _sizes_differ(run.clients[best]) else ""
    second = _series(run, alone) if alone else None
    return Figure(sizes_svg(_series(run, best), second, "training examples", f"test {run.metric.label}{unit}"), caption)


def _sizes_differ(clients: Clients) -> bool:
    return np.unique(clients.train[~clients.new]).size >= 6


def _series(run: Run, name: str) -> Series:
    clients, metric = run.clients[name], run.metric
    old = np.flatnonzero(~clients.new)
    write = lambda v: f"{name} {fixed(metric.factor * v)} {metric.unit}" if metric.higher else f"{name} {number(v)}"
    hint = lambda i: _hint(clients, int(old[i]), write(clients.score[old[i]]))
    return Series(name, clients.train[old], metric.factor * clients.score[old], hint)


def figures(run: Run) -> dict[str, Any]:
    """Every picture of the page, by name."""
    return {"gains": gains_figure(run), "curves": curve_figures(run), "sizes": sizes_figure(run)}
