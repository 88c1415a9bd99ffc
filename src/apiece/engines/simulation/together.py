"""Several runs of one method and seed in one program: other options, side by side under `vmap`.

A small model leaves a processor idle between its many small steps. Runs of one seed visit the same clients at the same
time, which draw the same examples: they can take each step together, by one larger product instead of several small
ones, on one draw for all. The numbers are those of runs one by one, but for the rounding of sums that are taken in
another order.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from apiece import tree
from apiece.engines.contact import keys
from apiece.engines.engine import Engine, RunState
from apiece.engines.simulation.base import Stage
from apiece.engines.simulation.division import on_devices, on_host
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.states import AT_ONCE, bytes_of_a_row

# Measured, but for the last, which is an estimate: docs/ref-benchmarks.md.
MOST = 32  # runs in one program
MODELS = 160 << 10  # bytes of their models: more, and the steps of one run fill a core by themselves
WORTH = 20_000  # visits, below which compiling one more program takes longer than it saves


def runs_at_once(engine: Engine, run: RunState, wanted: int, rounds: int) -> int:
    """How many of the `wanted` runs are best done in one program; 1: they cannot be, or none gains.

    `rounds`: of all runs that such a program would serve.
    """
    if not isinstance(engine, Vectorized) or engine.train.lent or wanted < 2 or rounds * engine.places < WORTH:
        return 1
    # The upper layers of a network have inputs of their own in each run: nothing is shared, and rounding grows.
    layers = sum(leaf.ndim > 1 for leaf in jax.tree.leaves(run.params))
    most = min(MOST, MODELS // max(tree.size_in_bytes(run.params), 1)) if layers < 2 else 0
    exact = jax.dtypes.canonicalize_dtype(np.float64)  # stacked options are of this kind, and must not widen a model
    plain = all(leaf.dtype == exact for leaf in jax.tree.leaves(run.params))
    # Nobody's state may depend on whether a reply counted, and all states must fit on the device.
    commits = engine.commits_at_once(engine.build(run.hyper, 0))
    whole = engine.working_rows(engine.block) in (0, engine.population)
    most = min(most, AT_ONCE // max(bytes_of_a_row(run.rows) * engine.population, 1))
    if most < 4 or not (plain and commits and whole):
        return 1
    programs = -(-wanted // most)
    return -(-wanted // programs)  # equal shares: every program is the same


def advance_together(engine: Vectorized, runs: Sequence[RunState], rounds: int, width: int) -> list[RunState]:
    """All runs `rounds` rounds later, as by `Engine.advance` for each; they are of one seed and at the same round.

    The program is for `width` runs: where there are fewer, the last one is done several times.
    """
    first, count, last = runs[0], len(runs), runs[0].round + rounds
    spare = [runs[-1]] * (width - count)
    stack = lambda trees: jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)
    hyper = {name: np.array([run.hyper[name] for run in (*runs, *spare)], np.float64) for name in first.hyper}
    stage = Stage((), first.params, (), hyper, np.int32(0), engine.train.x, engine.train.y)
    server = on_devices(stack([run.server for run in (*runs, *spare)]), engine.mesh)
    everybody = np.arange(0 if engine.stateless else engine.population)
    lent = [engine.lend(run, everybody, len(everybody)) for run in (*runs, *spare)]
    # Where a block leaves them: else the second one would be another program.
    rows, known = on_devices((stack([rows for rows, _ in lent]), lent[0][1]), engine.mesh)
    round, clock, refused = first.round, first.clock, np.zeros(width, np.int64)
    while round < last:
        some = min(engine.block, last - round)
        plan, _, took = engine.plan_block(first.seed, round, some, engine.block)
        server, rows, known, lost = engine.block_of_runs(server, rows, known, stage, keys(first.seed), plan)
        refused += on_host(lost)
        round, clock = round + some, clock + took
    server, rows, known = (jax.tree.map(on_host, each) for each in (server, rows, known))
    found = []
    for at, run in enumerate(runs):
        if refused[at] and jax.tree.leaves(run.rows):  # who then remembers what is its own affair
            found.append(engine.advance(run, rounds))
            continue
        mine, theirs = (tree.take(each, at) for each in (server, rows))
        engine.commit(run, everybody, theirs, known)
        mine = on_devices(jax.tree.map(jnp.asarray, mine), engine.mesh)
        found.append(
            dataclasses.replace(run, server=mine, round=last, clock=clock, refused=run.refused + int(refused[at]))
        )
    return found
