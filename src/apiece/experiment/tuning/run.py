"""Tune every method of a spec: ask, try on validation, tell; then choose, and write specs that `compare` takes."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from apiece import files
from apiece.data import SOURCES
from apiece.errors import UserError
from apiece.experiment.bench import Bench
from apiece.experiment.build import Arena
from apiece.experiment.check import check_spec
from apiece.experiment.claim import claim_folder, claim_new_folder
from apiece.experiment.compare import FORMAT, fingerprint
from apiece.experiment.converge import edges
from apiece.experiment.record import StepSizes
from apiece.experiment.rows import steps_of
from apiece.experiment.spec import Spec, make_spec, read_values
from apiece.experiment.steps import find_steps, step_notes
from apiece.experiment.train import Curve, Watch
from apiece.experiment.tune import best
from apiece.experiment.tuning.folder import TuningFolder, is_tuning, write_results
from apiece.experiment.tuning.plan import SearchPlan, budgets_of, looks_of
from apiece.experiment.tuning.progress import Progress
from apiece.experiment.tuning.search import Asked, Budget, Search, SpreadOut, Trial, first_points
from apiece.experiment.tuning.tpe import SPREAD_FIRST, Tpe, need_optuna
from apiece.experiment.tuning.workers import Worker
from apiece.experiment.variant import Variant
from apiece.experiment.written import code_hashes, refuse_changed_code, with_given, written_spec
from apiece.methods import CATALOG
from apiece.own import raised_in


@dataclasses.dataclass(frozen=True)
class Tuning:
    """What a tuning found: its record (as in tuning.json), and where it lies.

    `running`: trials that other processes are still at; the last of them writes the results, and `record` is empty.

    >>> Tuning({"methods": {"ditto": {"options": {"lam": 1.0}}}}, Path("runs/tune-1")).options("ditto")
    {'lam': 1.0}
    """

    record: dict[str, Any]
    folder: Path
    running: int = 0

    def options(self, method: str) -> dict[str, Any]:
        """The options that were chosen for a method."""
        if method not in self.record.get("methods", {}):
            known = ", ".join(self.record.get("methods", {})) or "none yet"
            raise UserError(f"no method '{method}' was tuned in {self.folder}: {known}")
        return dict(self.record["methods"][method]["options"])

    @property
    def spec(self) -> Path:
        """All methods as tuned, for `compare`."""
        return TuningFolder(self.folder).spec


def tune_spec(spec: Spec, out: Path, plan: SearchPlan, watch: Watch = lambda what, done, total: None) -> Tuning:
    """Tune the rows of a spec into a new folder; what can be wrong is found before anything is written."""
    place = check_spec(spec, tested=False)
    steps = check_search(spec, place, plan)
    with claim_new_folder(out):  # until others may join
        begin_tuning(spec, place, TuningFolder(out), plan, steps)
    return go_on(spec, place, TuningFolder(out), plan, watch)


def check_search(spec: Spec, place: Arena, plan: SearchPlan) -> StepSizes | None:
    """How long steps may be; a `UserError` if there is nothing to choose by, or the budget is less than one trial."""
    if not place.federation.validation.rows:
        raise UserError(f"{place.federation.name} has no validation examples to tune on; give validation a share")
    steps = find_steps(place, spec.rows, spec.train, spec.tune, spec.seeds[0])
    _benches(spec, place, plan, steps)
    return steps


def begin_tuning(spec: Spec, place: Arena, folder: TuningFolder, plan: SearchPlan, steps: StepSizes | None) -> None:
    """Write down what is asked: from here on a process can join."""
    values = written_spec(spec)
    path = Path(spec.data.source)
    if spec.data.source not in SOURCES and path.exists():  # so that it can be continued from any folder
        values["data"]["source"] = str(path.resolve())
    files.write_json(folder.search, dataclasses.asdict(plan))
    files.write_json(folder.run.fingerprint, {**fingerprint(place), "code": code_hashes(spec)})
    files.write_json(folder.run.steps, None if steps is None else files.as_plain(steps.model_dump()))
    files.write_toml(folder.asked, values)


def join_tuning(
    out: str | Path, watch: Watch = lambda what, done, total: None, given: Mapping[str, Any] | None = None
) -> Tuning:
    """Go on with a tuning that was stopped, or work at it beside other processes; a finished one is read.

    `given`: by name, what it was given as objects that cannot be imported.

    >>> try: join_tuning("no-such-folder")
    ... except UserError as error: print(error)
    'no-such-folder' holds no tuning: there is no asked.toml. Begin one: apiece tune --out no-such-folder
    """
    folder = TuningFolder(Path(out))
    if not is_tuning(out):
        raise UserError(f"'{out}' holds no tuning: there is no {folder.asked.name}. Begin one: apiece tune --out {out}")
    if folder.record.exists():
        return Tuning(files.read_json(folder.record), folder.path)
    plan = SearchPlan(**files.read_json(folder.search))
    if plan.strategy == "tpe":
        need_optuna(f"'{out}'")
    spec = make_spec(with_given(read_values(folder.asked), given or {}), str(folder.asked))
    place = check_spec(spec, tested=False)
    begun = files.read_json(folder.run.fingerprint)
    code = begun.pop("code", {})
    if begun.get("format") != FORMAT:
        raise UserError(f"'{out}' was begun by another version of apiece; finish it with that one, or start anew")
    if begun != fingerprint(place):
        raise UserError(f"the data of '{out}' changed since the tuning began; start a new one")
    refuse_changed_code(out, code, code_hashes(spec))
    return go_on(spec, place, folder, plan, watch)


def go_on(spec: Spec, place: Arena, folder: TuningFolder, plan: SearchPlan, watch: Watch) -> Tuning:
    """All trials that are left, and then the results; from what is in the folder."""
    steps = steps_of(spec, place, folder.run)
    benches, budgets, notes = _benches(spec, place, plan, steps)
    with _at_work(folder, plan) as worker:
        searches = {
            name: _search_of(spec, row, folder, plan, steps, budgets[name], worker, place)
            for name, row in spec.rows.items()
        }
        first = {name: first_of(row, steps) for name, row in spec.rows.items()}
        progress = Progress(watch, {name: _expected(budgets[name], first[name]) for name in spec.rows})
        failed: dict[str, str] = {}
        again, tried = False, 1
        while tried:  # once more, if anything was left: a process may be gone, and what it had begun is ours
            tried = 0
            for name, row in spec.rows.items():
                if name in failed:
                    continue
                progress.begin(name, searches[name].trials(), quiet=again)
                given = (first[name], budgets[name], spec.seeds[0], progress)
                try:
                    tried += _try_all(benches[name], searches[name], *given)
                except (UserError, KeyboardInterrupt):
                    raise
                except Exception as error:  # a method of the user's own: the others' results are kept
                    if row.method in CATALOG.own:
                        raise
                    failed[name] = raised_in(error)
            again = True
        if len(failed) == len(searches):
            raise UserError(f"{name} failed: {failed[name]}")
        with worker.turn():
            running = sum(search.running() for search in searches.values())
            if running:
                return Tuning({}, folder.path, running)
            trials = {name: search.trials() for name, search in searches.items() if name not in failed}
            notes = [
                *step_notes(steps),
                *notes,
                *(f"{name} failed and is left out: {why}" for name, why in failed.items()),
            ]
            record = _record(spec, place, plan, trials, budgets, steps, notes)
            write_results(folder, read_values(folder.asked), trials, files.as_plain(record))
    return Tuning(files.read_json(folder.record), folder.path)


@contextlib.contextmanager
def _at_work(folder: TuningFolder, plan: SearchPlan) -> Iterator[Worker]:
    """This process at work: alone where points are known beforehand, among others where a study is shared."""
    with claim_folder(folder.path) if plan.strategy == "spread" else contextlib.nullcontext():
        worker = Worker(folder.workers)
        try:
            yield worker
        finally:
            worker.leave()


def first_of(row: Variant, steps: StepSizes | None) -> dict[str, Any]:
    """The first setting of a row: its defaults."""
    return first_points(row, steps, 1)[0]


def _benches(
    spec: Spec, place: Arena, plan: SearchPlan, steps: StepSizes | None
) -> tuple[dict[str, Bench], dict[str, Budget], list[str]]:
    rows = spec.rows
    benches = {name: Bench(place, row.method, row.options, spec.train) for name, row in rows.items()}
    first = {name: first_of(row, steps) for name, row in rows.items()}
    return benches, *budgets_of(plan, benches, first, spec.seeds[0])


def _search_of(
    spec: Spec,
    row: Variant,
    folder: TuningFolder,
    plan: SearchPlan,
    steps: StepSizes | None,
    budget: Budget,
    worker: Worker,
    place: Arena,
) -> Search:
    if plan.strategy == "spread" or len(first_points(row, steps, 2)) == 1:
        return SpreadOut(folder.run.tuning(row.name), first_points(row, steps, budget.trials), budget)
    instead = {} if steps is None else steps.defaults.get(row.name, {})
    moved = {} if steps is None else steps.ranges.get(row.name, {})
    written = bool(row.grid or row.ranges)
    ranges = row.ranges if written else CATALOG.ranges(row.method, fixed=row.options) | moved
    points = first_points(row, steps, SPREAD_FIRST)
    return Tpe(folder.study, worker, row.name, ranges=ranges, grid=row.grid, stands=instead, points=points,
               budget=budget, by=place.criterion.chosen_by, seed=spec.seeds[0], pruner=plan.pruner)  # fmt: skip


def _try_all(bench: Bench, search: Search, first: dict[str, Any], budget: Budget, seed: int, progress: Progress) -> int:
    """Trials of a row until there is nothing left to try; how many these were."""
    rounds = bench.plan.tuning_rounds
    every = looks_of(rounds, search.looks)[0]
    plan = bench.plan.model_copy(update={"rounds": rounds, "evaluate_every": every, "stop": None, "until_rest": False})
    by, higher = bench.place.criterion.chosen_by
    worth = lambda look: -look[by] if higher else look[by]
    # One program for all trials of a row; other than traced options need programs of their own.
    alike = all(name in bench.hyper for name in first)
    width = bench.width(first, seed, min(search.at_once, budget.trials), rounds * budget.trials) if alike else 1
    tried = 0
    while asked := search.ask(width):
        tired = [_tired(search, one, worth, rounds) for one in asked]
        settings = [(one.options, seed) for one in asked]
        found: list[Trial] = []
        runs = bench.runs(settings, plan, tick=progress.tick, enough=tired, width=width)
        for which, engine, run, curve, seconds in runs:
            cost = engine.costs(dataclasses.replace(run, round=int(curve[-1]["round"])))
            spent = cost["gradients"] + len(curve) * cost["gradients_personal"]
            found.append(_trial(asked[which], curve, by, rounds, spent, seconds))
        search.tell(found)
        tried += len(found)
        progress.know(search.trials())
    return tried


def _tired(search: Search, asked: Asked, worth: Callable[[Any], float], rounds: int) -> Callable[[Curve], bool]:
    def enough(curve: Curve) -> bool:
        look = curve[-1]
        return look["round"] < rounds and search.enough(asked, len(curve), worth(look))

    return enough


def _trial(asked: Asked, curve: Curve, by: str, rounds: int, gradients: float, seconds: float) -> Trial:
    last = curve[-1]
    seen = {key: _known(last[key]) for key in dict.fromkeys((by, "validation_loss"))}
    diverged = any(value is None for value in seen.values())
    state = "diverged" if diverged else "finished" if last["round"] >= rounds else "pruned"
    return Trial(asked.number, asked.options, state, seen, int(last["round"]), gradients, seconds)


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _record(
    spec: Spec,
    place: Arena,
    plan: SearchPlan,
    trials: Mapping[str, list[Trial]],
    budgets: Mapping[str, Budget],
    steps: StepSizes | None,
    notes: list[str],
) -> dict[str, Any]:
    by, higher = place.criterion.chosen_by
    rows = {name: _row(mine, by, higher, first_of(spec.rows[name], steps)) for name, mine in trials.items()}
    budget = next(iter(budgets.values())).gradients
    for name, row in rows.items():
        if row["chosen"] is None and row["trials"]:
            notes.append(f"{name} diverged in every trial; its options are its defaults")
    return {
        "format": 1,
        "strategy": plan.strategy,
        "pruner": plan.pruner,
        "gradients": None if math.isinf(budget) else budget,
        "rounds": spec.train.tuning_rounds,
        "seed": spec.seeds[0],
        "chosen_by": by,
        "higher": higher,
        "federation": place.federation.name,
        "clients": place.population,
        "model": place.model.name,
        "methods": rows,
        "notes": notes,
    }


def _row(trials: list[Trial], by: str, higher: bool, defaults: dict[str, Any]) -> dict[str, Any]:
    """What is told of a row: only trials of full length can be chosen."""
    whole = [trial for trial in trials if trial.counts]
    seen = [{"options": trial.options, "validation_loss": None, **trial.validation} for trial in whole]
    chosen = whole[best(seen, by, higher)] if whole else None
    tried = [{"options": trial.options} for trial in trials]
    at = 0 if chosen is None else trials.index(chosen)
    ends = edges(tried, at) if chosen is not None else []
    return {
        "chosen": None if chosen is None else chosen.number,
        "options": defaults if chosen is None else chosen.options,
        "gradients": sum(trial.gradients for trial in trials if not math.isnan(trial.gradients)),
        "seconds": sum(trial.seconds for trial in trials),
        "edges": [edge.model_dump() for edge in ends],
        "trials": [trial._asdict() for trial in trials],
    }


def _expected(budget: Budget, first: dict[str, Any]) -> tuple[float, float]:
    """(how much a row is expected to spend, what a trial costs); a trial is the unit where nobody knows its cost."""
    cost = budget.cost(first)
    cost = 1.0 if math.isnan(cost) else max(cost, 1.0)
    return min(budget.gradients, cost * budget.trials), cost
