"""`apiece theory tradeoff`: what a stronger pull to the centre gains in accuracy and costs in rounds (FedCLUP)."""

import numpy as np

from apiece.predict import Prediction
from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid
from apiece.report.numbers import number
from apiece.theory import clup

HEADS = ("lambda", "error bound", "rounds", "local steps", "gradients", "frontier")


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
    """For each lambda: the proved bound on the squared error, and the rounds and gradients to a relative accuracy.

    `noise` is rho, the standard deviation of a single example's gradient at the client's optimum.

    >>> found = tradeoff(1.0, 0.5, 0.5, 2.0, 100, 10)
    >>> found.numbers["rule"]["lambda"], found.numbers["rule"]["at_least"]
    (0.32, False)
    """
    curves, stats = (smoothness, convexity), (noise**2, examples, examples * clients, radius)
    rule = clup.lam_by_corollary(*curves, *stats)
    lams = np.geomspace(1e-3 * convexity, 1e5 * convexity, 9) if lams is None else np.asarray(lams, float)
    rows = _points(lams, curves, stats, target)
    best = rows["lambda"][int(np.argmin(rows["error_bound"]))]
    numbers = {
        "points": [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)],
        "rule": {"lambda": float(rule.lam), "at_least": bool(rule.at_least)},
        "kappa": smoothness / convexity,
    }
    table = Grid("Accuracy and communication", HEADS, [_cells(*values) for values in zip(*rows.values(), strict=True)])
    side = "at least" if rule.at_least else "at most"
    near = "within" if rule.at_least else "beyond"
    notes = (
        f"Rule: lambda {side} {number(float(rule.lam), 4)}, for the radius is {near} 1/sqrt(n) = "
        f"{number(examples**-0.5, 3)}."
        + (" It is careful: in experiments a lambda 25 times smaller did as well." if rule.at_least else ""),
        f"Of these lambda, {number(best, 3)} has the smallest bound. Bounds are for the worst case: measured errors "
        "are far smaller, and medium lambda are better than their bounds, which are made for the ends.",
        f"rounds, gradients: proved, until the squared distance to the solution is {target:g} of that at the start. "
        "A larger lambda needs more rounds of fewer local steps.",
    )
    return Prediction(numbers, table, _figure(curves, stats, target), notes)


def _points(lams: np.ndarray, curves: tuple, stats: tuple, target: float) -> dict[str, list]:
    found = clup.frontier(lams, *curves, *stats)
    steps = clup.constants(lams, *curves).steps
    rounds = clup.rounds_to(target, lams, *curves)
    # The frontier of what is shown: error bound against rounds to the target.
    dominated = (found.error[:, None] >= found.error) & (rounds[:, None] >= rounds)
    dominated &= (found.error[:, None] > found.error) | (rounds[:, None] > rounds)
    return {
        "lambda": lams.tolist(),
        "error_bound": found.error.tolist(),
        "rounds": rounds.tolist(),
        "local_steps": steps.tolist(),
        "gradients": clup.gradients_to(target, lams, *curves).tolist(),
        "on_frontier": (~dominated.any(axis=1)).tolist(),
    }


def _cells(lam: float, error: float, rounds: float, steps: int, gradients: float, kept: bool) -> list[str]:
    return [*(number(value, 3) for value in (lam, error, rounds, steps, gradients)), "yes" if kept else ""]


def _figure(curves: tuple, stats: tuple, target: float) -> Figure:
    lams = np.geomspace(1e-3 * curves[1], 1e6 * curves[1], 241)
    large, small = clup.statistical_bounds(lams, *curves, *stats)
    points = _points(lams, curves, stats, target)
    names = ("bound for a large lambda", "bound for a small lambda")
    errors = [
        Line(name, lams, np.where(np.isfinite(b), b, np.nan)) for name, b in zip(names, (large, small), strict=True)
    ]
    least = np.minimum(large, small)
    most = 30 * np.median(least)
    errors = [li._replace(y=np.where(np.asarray(li.y) < most, li.y, np.nan)) for li in errors]
    return Figure(
        "Accuracy against communication (FedCLUP)",
        f"L = {number(curves[0])}, mu = {number(curves[1])}; rho = {number(stats[0] ** 0.5)}, {number(stats[1])} "
        f"examples a client of {number(stats[2], 9)} in all, radius {number(stats[3])}. Squared errors; proved bounds, "
        f"not measurements. Rounds and gradients to {target:g} of the starting squared distance.",
        [
            Panel("How accurate", "lambda", "bound on the squared error", errors, log_x=True, log_y=True),
            Panel("How many rounds", "lambda", "rounds", [Line("rounds", lams, points["rounds"])], log_x=True),
            Panel("How much work", "lambda", "gradients a client", [Line("gradients", lams, points["gradients"])],
                  log_x=True),
            Panel("The trade-off", "rounds", "bound on the squared error",
                  [Line("every lambda", points["rounds"], least)], log_y=True),
        ],
    )  # fmt: skip
