"""How long steps may be on a federation, measured before anybody trains, and where tuning therefore looks.

What a user says of a step size stands. Where a method's own range fits the data, it stands as well: if it lies inside
of what the data allow and reaches up to a third of that (docs/decisions/0022-step-sizes-from-curvature.md).
"""

from collections.abc import Container, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from apiece.data.federation import HITS
from apiece.engines.contact import keys
from apiece.engines.engine import Engine
from apiece.estimate.curvature import ITERATIONS, Curvature, find_longest_steps, measure_curvature
from apiece.experiment.bench import Bench
from apiece.experiment.build import Arena, model_of
from apiece.experiment.judge import sample
from apiece.experiment.record import StepSizes
from apiece.experiment.spec_tables import ModelSpec, TrainSpec
from apiece.experiment.variant import Variant
from apiece.methods import CATALOG
from apiece.methods.bind import step_sizes

NEAR = 3.0  # a range stands that reaches up to a third of the top
SPAN = 30.0  # another one begins so far below the top: what is slower still is of no use to runs of some rounds
AGAIN = 3.0  # a default that is out of it becomes a third of the top
# The top of the range, in units of 1/L. Half the way to the brink, 2/L, of squares: there, a pull of up to L towards
# something shared is stable, too. The slope of a log loss is bounded, so that steps beyond the brink overshoot and do
# not run away, and it curves ever less as predictions become sure.
TOP_OF_SQUARES, TOP_OF_LOG_LOSS = 1.0, 6.0
USUAL_BATCH = 32  # of a method that has no option `batch`
NOT_ON_A_LOSS = ("server_lr", "ala_lr")  # steps of another kind: what curvature says nothing of
ASKED_AT_MOST = 64  # clients of a range test


class Bound(NamedTuple):
    """What was measured: by curvature, or else by a range test."""

    curvature: Curvature | None
    flat: float  # what curvature is divided by: as many as there are classes, before the first step
    tested: float
    soft: bool  # whether the loss is one whose slope is bounded
    exchanges: int
    gradients: int

    def top(self, batch: int) -> tuple[float, int | None]:
        """(where step sizes end on batches of so many, whose curvature says so)."""
        if self.curvature is None:
            return self.tested if self.soft else self.tested / 2, None
        found = self.curvature.of_batches(batch) / self.flat
        worst = int(found.argmax())
        return (TOP_OF_LOG_LOSS if self.soft else TOP_OF_SQUARES) / max(float(found[worst]), 1e-30), worst


def find_steps(place: Arena, rows: Mapping[str, Variant], plan: TrainSpec, tune: int, seed: int) -> StepSizes | None:
    """How long steps may be, and what follows for the rows of a comparison; None if none of them leaves that open."""
    free = {name: _free_steps(row.method, {*row.options, *row.grid, *row.ranges}) for name, row in rows.items()}
    asking = next((row for name, row in rows.items() if free[name]), None)
    if asking is None:
        return None
    bench = Bench(place, asking.method, asking.options, plan)
    options = asking.points(1)[0]
    bound = measure_bound(place, plan, lambda: bench.engine(options)[0], tested=tune > 1, seed=seed)
    if bound is None:
        return None
    ranges: dict[str, dict[str, tuple[float, float]]] = {}
    defaults: dict[str, Any] = {}
    for name, row in rows.items():
        top = bound.top(_least_batch(row))[0]
        declared = {} if row.grid or row.ranges else CATALOG.ranges(row.method, fixed=row.options)
        unfit = [option for option in free[name] if option in declared and not _fits(declared[option], top)]
        moved = {option: _range(top) for option in unfit}
        known = CATALOG.defaults(row.method)
        instead = {option: _instead(known[option], top, moved.get(option)) for option in free[name]}
        instead = {option: value for option, value in instead.items() if value is not None}
        ranges |= {name: moved} if moved else {}
        defaults |= {name: instead} if instead else {}
    longest, worst = bound.top(USUAL_BATCH)
    client = None if worst is None else str(place.ids[worst])
    found_by = "range test" if worst is None else "curvature"
    cost: dict[str, int] = {"exchanges": bound.exchanges, "gradients": bound.gradients}
    return StepSizes(found_by=found_by, longest=longest, client=client, ranges=ranges, defaults=defaults, **cost)


