"""From a choice to a method of the catalog with options, and to a spec that runs it."""

from typing import Any, NamedTuple

import numpy as np

from apiece.advise.choose import Choice, Picked
from apiece.advise.pilot import Pilot
from apiece.experiment.build import Arena
from apiece.experiment.spec_tables import TrainSpec
from apiece.experiment.steps import measure_bound

ROUNDS = 100
BATCH = 32
TUNE_EPOCHS = 40  # of rtfa: about as far as the pilot's accelerated steps
RESTED = 3.0  # time constants of the slowest direction, after which 5 % of the way are left
SHORTER = 3.0  # steps are a third of the longest that the rows' curvature allows


class Recipe(NamedTuple):
    """What to run."""

    method: str
    options: dict[str, Any]
    rounds: int


def make_recipe(choice: Choice, pilot: Pilot, step: float) -> Recipe:
    """The method and its options; `step`: how long steps may be."""
    pull = rounded(best_pull(choice, pilot) * pilot.usual)
    train: dict[str, Any] = {"lr": step}
    decay = rounded(pilot.decay) if pilot.decay else 0.0
    guarded = len(choice.alone) > 0  # then it is a stack whose weights are all on one candidate, or on local
    if choice.named == "shared" and not (decay or guarded):
        return Recipe("fed_avg", train, ROUNDS)
    here = pull if choice.named != "nearer" else rounded(float(pilot.pulls[choice.nearer or 0]) * pilot.usual)
    # RTFA takes steps, and a weak pull needs many: it is advised where these come to rest.
    rests = step * TUNE_EPOCHS * here / pilot.usual > RESTED
    if choice.named in ("path", "nearer") and rests and not (decay or guarded):
        tune = {"tune_epochs": TUNE_EPOCHS, "tune_lr": step}
        return Recipe("rtfa", {"lam": here, "by_size": True, **tune, **train}, ROUNDS)
    ridge = rounded(float(pilot.ridges[choice.ridge]))
    if choice.named == "local":
        return Recipe("local_ridge", {"ridge": ridge}, 1)
    near = choice.path if choice.nearer is None else choice.nearer
    options: dict[str, Any] = {"lam": pull, "nearer": rounded(float(pilot.pulls[near]) * pilot.usual), "ridge": ridge}
    weights = {kind: round(choice.weight_of(kind), 4) for kind in ("shared", "path", "nearer", "local", "groups")}
    options |= {f"on_{kind}": weight for kind, weight in weights.items()}
    grouped = weights["groups"] > 0 and choice.groups is not None and pilot.members is not None
    options["groups"] = choice.groups if grouped else 1
    if grouped:
        assert choice.groups is not None and pilot.members is not None
        options["members"] = pilot.members[:, choice.groups - 2].tolist()
    if decay:
        options["decay"] = decay
    if guarded:
        options["alone"] = np.isin(np.arange(len(pilot.sizes)), choice.alone).astype(int).tolist()
    options["trust"] = 0.0 if choice.named != "stack" or not np.isfinite(choice.kappa) else rounded(1 / choice.kappa)
    return Recipe("stack", options | train, ROUNDS)


def best_pull(choice: Choice | Picked, pilot: Pilot) -> float:
    """The c with the least held-out loss: between points of the path, where a parabola through three has its bottom.

    At most half a step away from the best of them.
    """
    at, grid = choice.path, np.log(pilot.pulls)
    score = np.array([choice.scores[k] for k, name in enumerate(pilot.names) if name.startswith("path")])
    if not 0 < at < len(grid) - 1:
        return float(pilot.pulls[at])
    before, here, after = score[at - 1 : at + 2]
    bend = before - 2 * here + after
    shift = np.clip((before - after) / (2 * bend), -0.5, 0.5) if bend > 0 else 0.0
    return float(np.exp(grid[at] + shift * (grid[at + 1] - grid[at])))


def step_size(place: Arena, engine: Any, seed: int) -> float:
    """How long a training step may be, by the curvature of the clients' rows."""
    bound = measure_bound(place, TrainSpec(), lambda: engine, tested=False, seed=seed)
    return 0.1 if bound is None else rounded(min(bound.top(BATCH)[0] / SHORTER, 1.0))


def make_spec_values(
    recipe: Recipe, data: dict[str, Any], model: Any, engine: str, metric: str | None, seed: int, dear: bool = False
) -> dict[str, Any]:
    """The plain values of a spec that runs it once, untuned and without baselines; `dear`: looks at it take long."""
    train: dict[str, Any] = {"rounds": recipe.rounds} | ({"engine": engine} if engine != "vectorized" else {})
    if recipe.method == "stack" and dear:
        train["evaluate_every"] = recipe.rounds  # at every look, everybody's candidates would be solved
    values: dict[str, Any] = {"data": data, "train": train, "methods": {recipe.method: recipe.options}}
    values |= {"seeds": [seed], "tune": 1, "baselines": False}
    if model is not None:
        values["model"] = model
    return values | ({"rank": metric} if metric else {})


def rounded(value: float) -> float:
    """Three digits: what is told is what runs."""
    return float(f"{value:.3g}")
