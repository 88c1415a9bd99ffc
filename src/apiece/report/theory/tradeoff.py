"""`apiece theory tradeoff`: what a stronger pull to the centre gains in accuracy and costs in rounds (FedCLUP)."""

import numpy as np

from apiece.errors import UserError
from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid
from apiece.report.numbers import number
from apiece.report.theory import Prediction, require
from apiece.theory import clup

HEADS = ("lambda", "error", "bound", "rounds", "local steps", "gradients", "frontier")


def tradeoff(
    smoothness: float,
    convexity: float,
    radius: float,
    noise: float,
    examples: float,
    clients: float,
    target: float = 1e-6,
    lams: np.ndarray | None = None,
) -> Prediction:
    """For each lambda: the squared error of clients whose losses have one curvature, the bound for any, and the rounds.

    `noise` is rho, the standard deviation of a single example's gradient at the client's optimum.

    >>> found = tradeoff(1.0, 0.5, 0.5, 2.0, 100, 10)
    >>> found.numbers["rule"]["lambda"], found.numbers["rule"]["at_least"]
    (0.32, False)
    """
    require("above 0", smoothness=smoothness, convexity=convexity, target=target)
    require("at least 0", radius=radius, noise=noise)
    require("at least 1", examples=examples, clients=clients)
    if target >= 1:
        raise UserError(f"--target {target:g}: a share of the starting squared distance, below 1")
    if lams is not None and not (np.asarray(lams) > 0).all():
        raise UserError("--lams: every lambda must be above 0")
    curves, stats = (smoothness, convexity), (noise**2, examples, examples * clients, radius)
    rule = clup.lam_by_corollary(*curves, *stats)
    lams = np.geomspace(1e-3 * convexity, 1e5 * convexity, 9) if lams is None else np.asarray(lams, float)
    rows = _points(lams, curves, stats, target)
    best = (1 - 1 / clients) * noise**2 / (convexity * examples * radius**2) if radius > 0 else float("inf")
    numbers = {
        "points": [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)],
        "rule": {"lambda": float(rule.lam), "at_least": bool(rule.at_least)},
        "best_lambda": best,
        "kappa": smoothness / convexity,
        "settings": {
            "smoothness": smoothness, "convexity": convexity, "radius": radius, "noise": noise, "examples": examples,
            "clients": clients, "target": target,
        },
    }  # fmt: skip
    table = Grid("Accuracy and communication", HEADS, [_cells(*values) for values in zip(*rows.values(), strict=True)])
    told = "infinity" if np.isinf(best) else number(best, 3)
    side = "at least" if rule.at_least else "at most"
    near = "within" if rule.at_least else "beyond"
    notes = (
        f"Rule: lambda {side} {number(float(rule.lam), 4)}, for the radius is {near} 1/sqrt(n) = "
        f"{number(examples**-0.5, 3)}."
        + (" It is careful: in experiments a lambda 25 times smaller came within a tenth." if rule.at_least else ""),
        f"error: exact if all losses are quadratic with curvature mu; least at lambda = {told}. bound: "
        "proved for any losses between mu and L, far from tight, and made for the ends, not the middle.",
        "frontier: no other lambda of the table has both a smaller error and fewer rounds.",
        f"rounds, gradients: proved, until the squared distance to the solution is {target:g} of that at the start. "
        "A larger lambda needs more rounds of fewer local steps.",
    )
    return Prediction(numbers, table, _figure(curves, stats, target), notes)


def _points(lams: np.ndarray, curves: tuple, stats: tuple, target: float) -> dict[str, list]:
    error = clup.error_if_alike(lams, curves[1], *stats)
    steps = clup.constants(lams, *curves).steps
    rounds = clup.rounds_to(target, lams, *curves)
    return {
        "lambda": lams.tolist(),
        "error": error.tolist(),
        "bound": np.minimum(*clup.statistical_bounds(lams, *curves, *stats)).tolist(),
        "rounds": rounds.tolist(),
        "local_steps": steps.tolist(),
        "gradients": clup.gradients_to(target, lams, *curves).tolist(),
        "on_frontier": clup.undominated(error, rounds).tolist(),
    }


def _cells(*values: float) -> list[str]:
    return [*(number(value, 3) for value in values[:-1]), "yes" if values[-1] else ""]


def _figure(curves: tuple, stats: tuple, target: float) -> Figure:
    lams = np.geomspace(1e-3 * curves[1], 1e6 * curves[1], 241)
    points = _points(lams, curves, stats, target)
    error, rounds = np.array(points["error"]), np.array(points["rounds"])
    large, small = clup.statistical_bounds(lams, *curves, *stats)
    tight = 1000 * error.max()
    kept = np.array(points["on_frontier"])
    label = "squared error"
    return Figure(
        "Accuracy against communication (FedCLUP)",
        f"L = {number(curves[0])}, mu = {number(curves[1])}; rho = {number(stats[0] ** 0.5)}, {number(stats[1])} "
        f"examples a client of {number(stats[2], 9)} in all, radius {number(stats[3])}. The error is exact for "
        f"quadratic losses of one curvature mu; bounds hold for all. Rounds and gradients are proved, to {target:g} of "
        "the starting squared distance; both are whole numbers, hence the steps.",
        [
            Panel("How accurate", "lambda", label, [
                Line("error, one curvature", lams, error),
                Line("bound, small lambda", lams, np.where(small < tight, small, np.nan)),
                Line("bound, large lambda", lams, np.where(large < tight, large, np.nan)),
            ], log_x=True, log_y=True),
            Panel("How many rounds", "lambda", "rounds", [Line("rounds", lams, rounds)], log_x=True),
            Panel("How much work", "lambda", "gradients a client", [Line("gradients", lams, points["gradients"])],
                  log_x=True),
            Panel("The trade-off", "rounds", label, [
                Line("every lambda", rounds, error),
                Line("frontier", rounds[kept], error[kept], kind="dots"),
            ], log_y=True),
        ],
    )  # fmt: skip
