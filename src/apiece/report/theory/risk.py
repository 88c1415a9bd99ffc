"""`apiece theory risk`: how well seven estimators do when clients have fewer examples than parameters."""

import math
from typing import Any

import numpy as np

from apiece.errors import UserError
from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid
from apiece.report.numbers import number
from apiece.report.theory import Prediction, require
from apiece.theory.asymptotics import IDENTITY, Spectrum, best_lam, risks
from apiece.theory.crossovers import crossover
from apiece.theory.risk import Risk

SHOWN = ("fed_avg", "ftfa", "rtfa", "local", "local_ridge")  # MAML-FL's limit is FTFA's, pFedMe's is RTFA's
RIVALS = (("ftfa", "fed_avg"), ("local", "fed_avg"), ("local_ridge", "ftfa"))


def spectrum_in(text: str) -> Spectrum:
    """A covariance as "s:h,...": eigenvalues with weights; "s:h:g,..." also says where the deviation lies.

    >>> spectrum_in("0.5:0.5,2:0.5").values.tolist()
    [0.5, 2.0]
    """
    parts = [part.split(":") for part in text.split(",")]
    if {len(part) for part in parts} not in ({2}, {3}):
        raise UserError(f"--spectrum {text}: each part is s:h or s:h:g (eigenvalue, weight, share of the deviation)")
    try:
        columns = np.array([[float(value) for value in part] for part in parts]).T
    except ValueError:
        raise UserError(f"--spectrum {text}: s, h and g are numbers") from None
    return Spectrum.of(*columns)


def risk(
    gamma: float,
    radius: float,
    noise: float,
    norm: float | None = None,
    ridge: float | None = None,
    spectrum: Spectrum = IDENTITY,
) -> Prediction:
    """Bias, variance and risk of each estimator, who beats whom where, and how that changes with each quantity.

    >>> found = risk(2.0, 1.0, 1.0, norm=2**0.5)
    >>> found.numbers["lambda_star"], round(found.numbers["methods"]["rtfa"]["risk"], 6)
    (2.0, 0.780776)
    """
    norm = math.hypot(radius, 1.0) if norm is None else norm
    point = {"gamma": gamma, "ridge": ridge, "radius": radius, "noise": noise, "norm": norm}
    require("above 0", gamma=gamma, ridge=ridge)
    require("at least 0", radius=radius, noise=noise, norm=norm)
    found = risks(**point, spectrum=spectrum)
    star = best_lam(gamma, radius, noise, spectrum)
    crossings = _crossings(point, spectrum)
    methods = {name: {"bias": r.bias, "variance": r.variance, "risk": r.total} for name, r in found.items()}
    alone = best_lam(gamma, norm, noise, spectrum)
    settings = point | {"spectrum": [list(map(float, row)) for row in zip(*spectrum, strict=True)]}
    numbers = {"methods": methods, "lambda_star": star, "lambda_star_alone": alone, "noise_crossovers": crossings}
    numbers |= {"settings": settings}
    best = min(found, key=lambda name: float(found[name].total))
    rows = [[name, *(number(value, 4) for value in _parts(r)), _worse(r, found[best])] for name, r in found.items()]
    table = Grid("Risk", ("estimator", "bias", "variance", "risk", "above the best"), rows)
    notes = (
        f"lambda* = {_or_infinite(star)}: the ridge that is best for rtfa and pfedme"
        + (
            f"; used here (local_ridge: its own, {_or_infinite(alone)})."
            if ridge is None
            else f"; here all ridges are {number(ridge, 4)}."
        ),
        *(_told(*pair, crossings["/".join(pair)], point, spectrum) for pair in RIVALS),
        "A limit: many clients, each with n examples of d = gamma n features, everybody trained to convergence.",
    )
    return Prediction(numbers, table, _figure(point, spectrum), notes)


def _or_infinite(value: float) -> str:
    return "infinite" if math.isinf(value) else number(value, 4)


def _parts(r: Risk) -> tuple[float, float, float]:
    return r.bias, r.variance, r.total


def _worse(r: Risk, best: Risk) -> str:
    if r.total <= best.total:
        return ""
    return f"+{100 * (r.total / best.total - 1):.1f} %" if best.total > 0 else f"+{number(r.total, 3)}"


def _crossings(point: dict, spectrum: Spectrum) -> dict[str, float | None]:
    given: dict[str, Any] = {name: value for name, value in point.items() if name != "noise"}
    largest = 100 * max(point["radius"], point["norm"], point["noise"], 1e-3)
    found = {}
    for first, second in RIVALS:
        at = float(crossover(first, second, "noise", (largest * 1e-7, largest), spectrum, **given))
        found[f"{first}/{second}"] = None if math.isnan(at) else at
    return found


def _told(first: str, second: str, at: float | None, point: dict, spectrum: Spectrum) -> str:
    less = risks(**point | {"noise": point["noise"] if at is None else 0.9 * at}, spectrum=spectrum)
    better, worse = (first, second) if less[first].total < less[second].total else (second, first)
    if at is None:
        return f"{better} beats {worse} whatever the noise."
    return f"{better} beats {worse} where the noise is below {number(at, 4)}, {worse} wins above."


def _figure(point: dict, spectrum: Spectrum) -> Figure:
    """Each quantity in turn, the others as given."""
    star = best_lam(point["gamma"], max(point["radius"], 1e-3), max(point["noise"], 1e-3), spectrum)
    middle = point["ridge"] or (star if 0 < star < math.inf else 1.0)
    around = lambda value: np.geomspace(value / 30, value * 30, 121)
    panels = [
        ("gamma", 1 + np.geomspace(0.05, max(20.0, 2 * point["gamma"]), 121), "parameters per example, d / n", True),
        ("noise", np.linspace(0.0, max(2.0, 2 * point["noise"]), 121), "noise (standard deviation)", False),
        ("radius", np.linspace(0.01, max(2.0, 2 * point["radius"]), 121), "radius: distance to the centre", False),
        ("ridge", around(middle), "ridge lambda", True),
    ]
    return Figure(
        "Asymptotic risk: squared error of prediction, without its noise",
        _caption(point),
        [_panel(point, spectrum, name, values, label, log) for name, values, label, log in panels],
    )


def _panel(point: dict, spectrum: Spectrum, name: str, x: np.ndarray, label: str, log: bool) -> Panel:
    varied = point | {name: x}
    if name == "radius":  # the centre stays where it is
        varied["norm"] = np.sqrt(np.maximum(point["norm"] ** 2 - point["radius"] ** 2, 0) + x**2)
    found = risks(**varied, spectrum=spectrum)
    lines = [Line(each, x, found[each].total + 0 * x) for each in SHOWN]
    most = 3 * max(float(np.median(li.y)) for li in lines)  # ridgeless risks are infinite at gamma = 1
    return Panel(
        f"Against {name}",
        label,
        "risk",
        [li._replace(y=np.where(li.y <= most, li.y, np.nan)) for li in lines],
        log_x=log,
    )


def _caption(point: dict) -> str:
    said = ", ".join(f"{name} = {number(value, 4)}" for name, value in point.items() if value is not None)
    ridge = "; ridges at their own lambda* in all but the last panel" if point["ridge"] is None else ""
    return (
        f"Around {said}{ridge}. maml_fl has the limit of ftfa, pfedme that of rtfa. Risks far above the others are cut "
        "off: without a ridge they are infinite where d = n."
    )
