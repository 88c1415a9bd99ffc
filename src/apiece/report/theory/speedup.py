"""`apiece theory speedup`: how many samples clients save by learning from those who are like them (All-for-all)."""

from pathlib import Path

import numpy as np

from apiece.errors import UserError
from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid
from apiece.report.numbers import number
from apiece.report.theory import LARGEST, Prediction, require
from apiece.theory import all_for_all

HEADS = ("precision", "neighbours", "speed-up", "bias", "steps", "step", "steady")


def unlikeness(path: Path) -> np.ndarray:
    """The matrix b from a CSV file without a head: a row and a column for each client."""
    try:
        rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        b = np.array([[float(cell) for cell in row] for row in rows])
    except (OSError, ValueError) as error:
        raise UserError(f"--bias {path}: no CSV file of numbers, a row for each client ({error})") from None
    if b.ndim != 2 or b.shape[0] != b.shape[1]:
        raise UserError(f"--bias {path}: as many numbers in each row as there are rows, one for each client")
    if not (np.abs(b) <= LARGEST).all() or (b < 0).any() or np.diag(b).any():
        raise UserError(f"--bias {path}: b_ij is at least 0, and b_ii is 0: nobody loses by one's own optimum")
    return b


def of_means(means: np.ndarray) -> np.ndarray:
    """b_ij = (p_i - p_j)^2 / 2: what client i loses with j's mean, when everybody estimates a mean.

    >>> of_means(np.array([0.0, 1.0])).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    return (means[:, None] - means) ** 2 / 2


def speedup(
    b: np.ndarray, eps: np.ndarray, noise: float = 0.5, bound: float = 1.0, distance: float = 1.0
) -> Prediction:
    """At each precision eps: who learns from whom, the samples saved, the bias it costs, and the steps to take.

    `noise`: the standard deviation of a stochastic gradient, for the steady step (losses of curvature 1).

    >>> found = speedup(of_means(np.array([0.1, 0.15, 0.2, 0.6, 0.65])), np.array([0.02]))
    >>> float(found.numbers["precisions"][0]["speedup"].round(6))
    2.5
    """
    require("above 0", noise=noise, bound=bound, distance=distance)
    if not (np.asarray(eps) > 0).all():
        raise UserError("--eps: every precision must be above 0")
    if len(b) < 2:
        raise UserError("a speed-up needs two clients at least")
    b, eps = np.asarray(b, float), np.sort(np.atleast_1d(np.asarray(eps, float)))[::-1]
    shared = all_for_all.sharing(b, eps)
    curve = {"smoothness": 1.0, "convexity": 1.0, "noise": noise**2}
    columns = {
        "eps": eps,
        "neighbours": shared.neighbours,
        "speedup": shared.speedup,
        "bias": shared.bias,
        "loneliness": shared.loneliness,
        "largest": shared.largest,
        "steps": all_for_all.steps_needed(shared, eps, bound=bound, distance=distance),
        "step": all_for_all.phase_step(shared, eps, bound=bound),
        "steady_step": all_for_all.steady_step(shared, eps, **curve),
        "samples_per_client": all_for_all.samples_needed(b, eps, bound=bound, distance=distance) / len(b),
        "fewest_samples_order": all_for_all.fewest_samples(b, eps, bound=bound, distance=distance) / len(b),
    }
    points = [{name: values[k] for name, values in columns.items()} for k in range(len(eps))]
    rows = [_cells(point) for point in points]
    notes = (
        f"{len(b)} clients. neighbours: the fewest and the most clients that one learns from (oneself included).",
        "speed-up: times fewer samples than alone, N / sum(1 / N_i). bias: what the neighbours' difference costs.",
        f"steps: one client each, until the mean error is the precision (gradients <= {bound:g}, distance <= "
        f"{distance:g}).",
        f"steady: the step if everybody works at once, curvature 1, noise {noise:g}; larger ones can diverge.",
    )
    figure = _figure(b, distance)
    numbers = {"precisions": points, "settings": {"clients": len(b), "noise": noise}}
    return Prediction(numbers, Grid("Speed-up", HEADS, rows), figure, notes)


def _cells(point: dict) -> list[str]:
    near = point["neighbours"]
    between = str(min(near)) if min(near) == max(near) else f"{min(near)}–{max(near)}"
    columns = [number(point[key]) for key in ("speedup", "bias")]
    steps = number(point["steps"]) if point["steps"] < 1e7 else f"{point['steps']:.2e}"
    return [number(point["eps"]), between, *columns, steps, *(number(point[key]) for key in ("step", "steady_step"))]


def _figure(b: np.ndarray, distance: float) -> Figure:
    off = b[~np.eye(len(b), dtype=bool)]
    high = 8 * max(float(off.max()), 1e-6) if off.size else 1.0
    low = max(float(off[off > 0].min()) if (off > 0).any() else high / 100, high * 1e-7) / 8
    eps = np.geomspace(low, high, 200)
    shared = all_for_all.sharing(b, eps)
    alone, fewest = 4 * distance**2 / eps**2, all_for_all.fewest_samples(b, eps, distance=distance)
    label = "precision eps"
    return Figure(
        "Learning from those who are alike (All-for-all)",
        f"{len(b)} clients; one learns from another if b_ij is at most half of the precision. Bounds, for gradients of "
        "length 1; the lower bound is known up to a constant only.",
        [
            Panel("Samples saved", label, "times fewer samples than alone", [Line("speed-up", eps, shared.speedup)],
                  log_x=True),
            Panel("What it costs", label, "mean bias",
                  [Line("bias", eps, shared.bias), Line("half the precision", eps, eps / 2)], log_x=True, log_y=True),
            Panel("Samples needed", label, "samples a client", [
                Line("alone", eps, alone),
                Line("all_for_all, mean over clients", eps, alone / np.asarray(shared.speedup)),
                Line("lower bound, up to a constant", eps, fewest.mean(axis=-1) / len(b)),
            ], log_x=True, log_y=True),
        ],
    )  # fmt: skip
