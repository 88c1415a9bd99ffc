"""The panels of the cross-silo cases: every client's error, and new clients' against the number of their examples."""

from collections.abc import Sequence

import numpy as np

from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.cross_silo.silos import Silos
from apiece.reproduce.verdict import over_splits

MOST = 200.0  # points; a step size that suits many examples may throw a model far away on one


def clients_panel(silos: Silos, label: str, shown: Sequence[str]) -> Panel:
    """Dots: a client's mean test error over splits, by its training examples, a little aside so that all are seen.

    Very few clients stand side by side instead, in the order of their names.
    """
    place = silos.places[0]
    sizes = np.diff(place.offsets)[: place.population]
    few = place.population <= 6
    lines = []
    some = [method for method in shown if method in silos.methods]
    for style, method in enumerate(some):
        aside = style - (len(some) - 1) / 2
        error = np.nanmean(silos.points(method, each_client=True), axis=0)
        at = np.arange(1, len(sizes) + 1) + 0.07 * aside if few else sizes * 1.035**aside
        lines.append(Line(method, at, error, kind="dots", style=style))
    names = ", ".join(f"{number} {name}" for number, name in enumerate(place.ids[: place.population], 1))
    what = names if few else "training examples of a client (logarithmic)"
    return Panel(f"{silos.name.capitalize()} that train", what, label, lines, log_x=not few)


def newcomers_panel(silos: Silos, counts: Sequence[int], shown: Sequence[str]) -> Panel:
    """Lines with intervals over splits: new clients' test error by how many examples they may use."""
    lines = []
    for style, method in enumerate(method for method in shown if method in silos.methods):
        found = [over_splits(column) for column in silos.newcomers(method).T]
        low, high = (np.array([mean.interval[end] for mean in found]) for end in (0, 1))
        error = np.array([mean.value for mean in found])
        error[error > MOST] = np.nan
        lines.append(Line(method, counts, error, np.clip(low, 0, MOST), np.clip(high, 0, MOST), style=style))
    what = f"training examples of each of {len(silos.places[0].new)} new {silos.name}, at most (logarithmic)"
    return Panel(f"New {silos.name}", what, "test error, points", lines, log_x=True)


def figure_of(panels: Sequence[Panel]) -> Figure:
    """With what must be said about them."""
    caption = (
        "Means over splits; bands: 95 % intervals over splits, widened because splits share rows. All methods are in "
        "the tables. A point is a hundredth of the test examples or, for schools, of the variance of targets; more "
        f"than {MOST:g} points are not drawn."
    )
    return Figure("Cross-silo federations", caption, panels)
