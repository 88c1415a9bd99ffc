"""Several methods, several seeds, one federation: tune on validation, train, test once, write it all down."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from apiece import files
from apiece.data import SOURCES, Federation
from apiece.engines.simulation.base import Simulation
from apiece.errors import UserError
from apiece.experiment import build as setup
from apiece.experiment import record, trial, tune
from apiece.experiment.newcomers import judge_newcomers, newcomers_over_seeds
from apiece.experiment.record import Trials
from apiece.experiment.spec import Spec, make_spec, read_values, to_toml
from apiece.machine import peak_memory_mb
from apiece.methods.options import bind, checked, tunable

FORMAT = "2"  # of the files in checkpoints/: a run is resumed by a version that writes the same
Watch = Callable[[str, int, int], None]  # (what is going on, rounds done, rounds in all)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result: the record (as in record.json), where it lies, and every trial's outcome."""

    record: dict[str, Any]
    folder: Path
    trials: Trials
    place: setup.Arena

    def personal(self, method: str, client: str, seed: int | None = None) -> dict[str, np.ndarray]:
        """One client's own model under a method, by parameter path."""
        seed = self.record["spec"]["seeds"][0] if seed is None else seed
        with files.opened(self.folder / "models" / f"{method}-{seed}.safetensors") as (get, names, about):
            if client not in about["clients"]:
                raise UserError(f"no personal model of client '{client}' was kept for {method}")
            row = about["clients"].index(client)
            mine = {name: get(name, row, row + 1)[0] for name in names if name.startswith("personal")}
        return {name.removeprefix("personal/"): value for name, value in mine.items()}


def run_spec(spec: Spec, out: Path, watch: Watch = lambda what, done, total: None, *, fresh: bool = True) -> Comparison:
    """Run a spec into a new folder. Everything that can be wrong with the spec is found before anything is written."""
    place = setup.check(spec)
    if fresh:
        files.new_folder(out)
    resolved = spec.model_dump()
    path = Path(spec.data.source)
    if spec.data.source not in SOURCES and path.exists():  # so that the run can be continued from any folder
        resolved["data"]["source"] = str(path.resolve())
    files.write_json(out / "checkpoints" / "federation.json", fingerprint(place))
    with files.replacing(out / "spec.toml") as temporary:
        temporary.write_text(to_toml(resolved), encoding="utf-8")
    return _go(spec, place, out, watch)


def resume(out: str | Path, watch: Watch = lambda what, done, total: None) -> Comparison:
    """Continue the run in a folder; a finished one is only read again. The numbers are those of an undisturbed run.

    >>> try: resume("no-such-run")
    ... except UserError as error: print(error)
    'no-such-run' is not a run folder: it has no spec.toml
    """
    out = Path(out)
    if not (out / "spec.toml").exists():
        raise UserError(f"'{out}' is not a run folder: it has no spec.toml")
    spec = make_spec(read_values(out / "spec.toml"), str(out / "spec.toml"))
    place = setup.check(spec)
    known = out / "checkpoints" / "federation.json"
    if not known.exists():
        raise UserError(
            f"'{out}' lacks checkpoints/{known.name}, which tells whether the data are the same; start anew"
        )
    begun, now = files.read_json(known), fingerprint(place)
    if begun.get("format") != FORMAT:
        raise UserError(f"'{out}' was begun by another version of apiece; finish it with that one, or start anew")
    if begun != now:
        raise UserError(f"the data of '{out}' changed since the run began; start a new run instead of resuming")
    return _go(spec, place, out, watch)


def fingerprint(place: setup.Arena) -> dict[str, str]:
    """Hashes that tell whether the data are still the same, and the format of the checkpoints."""
    of = lambda *arrays: hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:32]
    parts = {"train": (place.x, place.y, place.offsets), **place.splits}
    return {part: of(*arrays) for part, arrays in parts.items()} | {"ids": of(place.ids), "format": FORMAT}


