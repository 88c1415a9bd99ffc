"""FFGG and its rivals with equal inner work: tau gradient steps a round for everybody, at the published size.

The paper's figures 1b to 1d have tau = 100, 200 and 500 steps, for FFGG on the private part (Algorithm 2), for Local GD
and Scaffold on everything, and p = 1/tau for L2GD, which then makes tau local steps between two communications on
average. On quadratics tau steps of gradient descent are one linear map, known from eigenvalues: so a round costs a few
products of small matrices, whatever tau and the number of rows are. The maps are those of the library's methods, which
is tested; L2GD's coins are drawn as numbers of local and of averaging steps in a row.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apiece.report.figure import Line, Panel
from apiece.reproduce.ffgg.example import Case, Example
from apiece.reproduce.ffgg.private_quadratics import times
from apiece.reproduce.verdict import Claim, effect, mean_of, within

TAUS, ROUNDS, LAM, SERVER = (100, 200, 500), 1000, 0.1, 0.5
ENDS = {100: (3.16e-3, 1.39e-3), 200: (1.75e-3, 1.38e-3), 500: (7.4e-4, 1.43e-3)}  # FFGG, L2GD after 1000 rounds
NAMES = {"ffgg": "FFGG", "fed_avg": "Local GD", "scaffold": "Scaffold", "l2gd": "L2GD"}


class Turned(NamedTuple):
    """The clients' losses in (theta, w) by their eigenvalues s and eigenvectors q, and their linear parts."""

    s: NDArray
    q: NDArray
    force: NDArray
    top: float

    def slope(self, x: NDArray) -> NDArray:
        """Gradients at models [clients, d] or at one for all [d]."""
        return times(self.q, self.s * self._inside(np.broadcast_to(x, self.force.shape))) - self.force

    def moved(self, slope: NDArray, lr: float, steps: int) -> NDArray:
        """How far so many gradient steps move models whose gradients are these: -(1 - (1 - lr s)^steps)/s of it."""
        along = -np.expm1(steps * np.log1p(-lr * self.s)) / self.s
        return -times(self.q, along * self._inside(slope))

    def _inside(self, x: NDArray) -> NDArray:
        return times(np.swapaxes(self.q, -1, -2), x)


def turned(made: Example) -> Turned:
    """Of the whole losses.

    >>> from apiece.reproduce.ffgg.example import example
    >>> clients = turned(example(30, True, clients=2, shared=3, private=2))
    >>> clients.s.shape, clients.slope(np.zeros(5)).shape
    ((2, 5), (2, 5))
    """
    s, q = np.linalg.eigh(made.curvature)
    return Turned(s, q, made.force, float(s.max()))


def ffgg(problem: Case, tau: int, rounds: int) -> NDArray:
    """theta after every round, [rounds, d]: tau inner steps from w = 0 of size 1/L_ww, and the server's 1/L."""
    f = problem.f
    done = -np.expm1(tau * np.log1p(-f.b / problem.private_smoothness * (1 - 1e-16))) / f.b
    across = np.swapaxes(f.C, -1, -2)
    curvature = (f.P - (f.C * done[:, None]) @ across).mean(0)
    force = (f.t - times(f.C, done * f.r)).mean(0)
    theta, seen = np.zeros(len(force)), []
    for _ in range(rounds):
        theta = theta - (curvature @ theta - force) / problem.smoothness
        seen.append(theta)
    return np.array(seen)


def local_gd(clients: Turned, tau: int, rounds: int) -> NDArray:
    """x after every round: the mean of models after tau steps of 1/(L_f tau)."""
    x, seen = np.zeros(clients.force.shape[1]), []
    for _ in range(rounds):
        x = x + clients.moved(clients.slope(x), 1 / (clients.top * tau), tau).mean(0)
        seen.append(x)
    return np.array(seen)


