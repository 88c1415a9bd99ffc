"""A whole run of rounds in compiled blocks.

A block is one call of one compiled program: a scan over rounds; in each, the cohort's clients are divided over the
devices (`shard_map`), and each device goes through its share one by one (on a CPU, where that is fastest: both cores
busy, no padding, any number of steps) or all at once (`vmap`, on an accelerator).
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from apiece import tree
from apiece.engines.compiling import compiled
from apiece.engines.contact import Build, Keys, keys, weigh_sound
from apiece.engines.engine import RunState
from apiece.engines.row_store import RowStore
from apiece.engines.simulation.base import Simulation, Stage
from apiece.engines.simulation.division import divided, on_host
from apiece.engines.simulation.rows import round_up, touched_rows
from apiece.engines.states import commit_rows, lend_rows, store_of
from apiece.engines.world.cohort import Participation
from apiece.engines.world.faults import Faults
from apiece.protocol import Cohort, Tree, merge_replies


class Vectorized(Simulation):
    """Runs a method in rounds: a cohort is drawn, works, and is merged.

    Args:
        build, x, y, offsets, population, weights, stateless, mode, devices: as for every `Simulation`.
        participation: who takes part. faults: who then fails to. block: rounds a compiled call, or fewer if
            the states that so many rounds touch are large.

    >>> import jax.numpy as jnp
    >>> from apiece.methods import fed_avg
    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2).sum() / batch.weight.sum() / 2
    >>> y = np.array([0.0, 3.0, 3.0], np.float32)  # a client of one example, and one of two
    >>> engine = Vectorized(lambda hyper, round: fed_avg(loss, batch=0), y, y, np.array([0, 1, 3]))
    >>> run = engine.advance(engine.start(lambda key: jnp.zeros(()), seed=0), rounds=50)
    >>> round(float(run.server), 3)
    2.0
    """

    def __init__(
        self,
        build: Build,
        x: Tree,
        y: Tree,
        offsets: np.ndarray,
        *,
        participation: Participation | None = None,
        faults: Faults | None = None,
        block: int = 10,
        **how: Any,
    ) -> None:
        super().__init__(build, x, y, offsets, **how)
        self.participation = participation or Participation()
        self.faults = faults or Faults()
        self.block = block
        self.places = round_up(self.participation.places(self.population), self.mesh.size)

    def _compile(self) -> None:
        super()._compile()
        self._block = compiled(self._run_block, donate_argnames="rows")
        # The same for several runs of one seed (`together`). Who is known follows from the plan, which is one for all:
        # so nobody's enrolling is computed for nothing.
        options: Any = Stage(*[None] * 7)._replace(hyper=0)  # type: ignore[arg-type]  # axes, not values
        alike = functools.partial(self._run_block, alike=True)
        several = jax.vmap(alike, in_axes=(0, 0, None, options, None, None), out_axes=(0, 0, None, 0))
        self.block_of_runs = compiled(several, brief=True, donate_argnums=1)  # of small models alone

    @property
    def all_count(self) -> bool:
        """Without faults, whoever works is heard."""
        return self.faults.none

    def advance(self, run: RunState, rounds: int) -> RunState:
        """The run `rounds` rounds later. `run` itself must not be used any more: its memory is reused."""
        last, block = run.round + rounds, self._at_once(run, self.block, self.places)
        if (store := store_of(run.rows)) is not None:
            store.check_room(rounds * self.places)
            return self._advance_on_disk(run, store, last, block)
        while run.round < last:
            run = self._advance_block(run, min(block, last - run.round), block)
        return run

    def visits(self, run: RunState) -> int:
        """How many visits a client has made on average so far; at least one."""
        return self.participation.visits_each(run.round, self.population)

    def visited(self, run: RunState) -> np.ndarray:
        """How many visits each client has made so far."""
        return self.faults.visited(self.participation, run.seed, run.round, self.population)

    def working_rows(self, block: int) -> int:
        """How many clients' states so many rounds need at most."""
        return 0 if self.stateless else min(self.population, block * self.places)

    def _advance_block(self, run: RunState, rounds: int, block: int) -> RunState:
        plan, touched, took = self.plan_block(run.seed, run.round, rounds, block)
        rows, known = self.lend(run, touched, self.working_rows(block))
        stage, plan = self._lent(run, plan)
        server, rows, known, refused = self._block(run.server, rows, known, stage, keys(run.seed), plan)
        self.commit(run, touched, rows, known)
        lost, clock = run.refused + int(on_host(refused)), run.clock + took
        return dataclasses.replace(run, server=server, round=run.round + rounds, clock=clock, refused=lost)

    def _advance_on_disk(self, run: RunState, store: RowStore, last: int, block: int) -> RunState:
        """The same where states lie on disk: while a block computes, the states that the next one touches are read,
        and those of the one before are written. Who is in both gets its state from one block to the next directly.
        """
        length = self.working_rows(block)
        plan, touched, took = self.plan_block(run.seed, run.round, min(block, last - run.round), block)
        rows = store.fetch(touched, length + 1).result()
        while run.round < last:
            known = lend_rows(run.known, touched, length)
            stage, plan = self._lent(run, plan)
            made = self._block(run.server, rows, known, stage, keys(run.seed), plan)
            after, before, lasted = min(run.round + block, last), touched, took
            if after < last:  # the program runs; it is asked for what it gives only below
                plan, touched, took = self.plan_block(run.seed, after, min(block, last - after), block)
                ahead = store.fetch(touched, length + 1)
            server, new, known, refused = made
            store.put(before, new)
            commit_rows(run.known, before, known)
            if after < last:
                _, here, there = np.intersect1d(before, touched, assume_unique=True, return_indices=True)
                rows = ahead.result()
                jax.tree.map(lambda into, made: into.__setitem__(there, np.asarray(made)[here]), rows, new)  # noqa: B023
            lost = run.refused + int(on_host(refused))
            run = dataclasses.replace(run, server=server, round=after, clock=run.clock + lasted, refused=lost)
        return run

    def _lent(self, run: RunState, plan: dict) -> tuple[Stage, dict]:
        """The stage and the plan of a block with the examples that it needs."""
        stage = self._stage(run)
        if not self.train.lent:
            return stage, plan
        present = plan["present"]
        x, y, starts = self.rows_of(self.train, plan["ids"][present])
        begin = np.zeros(present.shape, np.int32)
        begin[present] = starts
        return stage._replace(x=x, y=y), {**plan, "starts": begin}

    def plan_block(self, seed: int, first: int, rounds: int, block: int) -> tuple[dict, np.ndarray, float]:
        """What a program needs to know of so many rounds, whose states they touch, and how long they take."""
        ids, present, weight, took = self._drawn(seed, first, rounds, block)
        working = self.working_rows(block)
        touched, slots = touched_rows(ids, working == self.population)
        # Absent places point at one spare row, so that they never write over a client's.
        slots = np.where(present, slots, working).astype(np.int32)
        round = first + np.arange(block, dtype=np.int32)
        place = dict(starts=self.train.starts[ids], sizes=self.train.sizes[ids])
        plan = dict(round=round, played=present.any(1), ids=ids, slots=slots, present=present, weight=weight, **place)
        return plan, touched, took

    def _drawn(self, seed: int, first: int, rounds: int, block: int) -> tuple:
        """[block, places]: who, whether it works, and how much its reply counts; what is not used is absent.

        And how long the rounds take.
        """
        ids = np.zeros((block, self.places), np.int32)
        present = np.zeros(ids.shape, bool)
        weight = np.zeros(ids.shape, np.float32)
        took = 0.0
        for r in range(rounds):
            drawn = self.participation.draw(seed, first + r, self.population)
            fate, here = self.faults.draw(seed, first + r, drawn, self.population), slice(len(drawn))
            ids[r, here] = drawn
            present[r, here] = fate.works & (self.train.sizes[drawn] > 0)
            weight[r, here] = np.where(present[r, here] & fate.counts, self._weights(drawn), 0)
            took += fate.duration
        return ids, present, weight, took

    def _run_block(
        self, server: Tree, rows: Tree, known: Any, stage: Stage, streams: Keys, plan: dict, alike: bool = False
    ) -> tuple:
        """(server, rows, known, how many replies were refused) after a block.

        `alike`: all that work are known from then on, as if no reply were refused.
        """
        everyone = divided(self._work, self.mesh, rows=1, whole=3)
        # Left to itself, XLA divides the plan as the clients are and then has to collect it again, round by round.
        everywhere = NamedSharding(self.mesh, P())
        plan = lax.with_sharding_constraint(plan, everywhere)

        def play(state: tuple, plan: dict) -> tuple:
            server, rows, known, refused = state
            round, weight = plan["round"], lax.with_sharding_constraint(plan["weight"], everywhere)
            now = stage._replace(server=server, stream=streams.client, round=round)
            who = {name: plan[name] for name in ("ids", "slots", "present", "starts", "sizes")}
            work = everyone(who, rows, known, now)
            if jax.tree.leaves(work.sound):
                weight, lost = weigh_sound(weight, lax.with_sharding_constraint(work.sound, everywhere))
                refused = refused + lost
                work = work._replace(sound=()) if alike else work
            cohort = Cohort(plan["ids"], weight, jnp.zeros(self.places, jnp.int32), jnp.int32(self.population))
            merge_key = jax.random.fold_in(streams.server, round)
            method = self.build(stage.hyper, round)
            merged, counted = merge_replies(method, server, work.reply, cohort, merge_key)
            # With stragglers there are rounds in which clients work and nobody's reply counts.
            server = merged if self.faults.none else tree.where((weight > 0).any(), merged, server)
            server = lax.with_sharding_constraint(server, everywhere)
            return server, *self._remembered(method, rows, known, plan["slots"], work, counted), refused

        def step(state: tuple, plan: dict) -> tuple:
            # Rounds beyond the last one fill the block up, so that every block is the same program.
            return lax.cond(plan["played"], play, lambda state, plan: state, state, plan), None

        return lax.scan(step, (server, rows, known, jnp.int32(0)), plan)[0]
