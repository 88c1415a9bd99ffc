"""Train a method with one seed: look at validation now and then, and keep going after a crash."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece.engines.engine import Engine, RunState
from apiece.engines.simulation.division import on_host
from apiece.engines.simulation.together import advance_together
from apiece.engines.simulation.vectorized import Vectorized
from apiece.engines.states import store_of
from apiece.evaluate import per_client
from apiece.experiment.best import BestRound, Curve
from apiece.experiment.build import Arena
from apiece.experiment.converge import has_rested
from apiece.experiment.judge import finite, metric_values, outcomes_of, sample
from apiece.experiment.spec_tables import TrainSpec
from apiece.models.failures import raise_failures
from apiece.wrap import attackers_of

MOST_REPORTED = 10_000  # numbers of a name that are kept at every look
SAVING = 0.1  # of the time, at most, goes into checkpoints
Tick = Callable[[int], None]  # called with the number of rounds just done
Enough = Callable[[Curve], bool] | None  # of a curve so far: whether a run that is only tried is given up
Report = Callable[[Any], dict[str, Any]] | None  # of a method: what it says of its server's state
Look = Callable[[Engine, RunState, dict[str, Any]], None]  # called with a run on its way and what was just seen of it
Watch = Callable[[str, int, int], None]  # called with what is going on, how much is done, and of how much


def train(
    engine: Engine,
    place: Arena,
    hyper: dict[str, float],
    seed: int,
    plan: TrainSpec,
    *,
    keep: Path | None = None,
    begun: RunState | None = None,
    tick: Tick = lambda rounds: None,
    look: Look = lambda engine, run, seen: None,
    enough: Enough = None,
) -> tuple[RunState, Curve, float]:
    """(the run after all rounds, its validation curve, seconds of training); from the checkpoint at `keep`, if any.

    Or from where it stands, if it has `begun`; the curve is then that of the rounds since.

    With `plan.stop` the run stops when validation no longer improves, and is given as it was at its best round. With
    `plan.until_rest` it ends where validation has come to rest. It also ends where `enough` says so.

    The curve is a mean over clients, each counting once; of a large population a fixed sample is looked at, and
    `sampling_error` is the standard error that this brings.
    """
    run = engine.start(place.model.init, seed, hyper) if begun is None else begun
    curve: Curve = []
    seconds, saved, saving = 0.0, time.monotonic(), 0.0
    if keep is not None and keep.exists():
        run, about = engine.restore(keep, run)
        curve, seconds = about["curve"], about["seconds"]
        tick(run.round)
    elif keep is not None and engine.agree(store_of(run.rows) is not None):
        engine.save(run, keep, {"curve": [], "seconds": 0.0}, beside=True)  # states begin where they will stay
    watched = _honest(sample(place.population, plan.evaluate_clients), run)
    report = engine.build(run.hyper, run.round).report
    best = None if plan.stop is None else BestRound(engine, plan.stop, place.criterion.chosen_by, keep)
    while run.round < plan.rounds and not (plan.until_rest and has_rested(curve)):
        began, before = time.monotonic(), run.round
        run = engine.advance(run, min(plan.look_every, plan.rounds - run.round))
        jax.block_until_ready(run.server)
        raise_failures()
        seconds += time.monotonic() - began
        curve.append(_look(engine, run, place, watched, seconds, report))
        tick(run.round - before)
        look(engine, run, curve[-1])
        if best is not None and best.look(run, curve):
            break
        if enough is not None and enough(curve):
            break
        due = saved + (max(plan.checkpoint_seconds, saving / SAVING) if plan.checkpoint_seconds else 0)
        if keep is not None and run.round < plan.rounds and engine.agree((began := time.monotonic()) >= due):
            engine.save(run, keep, {"curve": curve, "seconds": seconds}, beside=True)
            saved = time.monotonic()
            saving = saved - began
    if run.round < plan.rounds:
        tick(plan.rounds - run.round)  # as good as done
    if best is not None:
        run = best.result(run, engine.start(place.model.init, seed, hyper), curve)
    return run, curve, seconds


def _reported(report: Report, run: RunState) -> dict[str, Any]:
    """What the method says of itself, name by name: a list of numbers, or the mean of very many."""
    found = {} if report is None else report(run.server)
    plain = {name: np.asarray(on_host(value), np.float64) for name, value in found.items()}
    few = lambda value: value if value.size <= MOST_REPORTED else value.mean()
    return {f"reported_{name}": few(value).ravel().tolist() for name, value in plain.items()}


def spent(engine: Engine, run: RunState, curve: Curve) -> dict[str, float]:
    """What a run cost: all the rounds that were run, also those after its best one."""
    last = curve[-1] if curve else {"round": run.round, "clock": run.clock}
    return engine.costs(dataclasses.replace(run, round=int(last["round"]), clock=last["clock"]))


def train_together(
    engine: Vectorized,
    place: Arena,
    settings: Sequence[dict[str, float]],
    seed: int,
    plan: TrainSpec,
    width: int,
    *,
    tick: Tick = lambda rounds: None,
    ticks: Sequence[bool] = (),
    enough: Sequence[Enough] = (),
) -> list[tuple[RunState, Curve, float]]:
    """The same of several settings of traced options, at most `width` of them, in one program for that many.

    `ticks`: of which of them `tick` is told; of all, if nothing is said. `enough`: of each, when it is given up.
    """
    runs = [engine.start(place.model.init, seed, hyper) for hyper in settings]
    curves: list[Curve] = [[] for _ in runs]
    reports = [engine.build(run.hyper, run.round).report for run in runs]
    watched, seconds = _honest(sample(place.population, plan.evaluate_clients), runs[0]), 0.0
    took, going, round = [0.0] * len(runs), list(range(len(runs))), runs[0].round
    told, tired = ticks or [True] * len(runs), enough or [None] * len(runs)
    while going and round < plan.rounds:
        began, some = time.monotonic(), min(plan.look_every, plan.rounds - round)
        moved = advance_together(engine, [runs[at] for at in going], some, width)
        raise_failures()
        round, seconds = round + some, seconds + (time.monotonic() - began) / len(going)
        for at, run in zip(going, moved, strict=True):
            runs[at], took[at] = run, seconds
            curves[at].append(_look(engine, run, place, watched, seconds, reports[at]))
            tick(some if told[at] else 0)
        given_up = [at for at in going if (stop := tired[at]) is not None and stop(curves[at])]
        for at in given_up:
            tick(plan.rounds - round if told[at] else 0)  # as good as done
        going = [at for at in going if at not in given_up]
    return list(zip(runs, curves, took, strict=True))


def _honest(who: np.ndarray, run: RunState) -> np.ndarray:
    """Those who do not attack: the others' own losses are no reason to choose anything."""
    return who[~np.isin(who, attackers_of(run.server))]


def _look(
    engine: Engine, run: RunState, place: Arena, who: np.ndarray, seconds: float, report: Report
) -> dict[str, Any]:
    run.fallen.clear()
    loss, error = outcomes_of(engine, place, run, who, ("validation",))["validation"]
    sizes = place.sizes("validation")[who]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    present = sizes > 0  # a diverged client must show as NaN, one without examples must not
    losses, errors = (finite(per_client(values, offsets)[present]) for values in (loss, error))
    seen = int(present.sum())
    # A finite population, partly seen: nothing is uncertain when all were looked at.
    unseen = 1 - len(who) / max(place.population - len(attackers_of(run.server)), 1)
    spread = float(np.std(losses, ddof=1)) if seen > 1 else 0.0
    own = metric_values(engine, place, run, who, "validation")
    mean = lambda values: float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
    return {
        "round": run.round,
        "clock": run.clock,
        "validation_loss": float(losses.mean()) if seen else float("nan"),
        "validation_error": float(errors.mean()) if seen else float("nan"),
        "sampling_error": spread * (unseen / max(seen, 1)) ** 0.5,
        "seconds": seconds,
        **{f"validation_{name}": mean(values) for name, values in own.items()},
        **_reported(report, run),
    }