def _go(spec: Spec, place: setup.Arena, out: Path, watch: Watch) -> Comparison:
    progress = _Progress(spec, watch)
    trials: Trials = {}
    tuning: dict[str, list[dict[str, Any]]] = {}
    notes: list[str] = []
    for name, options in spec.methods.items():
        bench = _Bench(spec, place, name, options, out)
        tuning[name] = _tuned(bench, progress)
        chosen = tune.best(tuning[name])
        trials[name] = {}
        for seed in spec.seeds:
            trials[name][seed] = _finished(bench, seed, chosen["options"], progress)
            notes += [f"{name}, seed {seed}: {note}"] if (note := trials[name][seed].note) else []
        if chosen["validation_loss"] is None and len(tuning[name]) > 1:
            notes.append(f"{name} diverged in every tuning trial; its numbers are of its defaults")
    written = [out / name for name in ("rounds.parquet", "clients.parquet", "record.json")]
    if all(path.exists() for path in written):  # finished before: where and by which version stays as it was
        return Comparison(files.read_json(written[-1]), out, trials, place)
    found = _record(spec, place, trials, tuning, notes)
    record.write_rounds(out / "rounds.parquet", trials)
    record.write_clients(out / "clients.parquet", place, trials)
    files.write_json(out / "record.json", found)
    return Comparison(files.plain(found), out, trials, place)


class _Bench:
    """One method on its engine: made when first needed, so that finished work is not compiled again."""

    def __init__(self, spec: Spec, place: setup.Arena, name: str, options: dict[str, Any], out: Path) -> None:
        self.spec, self.place, self.name, self.options, self.out = spec, place, name, options, out
        self.hyper = bind(name, place.objective.loss, options, population=place.population)[1]
        self._engine: Simulation | None = None

    @property
    def engine(self) -> Simulation:
        if self._engine is None:
            self._engine, _ = setup.engine_of(self.place, self.name, self.options, self.spec.train)
            self.splits = setup.held_out(self._engine, self.place)
        return self._engine

    def path(self, what: str) -> Path:
        return self.out / "checkpoints" / f"{self.name}-{what}"


def _tuned(bench: _Bench, progress: "_Progress") -> list[dict[str, Any]]:
    """The method's trials on validation: options and loss. One possible setting needs no trial."""
    path = bench.path("tuning.json")
    tried: list[dict[str, Any]] = files.read_json(path) if path.exists() else []
    points = tune.candidates(tunable(bench.name, bench.options), bench.hyper, bench.spec.tune)
    if len(points) == 1:
        progress.skip(bench.spec.tune)
        return [{"options": points[0], "validation_loss": None}]
    progress.skip(len(tried))
    plan, seed = bench.spec.train, bench.spec.seeds[0]
    for point in points[len(tried) :]:
        progress.say(f"{bench.name}: tuning {len(tried) + 1} of {len(points)}")
        engine, hyper = bench.engine, bench.hyper | point
        final = plan.model_copy(update={"evaluate_every": plan.rounds})
        _, curve, _ = trial.train(engine, bench.place, hyper, seed, final, bench.splits, tick=progress.tick)
        tried.append(files.plain({"options": point, "validation_loss": curve[-1]["validation_loss"]}))
        files.write_json(path, tried)
    return tried


def _finished(bench: _Bench, seed: int, options: dict[str, float], progress: "_Progress") -> trial.Outcome:
    """The trial of one seed, from its file if it was finished before."""
    done, keep = bench.path(f"{seed}-done.safetensors"), bench.path(f"{seed}.safetensors")
    models = bench.out / "models" / f"{bench.name}-{seed}.safetensors"
    if done.exists() and models.exists():
        progress.skip(1)
        keep.unlink(missing_ok=True)
        return trial.load_outcome(done)
    progress.say(f"{bench.name}: seed {seed}")
    engine, place, plan = bench.engine, bench.place, bench.spec.train
    hyper = bench.hyper | options
    run, curve, seconds = trial.train(engine, place, hyper, seed, plan, bench.splits, keep=keep, tick=progress.tick)
    judged, arrays = trial.judge(engine, place, run, bench.splits)
    spent = trial.total_costs(engine, place, run, engine.build(hyper, 0), seconds)
    spent["peak_memory_mb"] = peak_memory_mb()
    outcome = trial.Outcome(judged, arrays, curve, spent, trial.save_models(models, engine, place, run, plan.models_gb))
    outcome.arrays |= judge_newcomers(engine, place, run, bench.splits["test"], plan, outcome)
    trial.save_outcome(done, outcome)
    keep.unlink(missing_ok=True)
    return outcome


