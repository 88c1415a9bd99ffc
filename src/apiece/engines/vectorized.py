"""A whole run of rounds in compiled blocks.

A block is one call of one compiled program: a scan over rounds; in each, the cohort's clients are divided over the
devices (`shard_map`), and each device goes through its share one by one (on a CPU, where that is fastest: both cores
busy, no padding, any number of steps) or all at once (`vmap`, on an accelerator). Only the rows of the clients that a
block touches are on the device; everybody's stay in host memory, untouched pages of which cost nothing. So a round's
cost depends on the cohort, not on the population.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from apiece import tree
from apiece.engines.cohort import Participation
from apiece.engines.contact import Keys, key_of, keys, model_in_use, visit
from apiece.engines.devices import use_all_cores
from apiece.local import FULL_CHUNK, whole
from apiece.protocol import Cohort, Data, Method, Params, Tree

Build = Callable[[dict[str, Any], Any], Method]  # (hyper-parameters, round) -> the method of that round; may be traced


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


@dataclasses.dataclass(frozen=True)
class Examples:
    """A split on the devices: flat arrays, and on the host whose rows are where."""

    x: Tree
    y: Tree
    starts: np.ndarray
    sizes: np.ndarray

    @property
    def capacity(self) -> int:
        return int(self.sizes.max(initial=1))


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
        return Run(seed, hyper, 0, params, server, self._empty_rows(method, params, server), self._nobody())

    def advance(self, run: Run, rounds: int) -> Run:
        """The run `rounds` rounds later. `run` itself must not be used any more: its memory is reused."""
        last = run.round + rounds
        while run.round < last:
            run = self._advance_block(run, min(self.block, last - run.round))
        return run

    def personal(self, run: Run, ids: np.ndarray, group: int = 64) -> Params:
        """The models these clients use, stacked, on the host."""
        parts = [jax.tree.map(lambda leaf: np.asarray(leaf)[:n], m) for m, n in self._personal_groups(run, ids, group)]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def outcomes(
        self, run: Run, ids: np.ndarray, outcomes: Callable, splits: dict[str, Examples], group: int = 64
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Per split: (loss, error) of every example of these clients under their own model, client after client."""
        found: dict[str, list] = {name: [] for name in splits}
        for at, (models, n) in enumerate(self._personal_groups(run, ids, group)):
            who = ids[at * group : at * group + n]
            for name, split in splits.items():
                place = _padded(dict(start=split.starts[who], size=split.sizes[who]), _round_up(group, self.mesh.size))
                loss, error = score_models(
                    models, split.x, split.y, place["start"], place["size"],
                    outcomes=outcomes, capacity=split.capacity, mesh=self.mesh, sequential=self.sequential,
                )  # fmt: skip
                inside = np.arange(loss.shape[1]) < split.sizes[who][:, None]
                found[name].append((np.asarray(loss)[:n][inside], np.asarray(error)[:n][inside]))
        join = lambda pairs, k: np.concatenate([pair[k] for pair in pairs]) if pairs else np.zeros(0, np.float32)
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
        server, rows, known = self._block(
            run.server, rows, known, run.params, keys(run.seed), run.hyper, self.train.x, self.train.y,
            dict(round=run.round + np.arange(self.block, dtype=np.int32), ids=ids, slots=slots, weight=weight,
                 starts=self.train.starts[ids], sizes=self.train.sizes[ids]),
        )  # fmt: skip
        if not self.stateless:
            keep = lambda leaf, new: leaf.__setitem__(touched, np.asarray(new)[: len(touched)])
            jax.tree.map(keep, run.rows, rows)
            run.known[touched] = np.asarray(known)[: len(touched)]
        return dataclasses.replace(run, server=server, round=run.round + rounds)

    def _plan(self, seed: int, first: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and weights [block, places] of the next rounds; rounds and places that are not used have weight 0."""
        ids = np.zeros((self.block, self.places), np.int32)
        weight = np.zeros((self.block, self.places), np.float32)
        for r in range(rounds):
            drawn = self.participation.draw(seed, first + r, self.population)
            ids[r, : len(drawn)] = drawn
            weight[r, : len(drawn)] = 1 if self.uniform else self.train.sizes[drawn]
        return ids, weight

    def _nobody(self) -> np.ndarray:
        return np.zeros(self.population, bool)

    def _empty_rows(self, method: Method, params: Params, server: Tree) -> Tree:
        """Zeros for everybody's state; memory is only claimed where a client is written."""
        data = Data(self.train.x, self.train.y, np.int32(0), np.int32(1), self.train.capacity)
        state = jax.eval_shape(lambda: method.enroll(params, method.message(server, 0), data, jax.random.key(0)))
        rows = 0 if self.stateless else self.population
        return jax.tree.map(lambda leaf: np.zeros((rows, *leaf.shape), leaf.dtype), state)

    def _personal_groups(self, run: Run, ids: np.ndarray, group: int) -> Any:
        """(stacked models, how many of them count) for one group of clients after another."""
        group = _round_up(group, self.mesh.size)
        for first in range(0, len(ids), group):
            who = np.asarray(ids[first : first + group], np.int32)
            mine = np.where(who < len(run.known), who, 0)
            known = run.known[mine] & (who < len(run.known)) & (not self.stateless)
            place = _padded(dict(id=who, start=self.train.starts[who], size=self.train.sizes[who], known=known), group)
            rows = jax.tree.map(
                lambda leaf, mine=mine: _padded(leaf[mine] if len(leaf) else np.zeros((len(mine), *leaf.shape[1:]), leaf.dtype), group),
                run.rows,
            )
            models = self._personal(
                run.server, rows, run.params, keys(run.seed), run.hyper, self.train.x, self.train.y, place,
                run.round, self.visits(run.round),
            )  # fmt: skip
            yield models, len(who)

    # The compiled programs.

    def _run_block(
        self, server: Tree, rows: Tree, known: Any, params: Params, streams: Keys, hyper: dict, x: Tree, y: Tree, plan: dict
    ) -> tuple:
        def work(who: dict, server: Tree, rows: Tree, known: Any, params: Params, stream: Any, hyper: dict, round: Any, x: Tree, y: Tree) -> tuple:  # fmt: skip
            method = self.build(hyper, round)

            def one(c: dict) -> tuple:
                data = Data(x, y, c["starts"], c["sizes"], self.train.capacity)
                message, key = method.message(server, c["ids"]), key_of(stream, round, c["ids"])
                old = tree.take(rows, c["slots"]) if not self.stateless else tree.take(rows, 0)
                return visit(method, params, known[c["slots"]], old, message, data, key)

            return _each(one, who, who["weight"] > 0, self.sequential)

        everyone = _divided(work, self.mesh, 1, 9)

        def play(state: tuple, plan: dict) -> tuple:
            server, rows, known = state
            round = plan["round"]
            who = {name: plan[name] for name in ("ids", "slots", "weight", "starts", "sizes")}
            clients, replies = everyone(who, server, rows, known, params, streams.client, hyper, round, x, y)
            delay = jnp.zeros(self.places, jnp.int32)
            cohort = Cohort(plan["ids"], plan["weight"], delay, jnp.int32(self.population))
            server = self.build(hyper, round).merge(server, replies, cohort, jax.random.fold_in(streams.server, round))
            server = lax.with_sharding_constraint(server, NamedSharding(self.mesh, P()))
            if not self.stateless:
                rows = tree.put(rows, plan["slots"], clients)
                known = known.at[plan["slots"]].set(True).at[-1].set(False)
            return server, rows, known

        def step(state: tuple, plan: dict) -> tuple:
            return lax.cond((plan["weight"] > 0).any(), play, lambda state, plan: state, state, plan), None

        return lax.scan(step, (server, rows, known), plan)[0]

    def _personal_models(
        self, server: Tree, rows: Tree, params: Params, streams: Keys, hyper: dict, x: Tree, y: Tree, who: dict, round: Any, visits: Any
    ) -> Params:
        def work(who: dict, rows: Tree, server: Tree, params: Params, stream: Any, hyper: dict, x: Tree, y: Tree, round: Any, visits: Any) -> Params:  # fmt: skip
            method = self.build(hyper, round)

            def one(c: tuple) -> Params:
                c, row = c
                data = Data(x, y, c["start"], c["size"], self.train.capacity)
                message, key = method.message(server, c["id"]), key_of(stream, round, c["id"])
                return model_in_use(method, params, c["known"], row, message, data, key, visits)

            return _each(one, (who, rows), who["size"] > 0, self.sequential)

        program = _divided(work, self.mesh, 2, 8)
        return program(who, rows, server, params, streams.personal, hyper, x, y, round, visits)


def mesh_of(devices: Sequence[Any] | None = None) -> Any:
    """The given devices (default: all) in a row, over which clients are divided."""
    use_all_cores()
    devices = list(devices or jax.devices())
    # Explicit axes, the default, would refuse a gather from sharded rows.
    return jax.make_mesh((len(devices),), ("clients",), axis_types=(AxisType.Auto,), devices=devices)


def on_devices(values: Tree, mesh: Any) -> Tree:
    """The same values on every device; strongly typed, so that a block's output fits its input."""
    strong = lambda leaf: jax.device_put(jnp.asarray(leaf, leaf.dtype), NamedSharding(mesh, P()))
    return jax.tree.map(strong, values)


@partial(jax.jit, static_argnames=("outcomes", "capacity", "mesh", "sequential"))
def score_models(
    models: Params, x: Tree, y: Tree, start: Any, size: Any, *, outcomes: Callable, capacity: int, mesh: Any, sequential: bool
) -> tuple[jax.Array, jax.Array]:
    """(loss, error) [clients, capacity] of each client's examples under its model; the same program for all methods."""
    chunk = min(capacity, FULL_CHUNK)
    blank = jnp.zeros(-(-capacity // chunk) * chunk, jnp.float32)

    def work(who: tuple, x: Tree, y: Tree) -> tuple:
        def one(c: tuple) -> tuple:
            model, start, size = c
            data = Data(x, y, start, size, capacity)

            def score(k: Any, out: tuple) -> tuple:
                got = outcomes(model, whole(data, k * chunk, chunk))
                put = lambda o, g: lax.dynamic_update_slice(o, g.astype(o.dtype), (k * chunk,))
                return put(out[0], got[0]), put(out[1], got[1])

            return lax.fori_loop(0, -(-size // chunk), score, (blank, blank))

        return _each(one, who, who[2] > 0, sequential)

    return _divided(work, mesh, 1, 2)((models, start, size), x, y)


def _divided(work: Callable, mesh: Any, rows: int, whole: int) -> Callable:
    """`work` with its first `rows` arguments divided over the devices and the other `whole` ones given to each."""
    specs = (*[P("clients")] * rows, *[P()] * whole)
    return jax.shard_map(work, mesh=mesh, in_specs=specs, out_specs=P("clients"), check_vma=False)


def _each(one: Callable, who: Tree, present: Any, sequential: bool) -> Tree:
    """`one` for each of this device's clients; absent ones are not run (or, under vmap, run for nothing)."""
    if not sequential:
        return jax.vmap(one)(who)
    shapes = jax.eval_shape(one, tree.take(who, 0))
    blank = lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.map(lambda pair: lax.cond(pair[1], lambda: one(pair[0]), blank), (who, present))


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _padded(columns: Tree, length: int) -> Tree:
    """Columns of one length, filled up with zeros (a client of size 0 is not run)."""
    fill = lambda leaf: np.concatenate([leaf, np.zeros((length - len(leaf), *leaf.shape[1:]), leaf.dtype)])
    return jax.tree.map(fill, columns)


def _spare(leaf: np.ndarray, touched: np.ndarray, count: int) -> np.ndarray:
    """The touched rows, filled up to `count`, and one spare row at the end."""
    out = np.zeros((count + 1, *leaf.shape[1:]), leaf.dtype)
    if count:
        out[: len(touched)] = leaf[touched]
    return out
