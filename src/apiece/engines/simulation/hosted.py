"""Rounds over several processes, on one machine or many: each has its own clients, their examples and their states.

All processes draw the same cohort. Each works with those of its own clients that are in it, on its own devices; their
replies are gathered in the order of the cohort, and every process merges all of them. So the numbers are those of one
process, no row of another process's clients is ever read, and what goes between processes is what clients send.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from apiece import files, tree
from apiece.engines.contact import Build, Keys, Visit, keys, weigh_sound
from apiece.engines.engine import ROWS, Outcomes, RunState, check_part
from apiece.engines.simulation.answer import answer_shapes
from apiece.engines.simulation.base import Stage
from apiece.engines.simulation.crew import Crew, pack_arrays, unpack_arrays
from apiece.engines.simulation.division import divided, on_devices
from apiece.engines.simulation.rows import padded, round_up
from apiece.engines.simulation.score import Examples
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.states import commit_states, store_of
from apiece.errors import UserError
from apiece.protocol import Cohort, Message, Personal, Question, Tree, merge_replies


class Hosted(Vectorized):
    """Runs a method in rounds, as `Vectorized` does, with the clients divided over the processes of a crew.

    Args:
        crew: the processes. The others: as for `Vectorized`; all processes must be given the same.
    """

    def __init__(self, build: Build, x: Tree, y: Tree, offsets: np.ndarray, *, crew: Crew, **how: Any) -> None:
        self.crew = crew
        super().__init__(build, x, y, offsets, **{**how, "examples": "host"})

    def _compile(self) -> None:
        super()._compile()
        self._visit_all = jax.jit(divided(self._work, self.mesh, rows=1, whole=3))
        self._merge_all = jax.jit(self._merge_round)
        self._settle_all = jax.jit(self._settle_round)

    def owner(self, ids: np.ndarray) -> np.ndarray:
        """Which process has each of these clients: those that train in equal stretches, new ones likewise.

        Stretches, so that each process reads one part of a file and not a bit of every page of it.
        """
        ids, new = np.asarray(ids, np.int64), max(len(self.sizes) - self.population, 1)
        trains = ids < self.population
        return np.where(trains, ids * self.crew.count // self.population,
                        (ids - self.population) * self.crew.count // new)  # fmt: skip

    def mine(self, ids: np.ndarray) -> np.ndarray:
        """Of these clients, which are this process's."""
        return self.owner(ids) == self.crew.process

    def agree(self, wish: bool) -> bool:
        """What process 0 wishes: clocks differ, and all must do the same."""
        return self.crew.agree("agree", wish)

    # Rounds.

    def advance(self, run: RunState, rounds: int) -> RunState:
        """The run `rounds` rounds later. `run` itself must not be used any more: its memory is reused."""
        if (store := store_of(run.rows)) is not None:
            store.check_room(-(-rounds * self.places // self.crew.count))
        for _ in range(rounds):
            run = self._advance_round(run)
        return run

    def _advance_round(self, run: RunState) -> RunState:
        (ids,), (present,), (weight,), took = self._drawn(run.seed, run.round, 1, 1)
        owner = np.where(present, self.owner(ids), -1)
        counts = np.bincount(owner[present], minlength=self.crew.count)
        # The same room for all, of few different sizes, so that few programs are compiled.
        step = round_up(max(1, self.places // (4 * self.crew.count)), self.mesh.size)
        room = round_up(max(int(counts.max()), 1), step)
        here = np.flatnonzero(owner == self.crew.process)
        who = ids[here]
        touched = np.zeros(0, np.int64) if self.stateless else who
        length = 0 if self.stateless else room
        rows, known = self.lend(run, touched, length)
        x, y, starts = self.rows_of(self.train, who)
        place = dict(ids=who, starts=starts, sizes=self.train.sizes[who], present=np.ones(len(who), bool))
        place = padded(place, room)
        slots = np.where(place["present"] & (not self.stateless), np.arange(room), length).astype(np.int32)
        streams = keys(run.seed)
        stage = self._stage(run)._replace(x=x, y=y, stream=streams.client)
        work = self._visit_all({**place, "slots": slots}, rows, known, stage)
        sent, structure = jax.tree.flatten((work.reply, work.sound))
        mine = [np.asarray(leaf)[: len(here)] for leaf in sent]
        reply, sound = jax.tree.unflatten(structure, self._gathered(f"round {run.round}", mine, owner))
        server, counted, lost = self._merge_all(stage._replace(x=(), y=()), streams, reply, sound, ids, weight)
        if not self.stateless:
            told = padded(np.asarray(counted)[here], room)
            rows, _ = self._settle_all(stage._replace(x=(), y=()), rows, known, slots, work, told)
            self._commit_round(run, present, ids, np.asarray(counted), sound, who, rows)
        refused, clock = run.refused + int(lost), run.clock + took
        server = on_devices(server, self.mesh)
        return dataclasses.replace(run, server=server, round=run.round + 1, clock=clock, refused=refused)

    def _commit_round(
        self, run: RunState, present: np.ndarray, ids: np.ndarray, counted: np.ndarray, sound: Tree,
        who: np.ndarray, rows: Tree,
    ) -> None:  # fmt: skip
        """States of this process's clients; that of everybody it is known whether they have one."""
        method = self.build(run.hyper, run.round)
        knows = np.ones(len(ids), bool)
        if method.keep is None and not self.commits_at_once(method):
            knows = counted | run.known[ids]
        elif method.keep is None and jax.tree.leaves(sound):
            knows = sound | run.known[ids]
        run.known[ids[present]] = knows[present]
        commit_states(run.rows, who, rows)

    def _merge_round(
        self, stage: Stage, streams: Keys, reply: Tree, sound: Any, ids: Any, weight: Any
    ) -> tuple[Tree, Any, Any]:
        """(server, whose replies counted, how many were refused), of everybody's replies."""
        lost = jnp.int32(0)
        if jax.tree.leaves(sound):
            weight, lost = weigh_sound(weight, sound)
        cohort = Cohort(ids, weight, jnp.zeros(self.places, jnp.int32), jnp.int32(self.population))
        method = self.build(stage.hyper, stage.round)
        key = jax.random.fold_in(streams.server, stage.round)
        merged, counted = merge_replies(method, stage.server, reply, cohort, key)
        server = tree.where((weight > 0).any(), merged, stage.server)
        return server, counted, lost

    def _settle_round(self, stage: Stage, rows: Tree, known: Any, slots: Any, work: Visit, counted: Any) -> tuple:
        return self._remembered(self.build(stage.hyper, stage.round), rows, known, slots, work, counted)

    # What is asked between rounds: each process answers for its own clients, and all have all answers.

    def ask(
        self, question: Question, message: Message = (), ids: Sequence[int] | None = None, part: str = "train"
    ) -> Tree:
        """The answers of these clients (default: all that train) on a part of their data, summed or stacked."""
        check_part(part, self.held_out)
        split = self.train if part == "train" else self.held_out[part]
        who = np.arange(self.population) if ids is None else np.asarray(ids)
        shapes, owner = answer_shapes(question.answer, message, split), self.owner(who)
        own = who[owner == self.crew.process]
        if len(own):
            found = super().ask(question._replace(stacked=True), message, own, part)
        else:
            found = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), shapes)
        rows = self._gathered("a question", list(map(np.asarray, jax.tree.leaves(found))), owner)
        stacked = jax.tree.unflatten(jax.tree.structure(shapes), rows)
        return stacked if question.stacked else jax.tree.map(lambda leaf: leaf.sum(axis=0, dtype=leaf.dtype), stacked)

    def personal_groups(
        self, run: RunState, ids: np.ndarray, group: int | None = None
    ) -> Iterator[tuple[Personal, np.ndarray]]:
        """The models these clients use, some clients after others: (stacked models, who they are)."""
        shapes, width = self.model_shapes(run), self._group(run, group) * self.crew.count
        for first in range(0, len(ids), width):
            who = np.asarray(ids[first : first + width], np.int32)
            owner = self.owner(who)
            own = who[owner == self.crew.process]
            made = [models for models, _ in super().personal_groups(run, own, group)]
            made = made or [jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), shapes)]
            stacked = jax.tree.map(lambda *leaves: np.concatenate(leaves), *made)
            rows = self._gathered("models", jax.tree.leaves(stacked), owner)
            self._share_fallen(run)
            yield jax.tree.unflatten(jax.tree.structure(shapes), rows), who

    def outcomes(
        self, run: RunState, ids: np.ndarray, outcomes: Outcomes, parts: Sequence[str] | Mapping[str, Examples],
        most: int | None = None, group: int | None = None,
    ) -> dict[str, tuple[np.ndarray, ...]]:  # fmt: skip
        """Per part of the held-out data: what `outcomes` gives for every example of these clients, by their models."""
        splits = parts if isinstance(parts, Mapping) else {part: self.held_out[part] for part in parts}
        owner = self.owner(ids)
        own = ids[owner == self.crew.process]
        found = super().outcomes(run, own, outcomes, splits, most, group) if len(own) else {}
        self._share_fallen(run)
        whole = {}
        for name, split in splits.items():
            each = np.repeat(owner, split.sizes[ids])
            whole[name] = tuple(self._gathered(f"outcomes on {name}", list(found.get(name, ())), each))
        return whole

    def _gathered(self, what: str, mine: list[np.ndarray], owner: np.ndarray) -> list[np.ndarray]:
        """Rows that each process has some of, put where its own stand: everybody's, at every process."""
        parts = [unpack_arrays(said) for said in self.crew.gather(what, pack_arrays(mine))]
        like = max(parts, key=lambda part: (len(part), len(part[0]) if part else 0))
        whole = [np.zeros((len(owner), *array.shape[1:]), array.dtype) for array in like]
        for k, part in enumerate(parts):
            at = np.flatnonzero(owner == k)
            for into, array in zip(whole, part, strict=bool(part)):
                into[at] = array
        return whole

    def _share_fallen(self, run: RunState) -> None:
        mine = pack_arrays([np.array(sorted(run.fallen), np.int64)])
        for said in self.crew.gather("fallen", mine):
            run.fallen.update(unpack_arrays(said)[0].tolist())

    # Checkpoints: a file of each process, and one that names them.

    def save(self, run: RunState, path: Path, about: dict[str, Any], beside: bool = False) -> None:
        """The run in a file of each process, and one file that names them, which is there when all of them are.

        Two generations take turns, so that a kill in between leaves the one that is named as it was.
        """
        shared, store = self.crew.place_of(path), store_of(run.rows) if beside else None
        turn = 1 - int(_description(shared).get("turn", 1))
        name = lambda k: f"{shared.name}.{k}of{self.crew.count}"
        mine = shared.with_name(name(self.crew.process))
        self.write_run(run, mine.with_name(f"{mine.name}.{turn}"), about, store, mine.with_name(mine.name + ROWS))
        self.crew.gather("checkpoint", b"")
        shards = [f"{name(k)}.{turn}" for k in range(self.crew.count)]
        if not self.crew.process:
            unseen = [k for k, file in enumerate(shards) if not shared.with_name(file).exists()]
            if unseen:
                raise UserError(f"process {unseen[0]} wrote its part of {shared} where this process does not see it: "
                                "the run folder must lie on a disk that all processes share")  # fmt: skip
            files.write_arrays(shared, {}, {"shards": shards, "turn": turn})
        self.crew.gather("checkpoint is named", b"")
        if store is not None:
            store.protect()
        if not self.crew.process:
            _forget_others(shared, [name(k) for k in range(self.crew.count)])

    def restore(self, path: Path, fresh: RunState) -> tuple[RunState, dict[str, Any]]:
        """(the run in a file, its description), once every process has read what it needs of it."""
        found = super().restore(path if path.exists() else self.crew.place_of(path), fresh)
        self.crew.gather("restored", b"")
        return found

    def shards_at(self, path: Path) -> Path:
        """The folder in which the files lie that a checkpoint names."""
        return self.crew.place_of(path).parent


def _description(path: Path) -> dict[str, Any]:
    return files.read_arrays(path)[1] if path.exists() else {}


def _forget_others(path: Path, names: list[str]) -> None:
    """Remove files of processes of an earlier division, which no checkpoint names any more."""
    for file in path.parent.glob(f"{path.name}.*of*"):
        if not any(file.name.startswith(f"{name}.") for name in names):
            file.unlink(missing_ok=True)
