"""Everybody's data and state, and what can be asked of them between rounds: what the simulating engines share.

Only the rows of the clients that a compiled block touches are on the device; everybody's stay in host memory or on
disk (`states`). So a round's cost depends on the cohort, not on the population.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.client.draw import FULL_CHUNK
from apiece.engines.compiling import compiled
from apiece.engines.contact import (
    Build,
    keys,
    model_shapes,
    remembered,
)
from apiece.engines.costs import Costs
from apiece.engines.engine import Engine, Outcomes, RunState, check_part, check_word, given_weights, join_outcomes
from apiece.engines.fallback import mend_model, mend_models
from apiece.engines.simulation.answer import MORE, SMALL, answer_all, asked_at_once
from apiece.engines.simulation.division import mesh_of, on_devices, on_host
from apiece.engines.simulation.lending import KEPT, lend_examples, stay_on_host
from apiece.engines.simulation.programs import Programs, Stage
from apiece.engines.simulation.rows import mixed, padded, round_up
from apiece.engines.simulation.score import Examples, score_models
from apiece.engines.states import (
    PLACES,
    blank_rows,
    bytes_of_a_row,
    commit_rows,
    commit_states,
    how_many,
    lend_rows,
    lend_states,
    look_up_states,
)
from apiece.errors import UserError
from apiece.protocol import Data, Message, Params, Personal, Question, Tree

GROUP = 64  # clients whose models are made by one call, if these are not large
BRIEF = 4 << 20  # bytes of everybody's models: below, compiling what makes them takes longer than all that it makes
MODES = ("auto", "sequential", "vmap")


class Simulation(Programs, Engine):
    """A federation's training split and a method on it; how a run goes on is an engine's own.

    Args:
        build: (hyper, round) -> Method; called inside the compiled program, so hyper-parameters and the round may
            be traced: seeds, grids and schedules share one compile.
        x, y, offsets: the flat training arrays; clients from `population` on are known but never sampled.
        held_out: other parts of the data by name, likewise (x, y, offsets), to judge models on.
        weights: "examples", "uniform" or a number a client, how much a reply counts.
        stateless: clients forget everything between rounds.
        states: where everybody's states lie: in "memory", on "disk", or "auto", by their size.
        examples: where everybody's lie: on the "devices", on the "host" (or on its disk, if they are mapped), or
            "auto", by their size.
        mode: "sequential", "vmap" or "auto" (by the platform). devices: default all.
    """

    def __init__(
        self,
        build: Build,
        x: Tree,
        y: Tree,
        offsets: np.ndarray,
        *,
        held_out: Mapping[str, tuple[Tree, Tree, np.ndarray]] | None = None,
        population: int | None = None,
        weights: str | Sequence[float] = "examples",
        stateless: bool = False,
        states: str = "auto",
        examples: str = "auto",
        mode: str = "auto",
        devices: Sequence[Any] | None = None,
    ) -> None:
        check_word("mode", mode, MODES)
        check_word("states", states, PLACES)
        check_word("examples", examples, KEPT)
        self.kept = examples
        self.mesh = mesh_of(devices)
        self.build = build
        self.train = self.examples(x, y, offsets)
        self.held_out = {part: self.examples(*arrays) for part, arrays in (held_out or {}).items()}
        self.population = len(self.train.sizes) if population is None else population
        self.uniform, self.given = (
            isinstance(weights, str) and weights == "uniform",
            given_weights(weights, self.population),
        )
        self.stateless, self.states = stateless, states
        self.sequential = mode == "sequential" or (mode == "auto" and self.mesh.devices.flat[0].platform == "cpu")
        self.memories = 0 if stateless else self.population
        self._mixed: tuple[bytes, Simulation] | None = None
        self._compile()

    def _compile(self) -> None:
        """Programs to be compiled when first called, and shapes to be traced when first asked for: of this object."""
        self._known_shapes: dict[str, Tree] = {}  # the same for all settings and seeds
        self._visit_costs: dict[tuple, Costs] = {}
        self._open = compiled(self._open_server, brief=True)
        self._personal, self._small_personal = (compiled(self._personal_models, brief) for brief in (False, True))
        self._newcomer = jax.jit(self._newcomers_model)

    @property
    def sizes(self) -> np.ndarray:  # type: ignore[override]  # of what is laid out now
        """All clients' numbers of training examples."""
        return self.train.sizes

    @property
    def example(self) -> tuple[Tree, Tree]:  # type: ignore[override]
        """The flat arrays, for shapes."""
        return self.train.x, self.train.y

    def examples(self, x: Tree, y: Tree, offsets: np.ndarray) -> Examples:
        """A split laid out on this engine's devices, or left where it is, if its rows are lent."""
        lent = stay_on_host((x, y), self.kept)
        starts, sizes = np.asarray(offsets[:-1], np.int64 if lent else np.int32), np.diff(offsets).astype(np.int32)
        if lent:
            return Examples(x, y, starts, sizes, lent)
        return Examples(on_devices(x, self.mesh), on_devices(y, self.mesh), starts, sizes)

    def rows_of(self, split: Examples, who: np.ndarray) -> tuple[Tree, Tree, np.ndarray]:
        """(x, y, starts) that a program needs to work with these clients: everybody's, or theirs alone."""
        return lend_examples(split, who) if split.lent else (split.x, split.y, split.starts[who])

    def moved(self, x: Tree, y: Tree, offsets: np.ndarray, held_out: Mapping[str, tuple] | None = None) -> "Simulation":
        """This engine on other data, whose training part has the same shapes: what was compiled serves again."""
        other = self._elsewhere()
        other.train = self.examples(x, y, offsets)
        if held_out is not None:
            other.held_out = {part: self.examples(*arrays) for part, arrays in held_out.items()}
        shapes = lambda split: (jax.tree.map(np.shape, (split.x, split.y)), len(split.sizes), split.capacity)
        before, after = shapes(self.train), shapes(other.train)
        if before != after:
            raise UserError(
                f"an engine moves only to data of the same shapes, as many clients and a largest one of the same size: "
                f"{before} is not {after}; make a new engine"
            )
        return other

    def without_data(self) -> "Simulation":
        """What is worth keeping of this engine: its programs, and the shapes of data that it can be `moved` to."""
        shape = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        other = self._elsewhere()
        x, y = jax.tree.map(shape, (self.train.x, self.train.y))
        other.train, other.held_out = Examples(x, y, self.train.starts, self.train.sizes), {}
        other._compile()  # programs hold the engine they are of
        return other

    def _elsewhere(self) -> "Simulation":
        other = copy.copy(self)
        other._mixed = None
        return other

    def start(self, init: Callable[[Any], Params], seed: int, hyper: dict[str, float] | None = None) -> RunState:
        """A run before its first round: initial model and server from the seed, nobody enrolled."""
        streams, hyper = keys(seed), dict(hyper or {})
        params = on_devices(init(streams.model), self.mesh)
        server = on_devices(self._open(hyper, params, streams.server), self.mesh)
        rows = blank_rows(self._state_shapes(hyper, params, server), self.memories, self.states)
        return RunState(seed, hyper, 0, params, server, rows, np.zeros(self.population, bool))

    def take_in(self, values: Tree) -> Tree:
        """Values from a file where this engine keeps a server's state: on its devices."""
        return on_devices(values, self.mesh)

    def ask(
        self, question: Question, message: Message = (), ids: Sequence[int] | None = None, part: str = "train"
    ) -> Tree:
        """The answers of these clients (default: all that train) on a part of their data, summed or stacked."""
        check_part(part, self.held_out)
        split = self.train if part == "train" else self.held_out[part]
        who = np.arange(self.population) if ids is None else np.asarray(ids)
        at_once = asked_at_once(question.answer, message, split) if self.sequential and len(who) > GROUP else GROUP
        group = round_up(min(max(GROUP, at_once), max(len(who), 1)), self.mesh.size)
        how: dict[str, Any] = dict(answer=question.answer, mesh=self.mesh, sequential=self.sequential)
        parts = []
        for first in range(0, len(who), group):
            some = np.asarray(who[first : first + group], np.int32)
            x, y, starts = self.rows_of(split, some)
            place = padded(dict(ids=some, starts=starts, sizes=split.sizes[some]), group)
            found = answer_all(place, message, x, y, capacity=split.capacity, **how)
            found = jax.tree.map(lambda leaf: on_host(leaf)[: len(some)], found)  # noqa: B023 (used at once)
            parts.append(found if question.stacked else jax.tree.map(lambda leaf: leaf.sum(axis=0), found))
        if question.stacked:
            return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return jax.tree.map(lambda *leaves: np.sum(leaves, axis=0, dtype=leaves[0].dtype), *parts)

    def personal_groups(
        self, run: RunState, ids: np.ndarray, group: int | None = None
    ) -> Iterator[tuple[Personal, np.ndarray]]:
        """The models these clients use, some clients after others: (stacked models, who they are)."""
        for models, who in self._personal_groups(run, ids, self._group(run, group)):
            own = jax.tree.map(lambda leaf: on_host(leaf)[: len(who)], models)  # noqa: B023 (used at once)
            yield mend_models(self.build, run, own, who, self._data_of), who

    def outcomes(
        self,
        run: RunState,
        ids: np.ndarray,
        outcomes: Outcomes,
        parts: Sequence[str] | Mapping[str, Examples],
        most: int | None = None,
        group: int | None = None,
    ) -> dict[str, tuple[np.ndarray, ...]]:
        """Per part of the held-out data: what `outcomes` gives for every example of these clients by their own model.

        Beside names of parts, splits that were laid out by `examples` will do. `most`: see `Engine.outcomes`.
        """
        if most is not None:
            return self._shuffled(ids).outcomes_of_first(run, ids, outcomes, parts, most, group)
        return self.outcomes_of_first(run, ids, outcomes, parts, None, group)

    def outcomes_of_first(
        self,
        run: RunState,
        ids: np.ndarray,
        outcomes: Outcomes,
        parts: Sequence[str] | Mapping[str, Examples],
        most: int | None,
        group: int | None = None,
    ) -> dict[str, tuple[np.ndarray, ...]]:
        """The same by models that are made from the first `most` training examples, in the order in which they lie."""
        splits = parts if isinstance(parts, Mapping) else {part: self.held_out[part] for part in parts}
        group = self._group(run, group)
        found: dict[str, list] = {name: [] for name in splits}
        for models, who in self._personal_groups(run, ids, group, most):
            scores = {name: self._scores(models, who, split, outcomes, group) for name, split in splits.items()}
            if not all(np.isfinite(score[0]).all() for score in scores.values()):
                own = mend_models(self.build, run, jax.tree.map(on_host, models), who, self._data_of)
                models = on_devices(own, self.mesh)
                scores = {name: self._scores(models, who, split, outcomes, group) for name, split in splits.items()}
            for name, score in scores.items():
                found[name].append(score)
        return join_outcomes(found)

    def _scores(
        self, models: Personal, who: np.ndarray, split: Examples, outcomes: Outcomes, group: int
    ) -> tuple[np.ndarray, ...]:
        """What `outcomes` gives for the examples of these clients, end to end."""
        x, y, starts = self.rows_of(split, who)
        start, size = padded((starts, split.sizes[who]), group)
        chunk = split.chunk if self.sequential else min(split.capacity, FULL_CHUNK)
        how: dict[str, Any] = dict(outcomes=outcomes, capacity=split.capacity, chunk=chunk)
        how |= dict(mesh=self.mesh, sequential=self.sequential)
        scores = score_models(models, x, y, start, size, **how)
        inside = np.arange(scores[0].shape[1]) < split.sizes[who][:, None]
        return tuple(on_host(score)[: len(who)][inside] for score in scores)

    def _data_of(self, i: int) -> Data:
        """A client's training data, where everybody's is."""
        x, y, starts = self.rows_of(self.train, np.array([i]))
        return Data(x, y, starts[0], self.train.sizes[i], self.train.capacity)

    def onboard(self, run: RunState, x: np.ndarray, y: np.ndarray) -> Personal:
        """A model for a client that nobody has seen, from its own training data; the run stays as it is."""
        mine = (jnp.asarray(x, self.train.x.dtype), jnp.asarray(y, self.train.y.dtype))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), run.rows)
        model = self._newcomer(nothing, self._stage(run)._replace(x=mine[0], y=mine[1]), self.visits(run))
        return mend_model(self.build, run, model, self.population, Data(*mine, 0, len(y), len(y)))

    def _shuffled(self, ids: np.ndarray) -> "Simulation":
        """This engine with the training rows of these clients in a random order, each client's among themselves."""
        whose = ids.tobytes()
        if self._mixed is None or self._mixed[0] != whose:
            offsets = np.concatenate([[0], np.cumsum(self.train.sizes)])
            order = mixed(offsets, ids)
            if self.train.lent:
                other = self._elsewhere()
                other.train = dataclasses.replace(self.train, order=order)
                self._mixed = (whose, other)
                return other
            take = lambda leaf: leaf[order]
            other = self.moved(jax.tree.map(take, self.train.x), jax.tree.map(take, self.train.y), offsets)
            self._mixed = (whose, other)
        return self._mixed[1]

    # The parts of a run that engines share, on the host.

    def _stage(self, run: RunState) -> Stage:
        round = np.int32(run.round)
        return Stage(run.server, run.params, keys(run.seed).personal, run.hyper, round, self.train.x, self.train.y)

    def _weights(self, ids: np.ndarray) -> np.ndarray:
        if self.given is not None:
            return self.given[ids]
        return np.ones(ids.shape, np.float32) if self.uniform else self.train.sizes[ids].astype(np.float32)

    def _at_once(self, run: RunState, steps: int, width: int) -> int:
        """How many steps, at most `steps`, with `width` clients each go into a block: fewer if states are large."""
        rows = how_many(bytes_of_a_row(run.rows), self.population)
        if max(rows, width) >= self.population:  # everybody fits, or a single step touches everybody
            return steps
        return max(1, min(steps, rows // width))

    def lend(self, run: RunState, touched: np.ndarray, count: int) -> tuple[Tree, np.ndarray]:
        """(rows, known) of the clients that a block touches, for the device."""
        return lend_states(run.rows, touched, count), lend_rows(run.known, touched, count)

    def commit(self, run: RunState, touched: np.ndarray, rows: Tree, known: Any) -> None:
        """What the block made of them, back among everybody's."""
        if not self.stateless:
            commit_states(run.rows, touched, rows)
            commit_rows(run.known, touched, known)

    def _group(self, run: RunState, group: int | None) -> int:
        """How many clients' models are made at once: a fixed number, as it is a shape of the compiled program."""
        size = bytes_of_a_row(run.rows) + tree.size_in_bytes(self.model_shapes(run))
        numbers = 3 * 4 * max((split.capacity for split in self.held_out.values()), default=0)  # of each example judged
        # One by one, more clients in a call take no more memory at work, and a call has a price of its own.
        more = min(how_many(size, MORE), len(self.sizes), SMALL // max(size + numbers, 1)) if self.sequential else 0
        return round_up(group or max(how_many(size, GROUP), more), self.mesh.size)

    def model_shapes(self, run: RunState) -> Personal:
        """The shapes of one client's personal model: the same for all settings and seeds."""
        method = lambda: self.build(run.hyper, run.round)
        made = lambda: model_shapes(method(), run.params, self.example, self.train.capacity)
        return self._shapes("model", made)

    def _state_shapes(self, hyper: dict[str, float], params: Params, server: Tree) -> Tree:
        """The shapes of one client's state."""

        def state(x: Tree, y: Tree) -> Tree:
            method = self.build(hyper, 0)
            data = Data(x, y, np.int32(0), np.int32(1), self.train.capacity)
            return remembered(method, params, method.message(server, 0), data, jax.random.key(0))

        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self.example)
        return self._shapes("state", lambda: jax.eval_shape(state, *shapes))

    def _shapes(self, what: str, trace: Callable[[], Tree]) -> Tree:
        if what not in self._known_shapes:
            self._known_shapes[what] = trace()
        return self._known_shapes[what]

    def _personal_groups(
        self, run: RunState, ids: np.ndarray, group: int, most: int | None = None
    ) -> Iterator[tuple[Personal, np.ndarray]]:
        """(stacked models, whose they are) for one group of clients after another; the last may be filled up."""
        small = tree.size_in_bytes(run.params) * len(self.sizes) < BRIEF
        make = self._small_personal if small else self._personal
        for first in range(0, len(ids), group):
            who = np.asarray(ids[first : first + group], np.int32)
            # Clients beyond the population, and everybody when nothing is kept, have no memory: a blank row.
            known = np.zeros(len(who), bool)
            inside = who < self.memories
            known[inside] = run.known[who[inside]]
            sizes = np.minimum(self.train.sizes[who], self.train.capacity if most is None else most)
            x, y, starts = self.rows_of(self.train, who)
            place = dict(ids=who, starts=starts, sizes=sizes, known=known)
            rows = look_up_states(run.rows, who, inside, group)
            stage = self._stage(run)._replace(x=x, y=y)
            yield make(rows, padded(place, group), stage, self.visits(run)), who
