"""A scan over arrivals: nobody waits for anybody.

A journal (`world.arrivals`) says who starts from which version of the server and into which merge the reply goes. A
step of the scan starts clients, whose replies are computed at once and put aside; then, if it is time, it merges the
replies that have arrived, each with its delay in server versions. A round is a merge.

A client's state is that of the work it has in hand: nobody waits, so who starts again cannot ask first what became of
its last reply. If that is refused when it arrives, the client goes back to what it was before, unless it has started
again since.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from apiece import tree
from apiece.engines.compiling import compiled
from apiece.engines.contact import Build, Keys, Visit, is_finite, keys, remembered, settle, visit
from apiece.engines.engine import RunState
from apiece.engines.simulation.base import Simulation, Stage
from apiece.engines.simulation.division import divided, on_devices, on_host
from apiece.engines.simulation.rows import round_up, touched_rows
from apiece.engines.world.arrivals import Arrivals, Journal
from apiece.errors import UserError
from apiece.protocol import Cohort, Method, Params, Tree, merge_replies

BLOCK = 64  # steps that are one compiled call, if the run is not looked at before


class Itinerary(NamedTuple):
    """A journal as steps of a scan: each job's step, wave and place among the replies on their way."""

    journal: Journal
    wave: np.ndarray  # 1, 2, ... for a client that starts again from the same version
    slot: np.ndarray
    by_merge: np.ndarray  # jobs in the order of their merges


class Flight(NamedTuple):
    """Replies on their way, a row each; and, where replies may be refused, what it then takes to go back."""

    reply: Tree
    before: Tree = ()  # (state, known) of the client at its start
    kept: Tree = ()
    latest: Tree = ()  # [clients]: the row of each one's last start


