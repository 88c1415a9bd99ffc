"""Which numbers of a run go into which picture, and what must be said beneath it."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apiece.experiment.tables import ClientMeans
from apiece.report.curves import Curve, curves_svg, outside
from apiece.report.gains import DOTS, Strip, gains_svg
from apiece.report.numbers import counted, fixed, number
from apiece.report.outside import in_words
from apiece.report.sizes import Series, sizes_svg
from apiece.report.story import Story
from apiece.report.svg import shortened


class Picture(NamedTuple):
    """A picture and its caption."""

    svg: Markup
    caption: str


def gains_picture(story: Story, standalone: bool = False) -> Picture | None:
    """The gain of every training client over training alone, or None if no method can be compared with `local`."""
    order = [name for name in story.order if name != story.baseline and name in story.clients]
    if not any(np.isfinite(story.clients[name].gain).any() for name in order):
        return None
    strips, most = [], 0
    for name in order:
        clients = story.clients[name]
        old = np.flatnonzero(~clients.new)
        strips.append(Strip(name, clients.gain[old], partial(_gain_hint, clients, old)))
        most = max(most, int(np.isfinite(clients.gain[old]).sum()))
    points = "points of accuracy" if story.metric.percent else "points"
    alone = "alone" if story.baseline == "local" else story.baseline
    drawn = gains_svg(strips, points=points, alone=alone, standalone=standalone)
    return Picture(drawn, _gains_caption(story, order[0], most))


def _gains_caption(story: Story, name: str, most: int) -> str:
    clients = story.clients[name]
    tests = clients.test[~clients.new & (clients.test > 0)]
    caption = "A dot is a client" + (f", its gain the mean over {story.seeds} seeds" if story.seeds > 1 else "")
    caption += ". The bar is the median, the grey box the middle half of the clients."
    if story.record.federation.task == "regression":
        caption += " A point is a hundredth of the variance of the test targets."
    if most > DOTS:
        caption += f" Of {most:,} clients {DOTS} are drawn, evenly in the order of their gains."
    if tests.size:
        median = float(np.median(tests))
        caption += f" The median client has {counted(round(median), 'test example')}"
        caption += f", so one example is {fixed(100 / median)} points" if story.metric.percent else ""
        caption += ": a single dot is mostly noise, the row as a whole is not."
    return caption


def _hint(clients: ClientMeans, i: int, what: str) -> str:
    new = "new client" if clients.new[i] else "client"
    sizes = f"{number(clients.train[i], 9)} training and {number(clients.test[i], 9)} test examples"
    return f"{new} {shortened(clients.ids[i])}: {what}; {sizes}"


def _gain_hint(clients: ClientMeans, old: NDArray, at: int) -> str:
    i = int(old[at])
    return _hint(clients, i, f"{fixed(clients.gain[i], sign=True)} points")


def curve_pictures(story: Story) -> list[Picture]:
    """Validation loss against rounds, and against megabytes sent."""
    if not story.progress:
        return []
    rounds = [curve for curve in (_curve(story, name, sent=False) for name in story.methods) if curve]
    sent = [curve for curve in (_curve(story, name, sent=True) for name in story.methods) if curve]
    error = max((float(np.nanmax(curve.error)) for curve in rounds if np.isfinite(curve.error).any()), default=0.0)
    seeds = f"Line: mean over {story.seeds} seeds; band: least to largest." if story.seeds > 1 else "One seed: no band."
    caption = f"Mean over clients, each counting once. {seeds}"
    if error > 0:
        caption += f" Only a sample of the clients was looked at; whiskers: standard errors, up to {number(error, 2)}."
    gone = [curve.method for curve in rounds if not np.isfinite(curve.mean).all()]
    caption += f" A line ends where a seed diverged ({', '.join(gone)})." if gone else ""
    far = in_words(outside(rounds))
    caption += f" Too far out for the axis, an arrow at its edge: {far.partition(': ')[2]}." if far else ""
    still = [curve.method for curve in sent if not curve.x.any()]
    names = " and ".join(still) + (" sends" if len(still) == 1 else " send")
    other = "The same losses against what was sent, up and down, by all clients together."
    other += f" {names} nothing: drawn across, at the last value." if still else ""
    return [
        Picture(curves_svg("rounds", rounds, "rounds", "validation loss"), caption),
        Picture(curves_svg("sent", sent, "megabytes sent", "validation loss"), other),
    ]


def _curve(story: Story, name: str, sent: bool) -> Curve | None:
    if name not in story.progress:
        return None
    rounds, bytes_sent, mean, least, largest, error = story.progress[name]
    style = list(story.methods).index(name)
    return Curve(name, bytes_sent / 1e6 if sent else rounds, mean, least, largest, error, style)


def sizes_picture(story: Story) -> Picture | None:
    """Test score against training examples: the best method beside training alone."""
    scored = [name for name in story.order if name in story.clients and story.score(name)]
    if not scored:
        return None
    best = story.record.ranking.beside_local or scored[0]
    other = story.baseline if story.baseline in story.methods else "local"
    alone = other if other in scored and best != other else None
    unit = f", {story.metric.unit}" if story.metric.unit else ""
    aside = f"{best} to the left of the client's size, {alone} to the right" if alone else "to the left of their size"
    caption = f"Every training client. Dots stand a little aside so that they can be seen: {aside}."
    if len(story.clients[best].ids) >= 30:
        caption += (
            " Lines: means of six equal groups of clients, by size." if _sizes_differ(story.clients[best]) else ""
        )
    second = _series(story, alone) if alone else None
    return Picture(
        sizes_svg(_series(story, best), second, "training examples", f"test {story.metric.label}{unit}"), caption
    )


def _sizes_differ(clients: ClientMeans) -> bool:
    return np.unique(clients.train[~clients.new]).size >= 6


def _series(story: Story, name: str) -> Series:
    clients, metric = story.clients[name], story.metric
    old = np.flatnonzero(~clients.new)
    write = lambda v: f"{name} {fixed(metric.factor * v)} {metric.unit}" if metric.percent else f"{name} {number(v)}"
    hint = lambda i: _hint(clients, int(old[i]), write(clients.score[old[i]]))
    style = list(story.methods).index(name)
    return Series(name, clients.train[old], metric.factor * clients.score[old], hint, style)


def pictures(story: Story) -> dict[str, Any]:
    """Every picture of the page, by name."""
    return {"gains": gains_picture(story), "curves": curve_pictures(story), "sizes": sizes_picture(story)}
