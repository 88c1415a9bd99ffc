"""Where long, finely tuned runs of linear models end: convex problems, solved, their one free number from a fine grid.

Beside `local`, `fed_avg`, `ftfa` and `ditto` of a comparison, on its own rows and in its own scale:

- local: min L_i(v) + ridge/2 |v|^2, one ridge for all. Long runs with short steps end there, as the problem is convex.
- fed_avg: min sum_i n_i L_i(x) + ridge/2 |x|^2. With a ridge of almost nothing it is where rounds of short steps end.
  Where the rows can be separated, as 600 features do, they end nowhere: the ridge stands for how long one trains.
- ditto: min L_i(v) + lam/2 |v - x|^2 from that x.
- ftfa: 10 passes' worth of steps from that x, each on all rows of the client; the step size is the free number.

Free numbers are chosen as tuning chooses: by the mean over clients of their validation loss. Nothing is drawn.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from apiece.evaluate import macro_auc
from apiece.experiment.build import Arena

METHODS = ("local", "fed_avg", "ftfa", "ditto")
RIDGES = np.logspace(0.5, -4.5, 11)  # strong ones first: each starts where the one before ended
PULLS = np.logspace(1, -3.5, 10)
STEPS = np.logspace(-3, 0.5, 8)
PASSES, BATCH = 10, 32  # of fine-tuning, and its batches: the defaults


class Rows(NamedTuple):
    """Clients' rows, filled up to the same number: x [clients, rows, features + 1], y as one-hot labels or targets
    [clients, rows, outputs], weight [clients, rows] that is 1 / n_i, or 0 for what fills up."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray


def long_runs(place: Arena) -> dict[str, dict[str, np.ndarray]]:
    """{method: outcomes by example of validation and test}, as the trials of a comparison have them."""
    numbers = place.federation.task == "regression"
    outputs = 1 if numbers else len(place.federation.classes)
    count = place.population
    rows = lambda x, y, offsets: _rows(np.asarray(x), np.asarray(y), np.asarray(offsets)[: count + 1], outputs, numbers)
    train = rows(place.x, place.y, place.offsets)
    held = {part: rows(*place.splits[part]) for part in ("validation", "test")}
    best: dict[str, np.ndarray] = {}
    judged = lambda models: _validation_loss(models, held["validation"], numbers)
    best["local"] = min(_path(train, RIDGES, numbers), key=judged)
    together = Rows(*(values.reshape(1, -1, *values.shape[2:]) for values in train))
    sizes = (train.weight > 0).sum(1)
    together = together._replace(weight=(train.weight > 0).reshape(1, -1) / sizes.sum())
    best["fed_avg"] = min((np.repeat(x, count, 0) for x in _path(together, RIDGES, numbers)), key=judged)
    shared = best["fed_avg"]
    best["ditto"] = min([shared, *_path(train, PULLS, numbers, around=shared)], key=judged)
    best["ftfa"] = min([shared, *(_descended(train, shared, step, numbers) for step in STEPS)], key=judged)
    return {name: _arrays(place, best[name], held, numbers) for name in METHODS}


def _rows(x: np.ndarray, y: np.ndarray, offsets: np.ndarray, outputs: int, numbers: bool) -> Rows:
    sizes = np.diff(offsets)
    most, flat = int(sizes.max()), x.reshape(len(x), -1).astype(np.float64)
    found = Rows(*(np.zeros((len(sizes), most, *tail)) for tail in ((flat.shape[1] + 1,), (outputs,), ())))
    for i, size in enumerate(sizes):
        mine = slice(offsets[i], offsets[i + 1])
        found.x[i, :size, :-1], found.x[i, :size, -1] = flat[mine], 1
        found.y[i, :size] = y[mine, None] if numbers else np.eye(outputs)[y[mine]]
        found.weight[i, :size] = 1 / max(size, 1)
    return found


def _loss(models: np.ndarray, rows: Rows, numbers: bool) -> tuple[np.ndarray, np.ndarray]:
    """(loss of every row, its gradient by what the model says of it); models: [clients, features + 1, outputs]."""
    said = rows.x @ models
    if numbers:
        return ((said - rows.y) ** 2).sum(-1) / 2, said - rows.y
    log = log_softmax(said, axis=-1)
    return -(log * rows.y).sum(-1), np.exp(log) - rows.y


