"""FedCLUP on linear regression: communication against lam and condition number.

The FedCLUP paper studies, on overdetermined linear regressions, how many rounds and gradients the regularized problem
takes as lam and the condition number kappa grow, and how near the solution is to the true models. Its dimensions are
not published: ours are 10 clients with 60 examples of 8 features and an exact spectrum from 1/kappa to 1, all models
zero at first, the steps of the theory (for the trade-off between rounds and error at most 200 a round). A run is over
when the squared distance of the server's model to the solution is 1e-10 of what it was.

References are numbers of an independent computation; where ours are found on its very federation they must agree,
rounds to one and errors to the digits. The other rows are over several federations. The printed order of the rounds has
its fraction upside down.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from apiece.experiment.train import Watch
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.fedclup import convergence as clup_convergence
from apiece.reproduce.fedclup import local_steps as clup_local_steps
from apiece.reproduce.fedclup import noise as clup_noise
from apiece.reproduce.fedclup import statistics as clup_statistics
from apiece.reproduce.fedclup.problem import Swept, by_theory, rounds_until, swept
from apiece.reproduce.verdict import Claim, Reproduction, effect, mean_of, within
from apiece.theory import clup

Found = tuple[list[Claim], list[Panel]]

LAMS = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0)  # at kappa = 10
KAPPAS, PULLS = (5, 20, 80), (0.1, 0.3, 1.0, 3.0, 10.0)
CASES = [(10, lam) for lam in LAMS] + [(kappa, lam) for kappa in KAPPAS for lam in PULLS]
ROUNDS = {0.01: 18, 0.1: 24, 0.5: 39, 1.0: 49, 5.0: 67, 50.0: 74}
GRADIENTS = {0.01: 1962, 0.1: 1584, 0.5: 1209, 1.0: 1176, 5.0: 1072, 50.0: 1036}
BY_KAPPA = {5: (20, 34, 47), 20: (29, 68, 101), 80: (46, 125, 187)}  # at lam = 0.1, 1, 10
ENOUGH = 1e-10


def run(quick: bool, watch: Watch) -> Reproduction:
    """One sweep of FedCLUP, and then the questions; quick leaves out two that take long to compile."""
    seeds = 3 if quick else 10
    questions = {what: question for what, question in QUESTIONS.items() if not (quick and what in SLOW)}
    watch("sweep over lam and kappa", 0, len(questions) + 1)
    by_case = {(kappa, lam): (1 / kappa, by_theory(lam, 1 / kappa)) for kappa, lam in CASES}
    found = swept(by_case | clup_convergence.JOBS, seeds, rounds=250)
    claims: list[Claim] = []
    panels: list[Panel] = []
    for k, (what, question) in enumerate(questions.items(), 1):
        watch(what, k, len(questions) + 1)
        rows, drawn = question(found, seeds)
        claims, panels = claims + rows, panels + drawn
    settings = dict(federations=seeds, clients=10, examples=60, features=8, radius=0.5, noise=1.0, smoothness=1.0)
    caption = (
        "Dots are means over federations, whiskers their 95% intervals, the other lines geometric means (first panel) "
        "and means (last). The theory's rounds are those of the proved rate: the measured ones grow with them and stay "
        "below."
    )
    return Reproduction(claims, Figure("FedCLUP on linear regression", caption, panels), settings)


def _speed(found: dict[Any, Swept], seeds: int) -> Found:
    rounds = {case: rounds_until(found[case].error(), ENOUGH) for case in CASES}
    steps = {case: int(clup.constants(case[1], 1.0, 1 / case[0]).steps) for case in CASES}
    error = {case: found[case].error() for case in CASES[: len(LAMS)]}
    return _speed_claims(rounds, steps), _speed_panels(rounds, steps, error)


def _speed_claims(rounds: dict[tuple, np.ndarray], steps: dict[tuple, int]) -> list[Claim]:
    rows = []
    for lam, expected in ROUNDS.items():
        case = (10, lam)
        where = f"kappa = 10, lam = {lam:g}"
        rows.append(within(f"{where}: rounds, on the reference's federation", expected, rounds[case][0], by=1,
                           source="reference"))  # fmt: skip
        rows.append(within(f"{where}: gradients a client, on the reference's federation", GRADIENTS[lam],
                           rounds[case][0] * steps[case], by=steps[case], source="reference"))  # fmt: skip
    for kappa, expected_ones in BY_KAPPA.items():
        for lam, expected in zip((0.1, 1.0, 10.0), expected_ones, strict=True):
            name = f"kappa = {kappa}, lam = {lam:g}: rounds, on the reference's federation"
            rows.append(within(name, expected, rounds[kappa, lam][0], by=1, source="reference"))
    growth = lambda cases, cost: np.array([cost(later) / cost(sooner) for sooner, later in cases])
    count, work = (lambda case: rounds[case]), (lambda case: rounds[case] * steps[case])
    by_lam = [((10, a), (10, b)) for a, b in pairwise(LAMS)]
    by_lam += [((k, a), (k, b)) for k in KAPPAS for a, b in pairwise(PULLS)]
    by_kappa = [((a, lam), (b, lam)) for lam in PULLS for a, b in pairwise(KAPPAS)]
    for name, cases, cost in (
        ("rounds grow with lam", by_lam, count),
        ("rounds grow with kappa", by_kappa, count),
        ("gradients a client grow with kappa", by_kappa, work),
    ):
        low = growth(cases, cost).min()
        rows.append(effect(f"{name}: least ratio of neighbours, over all federations", "above 1", float(low), above=1))
    spread = growth([((5, lam), (80, lam)) for lam in PULLS], count)
    more = mean_of(spread[-1] / spread[0])
    least = min((mean_of(ratios) for ratios in spread[1:] / spread[:-1]), key=lambda mean: mean.interval[0])
    name = "kappa matters more for a large lam: growth of rounds from kappa 5 to 80,"
    rows.append(effect(f"{name} at lam = 10 over that at 0.1", "above 1", more, above=1))
    rows.append(effect(f"{name} least ratio of neighbouring lam", "above 1", least, above=1))
    most = max(rounds[k, lam].max() / clup.rounds_to(ENOUGH, lam, 1.0, 1 / k) for k, lam in CASES)
    name = "rounds are at most those of the proved rate: largest share of them"
    rows.append(effect(name, "below 1", float(most), below=1, source="theory"))
    order = lambda lam: (lam + 1.0) / (lam + 0.1)
    ratio = mean_of(rounds[10, 50.0] / rounds[10, 0.01])
    name = "rounds are of the order kappa (lam + L)/(lam + mu), as printed: those at lam = 50 over those at 0.01"
    said = order(50.0) / order(0.01)
    rows.append(effect(f"{name}, up to a factor of 2", said, ratio, above=said / 2, below=2 * said))
    return rows


def _speed_panels(rounds: dict[tuple, np.ndarray], steps: dict[tuple, int], error: dict[tuple, np.ndarray]) -> list:
    fine = np.geomspace(PULLS[0], PULLS[-1], 40)
    paths = []
    for k, lam in enumerate((0.01, 0.1, 1.0, 10.0)):
        left = np.exp(np.log(error[10, lam][:, :80]).mean(0))
        paths.append(Line(f"lam = {lam:g}", np.arange(1, 81), np.where(left > 1e-14, left, np.nan), style=k))
    panels = [Panel("kappa = 10", "round", "squared distance left, share of the start's", paths, log_y=True)]
    for title, cost, theory in (
        ("communication rounds", lambda case: rounds[case], clup.rounds_to),
        ("gradients a client", lambda case: rounds[case] * steps[case], clup.gradients_to),
    ):
        lines = []
        for k, kappa in enumerate(KAPPAS):
            means = [mean_of(cost((kappa, lam))) for lam in PULLS]
            low, high = zip(*(mean.interval for mean in means), strict=True)
            lines += [
                Line(f"kappa = {kappa}", PULLS, [mean.value for mean in means], low, high, "dots", k),
                Line(f"kappa = {kappa}, theory", fine, theory(ENOUGH, fine, 1.0, 1 / kappa), style=k),
            ]
        panels.append(Panel(f"To 1e-10: {title}", "lam", title, lines, log_x=True, log_y=True))
    return panels


SLOW = ("L2GD", "mini-batches")
QUESTIONS: dict[str, Callable[[dict[Any, Swept], int], Found]] = {
    "rounds and gradients": _speed,
    "fixed points": clup_convergence.ends,
    "contraction": clup_convergence.contraction,
    "AL2SGD+": clup_convergence.accelerated,
    "L2GD": clup_convergence.neighbourhood,
    "mini-batches": clup_noise.mini_batches,
    "local steps": clup_local_steps.local_steps,
    "total error": clup_local_steps.total_error,
    "statistical error": clup_statistics.statistics,
    "cold start": clup_statistics.cold_start,
}
