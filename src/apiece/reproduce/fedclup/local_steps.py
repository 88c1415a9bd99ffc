"""What local steps are worth for FedCLUP, and the total error after so many rounds (Corollary 3)."""

from typing import Any

import numpy as np

from apiece.report.figure import Line, Panel
from apiece.reproduce.fedclup.problem import (
    Swept,
    by_theory,
    fed_clup,
    problem,
    prox,
    rounds_until,
    solution,
    swept,
    together,
)
from apiece.reproduce.verdict import Claim, effect, mean_of
from apiece.theory import clup

STEPS, MU, LAMS = (1, 2, 5, 15, 50, 150), 0.02, (0.02, 10.0)
ROUNDS = 300


def local_steps(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """Rounds to 1e-6 of the squared distance at kappa = 50 by the number of local steps, for a small and a large lam.

    The paper's text has more local work pay where personalization is low. By Corollary 2 it is the other way round: the
    steps that are needed grow with (lam + L)/(lam + mu), which is largest for a small lam.
    """
    jobs = {(lam, k): (MU, by_theory(lam, MU) | dict(steps=np.asarray(k))) for lam in LAMS for k in STEPS}
    runs = swept(jobs, seeds, rounds=ROUNDS)
    rounds = {case: rounds_until(run.error(), 1e-6) for case, run in runs.items()}
    saved = {lam: rounds[lam, STEPS[0]] / rounds[lam, STEPS[-1]] for lam in LAMS}
    rows = []
    for lam in LAMS:
        name = f"kappa = 50, lam = {lam:g}: rounds with 1 local step over those with 150"
        rows.append(effect(name, "above 1", mean_of(saved[lam]), above=1, source="theory"))
    more = mean_of(saved[LAMS[1]] / saved[LAMS[0]])
    name = "kappa = 50: local steps save more rounds at lam = 10 than at 0.02: saving there over saving here"
    rows.append(effect(name, "above 1 (text of Figure 2)", more, above=1))
    lines = []
    for style, lam in enumerate(LAMS):
        means = [mean_of(rounds[lam, k]) for k in STEPS]
        low, high = zip(*(mean.interval for mean in means), strict=True)
        lines.append(Line(f"lam = {lam:g}", STEPS, [mean.value for mean in means], low, high, style=style))
    return rows, [Panel("Local steps, kappa = 50", "local steps a round", "rounds to 1e-6", lines, True, True)]


def total_error(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """Corollary 3, corrected: the error after every round is below its bound, whatever the models start from."""
    mu, start, rounds, lams = 0.1, 3.0, 60, (0.1, 1.0, 10.0)
    lam = np.repeat(lams, seeds)
    p = together([problem(s, 6, 30, 5, mu) for _ in lams for s in range(seeds)])
    trace = fed_clup(p, by_theory(lam, mu), rounds, start)
    x_star, w_star = solution(p, lam)
    first = np.sum((start - x_star) ** 2, -1)
    away = np.sum((trace.w[:, 0] - prox(p, lam, np.full_like(x_star, start))) ** 2, -1).mean(-1)
    value = first + clup.lyapunov_weight(lam, 1.0, mu) * away
    statistical = np.sum((w_star - p.truth) ** 2, -1).mean(-1)
    error = np.sum((trace.w - p.truth[:, None]) ** 2, -1).mean(-1)
    counted = np.arange(rounds)[None]  # the models of round t are made from the server's of t - 1
    bound = clup.total_error(counted, lam[:, None], 1.0, mu, value[:, None], statistical[:, None])
    most = float((error / bound).max())
    name = (
        "total error after T rounds below the corrected bound of Corollary 3: largest share, over T, lam, federations"
    )
    return [effect(name, "below 1", most, below=1, source="theory")], []