def _record(
    spec: Spec, place: setup.Arena, trials: Trials, tuning: dict[str, list[dict[str, Any]]], notes: list[str]
) -> dict[str, Any]:
    gains = record.gains(place, trials)
    methods: dict[str, Any] = {}
    for name, by_seed in trials.items():
        per_seed = {seed: record.metrics(place, outcome) for seed, outcome in by_seed.items()}
        methods[name] = {
            "options": checked(name, spec.methods[name] | tune.best(tuning[name])["options"]),
            "tuning": tuning[name],
            "seeds": [{"seed": s, "metrics": m, "costs": by_seed[s].costs} for s, m in per_seed.items()],
            "summary": record.over_seeds(list(per_seed.values())),
            "newcomers": newcomers_over_seeds(place, by_seed),
            "hurt": gains.get(name),
            "against": {other: record.against(trials, place, name, other) for other in ("local", "fed_avg", "ftfa")},
        }
    return {
        "environment": record.environment(),
        "revision": record.revision(),
        "spec": spec.model_dump(),
        "model": place.model.name,
        "federation": place.federation.summary(),
        "methods": methods,
        "notes": [*place.federation.notes, *place.federation.scale_warnings(), *notes],
    }


class _Progress:
    """Rounds done of all rounds to do, tuning included."""

    def __init__(self, spec: Spec, watch: Watch) -> None:
        self.watch, self.rounds, self.done, self.what = watch, spec.train.rounds, 0, "starting"
        self.total = len(spec.methods) * (spec.tune + len(spec.seeds)) * spec.train.rounds

    def say(self, what: str) -> None:
        self.what = what
        self.tick(0)

    def tick(self, rounds: int) -> None:
        self.done += rounds
        self.watch(self.what, self.done, self.total)

    def skip(self, trials: int) -> None:
        self.tick(trials * self.rounds)


def compare(
    data: str | Path | Federation = "digits",
    methods: Sequence[str] | dict[str, dict[str, Any]] = (),
    *,
    rounds: int = 100,
    seeds: int | list[int] = 3,
    tune: int = 8,
    out: str | Path | None = None,
    model: str = "auto",
    watch: Watch = lambda what, done, total: None,
    data_options: dict[str, Any] | None = None,
    model_options: dict[str, Any] | None = None,
    **train: Any,
) -> Comparison:
    """Compare methods fairly on one federation; Local, FedAvg and FTFA always stand beside them.

    Args:
        data: a source by name, a path, or a Federation (which is then saved in the run folder).
        methods: names, or name -> options that are not to be tuned.
        rounds, seeds, tune: rounds a run, seeds (a number or a list), tuning trials per method.
        out: the run folder; default: the next free runs/compare-N.
        model: "auto" or a name of `apiece.models.MODELS`. model_options, data_options: theirs, by name.
        train: cohort, probability, weights, stateless, schedule, evaluate_every, ...

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     found = compare("digits", ["ditto"], rounds=2, seeds=1, tune=1, out=place + "/run")
    >>> list(found.record["methods"])
    ['local', 'fed_avg', 'ftfa', 'ditto']
    """
    out = Path(out) if out is not None else files.next_free(Path("runs/compare"))
    given = {
        "model": {"name": model, "options": model_options or {}},
        "train": {"rounds": rounds, **train},
        "methods": methods if isinstance(methods, dict) else {name: {} for name in methods},
        "seeds": list(range(seeds)) if isinstance(seeds, int) else list(seeds),
        "tune": tune,
    }
    if isinstance(data, Federation):
        setup.check(make_spec(given, "compare"), data)  # a mistake is found before anything is written
        files.new_folder(out)
        source = str(data.save(out / "federation"))
        return run_spec(make_spec({**given, "data": {"source": source}}, "compare"), out, watch, fresh=False)
    return run_spec(make_spec({**given, "data": {"source": str(data), "options": data_options or {}}}), out, watch)
