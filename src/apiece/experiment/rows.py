"""A row of a comparison: tuned on validation, trained and judged seed by seed; each from its file, if that is there."""

from pathlib import Path
from typing import Any

from apiece import files
from apiece.engines.engine import forget_checkpoint
from apiece.experiment import build as setup
from apiece.experiment import checkpoint, tune
from apiece.experiment.bench import Bench
from apiece.experiment.best import plan_of
from apiece.experiment.extend import is_whole
from apiece.experiment.folder import RunFolder
from apiece.experiment.judge import Outcome
from apiece.experiment.newcomers import judge_newcomers
from apiece.experiment.progress import Progress, count_trials
from apiece.experiment.record import StepSizes
from apiece.experiment.spec import Spec
from apiece.experiment.steps import find_steps
from apiece.experiment.variant import Variant
from apiece.machine import peak_memory_mb


def steps_of(spec: Spec, place: setup.Arena, run: RunFolder) -> StepSizes | None:
    """How long steps may be, from its file if that was found before."""
    if not run.steps.exists() and run.is_finished:
        return None  # a finished run of before, which is only read
    if not run.steps.exists():
        found = find_steps(place, spec.rows, spec.train, spec.tune, spec.seeds[0])
        files.write_json(run.steps, None if found is None else files.as_plain(found.model_dump()))
    known = files.read_json(run.steps)
    return None if known is None else StepSizes.model_validate(known)


def run_row(
    spec: Spec,
    row: Variant,
    place: setup.Arena,
    run: RunFolder,
    progress: Progress,
    steps: StepSizes | None,
) -> tuple[list[dict[str, Any]], dict[int, Outcome]]:
    """A row of the comparison: what tuning tried, and the trial of every seed."""
    bench = Bench(place, row.method, row.options, plan_of(row.method, spec.train))
    tried = _tuned(spec, row, bench, run.tuning(row.name), progress, steps)
    chosen = tried[tune.best(tried, *place.criterion.chosen_by)]["options"]
    return tried, {seed: _finished(row.name, bench, seed, chosen, run, progress) for seed in spec.seeds}


def _tuned(
    spec: Spec, row: Variant, bench: Bench, path: Path, progress: Progress, steps: StepSizes | None
) -> list[dict[str, Any]]:
    """The method's trials on validation: options and loss. One possible setting needs no trial."""
    tried: list[dict[str, Any]] = files.read_json(path) if path.exists() else []
    points, wanted = row.points(spec.tune, steps), bench.place.criterion.chosen_by[0]
    if len(points) == 1:
        progress.skip(tuning=count_trials(spec, row))
        return [{"options": points[0], "validation_loss": None}]
    progress.skip(tuning=len(tried))
    done = len(tried)
    if done == len(points):
        return tried
    progress.say(f"{row.name}: tuning {done + 1} of {len(points)}")
    looks = bench.looks(points, spec.seeds[0], done=done, tick=progress.tick)
    for point, (_, _, curve) in zip(points[done:], looks, strict=True):
        progress.say(f"{row.name}: tuning {min(len(tried) + 2, len(points))} of {len(points)}")
        last = {key: value for key, value in curve[-1].items() if key in ("validation_loss", wanted)}
        tried.append(files.as_plain({"options": point, **last}))
        files.write_json(path, tried)
    return tried


def _finished(
    name: str, bench: Bench, seed: int, options: dict[str, float], run: RunFolder, progress: Progress
) -> Outcome:
    """The trial of one seed, from its file if it was finished before."""
    plan = bench.plan
    done, keep, models = run.outcome(name, seed), run.checkpoint(name, seed), run.models(name, seed)
    end = run.end(name, seed)
    if done.exists() and models.exists() and is_whole(before := checkpoint.load_outcome(done), plan):
        progress.skip(1)
        forget_checkpoint(keep)
        return before
    if end.exists() and not keep.exists():
        end.replace(keep)
    progress.say(f"{name}: seed {seed}")
    engine, state, outcome = bench.trial(options, seed, keep=keep, tick=progress.tick, look=progress.looker(name, seed))
    outcome.costs["peak_memory_mb"] = peak_memory_mb()
    outcome.note = checkpoint.save_models(models, engine, bench.place, state, plan.models_gb)
    outcome.arrays |= judge_newcomers(engine, bench.place, state, plan, outcome)
    if plan.stop is None:
        checkpoint.save_end(end, engine, state, outcome, plan.models_gb)
    checkpoint.save_outcome(done, outcome)
    forget_checkpoint(keep)
    return outcome
