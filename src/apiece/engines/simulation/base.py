"""Everybody's data and state, and what can be asked of them between rounds: what the simulating engines share.

Only the rows of the clients that a compiled block touches are on the device; everybody's stay in host memory or on
disk (`states`). So a round's cost depends on the cohort, not on the population.
"""

import abc
import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.client.draw import FULL_CHUNK
from apiece.engines.contact import Build, key_of, keys, model_in_use, visit
from apiece.engines.simulation.division import divided, each, mesh_of, on_devices, on_host
from apiece.engines.simulation.score import Examples, score_models
from apiece.engines.simulation.states import blank_rows, bytes_of_a_row, how_many, lent, looked_up, put_back
from apiece.errors import UserError, suggest
from apiece.protocol import Data, Method, Params, Tree

GROUP = 64  # clients whose models are made by one call, if these are small
WEIGHTS, MODES = ("examples", "uniform"), ("auto", "sequential", "vmap")


@dataclasses.dataclass
class Run:
    """Where a run stands: enough to go on from. `rows` holds every client's state, in host memory or on disk."""

    seed: int
    hyper: dict[str, float]
    round: int
    params: Params
    server: Tree
    rows: Tree
    known: np.ndarray
    clock: float = 0.0  # in the simulated world; a round takes 1 where nothing else is said
    flight: Tree = ()  # replies on their way, where an engine has such


class Stage(NamedTuple):
    """What every client of a round is given."""

    server: Tree
    params: Params
    stream: Any
    hyper: dict[str, Any]
    round: Any
    x: Tree
    y: Tree