def scaffold(clients: Turned, tau: int, rounds: int) -> NDArray:
    """x after every round, with control variates from zero and the server's step 1/2."""
    lr = 1 / (clients.top * tau)
    x, own, shared, seen = np.zeros(clients.force.shape[1]), np.zeros_like(clients.force), 0.0, []
    for _ in range(rounds):
        moved = clients.moved(clients.slope(x) - own + shared, lr, tau)
        new = own - shared - moved / (tau * lr)
        x, shared, own = x + SERVER * moved.mean(0), shared + (new - own).mean(0), new
        seen.append(x)
    return np.array(seen)


def l2gd(clients: Turned, tau: int, rounds: int, seed: int) -> NDArray:
    """The mean of the models at every communication, p = 1/tau, lam = 0.1, the step 1/(2 max(L/(1 - p), lam/p))."""
    rng, p = np.random.default_rng(seed), 1 / tau
    step = 1 / (2 * max(clients.top / (1 - p), LAM / p))
    pull, x, seen = step * LAM / p, np.zeros_like(clients.force), []
    for _ in range(rounds):
        x = x + clients.moved(clients.slope(x), step / (1 - p), int(rng.geometric(p)))
        mean = x.mean(0)
        x = mean + (1 - pull) ** int(rng.geometric(1 - p)) * (x - mean)
        seen.append(mean)
    return np.array(seen)


Courses = dict[str, NDArray]  # |F| by method [rounds]; of l2gd [seeds, rounds]


def courses(made: Example, problem: Case, tau: int, rounds: int, seeds: int) -> Courses:
    """|F| after every round."""
    clients, shared = turned(made), problem.j.shape[-1]
    curvature, force = problem.j.mean(0), problem.c.mean(0)
    length = lambda models: np.linalg.norm(models[:, :shared] @ curvature - force, axis=-1)
    return {
        "ffgg": length(ffgg(problem, tau, rounds)),
        "fed_avg": length(local_gd(clients, tau, rounds)),
        "scaffold": length(scaffold(clients, tau, rounds)),
        "l2gd": np.array([length(l2gd(clients, tau, rounds, seed)) for seed in range(seeds)]),
    }


def claims_of(found: dict[int, Courses]) -> list[Claim]:
    """Who ends lowest with the same tau, and the numbers of an independent program."""
    claims = []
    for tau, course in found.items():
        rivals = [course["fed_avg"][-1], course["scaffold"][-1], course["l2gd"][:, -10:].mean(1)]
        best = min(rivals, key=np.mean)
        # L2GD's coins are all that is random: its end is the mean of its last ten communications.
        ratio = mean_of(np.log(np.broadcast_to(course["ffgg"][-1] / best, len(course["l2gd"]))))
        name = f"equal work, tau = {tau}: FFGG ends lowest, log of its |F| over the best rival's after {ROUNDS} rounds"
        claims.append(effect(name, "below 0", ratio, below=0))
        what = f"equal work, tau = {tau}: |F| after {ROUNDS} rounds"
        ours, theirs = ENDS[tau]
        claims.append(within(f"{what}, ffgg, to 1%", ours, float(course["ffgg"][-1]), 0.01, source="reference"))
        pulled = mean_of(course["l2gd"][:, -10:].mean(1))
        name = f"{what}, l2gd, up to a factor of 1.5"
        claims.append(effect(name, theirs, pulled, above=theirs / 1.5, below=1.5 * theirs, source="reference"))
    ends = [float(course["ffgg"][-1]) for course in found.values()]
    most = float(np.max(np.array(ends[1:]) / ends[:-1]))
    name = "equal work: more inner steps end lower, largest ratio of FFGG's |F| to that with fewer"
    return [*claims, effect(name, "below 1", most, below=1)]


def panels(found: dict[int, Courses]) -> list[Panel]:
    """Figures 1b to 1d."""
    drawn = []
    for tau, course in found.items():
        looks = np.arange(10, len(course["ffgg"]) + 1, 10)
        lines = []
        for style, (name, called) in enumerate(NAMES.items()):
            values = course[name][..., looks - 1]
            if values.ndim > 1:
                lines.append(Line(called, looks, values.mean(0), values.min(0), values.max(0), style=style))
            else:
                lines.append(Line(called, looks, values, style=style))
        drawn.append(Panel(f"Equal work, tau = {tau}", "rounds", "|F|", lines, log_y=True))
    return drawn
