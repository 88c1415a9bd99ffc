"""The paper's tasks on pictures, and all methods on each of them."""

from typing import Any, NamedTuple

import numpy as np

from apiece.experiment.build import Arena
from apiece.experiment.contest import Rival, Step, contest, errors
from apiece.experiment.judge import Outcome
from apiece.experiment.spec_tables import TrainSpec
from apiece.reproduce.fedclup.images_by_classes import (
    Task,
    arena_of,
    averaged_on_all_classes,
    on_all_classes,
    validated_on_all_classes,
    whole_of,
)
from apiece.reproduce.fedclup.ladder import Accuracy
from apiece.reproduce.fedclup.published import DEGREES, HIGH, LADDERS, LOW, MEDIUM, rung

GRID = (1e-3, 1e-2, 0.1)
EPOCHS, ROUNDS, TUNED, PROX_STEPS = 5, 20, 5, 5
TRIED = {"fed_clup": "lr", "pfedme": "prox_lr"}  # which option the grid is for
MNIST, CIFAR = "mnist_by_writer.npz", "cifar10_subset.npz"


class Case(NamedTuple):
    """A task of the paper: lambdas from high to low personalization, examples a batch, seeds, rounds between looks."""

    task: Task
    lams: tuple[float, float, float]
    batch: int
    seeds: int = 3
    looks: int = 1
    grid: tuple[float, ...] = GRID


CASES = {
    "MNIST logit": Case(Task(MNIST, "softmax", {}, False, 10, 360, pool=40), (0.5, 1.5, 2.5), 32, 5, grid=(0.01,)),
    "MNIST CNN2": Case(Task(MNIST, "cnn2", dict(width=16, hidden=[128]), True, 10, 120), (0.2, 0.5, 2.5), 16),
    "MNIST CNN5": Case(Task(MNIST, "cnn5", dict(width=8, hidden=[64]), True, 10, 90), (0.2, 0.5, 2.5), 16),
    "CIFAR CNN3": Case(Task(CIFAR, "cnn3", dict(width=16), True, 10, 150), (0.1, 0.5, 1.0), 16),
}


class Cell(NamedTuple):
    """A task with so many classes a client, by method: step size, and for each seed three accuracies and the outcome.

    `averaged`: the mean of everybody's models on everybody's test pictures; `every`: each one's own model on them;
    `own`: each one's own model on its own test pictures.
    """

    step_size: dict[str, float]
    averaged: Accuracy
    every: Accuracy
    own: Accuracy
    outcomes: dict[str, list[Outcome]]


def rivals_of(case: Case) -> dict[str, Rival]:
    """Local, Global, and both methods at three degrees; the medium one is tuned and the others do likewise."""
    work: dict[str, Any] = dict(epochs=EPOCHS, batch=case.batch)
    rivals = {name: Rival(name, work, dict(lr=case.grid)) for name in ("local", "fed_avg")}
    gradients = EPOCHS * -(-case.task.train // case.batch)
    inner: dict[str, Any] = dict(steps=gradients // PROX_STEPS, prox_steps=PROX_STEPS, batch=case.batch)
    lam = dict(zip(DEGREES, case.lams, strict=True))
    for degree in (MEDIUM, HIGH, LOW):
        options = {"fed_clup": work, "pfedme": dict(lr=0.5 / lam[degree], **inner)}
        for method in LADDERS:
            sizes = case.grid if method == "fed_clup" else GRID
            tried, like = ({TRIED[method]: sizes}, None) if degree == MEDIUM else ({}, rung(method, MEDIUM))
            rivals[rung(method, degree)] = Rival(method, dict(lam=lam[degree], **options[method]), tried, like)
    return rivals


def played(name: str, numbers: tuple[int, ...], step: Step) -> dict[int, Cell]:
    """All methods, by the number of classes a client holds; every seed has its own clients, and all share engines."""
    case, cells = CASES[name], {}
    plan = TrainSpec.model_validate(dict(rounds=ROUNDS, evaluate_every=case.looks, weights="uniform"))
    first: Arena | None = None
    for held in numbers:
        rivals, parts = rivals_of(case), []
        for seed in range(case.seeds):
            place = arena_of(case.task, held, seed, first)
            first = first or place
            tell = lambda what, where=f"{name}, {held} classes": step(f"{where}: {what}")
            whole = whole_of(case.task, held, seed, place)
            each, mean = on_all_classes(place, whole), averaged_on_all_classes(place, whole)
            both = lambda engine, run, each=each, mean=mean: (float(each(engine, run).mean()), mean(engine, run))
            asked: dict[str, Any] = dict(after=both, tune_on=validated_on_all_classes(place, whole))
            how: dict[str, Any] = dict(tune_rounds=TUNED, step=tell)
            parts.append(contest(place, rivals, plan, (seed,), **asked, **how))
            # The first seed's clients have chosen the step sizes for all.
            rivals = {who: Rival(rivals[who].method, result.options) for who, result in parts[0].items()}
        sizes = {who.split()[0]: result.options[TRIED.get(who.split()[0], "lr")] for who, result in parts[0].items()}
        cells[held] = Cell(
            sizes,
            {who: np.array([part[who].after[0][1] for part in parts]) for who in rivals},
            {who: np.array([part[who].after[0][0] for part in parts]) for who in rivals},
            {who: np.array([1 - errors(place, part[who])[0] for part in parts]) for who in rivals},
            {who: [outcome for part in parts for outcome in part[who].outcomes.values()] for who in rivals},
        )
    return cells
