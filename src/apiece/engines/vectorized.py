"""A whole run of rounds in compiled blocks.

A block is one call of one compiled program: a scan over rounds; in each, the cohort's clients are divided over the
devices (`shard_map`), and each device goes through its share one by one (on a CPU, where that is fastest: both cores
busy, no padding, any number of steps) or all at once (`vmap`, on an accelerator). Only the rows of the clients that a
block touches are on the device; everybody's stay in host memory, untouched pages of which cost nothing. So a round's
cost depends on the cohort, not on the population.
"""

import dataclasses
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from apiece import tree
from apiece.engines.cohort import Participation
from apiece.engines.contact import Build, Keys, key_of, keys, model_in_use, visit
from apiece.engines.division import divided, each, mesh_of, on_devices
from apiece.engines.score import Examples, score_models
from apiece.errors import UserError, suggest
from apiece.protocol import Cohort, Data, Method, Params, Tree

SMALL_STATES = 1 << 24  # bytes
WEIGHTS, MODES = ("examples", "uniform"), ("auto", "sequential", "vmap")


@dataclasses.dataclass
class Run:
    """Where a run stands: enough to go on from. `rows` holds every client's state, in host memory."""

    seed: int
    hyper: dict[str, float]
    round: int
    params: Params
    server: Tree
    rows: Tree
    known: np.ndarray


class Stage(NamedTuple):
    """What every client of a round is given."""

    server: Tree
    params: Params
    stream: Any
    hyper: dict[str, Any]
    round: Any
    x: Tree
    y: Tree


