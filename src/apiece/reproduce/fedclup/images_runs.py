"""The paper's tasks on pictures, and all methods on each of them."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from apiece.experiment.build import Arena
from apiece.experiment.contest import Result, Rival, Step, contest, errors
from apiece.experiment.spec_tables import TrainSpec
from apiece.reproduce.fedclup.images_by_classes import (
    Task,
    arena_of,
    averaged_beside,
    averaged_on_all_classes,
    on_all_classes,
    whole_of,
)
from apiece.reproduce.fedclup.ladder import Accuracy, Curves, gains
from apiece.reproduce.fedclup.published import DEGREES, HIGH, LADDERS, LOW, MEDIUM, rung
from apiece.reproduce.kept import arrays, part

GRID = (1e-3, 1e-2, 0.1)
EPOCHS, PROX_STEPS = 5, 5
TRIED = {"fed_clup": "lr", "pfedme": "prox_lr"}  # which option the grid is for
MNIST, CIFAR = "mnist_by_writer.npz", "cifar10_subset.npz"
CURVE = ("round", "validation_loss", "validation_error", "averaged_loss", "averaged_error")  # what is kept of it


class Case(NamedTuple):
    """A task of the paper: lambdas from high to low personalization, examples a batch, and how it is run.

    printed: its name in the published tables. looks: rounds between looks. grid: step sizes to choose from, by `tuned`
    rounds. ladders: the methods at three degrees. fixed: the number of rounds is the published one, at rest or not.
    """

    printed: str
    task: Task
    lams: tuple[float, float, float]
    batch: int
    seeds: int = 3
    rounds: int = 80
    looks: int = 2
    grid: tuple[float, ...] = GRID
    tuned: int = 10
    ladders: tuple[str, ...] = LADDERS
    fixed: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """Every method, from Local over the degrees of personalization to Global."""
        return ("local", *(rung(method, degree) for method in self.ladders for degree in DEGREES), "fed_avg")


DRAWN = Task(MNIST, "softmax", {}, False, 10, 360, pool=40)
NETWORK = dict(width=32, third=128, hidden=[])
CASES = {
    "MNIST logit": Case("MNIST logit", DRAWN, (0.5, 1.5, 2.5), 32, 16, 20, 5, grid=(0.01,), fixed=True),
    "MNIST logit, 160 rounds": Case("MNIST logit", DRAWN, (0.5, 1.5, 2.5), 32, 5, 160, 4),
    "MNIST CNN2": Case("MNIST CNN2", Task(MNIST, "cnn3", NETWORK, True, 10, 90, pool=40), (0.2, 0.5, 2.5), 16,
                       rounds=120, looks=4, ladders=("fed_clup",)),
    "CIFAR CNN3": Case("CIFAR CNN3", Task(CIFAR, "cnn3", NETWORK, True, 10, 90), (0.1, 0.5, 1.0), 16,
                       ladders=("fed_clup",)),
    "MNIST CNN5": Case("MNIST CNN5", Task(MNIST, "cnn5", dict(width=8, hidden=[64]), True, 10, 90), (0.2, 0.5, 2.5), 16,
                       ladders=("fed_clup",)),
}  # fmt: skip


class Cell(NamedTuple):
    """A task with so many classes a client, by method: step size, and for each seed three accuracies and a curve.

    `averaged`: the mean of everybody's models on everybody's test pictures; `every`: each one's own model on them;
    `own`: each one's own model on its own test pictures. `gains`: on these, over training alone, and who is hurt.
    """

    step_size: dict[str, float]
    averaged: Accuracy
    every: Accuracy
    own: Accuracy
    curves: Curves
    gains: dict[str, dict[str, float]]


def rivals_of(case: Case) -> dict[str, Rival]:
    """Local, Global, and the methods at three degrees; the medium one is tuned and the others do likewise."""
    work: dict[str, Any] = dict(epochs=EPOCHS, batch=case.batch)
    rivals = {name: Rival(name, work, dict(lr=case.grid)) for name in ("local", "fed_avg")}
    gradients = EPOCHS * -(-case.task.train // case.batch)
    inner: dict[str, Any] = dict(steps=gradients // PROX_STEPS, prox_steps=PROX_STEPS, batch=case.batch)
    lam = dict(zip(DEGREES, case.lams, strict=True))
    for degree in (MEDIUM, HIGH, LOW):
        options = {"fed_clup": work, "pfedme": dict(lr=0.5 / lam[degree], **inner)}
        for method in case.ladders:
            sizes = case.grid if method == "fed_clup" else GRID
            tried, like = ({TRIED[method]: sizes}, None) if degree == MEDIUM else ({}, rung(method, MEDIUM))
            rivals[rung(method, degree)] = Rival(method, dict(lam=lam[degree], **options[method]), tried, like)
    return rivals


def played(name: str, case: Case, numbers: tuple[int, ...], step: Step) -> dict[int, Cell]:
    """All methods, by the number of classes a client holds."""
    settings = {**case._asdict(), "task": case.task._asdict(), "epochs": EPOCHS}
    cells = {}
    for held in numbers:
        where = f"{name}, {held} classes"
        tell = partial(_tell, step, where)
        found = part(where, settings, partial(play, case, held, tell))
        cells[held] = Cell(
            found["step size"],
            averaged=arrays(found["averaged"]),
            every=arrays(found["every"]),
            own=arrays(found["own"]),
            curves=found["curves"],
            gains=found["gains"],
        )
    return cells


def _tell(step: Step, where: str, what: str) -> None:
    step(f"{where}: {what}")


def play(case: Case, held: int, step: Step) -> dict[str, Any]:
    """What a `Cell` holds; every seed has its own clients, and all share engines."""
    plan = TrainSpec.model_validate(dict(rounds=case.rounds, evaluate_every=case.looks, weights="uniform"))
    rivals = rivals_of(case)
    first: Arena | None = None
    parts: list[dict[str, Result]] = []
    for seed in range(case.seeds):
        place = arena_of(case.task, held, seed, first)
        first = first or place
        whole = whole_of(case.task, held, seed, place)
        each, mean = on_all_classes(place, whole), averaged_on_all_classes(place, whole)
        both = lambda engine, run, each=each, mean=mean: (float(each(engine, run).mean()), 1 - mean(engine, run)[1])
        asked: dict[str, Any] = dict(after=both, tune_on=averaged_on_all_classes(place, whole, "validation"))
        asked |= dict(look=averaged_beside(place, whole), tune_rounds=case.tuned, step=step)
        parts.append(contest(place, rivals, plan, (seed,), costs=False, **asked))
        # The first seed's clients have chosen the step sizes for all.
        rivals = {who: Rival(rivals[who].method, result.options) for who, result in parts[0].items()}
    outcomes = {who: [part[who].outcomes[seed] for seed, part in enumerate(parts)] for who in rivals}
    column = lambda curve, key: [point[key] for point in curve]
    return {
        "step size": {w.split()[0]: r.options[TRIED.get(w.split()[0], "lr")] for w, r in parts[0].items()},
        "averaged": {who: np.array([part[who].after[0][1] for part in parts]) for who in rivals},
        "every": {who: np.array([part[who].after[0][0] for part in parts]) for who in rivals},
        "own": {who: np.array([1 - errors(place, part[who])[0] for part in parts]) for who in rivals},
        "curves": {w: [{key: column(o.curve, key) for key in CURVE} for o in of] for w, of in outcomes.items()},
        "gains": gains(outcomes),
    }