def _gradient(models: np.ndarray, rows: Rows, numbers: bool) -> tuple[np.ndarray, np.ndarray]:
    """(each client's loss, its gradient)."""
    loss, slope = _loss(models, rows, numbers)
    return (loss * rows.weight).sum(1), rows.x.transpose(0, 2, 1) @ (slope * rows.weight[..., None])


def _path(rows: Rows, pulls: np.ndarray, numbers: bool, around: np.ndarray | None = None) -> Iterator[np.ndarray]:
    """The minimizers for one pull after another: around zero, intercepts free; or, of everything, around models."""
    shape = (len(rows.x), rows.x.shape[2], rows.y.shape[2])
    center = np.zeros(shape) if around is None else around
    free = np.ones(shape)
    if around is None:
        free[:, -1] = 1e-5  # of an intercept alone; a client with one class would otherwise be ever surer
    models = center.copy()
    for pull in pulls:
        if numbers:
            models = center + _solved(rows, pull * free[..., 0], center)
            yield models
            continue

        def value(flat: np.ndarray, pull: float = pull) -> tuple[float, np.ndarray]:
            now = flat.reshape(shape)
            away = now - center
            loss, slope = _gradient(now, rows, numbers)
            return loss.sum() + pull / 2 * (free * away * away).sum(), (slope + pull * free * away).ravel()

        models = minimize(value, models.ravel(), jac=True, method="L-BFGS-B",
                          options={"maxiter": 200, "maxcor": 20, "ftol": 1e-7}).x.reshape(shape)  # fmt: skip
        yield models


def _solved(rows: Rows, pull: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Of squared errors: how far from the center, exactly."""
    weighed = rows.x * rows.weight[..., None]
    curvature = weighed.transpose(0, 2, 1) @ rows.x
    curvature += np.eye(rows.x.shape[2]) * pull[:, None, :]
    return np.linalg.solve(curvature, weighed.transpose(0, 2, 1) @ (rows.y - rows.x @ center))


def _descended(rows: Rows, start: np.ndarray, step: float, numbers: bool) -> np.ndarray:
    """Gradient steps from there, for each client as many as its passes in batches have."""
    sizes = (rows.weight > 0).sum(1)
    steps, models = np.maximum(PASSES * sizes // BATCH, 1), start.copy()
    with np.errstate(all="ignore"):  # steps that are too long are not chosen
        for done in range(int(steps.max())):
            slope = _gradient(models, rows, numbers)[1]
            models = models - step * np.where((done < steps)[:, None, None], slope, 0)
    return models


def _validation_loss(models: np.ndarray, rows: Rows, numbers: bool) -> float:
    with np.errstate(all="ignore"):
        found = (_loss(models, rows, numbers)[0] * rows.weight).sum(1)[rows.weight.any(1)].mean()
    return float(found) if np.isfinite(found) else float("inf")


def _arrays(place: Arena, models: np.ndarray, held: dict[str, Rows], numbers: bool) -> dict[str, np.ndarray]:
    """Loss and error of every example, and AUC of every client where that ranks, as `judge` has them."""
    found: dict[str, Any] = {}
    unit = place.target_scaling.target_spread**2 if place.target_scaling else 1.0
    for part, rows in held.items():
        there, loss = rows.weight > 0, _loss(models, rows, numbers)[0]
        said = rows.x @ models
        wrong: Callable = lambda said, y: (said.argmax(-1) != y.argmax(-1)).astype(float)
        error = ((said - rows.y) ** 2).sum(-1) if numbers else wrong(said, rows.y)
        found |= {f"{part}_loss": unit * loss[there], f"{part}_error": unit * error[there]}
        found[f"{part}_offsets"] = np.concatenate([[0], np.cumsum(there.sum(1))])
        if place.criterion.metric == "auc":
            each = [macro_auc(s[w], y[w].argmax(-1)) for s, y, w in zip(said, rows.y, there, strict=True)]
            found[f"{part}_metric_auc"] = np.array(each)
    return found


def score(place: Arena, arrays: dict[str, np.ndarray]) -> float:
    """The weighted test score, as methods are ranked by it."""
    values, sizes = place.criterion.of_clients(arrays, "test"), np.diff(arrays["test_offsets"])
    there = np.isfinite(values) & (sizes > 0)
    return float(np.average(values[there], weights=sizes[there]))