def shorten_steps(bench: Bench, given: Container[str], seed: int) -> dict[str, float]:
    """Step sizes that are not given and too long by default, and what to take instead: for a run that nobody tunes."""
    free = _free_steps(bench.method, given)
    bound = measure_bound(bench.place, bench.plan, lambda: bench.engine({})[0], False, seed) if free else None
    if bound is None:
        return {}
    batch = {**CATALOG.defaults(bench.method), **bench.options}.get("batch", USUAL_BATCH)
    top, known = bound.top(int(batch))[0], CATALOG.defaults(bench.method)
    instead = {option: _instead(known[option], top, None) for option in free}
    return {option: value for option, value in instead.items() if value is not None}


def measure_bound(place: Arena, plan: TrainSpec, engine_of: Any, tested: bool, seed: int) -> Bound | None:
    """What the data say about steps; `tested`: also by a range test, of models that are not linear.

    None where nothing can be said: an optimizer that makes its own steps, a task or an objective of one's own.
    """
    task = place.federation.task
    if plan.optimizer is not None or task == "custom":
        return None
    soft = task in HITS and not place.own_outcomes
    if task != "next_character" and not place.own_outcomes and place.model is model_of(ModelSpec(), place.federation):
        engine = engine_of()
        found = measure_curvature(engine.ask, place.sizes("train")[: place.population])
        flat = float(len(place.federation.classes) or 1)
        return Bound(found, flat, 0.0, soft, 1, ITERATIONS * place.population)
    if not tested:
        return None
    engine = engine_of()
    who = sample(place.population, ASKED_AT_MOST)
    params = place.model.init(keys(seed).model)
    test = find_longest_steps(partial(_ask_some, engine, who), place.objective.loss, params)
    return Bound(None, 1.0, test.longest, soft, test.steps, test.steps * len(who))


def _ask_some(engine: Engine, who: np.ndarray, question: Any, message: Any) -> Any:
    return jax.tree.map(np.asarray, engine.ask(question, message, who.tolist()))


def step_notes(steps: StepSizes | None) -> list[str]:
    """What a reader should know: where step sizes were looked for instead, and why.

    >>> found = dict(found_by="curvature", longest=0.02, client="ward 7", exchanges=1, gradients=60, defaults={})
    >>> print(step_notes(StepSizes(ranges={"ditto": {"lr": (0.0002, 0.02)}}, **found))[0])
    step sizes are tuned over 0.0002 to 0.02: the curvature of the clients' rows allows no longer ones (the largest is \
that of 'ward 7')
    """
    if steps is None or not (steps.ranges or steps.defaults):
        return []
    every = [ends for options in steps.ranges.values() for ends in options.values()]
    values = [value for options in steps.defaults.values() for value in options.values()]
    said = f"are tuned over {min(every)[0]:.3g} to {max(high for _, high in every):.3g}" if every else ""
    said = said or f"of {max(values):.3g} stand for longer defaults"
    if steps.client is None:
        return [f"step sizes {said}: in a range test on pooled batches, longer ones led astray"]
    return [f"step sizes {said}: the curvature of the clients' rows allows no longer ones (the largest is that of "
            f"'{steps.client}')"]  # fmt: skip


def _free_steps(method: Any, given: Container[str]) -> list[str]:
    """The step sizes on a loss that a user says nothing of."""
    known = CATALOG.options(method)
    return [name for name in step_sizes(known) if name not in given and name not in NOT_ON_A_LOSS]


def _least_batch(row: Variant) -> int:
    """The fewest rows of a step; 0: all of them."""
    known = {**CATALOG.defaults(row.method), **row.options}.get("batch", USUAL_BATCH)
    every = row.grid.get("batch", [known])
    return min((int(batch) for batch in every if batch), default=0)


def _fits(declared: tuple[float, float], top: float) -> bool:
    return top / NEAR <= declared[1] <= top


def _range(top: float) -> tuple[float, float]:
    return _rounded(top / SPAN), _rounded(top)


def _instead(default: Any, top: float, moved: tuple[float, float] | None) -> float | None:
    """What to take for a default that is too long, or outside of where it is searched; None: it stands."""
    if not isinstance(default, float):
        return None
    low, high = moved or (0.0, top)
    return None if low <= default <= high else _rounded(top / AGAIN)


def _rounded(value: float) -> float:
    """Three digits: what a table shows is what ran."""
    return float(f"{value:.3g}")