class Vectorized:
    """Runs a method over a federation's training split.

    Args:
        build: (hyper, round) -> Method; called inside the compiled program, so hyper-parameters and the round may
            be traced: seeds, grids and schedules share one compile.
        x, y, offsets: the flat training arrays; clients from `population` on are known but never sampled.
        participation: who takes part. weights: "examples" or "uniform", how much a reply counts.
        stateless: clients forget everything between rounds. block: rounds a compiled call.
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
        participation: Participation | None = None,
        weights: str = "examples",
        stateless: bool = False,
        block: int = 10,
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
        self.participation = participation or Participation()
        self.uniform = weights == "uniform"
        self.stateless = stateless
        self.block = block
        self.sequential = mode == "sequential" or (mode == "auto" and self.mesh.devices.flat[0].platform == "cpu")
        self.places = _round_up(self.participation.places(self.population), self.mesh.size)
        self.memories = 0 if stateless else self.population
        self.working_rows = 0 if stateless else min(self.population, block * self.places)
        self._block = jax.jit(self._run_block, donate_argnames="rows")
        self._personal = jax.jit(self._personal_models)

    def examples(self, x: Tree, y: Tree, offsets: np.ndarray) -> Examples:
        """A split laid out on this engine's devices."""
        starts, sizes = np.asarray(offsets[:-1], np.int32), np.diff(offsets).astype(np.int32)
        return Examples(on_devices(x, self.mesh), on_devices(y, self.mesh), starts, sizes)

    def start(self, init: Callable[[Any], Params], seed: int, hyper: dict[str, float] | None = None) -> Run:
        """A run before its first round: initial model and server from the seed, nobody enrolled."""
        streams, hyper = keys(seed), dict(hyper or {})
        params = on_devices(init(streams.model), self.mesh)
        method = self.build(hyper, 0)
        server = on_devices(method.init(params, streams.server), self.mesh)
        return Run(
            seed, hyper, 0, params, server, self._empty_rows(method, params, server), np.zeros(self.population, bool)
        )

    def advance(self, run: Run, rounds: int) -> Run:
        """The run `rounds` rounds later. `run` itself must not be used any more: its memory is reused."""
        last = run.round + rounds
        while run.round < last:
            run = self._advance_block(run, min(self.block, last - run.round))
        return run

    def personal(self, run: Run, ids: np.ndarray, group: int = 64) -> Params:
        """The models these clients use, stacked, on the host."""
        group = _round_up(group, self.mesh.size)
        cut = lambda models, n: jax.tree.map(lambda leaf: np.asarray(leaf)[:n], models)
        parts = [cut(models, len(who)) for models, who in self._personal_groups(run, ids, group)]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def outcomes(
        self, run: Run, ids: np.ndarray, outcomes: Callable, splits: dict[str, Examples], group: int = 64
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Per split: (loss, error) of every example of these clients under their own model, client after client."""
        group = _round_up(group, self.mesh.size)
        nothing = np.zeros(0, np.float32)
        found: dict[str, list] = {name: [(nothing, nothing)] for name in splits}
        for models, who in self._personal_groups(run, ids, group):
            for name, split in splits.items():
                start, size = _padded((split.starts[who], split.sizes[who]), group)
                how = dict(outcomes=outcomes, capacity=split.capacity, mesh=self.mesh, sequential=self.sequential)
                scores = score_models(models, split.x, split.y, start, size, **how)
                inside = np.arange(scores[0].shape[1]) < split.sizes[who][:, None]
                found[name].append(tuple(np.asarray(score)[: len(who)][inside] for score in scores))
        join = lambda pairs, k: np.concatenate([pair[k] for pair in pairs])
        return {name: (join(pairs, 0), join(pairs, 1)) for name, pairs in found.items()}

    @property
    def visits(self) -> Callable[[int], int]:
        """How many visits a client has made on average after so many rounds (what a newcomer catches up with)."""
        share = self.participation.probability or self.participation.places(self.population) / self.population
        return lambda rounds: max(1, round(rounds * share))

    # The parts of a block, on the host.

    def _advance_block(self, run: Run, rounds: int) -> Run:
        ids, weight = self._plan(run.seed, run.round, rounds)
        touched, slots = np.unique(ids, return_inverse=True)
        if self.working_rows == self.population:
            touched, slots = np.arange(self.population), ids
        # Absent places point at one spare row, so that they never write over a client's.
        slots = np.where(weight > 0, slots.reshape(ids.shape), self.working_rows).astype(np.int32)
        rows = jax.tree.map(lambda leaf: _spare(leaf, touched, self.working_rows), run.rows)
        known = _spare(run.known, touched, self.working_rows)
        round = run.round + np.arange(self.block, dtype=np.int32)
        place = dict(starts=self.train.starts[ids], sizes=self.train.sizes[ids])
        plan = dict(round=round, played=(weight > 0).any(1), ids=ids, slots=slots, weight=weight, **place)
        server, rows, known = self._block(run.server, rows, known, self._stage(run), keys(run.seed), plan)
        if not self.stateless:
            keep = lambda leaf, new: leaf.__setitem__(touched, np.asarray(new)[: len(touched)])
            jax.tree.map(keep, run.rows, rows)
            run.known[touched] = np.asarray(known)[: len(touched)]
        return dataclasses.replace(run, server=server, round=run.round + rounds)

    def _stage(self, run: Run) -> Stage:
        round = np.int32(run.round)
        return Stage(run.server, run.params, keys(run.seed).personal, run.hyper, round, self.train.x, self.train.y)

    def _plan(self, seed: int, first: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and weights [block, places] of the next rounds; rounds and places that are not used have weight 0."""
        ids = np.zeros((self.block, self.places), np.int32)
        weight = np.zeros((self.block, self.places), np.float32)
        for r in range(rounds):
            drawn = self.participation.draw(seed, first + r, self.population)
            ids[r, : len(drawn)] = drawn
            weight[r, : len(drawn)] = 1 if self.uniform else self.train.sizes[drawn]
        return ids, weight

    def _empty_rows(self, method: Method, params: Params, server: Tree) -> Tree:
        """Zeros for everybody's state."""
        data = Data(self.train.x, self.train.y, np.int32(0), np.int32(1), self.train.capacity)
        state = jax.eval_shape(lambda: method.enroll(params, method.message(server, 0), data, jax.random.key(0)))
        return jax.tree.map(lambda leaf: _empty((self.memories, *leaf.shape), leaf.dtype), state)

    def _personal_groups(self, run: Run, ids: np.ndarray, group: int) -> Iterator[tuple[Params, np.ndarray]]:
        """(stacked models, whose they are) for one group of clients after another; the last may be filled up."""
        for first in range(0, len(ids), group):
            who = np.asarray(ids[first : first + group], np.int32)
            # Clients beyond the population, and everybody when nothing is kept, have no memory: a blank row.
            known = np.zeros(len(who), bool)
            inside = who < self.memories
            known[inside] = run.known[who[inside]]
            place = dict(ids=who, starts=self.train.starts[who], sizes=self.train.sizes[who], known=known)
            rows = jax.tree.map(lambda leaf: _blank_filled(leaf, who, inside), run.rows)  # noqa: B023 (used at once)
            rows, place = _padded(rows, group), _padded(place, group)
            yield self._personal(rows, place, self._stage(run), self.visits(run.round)), who

    # The compiled programs.

    def _run_block(self, server: Tree, rows: Tree, known: Any, stage: Stage, streams: Keys, plan: dict) -> tuple:
        def work(who: dict, rows: Tree, known: Any, stage: Stage) -> tuple:
            method = self.build(stage.hyper, stage.round)

            def one(c: dict) -> tuple:
                old = tree.take(rows, c["slots"])
                return visit(method, stage.params, known[c["slots"]], old, *self._contact(method, stage, c))

            return each(one, who, who["weight"] > 0, self.sequential)

        everyone = divided(work, self.mesh, rows=1, whole=3)
        # Left to itself, XLA divides the plan as the clients are and then has to collect it again, round by round.
        everywhere = NamedSharding(self.mesh, P())
        plan = lax.with_sharding_constraint(plan, everywhere)

        def play(state: tuple, plan: dict) -> tuple:
            server, rows, known = state
            round, weight = plan["round"], lax.with_sharding_constraint(plan["weight"], everywhere)
            now = stage._replace(server=server, stream=streams.client, round=round)
            who = {name: column for name, column in plan.items() if name not in ("round", "played")}
            clients, replies = everyone(who, rows, known, now)
            cohort = Cohort(plan["ids"], weight, jnp.zeros(self.places, jnp.int32), jnp.int32(self.population))
            merge_key = jax.random.fold_in(streams.server, round)
            server = self.build(stage.hyper, round).merge(server, replies, cohort, merge_key)
            server = lax.with_sharding_constraint(server, everywhere)
            if not self.stateless:
                rows = tree.put(rows, plan["slots"], clients)
                known = known.at[plan["slots"]].set(True).at[-1].set(False)
            return server, rows, known

        def step(state: tuple, plan: dict) -> tuple:
            # Rounds beyond the last one fill the block up, so that every block is the same program.
            return lax.cond(plan["played"], play, lambda state, plan: state, state, plan), None

        return lax.scan(step, (server, rows, known), plan)[0]

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
        return method.message(stage.server, c["ids"]), data, key_of(stage.stream, stage.round, c["ids"])


def _empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros that claim memory only where they are written; on disk, likewise, when they would fill half of it."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < SMALL_STATES:
        return np.zeros(shape, dtype)
    if size <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2:
        # NumPy asks for huge pages, and then one client's few bytes claim, and clear, two megabytes.
        return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)
    with tempfile.TemporaryFile(prefix="apiece-states-") as file:  # nameless: gone when the array is
        return np.memmap(file, dtype, "w+", shape=shape)


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _padded(columns: Tree, length: int) -> Tree:
    """Columns of one length, filled up with zeros (a client of size 0 is not run)."""
    fill = lambda leaf: np.concatenate([leaf, np.zeros((length - len(leaf), *leaf.shape[1:]), leaf.dtype)])
    return jax.tree.map(fill, columns)


def _blank_filled(leaf: np.ndarray, who: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The rows of `who`, zeros for those outside."""
    out = np.zeros((len(who), *leaf.shape[1:]), leaf.dtype)
    out[inside] = leaf[who[inside]]
    return out


def _spare(leaf: np.ndarray, touched: np.ndarray, count: int) -> np.ndarray:
    """The touched rows, filled up to `count`, and one spare row at the end."""
    out = np.zeros((count + 1, *leaf.shape[1:]), leaf.dtype)
    if count:
        out[: len(touched)] = leaf[touched]
    return out