class Asynchronous(Simulation):
    """Runs a method reply by reply.

    Args:
        build, x, y, offsets, population, weights, stateless, mode, devices: as for every `Simulation`.
        arrivals: when replies come: `Speeds`, `Delays` or `Recorded`. block: steps a compiled call, at most.

    >>> from apiece.engines.world.arrivals import Speeds
    >>> import jax.numpy as jnp
    >>> from apiece.methods import fed_avg
    >>> loss = lambda w, batch, key: (batch.weight * (w - batch.y) ** 2).sum() / batch.weight.sum() / 2
    >>> y = np.array([0.0, 3.0, 3.0], np.float32)  # a client of one example, and one of two
    >>> here = lambda hyper, round: fed_avg(loss, batch=0), y, y, np.array([0, 1, 3])
    >>> engine = Asynchronous(*here, arrivals=Speeds(active=2))
    >>> run = engine.advance(engine.start(lambda key: jnp.zeros(()), seed=0), rounds=9)
    >>> run.round, int(engine.visited(run).sum())  # one reply is on its way
    (9, 10)
    """

    def __init__(
        self, build: Build, x: Tree, y: Tree, offsets: np.ndarray, *, arrivals: Arrivals, block: int = BLOCK, **how: Any
    ) -> None:
        super().__init__(build, x, y, offsets, **{**how, "examples": "devices"})  # replies in flight need everybody's
        self.arrivals, self.block = arrivals, block
        self.replies = arrivals.in_flight()
        self._itineraries: dict[int, Itinerary] = {}

    def _compile(self) -> None:
        super()._compile()
        self._block = compiled(self._run_block, donate_argnames=("rows", "flight"))

    @property
    def all_count(self) -> bool:
        """Every reply arrives in the end."""
        return True

    def start(self, init: Callable[[Any], Params], seed: int, hyper: dict[str, float] | None = None) -> RunState:
        """A run before its first reply."""
        run = super().start(init, seed, hyper)
        method = self.build(run.hyper, 0)

        def flight() -> Flight:
            place = dict(ids=0, starts=0, sizes=1)
            contact = self._contact(method, self._stage(run), place)
            client = remembered(method, run.params, *contact)
            work = visit(method, run.params, False, client, *contact)
            if self.commits_at_once(method):
                return Flight(work.reply)
            return Flight(work.reply, (client, jnp.zeros((), bool)), work.kept)

        blank = lambda leaf: np.zeros((self.replies + 1, *leaf.shape), leaf.dtype)  # and a spare one
        empty = jax.tree.map(blank, self._shapes("flight", lambda: jax.eval_shape(flight)))
        if not self.commits_at_once(method):
            empty = empty._replace(latest=np.full(self.population + 1, -1, np.int32))
        return dataclasses.replace(run, flight=on_devices(empty, self.mesh))

    def advance(self, run: RunState, rounds: int) -> RunState:
        """The run `rounds` merges later. `run` itself must not be used any more: its memory is reused."""
        if not rounds:
            return run
        last = run.round + rounds
        plan = self._itinerary(run.seed, last)
        steps = self._steps(plan, run.round, last)
        # The first versions start everybody who is to be at work, later ones only who follows: two widths.
        early = [step for step in steps if step[0] == 0]
        for part in (early, steps[len(early) :]):
            width = max((len(jobs) for _, jobs, _ in part), default=1)
            width = round_up(max(width, self.arrivals.buffer), self.mesh.size)
            block = self._at_once(run, self.block, width)
            for first in range(0, len(part), block):
                run = self._advance_block(run, plan, part[first : first + block], width, block)
        return dataclasses.replace(run, round=last, clock=float(plan.journal.clock[last - 1]))

    def visits(self, run: RunState) -> int:
        """How many visits a client has made on average so far; at least one."""
        return max(1, round(run.round * self.arrivals.buffer / self.population))

    def visited(self, run: RunState) -> np.ndarray:
        """How many visits each client has made so far."""
        if not run.round:
            return np.zeros(self.population, np.int64)
        journal = self._itinerary(run.seed, run.round).journal
        return np.bincount(journal.client[journal.start < run.round], minlength=self.population)

    # The plan, on the host.

    def _itinerary(self, seed: int, merges: int) -> Itinerary:
        known = self._itineraries.get(seed)
        if known is None or len(known.journal.clock) < merges:
            ahead = merges if known is None else max(merges, 2 * len(known.journal.clock))
            journal = self.arrivals.journal(seed, self.population, ahead)
            if len(journal.clock) < merges:
                raise UserError(f"the record of arrivals ends after {len(journal.clock)} merges; {merges} are needed")
            known = self._itineraries[seed] = itinerary(journal, self.replies)
        return known

    @staticmethod
    def _steps(plan: Itinerary, first: int, last: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(version, jobs that start, jobs that are then merged) from one version to another."""
        journal, steps = plan.journal, []
        begins = np.searchsorted(journal.start, np.arange(first, last + 1))
        merged = journal.merge[plan.by_merge]
        ends = np.searchsorted(merged, np.arange(first, last + 1))
        nothing = np.zeros(0, int)
        for k, version in enumerate(range(first, last)):
            jobs = np.arange(begins[k], begins[k + 1])
            waves = [jobs[plan.wave[jobs] == w] for w in range(int(plan.wave[jobs].max(initial=0)) + 1)]
            steps += [(version, wave, nothing) for wave in waves[:-1]]
            steps.append((version, waves[-1], plan.by_merge[ends[k] : ends[k + 1]]))
        return steps

    def _advance_block(self, run: RunState, plan: Itinerary, steps: list, width: int, block: int) -> RunState:
        journal = plan.journal
        shape, room = (block, width), (block, self.arrivals.buffer)
        goes_back = bool(jax.tree.leaves(run.flight.latest))  # then rows of those who arrive are needed, too
        rows_at_most = 0 if self.stateless else min(self.population, block * (width + goes_back * room[1]))
        columns: dict[str, np.ndarray] = {
            "version": np.array([version for version, _, _ in steps] + [0] * (block - len(steps)), np.int32),
            "merges": np.array([len(arrived) > 0 for _, _, arrived in steps] + [False] * (block - len(steps))),
        }
        ids, job = np.zeros(shape, np.int32), np.full(shape, -1)
        arrived = np.full(room, -1)
        for k, (_, jobs, merged) in enumerate(steps):
            ids[k, : len(jobs)], job[k, : len(jobs)] = journal.client[jobs], jobs
            arrived[k, : len(merged)] = merged
        there, back = job >= 0, arrived >= 0
        present = there & (self.train.sizes[ids] > 0)
        whose = np.where(back, journal.client[arrived], 0).astype(np.int32)
        both = np.concatenate([ids, whose], axis=1) if goes_back else ids
        touched, slots = touched_rows(both, rows_at_most == self.population)
        slots, home = slots[:, :width], slots[:, width:]
        dispatch = dict(
            ids=ids,
            slots=np.where(present, slots, rows_at_most).astype(np.int32),
            present=present,
            wave=np.where(there, plan.wave[job], 0).astype(np.int32),
            starts=self.train.starts[ids],
            sizes=self.train.sizes[ids],
        )
        heard = back & (self.train.sizes[whose] > 0)  # who has no example has sent nothing, whatever lies in its place
        late = np.where(back, journal.merge[arrived] - journal.start[arrived], 0).astype(np.int32)
        columns |= dict(
            aside=np.where(there, plan.slot[job], self.replies).astype(np.int32),
            back=np.where(back, plan.slot[arrived], self.replies).astype(np.int32),
            whose=whose,
            late=late,
            weight=np.where(heard, self._weights(whose), 0).astype(np.float32),
        )
        if goes_back:
            columns["home"] = np.where(back, home, rows_at_most).astype(np.int32)
        rows, known = self.lend(run, touched, rows_at_most)
        server, rows, known, flight, refused = self._block(
            run.server, rows, known, run.flight, self._stage(run), keys(run.seed), columns, dispatch
        )
        self.commit(run, touched, rows, known)
        return dataclasses.replace(run, server=server, flight=flight, refused=run.refused + int(on_host(refused)))

    # The compiled program.

    def _run_block(
        self, server: Tree, rows: Tree, known: Any, flight: Tree, stage: Stage, streams: Keys, plan: dict, who: dict
    ) -> tuple:
        everyone = divided(self._work, self.mesh, rows=1, whole=3)
        everywhere = NamedSharding(self.mesh, P())
        plan, who = lax.with_sharding_constraint((plan, who), everywhere)

        def merged(server: Tree, replies: Tree, plan: dict) -> tuple:
            method, weight, lost = self.build(stage.hyper, plan["version"]), plan["weight"], jnp.int32(0)
            if looks := method.merge_counted is None and bool(jax.tree.leaves(replies)):
                sound = jax.vmap(is_finite)(replies)
                lost, weight = ((weight > 0) & ~sound).sum(dtype=jnp.int32), jnp.where(sound, weight, 0)
            cohort = Cohort(plan["whose"], weight, plan["late"], jnp.int32(self.population))
            key = jax.random.fold_in(streams.server, plan["version"])
            after, counted = merge_replies(method, server, replies, cohort, key)
            # Replies come a few at a time, perhaps one: who is alone and no number changes nothing.
            return tree.where((weight > 0).any(), after, server) if looks else after, counted, lost

        def step(state: tuple, now: tuple) -> tuple:
            (server, rows, known, flight, refused), (plan, who) = state, now
            method = self.build(stage.hyper, plan["version"])
            here = stage._replace(server=server, stream=streams.client, round=plan["version"])
            work = everyone(who, rows, known, here)
            flight = self._depart(method, flight, rows, known, plan, who, work)
            ahead = jnp.ones(len(who["slots"]), bool)
            rows, known = self._remembered(method, rows, known, who["slots"], work, ahead)
            arrived = tree.take(flight.reply, plan["back"])
            counts = plan["merges"] & (plan["weight"] > 0).any()
            nothing = lambda server, replies, plan: (server, jnp.zeros(len(plan["back"]), bool), jnp.int32(0))
            server, counted, lost = lax.cond(counts, merged, nothing, server, arrived, plan)
            if not self.commits_at_once(method):
                rows, known = self._go_back(method, flight, rows, known, plan, counts, counted)
            return lax.with_sharding_constraint((server, rows, known, flight, refused + lost), everywhere), None

        return lax.scan(step, (server, rows, known, flight, jnp.int32(0)), (plan, who))[0]

    def _depart(
        self, method: Method, flight: Flight, rows: Tree, known: Any, plan: dict, who: dict, work: Visit
    ) -> Flight:
        """Replies put aside; and, where they may be refused, what their clients were before."""
        flight = flight._replace(reply=tree.put(flight.reply, plan["aside"], work.reply))
        if self.commits_at_once(method):
            return flight
        before = tree.take(rows, who["slots"]), known[who["slots"]]
        started = jnp.where(who["present"], who["ids"], self.population)
        return flight._replace(
            before=tree.put(flight.before, plan["aside"], before),
            kept=tree.put(flight.kept, plan["aside"], work.kept),
            latest=flight.latest.at[started].set(plan["aside"]),
        )

    def _go_back(
        self, method: Method, flight: Flight, rows: Tree, known: Any, plan: dict, counts: Any, counted: Any
    ) -> tuple[Tree, Any]:
        """Rows and known once it is clear whose replies were refused: theirs are as before the work."""
        home, at = plan["home"], plan["back"]
        last = flight.latest[plan["whose"]] == at
        refused = counts & ~counted & last & (plan["weight"] > 0)
        now, knows = tree.take(rows, home), known[home]
        (before, was_known), kept = tree.take((flight.before, flight.kept), at)
        work = Visit(now, kept, ())
        after, then = jax.vmap(functools.partial(settle, method))(~refused, was_known, before, work)
        # Whose reply is not the matter here stays as it is, also where two rows of one step are one client's.
        home = jnp.where(refused, home, len(known) - 1)
        return tree.put(rows, home, after), known.at[home].set(jnp.where(refused, then, knows)).at[-1].set(False)


def itinerary(journal: Journal, room: int) -> Itinerary:
    """Waves and places: a job holds a place from its start to its merge; a freed one is taken again.

    >>> journal = Journal(np.array([3, 1, 3]), np.array([0, 0, 1]), np.array([0, 2, 1]), np.arange(3.0))
    >>> itinerary(journal, 2).slot.tolist()
    [0, 1, 0]
    """
    wave, slot = np.zeros(len(journal.client), int), np.zeros(len(journal.client), int)
    by_merge = np.argsort(journal.merge, kind="stable")
    free, freed, version = list(range(room)), 0, 0
    seen: dict[int, int] = {}
    for job, (client, start) in enumerate(zip(journal.client, journal.start, strict=True)):
        if start > version:
            version, seen = start, {}
        while freed < len(by_merge) and journal.merge[by_merge[freed]] < start:
            free.append(int(slot[by_merge[freed]]))
            freed += 1
        wave[job] = seen[client] = seen.get(client, -1) + 1
        slot[job] = free.pop(0)
    return Itinerary(journal, wave, slot, by_merge)
