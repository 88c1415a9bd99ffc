"""Pictures of ten classes dealt to clients that hold a few classes each, and who is right on all ten."""

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece.data.federation import Federation
from apiece.data.load.read import read
from apiece.data.partition import partitioned
from apiece.data.sources.real import file_of
from apiece.engines.engine import RunState
from apiece.engines.simulation.base import Simulation
from apiece.engines.simulation.score import Examples
from apiece.experiment import build as setup
from apiece.experiment.build import Arena
from apiece.experiment.spec_tables import ModelSpec
from apiece.experiment.train import Look
from apiece.protocol import Batch, Params

SHARES = (1 / 2, 1 / 6, 1 / 3)


class Task(NamedTuple):
    """A file of pictures, the model for them, and how many clients with how many examples there are.

    `half`: pictures at half their height and width. `examples`: a client's, for training, validation and test together.
    """

    file: str
    model: str
    options: dict[str, Any]
    half: bool
    clients: int
    examples: int
    pool: int = 0  # cut into so many clients, of which these are drawn: some classes may then be nobody's

    @property
    def train(self) -> int:
        """A client's examples to train on."""
        return round(SHARES[0] * self.examples)


def arena_of(task: Task, held: int, seed: int = 0, like: Arena | None = None) -> Arena:
    """The task's pictures among clients that hold so many classes each, with its model, or with that of another arena.

    The seed chooses the pictures, who holds which, and which of them test.
    """
    federation = federation_of(task, held, seed)
    if task.pool:
        drawn = np.random.default_rng([seed, held]).permutation(task.pool)[: task.clients]
        federation = federation.take(np.sort(drawn))
    if like is not None:
        return setup.arena(federation, like.model, like.objective)
    return setup.arena(federation, setup.model_of(ModelSpec(name=task.model, options=task.options), federation))


def federation_of(task: Task, held: int, seed: int) -> Federation:
    """Everybody that the pictures are cut for."""
    x, y, names = pictures(file_of(task.file))
    clients = task.pool or task.clients
    chosen = balanced(y, clients * task.examples, seed)
    x = halved(x[chosen]) if task.half else x[chosen]
    return partitioned(
        x, y[chosen], clients, "by_classes", k=held, name=task.file, classes=names, shares=SHARES, seed=seed
    )


def whole_of(task: Task, held: int, seed: int, place: Arena) -> Arena:
    """Where everybody's pictures are: the arena itself, or, if clients were drawn from a pool, that of all of these."""
    return setup.arena(federation_of(task, held, seed), place.model, place.objective) if task.pool else place


@lru_cache(maxsize=1)
def pictures(file: Path) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """(x, y, names of the classes) of a file with x_train, y_train, x_test, y_test; both parts together."""
    table = read(file)
    x, y = (np.concatenate([table.column(f"{name}_train"), table.column(f"{name}_test")]) for name in ("x", "y"))
    names = table.column("classes").tolist() if "classes" in table.names else range(int(y.max()) + 1)
    return x, y.astype(np.int32), tuple(map(str, names))


def balanced(y: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """Random rows, `count` in all, as many of each class as of any other.

    >>> y = np.array([0, 1, 0, 1, 1, 1])
    >>> np.bincount(y[balanced(y, 4)]).tolist()
    [2, 2]
    """
    order = np.random.default_rng(seed).permutation(len(y))
    classes = np.unique(y)
    return np.sort(np.concatenate([order[y[order] == c][: count // len(classes)] for c in classes]))


def halved(x: np.ndarray) -> np.ndarray:
    """Pictures at half their height and width: the mean of every 2x2 pixels.

    >>> halved(np.array([[[0, 4], [8, 12]]], np.uint8)).tolist()
    [[[6]]]
    """
    rows, columns = x.shape[1] // 2, x.shape[2] // 2
    blocks = x.reshape(len(x), rows, 2, columns, 2, *x.shape[3:])
    return np.rint(blocks.mean((2, 4))).astype(x.dtype)


def averaged_on_all_classes(
    place: Arena, whole: Arena | None = None, part: str = "test"
) -> Callable[[Simulation, RunState], tuple[float, float]]:
    """(engine, run) -> (loss, error) of the mean of the clients' models on a split of everybody's."""
    x, y, _ = (whole or place).splits[part]

    def judged(engine: Simulation, run: RunState) -> tuple[float, float]:
        models = engine.personal(run, np.arange(place.population))
        loss, error = _means(place.objective.outcomes, jax.tree.map(lambda leaf: leaf.mean(0), models), x, y)
        return float(loss), float(error)

    return judged


@partial(jax.jit, static_argnums=0)
def _means(outcomes: Callable, model: Params, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, error = outcomes(model, Batch(x, y, jax.numpy.ones(len(y))))
    return loss.mean(), error.mean()


def averaged_beside(place: Arena, whole: Arena | None = None) -> Look:
    """Adds the averaged model's loss and error on everybody's validation pictures to every point of a curve."""
    judged = averaged_on_all_classes(place, whole, "validation")

    def look(engine: Any, run: RunState, seen: dict[str, Any]) -> None:
        seen["averaged_loss"], seen["averaged_error"] = judged(engine, run)

    return look


def on_all_classes(place: Arena, whole: Arena | None = None) -> Callable[[Simulation, RunState], np.ndarray]:
    """(engine, run) -> [clients]: how often each client's model is right on everybody's test pictures together."""
    x, y, offsets = (whole or place).splits["test"]
    starts, sizes = np.zeros(place.population, np.int32), np.full(place.population, offsets[-1], np.int32)
    everybody = {"test": Examples(x, y, starts, sizes)}

    def right(engine: Simulation, run: RunState) -> np.ndarray:
        found = engine.outcomes(run, np.arange(place.population), place.objective.outcomes, everybody)
        return 1 - found["test"][1].reshape(place.population, -1).mean(1, dtype=np.float64)

    return right