class Simulation(abc.ABC):
    """A federation's training split and a method on it; how a run goes on is an engine's own.

    Args:
        build: (hyper, round) -> Method; called inside the compiled program, so hyper-parameters and the round may
            be traced: seeds, grids and schedules share one compile.
        x, y, offsets: the flat training arrays; clients from `population` on are known but never sampled.
        weights: "examples" or "uniform", how much a reply counts. stateless: clients forget everything between rounds.
        mode: "sequential", "vmap" or "auto" (by the platform). devices: default all.
    """

    def __init__(
        self,
        build: Build,
        x: Tree,
        y: Tree,
        offsets: np.ndarray,
        *,
        population: int | None = None,
        weights: str = "examples",
        stateless: bool = False,
        mode: str = "auto",
        devices: Sequence[Any] | None = None,
    ) -> None:
        for what, word, known in (("weights", weights, WEIGHTS), ("mode", mode, MODES)):
            if word not in known:
                raise UserError(f"{what} = '{word}' is unknown: {suggest(word, known)}")
        self.mesh = mesh_of(devices)
        self.build = build
        self.train = self.examples(x, y, offsets)
        self.population = len(self.train.sizes) if population is None else population
        self.uniform = weights == "uniform"
        self.stateless = stateless
        self.sequential = mode == "sequential" or (mode == "auto" and self.mesh.devices.flat[0].platform == "cpu")
        self.memories = 0 if stateless else self.population
        self._personal = jax.jit(self._personal_models)

    @abc.abstractmethod
    def advance(self, run: Run, rounds: int) -> Run:
        """The run `rounds` rounds later. `run` itself must not be used any more: its memory is reused."""

    @abc.abstractmethod
    def visits(self, run: Run) -> int:
        """How many visits a client has made on average so far (what a newcomer catches up with); at least one."""

    @abc.abstractmethod
    def visited(self, run: Run) -> np.ndarray:
        """How many visits each client has made so far."""

    def examples(self, x: Tree, y: Tree, offsets: np.ndarray) -> Examples:
        """A split laid out on this engine's devices."""
        starts, sizes = np.asarray(offsets[:-1], np.int32), np.diff(offsets).astype(np.int32)
        return Examples(on_devices(x, self.mesh), on_devices(y, self.mesh), starts, sizes)

    def moved(self, x: Tree, y: Tree, offsets: np.ndarray) -> "Simulation":
        """This engine on other training data of the same shapes, where what was compiled serves again."""
        other = copy.copy(self)
        other.train = self.examples(x, y, offsets)
        shapes = lambda split: (jax.tree.map(np.shape, (split.x, split.y)), len(split.sizes), split.capacity)
        before, after = shapes(self.train), shapes(other.train)
        if before != after:
            raise UserError(
                f"an engine moves only to data of the same shapes, as many clients and a largest one of the same size: "
                f"{before} is not {after}; make a new engine"
            )
        return other

    def start(self, init: Callable[[Any], Params], seed: int, hyper: dict[str, float] | None = None) -> Run:
        """A run before its first round: initial model and server from the seed, nobody enrolled."""
        streams, hyper = keys(seed), dict(hyper or {})
        params = on_devices(init(streams.model), self.mesh)
        method = self.build(hyper, 0)
        server = on_devices(method.init(params, streams.server), self.mesh)
        return Run(
            seed, hyper, 0, params, server, self._empty_rows(method, params, server), np.zeros(self.population, bool)
        )

    def personal(self, run: Run, ids: np.ndarray, group: int | None = None) -> Params:
        """The models these clients use, stacked, on the host."""
        parts = [models for models, _ in self.personal_groups(run, ids, group)]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def personal_groups(
        self, run: Run, ids: np.ndarray, group: int | None = None
    ) -> Iterator[tuple[Params, np.ndarray]]:
        """The same, some clients after others, where all would be too many: (their models, who they are)."""
        for models, who in self._personal_groups(run, ids, self._group(run, group)):
            yield jax.tree.map(lambda leaf: on_host(leaf)[: len(who)], models), who  # noqa: B023 (used at once)

    def outcomes(
        self,
        run: Run,
        ids: np.ndarray,
        outcomes: Callable,
        splits: dict[str, Examples],
        group: int | None = None,
        most: int | None = None,
    ) -> dict[str, tuple[np.ndarray, ...]]:
        """Per split: what `outcomes` gives (loss, error, ...) for every example of these clients by their own model.

        `most`: as if nobody had more training examples than so many, the first ones, to make that model from.
        """
        group = self._group(run, group)
        found: dict[str, list] = {name: [] for name in splits}
        for models, who in self._personal_groups(run, ids, group, most):
            for name, split in splits.items():
                start, size = padded((split.starts[who], split.sizes[who]), group)
                chunk = split.chunk if self.sequential else min(split.capacity, FULL_CHUNK)
                how = dict(outcomes=outcomes, capacity=split.capacity, chunk=chunk)
                how |= dict(mesh=self.mesh, sequential=self.sequential)
                scores = score_models(models, split.x, split.y, start, size, **how)
                inside = np.arange(scores[0].shape[1]) < split.sizes[who][:, None]
                found[name].append(tuple(on_host(score)[: len(who)][inside] for score in scores))
        nothing = (np.zeros(0, np.float32),) * 2  # nobody was asked
        return {
            name: tuple(map(np.concatenate, zip(*parts, strict=True))) if parts else nothing
            for name, parts in found.items()
        }

    # The parts of a run that engines share, on the host.

    def _stage(self, run: Run) -> Stage:
        round = np.int32(run.round)
        return Stage(run.server, run.params, keys(run.seed).personal, run.hyper, round, self.train.x, self.train.y)

    def _weights(self, ids: np.ndarray) -> np.ndarray:
        return np.ones(ids.shape, np.float32) if self.uniform else self.train.sizes[ids].astype(np.float32)

    def _at_once(self, run: Run, steps: int, width: int) -> int:
        """How many steps, at most `steps`, with `width` clients each go into a block: fewer if states are large."""
        rows = how_many(bytes_of_a_row(run.rows), self.population)
        if max(rows, width) >= self.population:  # everybody fits, or a single step touches everybody
            return steps
        return max(1, min(steps, rows // width))

    def _lent(self, run: Run, touched: np.ndarray, count: int) -> tuple[Tree, np.ndarray]:
        """(rows, known) of the clients that a block touches, for the device."""
        return jax.tree.map(lambda leaf: lent(leaf, touched, count), run.rows), lent(run.known, touched, count)

    def _returned(self, run: Run, touched: np.ndarray, rows: Tree, known: Any) -> None:
        """What the block made of them, back among everybody's."""
        if not self.stateless:
            jax.tree.map(lambda leaf, new: put_back(leaf, touched, new), run.rows, rows)
            put_back(run.known, touched, known)

    def _group(self, run: Run, group: int | None) -> int:
        """How many clients' models are made at once: a fixed number, as it is a shape of the compiled program."""
        model = sum(leaf.nbytes for leaf in jax.tree.leaves(run.params))
        size = bytes_of_a_row(run.rows) + model
        return round_up(group or how_many(size, GROUP), self.mesh.size)

    def _empty_rows(self, method: Method, params: Params, server: Tree) -> Tree:
        """Zeros for everybody's state."""
        data = Data(self.train.x, self.train.y, np.int32(0), np.int32(1), self.train.capacity)
        state = jax.eval_shape(lambda: method.enroll(params, method.message(server, 0), data, jax.random.key(0)))
        return blank_rows(state, self.memories)

    def _personal_groups(
        self, run: Run, ids: np.ndarray, group: int, most: int | None = None
    ) -> Iterator[tuple[Params, np.ndarray]]:
        """(stacked models, whose they are) for one group of clients after another; the last may be filled up."""
        for first in range(0, len(ids), group):
            who = np.asarray(ids[first : first + group], np.int32)
            # Clients beyond the population, and everybody when nothing is kept, have no memory: a blank row.
            known = np.zeros(len(who), bool)
            inside = who < self.memories
            known[inside] = run.known[who[inside]]
            sizes = np.minimum(self.train.sizes[who], self.train.capacity if most is None else most)
            place = dict(ids=who, starts=self.train.starts[who], sizes=sizes, known=known)
            rows = jax.tree.map(lambda leaf: looked_up(leaf, who, inside, group), run.rows)  # noqa: B023 (used at once)
            yield self._personal(rows, padded(place, group), self._stage(run), self.visits(run)), who

    # The compiled programs.

    def _work(self, who: dict, rows: Tree, known: Any, stage: Stage) -> tuple:
        """(states, replies) of this device's clients after a visit each; those not `present` are not run."""
        method = self.build(stage.hyper, stage.round)

        def one(c: dict) -> tuple:
            old = tree.take(rows, c["slots"])
            return visit(method, stage.params, known[c["slots"]], old, *self._contact(method, stage, c))

        return each(one, who, who["present"], self.sequential)

    def _remembered(self, rows: Tree, known: Any, slots: Any, clients: Tree) -> tuple[Tree, Any]:
        """Rows and known after these clients' visits; the last row, for those who are absent, stays unknown."""
        if self.stateless:
            return rows, known
        return tree.put(rows, slots, clients), known.at[slots].set(True).at[-1].set(False)

    def _personal_models(self, rows: Tree, who: dict, stage: Stage, visits: Any) -> Params:
        def work(who: dict, rows: Tree, stage: Stage, visits: Any) -> Params:
            method = self.build(stage.hyper, stage.round)

            def one(c: tuple) -> Params:
                who, row = c
                contact = self._contact(method, stage, who)
                return model_in_use(method, stage.params, who["known"], row, *contact, visits)

            return each(one, (who, rows), who["sizes"] > 0, self.sequential)

        return divided(work, self.mesh, rows=2, whole=2)(who, rows, stage, visits)

    def _contact(self, method: Method, stage: Stage, c: dict) -> tuple[Tree, Data, Any]:
        """What a client sees: its message, its data, its key."""
        data = Data(stage.x, stage.y, c["starts"], c["sizes"], self.train.capacity)
        key = key_of(stage.stream, stage.round, c["ids"])
        if "wave" in c:  # who starts again from the same version of the server must not repeat its draws
            key = jnp.where(c["wave"] > 0, jax.random.fold_in(key, c["wave"]), key)
        return method.message(stage.server, c["ids"]), data, key


def round_up(count: int, multiple: int) -> int:
    """The least multiple that is at least `count`.

    >>> round_up(5, 4)
    8
    """
    return -(-count // multiple) * multiple


def padded(columns: Tree, length: int) -> Tree:
    """Columns of one length, filled up with zeros (a client of size 0 is not run)."""
    fill = lambda leaf: np.concatenate([leaf, np.zeros((length - len(leaf), *leaf.shape[1:]), leaf.dtype)])
    return jax.tree.map(fill, columns)


def touched_rows(ids: np.ndarray, everybody: bool) -> tuple[np.ndarray, np.ndarray]:
    """(whose rows a block needs, and at which of them each id is); `everybody`: all, each at its own number.

    >>> [part.tolist() for part in touched_rows(np.array([[7, 3], [3, 9]]), False)]
    [[3, 7, 9], [[1, 0], [0, 2]]]
    """
    if everybody:
        return np.arange(ids.max() + 1), ids
    touched, at = np.unique(ids, return_inverse=True)
    return touched, at.reshape(ids.shape)
