"""How near FedCLUP's models are to the true ones: against the bounds, and against rounds from a cold start."""

from typing import Any

import numpy as np

from apiece.report.figure import Line, Panel
from apiece.reproduce.fedclup.problem import (
    Problem,
    Swept,
    by_theory,
    fed_clup,
    pooled,
    problem,
    rounds_until,
    together,
)
from apiece.reproduce.verdict import Claim, effect, mean_of, ratio_of, stated, weakest, within
from apiece.theory import clup

PULLS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
ERRORS = {  # of the reference, by radius, at these lam
    0.02: (0.18248, 0.14408, 0.03843, 0.00916, 0.00841, 0.00840),
    0.5: (0.18236, 0.14474, 0.07190, 0.09751, 0.10888, 0.11022),
}
FEDERATIONS, CLIENTS, EXAMPLES, FEATURES, MU = 20, 20, 40, 5, 0.5

COLD = {0.01: (1.80, 1.33, 1.32, 1.32), 0.2: (6.90, 0.969, 0.142, 0.140), 10.0: (14.8, 4.78, 0.123, 0.0381)}
COLD_ROUNDS, GRID, TARGETS = (1, 5, 20, 150), (0.01, 0.05, 0.2, 1.0, 10.0), (2.0, 0.7, 0.3, 0.1, 0.045)


def statistics(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """|w_i - w*_i|^2 of the solution: the bounds, the monotone way from alone to pooled, and Corollary 1's rules.

    The federations are the reference's twenty, whatever the number of seeds: they are cheap.
    """
    rho2 = float(np.geomspace(MU, 1.0, FEATURES).sum())  # E|x noise|^2, the trace of X'X/n
    total = CLIENTS * EXAMPLES
    rule = {r: float(clup.lam_by_corollary(1.0, MU, rho2, EXAMPLES, total, r).lam) for r in ERRORS}
    cases = [(r, lam) for r in ERRORS for lam in (*PULLS, rule[r])]
    drawn = {r: [problem(s, CLIENTS, EXAMPLES, FEATURES, MU, r) for s in range(FEDERATIONS)] for r in ERRORS}
    p = together([one for r, _ in cases for one in drawn[r]])
    lam = np.repeat([lam for _, lam in cases], FEDERATIONS)
    models = fed_clup(p, by_theory(lam, MU), rounds=60).w[:, -1]
    error = _error(models, p).reshape(len(ERRORS), -1, FEDERATIONS)
    rows, shares = [], []
    for k, (r, expected) in enumerate(ERRORS.items()):
        for j, value in enumerate(expected):
            name = f"radius {r}, lam = {PULLS[j]:g}: squared error of the solution, on the reference's federations"
            rows.append(within(name, value, float(error[k, j].mean()), 0.005, source="reference"))
        bound = np.minimum(*clup.statistical_bounds(PULLS, 1.0, MU, rho2, EXAMPLES, total, r))
        shares.append(error[k, : len(PULLS)].mean(1) / bound)
    most = float(np.max(shares))
    rows.append(effect("squared errors are below the statistical bounds: largest share", "below 1", most, below=1))
    least = weakest([mean_of(fall) for fall in -np.diff(error[0, : len(PULLS)], axis=0)])
    name = "alike clients (radius 0.02): the error falls all the way as lam grows: least fall between neighbours"
    rows.append(effect(name, "above 0", least, above=0))
    every = together(drawn[0.02])
    shared = _error(np.broadcast_to(pooled(every)[:, None], every.b.shape), every)
    above = lambda j: mean_of((error[0, j] - shared) / shared.mean())
    name = f"alike clients: Corollary 1's lam = {rule[0.02]:.1f} suffices: error above the pooled model's, share of it"
    rows.append(effect(name, "below 0.02", above(-1), below=0.02, source="here"))
    name = "alike clients: lam = 10, far below the rule, nearly does: error above the pooled model's, share of it"
    nearly = ERRORS[0.02][3] / ERRORS[0.02][-1] - 1
    rows.append(within(name, nearly, above(3).value, by=0.005, source="reference"))
    best = int(np.argmin(error[1, : len(PULLS)].mean(1)))
    ratio = ratio_of(error[1, -1], error[1, best])
    name = (
        f"distant clients (radius 0.5): Corollary 1's lam = {rule[0.5]:.2f} is good: error over the least on the grid"
    )
    rows.append(effect(name, "below 1.1", ratio, below=1.1, source="here"))
    return rows, []


def cold_start(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """The error against rounds when all models are zero at first: every target error has a lam of its own."""
    mu, reference = 0.02, 3
    which = [reference, *(s for s in range(seeds) if s != reference)]
    p = together([problem(s, 20, 60, 8, mu, radius=0.1) for _ in GRID for s in which])
    options = by_theory(np.repeat(GRID, len(which)), mu)
    options["steps"] = np.minimum(options["steps"], 200)
    trace = fed_clup(p, options, rounds=COLD_ROUNDS[-1])
    error = _error(trace.w, Problem(p.h, p.b, p.truth[:, None])).reshape(len(GRID), len(which), -1)
    rows = []
    for lam, expected in COLD.items():
        for at, value in zip(COLD_ROUNDS, expected, strict=True):
            name = f"cold start, lam = {lam:g}: squared error after round {at}, on the reference's federation"
            rows.append(within(name, value, error[GRID.index(lam), 0, at - 1], 0.005, source="reference"))
    mean = error.mean(1)
    needed = np.stack([rounds_until(mean, target) for target in TARGETS])
    best = [GRID[int(np.argmin(row))] for row in needed]
    name = f"cold start: each target error has a lam that needs fewest rounds (targets {', '.join(map(str, TARGETS))})"
    right = len(set(best)) >= 3 and best == sorted(best) and bool(np.isfinite(needed.min(1)).all())
    rows.append(stated(name, "a larger one for a smaller target", ", ".join(f"{lam:g}" for lam in best), right))
    places = np.arange(1, COLD_ROUNDS[-1] + 1)
    lines = [Line(f"lam = {lam:g}", places, mean[k], style=k) for k, lam in enumerate(GRID)]
    return rows, [Panel("Cold start, kappa = 50", "round", "squared error of the clients' models", lines, True, True)]


def _error(models: np.ndarray, p: Problem) -> np.ndarray:
    """The mean over clients of |w_i - w*_i|^2."""
    return np.sum((models - p.truth) ** 2, -1).mean(-1)
