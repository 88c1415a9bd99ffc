"""Where FedCLUP ends, how fast each round contracts, and what L2GD and AL2SGD+ need for the same problem."""

from typing import Any

import numpy as np

from apiece.report.figure import Panel
from apiece.reproduce.fedclup.problem import (
    Problem,
    Swept,
    al2sgd,
    by_theory,
    fed_clup,
    l2gd,
    pooled,
    problem,
    prox,
    rounds_until,
    solution,
    together,
)
from apiece.reproduce.verdict import Claim, Mean, effect, mean_of, within
from apiece.theory import clup

MU = 0.1
SERVERS = {"1/L_g, of the paper's experiments": (1.0, 22), "1.9/L_g, beyond the proof": (1.9, 9)}
JOBS = (
    {f"{k} steps": (MU, by_theory(0.5, MU) | dict(steps=np.asarray(k))) for k in (1, 2, 5)}
    | {f"lam = {lam}": (MU, by_theory(float(lam), MU)) for lam in ("1e-4", "1e4")}
    | {f"server step {name}": (MU, by_theory(1.0, MU, step)) for name, (step, _) in SERVERS.items()}
)


def ends(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """Any number of local steps, a very small and a very large lam, and larger steps of the server."""

    def away(label: str, expected: np.ndarray) -> float:
        return float(np.linalg.norm(found[label].trace.w[:, -1] - expected, axis=-1).max())

    rows = []
    for k in (1, 2, 5):
        distance = away(f"{k} steps", found[f"{k} steps"].w)
        name = f"{k} local step{'s' * (k > 1)} a round, lam = 0.5: distance of the end to the exact solution"
        rows.append(within(name, 0.0, distance, by=1e-7, source="theory"))
    p: Problem = found["lam = 1e4"].p
    limits = {
        "lam = 1e-4": ("the clients' own optima", np.linalg.solve(p.h, p.b[..., None])[..., 0], 2e-3),
        "lam = 1e4": ("the pooled optimum", pooled(p)[:, None], 2e-4),
    }
    for label, (what, expected, most) in limits.items():
        distance = away(label, expected)
        name = f"{label}: distance of the end to {what}"
        rows.append(effect(name, f"below {most:g}", distance, below=most, source="theory"))
    for server, (_, rounds) in SERVERS.items():
        name = f"kappa = 10, lam = 1, server step {server}: rounds, on the reference's federation"
        ours = rounds_until(found[f"server step {server}"].error()[0], 1e-10)
        rows.append(within(name, rounds, ours, by=1, source="reference"))
    return rows, []


MEASURED = {0.01: 0.265, 0.1: 0.398, 1.0: 0.680, 10.0: 0.766}  # the reference's largest ratio


def contraction(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """The Lyapunov function |x - x*|^2 + c mean_i |w_i - prox_i(x)|^2 shrinks in every round by the proved rate."""
    start, rounds = 3.0, 25
    lam = np.repeat(list(MEASURED), seeds)
    p = together([problem(s, 6, 30, 5, MU) for _ in MEASURED for s in range(seeds)])
    trace = fed_clup(p, by_theory(lam, MU), rounds, start)
    x_star, _ = solution(p, lam)
    # The w of a round stand beside the x they were made from.
    x = np.concatenate([np.full_like(trace.x[:, :1], start), trace.x[:, :-1]], axis=1)
    made = np.stack([prox(p, lam, x[:, r]) for r in range(rounds)], axis=1)
    away = np.sum((trace.w - made) ** 2, -1).mean(-1)
    value = np.sum((x - x_star[:, None]) ** 2, -1) + clup.lyapunov_weight(lam, 1.0, MU)[:, None] * away
    above_rounding = value[:, 1:] > 1e-24 * value[:, :1]
    largest = np.max(np.where(above_rounding, value[:, 1:] / value[:, :-1], 0), axis=1).reshape(-1, seeds)
    rows = []
    for (pull, expected), ratios in zip(MEASURED.items(), largest, strict=True):
        proved = float(clup.rate(pull, 1.0, MU))
        name = f"lam = {pull:g}: largest contraction factor of a round, over all federations; at most the proved rate"
        rows.append(effect(name, proved, float(ratios.max()), below=proved, source="theory"))
        name = f"lam = {pull:g}: largest contraction factor of a round, on the reference's federation"
        rows.append(within(name, expected, ratios[0], 0.01, source="reference"))
    return rows, []


RIVALS = {0.1: (329, 50, 18), 1.0: (188, 96, 38)}  # iterations and communications of AL2SGD+, rounds of FedCLUP


def accelerated(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """The same problem by AL2SGD+, with coins of its own, to 1e-8 of the clients' error."""
    p, lams = _of_rivals(found, seeds)
    fast = al2sgd(p, lams, 500, MU)
    rows = []
    for k, lam in enumerate(RIVALS):
        one, mine = found[10, lam], slice(k * seeds, (k + 1) * seeds)
        rounds, taken = (rounds_until(_error(w, one), 1e-8) for w in (one.trace.w, fast.w[mine]))
        rows += _needed(lam, rounds, taken, fast.communications[mine])
    return rows, []


def neighbourhood(found: dict[Any, Swept], seeds: int) -> tuple[list[Claim], list[Panel]]:
    """The same problem by L2GD, with coins of its own: the error stays where it is, far above FedCLUP's."""
    p, lams = _of_rivals(found, seeds)
    slow = l2gd(p, lams, 150)
    rows = []
    for k, lam in enumerate(RIVALS):
        error = _error(slow.w[k * seeds : (k + 1) * seeds], found[10, lam])
        # In logarithms: the coins spread the errors over a power of ten.
        logs = np.log(error.reshape(seeds, 3, 50).mean(-1))
        after = mean_of(logs[:, 2])
        name = f"lam = {lam:g}: l2gd stops in a neighbourhood: its error in rounds 101 to 150, share of the start's"
        rows.append(effect(f"{name}, above 1e-5", "above 0", _risen(after), above=1e-5, source="theory"))
        ratio = mean_of(logs[:, 2] - logs[:, 1])
        name = f"lam = {lam:g}: l2gd stops in a neighbourhood: error in rounds 101 to 150 over that in 51 to 100"
        rows.append(effect(f"{name}, above a third", 1.0, _risen(ratio), above=1 / 3, source="theory"))
    return rows, []


def _risen(logs: Mean) -> Mean:
    """A mean of logarithms, and its interval, as what they are logarithms of."""
    low, high = np.exp(logs.interval)
    return Mean(float(np.exp(logs.value)), np.nan, (float(low), float(high)))


def _of_rivals(found: dict[Any, Swept], seeds: int) -> tuple[Problem, np.ndarray]:
    parts = zip(*(found[10, lam].p for lam in RIVALS), strict=True)
    return Problem(*(np.concatenate(part) for part in parts)), np.repeat(list(RIVALS), seeds)


def _error(models: np.ndarray, one: Swept) -> np.ndarray:
    """[federations, rounds]: the clients' mean squared distance to the solution, share of the start's."""
    return np.sum((models - one.w[:, None]) ** 2, -1).mean(-1) / np.sum(one.w**2, -1).mean(-1)[:, None]


def _needed(lam: float, rounds: np.ndarray, taken: np.ndarray, talked: np.ndarray) -> list[Claim]:
    """FedCLUP's rounds beside AL2SGD+'s iterations and communications."""
    talks = talked[np.arange(len(taken)), np.minimum(taken, talked.shape[1]).astype(int) - 1]
    of, source = f"lam = {lam:g}, to 1e-8:", "reference"
    ours = {"iterations of al2sgd": taken, "communications of al2sgd": talks, "rounds of fed_clup": rounds}
    rows = [
        within(f"{of} {what}, to 15% or 2", expected, mean_of(found), 0.15, 2, source)
        for (what, found), expected in zip(ours.items(), RIVALS[lam], strict=True)
    ]
    more = mean_of(talks / rounds)
    name = f"{of} communications of al2sgd for each round of fed_clup"
    rows.append(effect(name, "above 1", more, above=1, source=source))
    less = mean_of(taken / (rounds * clup.constants(lam, 1.0, MU).steps))
    name = f"{of} iterations of al2sgd for each gradient of a fed_clup client"
    rows.append(effect(name, "below 1", less, below=1, source=source))
    return rows
