"""Several methods, several seeds, one federation: tune on validation, train, test once, write it all down."""

import contextlib
import dataclasses
import hashlib
import html
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from apiece import files
from apiece.data import SOURCES, Federation
from apiece.engines.contact import model_shapes
from apiece.engines.simulation.crew import crew_here
from apiece.errors import UserError
from apiece.evaluate.hurt import Hurt
from apiece.experiment import build as setup
from apiece.experiment import checkpoint, measure, tables
from apiece.experiment.baseline import alone_among, choose_baseline
from apiece.experiment.check import check_spec
from apiece.experiment.claim import claim_folder, claim_new_folder
from apiece.experiment.conclude import make_product, make_record
from apiece.experiment.constant import constants_beside
from apiece.experiment.extend import TESTED, refuse_to_extend, reopen_run, seen_before
from apiece.experiment.fits import LESS, out_of_memory
from apiece.experiment.folder import RunFolder, read_record, write_record
from apiece.experiment.live import Live
from apiece.experiment.loggers import check_loggers, open_loggers
from apiece.experiment.measure import Trials, fallen_note
from apiece.experiment.product import write_product
from apiece.experiment.profile import client_profile, verdict_rows
from apiece.experiment.progress import Progress, count_trials
from apiece.experiment.record import (
    Record,
)
from apiece.experiment.rows import run_row, steps_of
from apiece.experiment.spec import Spec, make_spec, read_values
from apiece.experiment.steps import step_notes
from apiece.experiment.train import Watch
from apiece.experiment.variant import Variant, tables_of
from apiece.experiment.written import code_hashes, refuse_changed_code, with_given, written_spec
from apiece.methods import CATALOG, USUAL
from apiece.methods.bind import bind
from apiece.own import raised_in
from apiece.protocol import Method, Params

FAILED = " failed and is left out: "  # between a row's name and why, in the notes of a record
HASHED = 1 << 24  # bytes at a time
FORMAT = "4"  # of the files in checkpoints/: a run is resumed by a version that writes the same


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result: the record (as in record.json), where it lies, and every trial's outcome.

    >>> [field.name for field in dataclasses.fields(Comparison)]
    ['record', 'folder', 'trials', 'place', 'rows', 'failed']
    """

    record: Record
    folder: Path
    trials: Trials
    place: setup.Arena
    rows: dict[str, Variant]
    failed: dict[str, str]  # rows of one's own methods that are left out, and why

    def _repr_html_(self) -> str:
        """What a notebook shows: the methods by their test score, best first, and where the page is."""
        ranking, rows = self.record.ranking, []
        for name in ranking.order:
            found = self.record.methods[name].statistic("test", ranking.metric, "mean_weighted")
            score = "diverged" if found is None else f"{found.mean:.4g} ± {found.half_width:.2g}"
            chosen = " (chosen by validation)" if name == ranking.by_validation else ""
            rows.append(f"<tr><th>{html.escape(name)}{chosen}</th><td>{score.replace(' ± nan', '')}</td></tr>")
        head = f"<tr><th>method</th><th>test {html.escape(ranking.metric)}</th></tr>"
        where = f"<p>The page: <code>apiece report {html.escape(str(self.folder))}</code></p>"
        return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>{where}"

    def personal(self, method: str, client_id: str, seed: int | None = None) -> Params:
        """The model of one client under a method, by the client's id; of the first seed, unless one is given."""
        seed = self.record.spec["seeds"][0] if seed is None else seed
        path = RunFolder(self.folder).models(method, seed)
        if not path.exists():
            raise UserError(f"no models of '{method}' with seed {seed} were kept: there is no {path}")
        params = jax.eval_shape(self.place.model.init, jax.random.key(0))
        row, told, place = self.rows[method], self.record.methods[method], self.place
        options = row.options | told.tuning[told.chosen or 0].options
        build, hyper = bind(row.method, place.objective.loss, options, None, place.population, place.model)
        like = model_shapes(build(hyper, 0), params, (place.x, place.y), int(place.sizes("train").max()))
        found = checkpoint.load_personal(path, client_id, like)
        if found is None:
            raise UserError(f"no personal model of client '{client_id}' was kept for {method}")
        return found


def run_spec(
    spec: Spec, out: Path, watch: Watch = lambda what, done, total: None, *, log: Sequence[str] = ()
) -> Comparison:
    """Run a spec into a new folder. Everything that can be wrong with the spec is found before anything is written.

    `log`: loggers that are told while it goes, "tensorboard" or "mlflow".

    >>> try: run_spec(make_spec({"data": {"source": "digit"}}), Path("never-made"))
    ... except UserError as error: print(str(error).rpartition("; ")[2], Path("never-made").exists())
    did you mean 'digits'? False
    """
    check_loggers(log)
    place = check_spec(spec)
    with claim_new_folder(out):
        return _begin(spec, place, out, watch, log)


def _begin(spec: Spec, place: setup.Arena, out: Path, watch: Watch, log: Sequence[str]) -> Comparison:
    resolved = written_spec(spec)
    path = Path(spec.data.source)
    if spec.data.source not in SOURCES and path.exists():  # so that the run can be continued from any folder
        resolved["data"]["source"] = str(path.resolve())
    with _resumable_when_full(out):
        files.write_json(RunFolder(out).fingerprint, {**fingerprint(place), "code": code_hashes(spec)})
        files.write_toml(RunFolder(out).spec, resolved)
        return _go(spec, place, out, watch, log)


@contextlib.contextmanager
def _resumable_when_full(out: Path) -> Iterator[None]:
    """Who runs out of disk is told how to go on."""
    try:
        yield
    except files.DiskFull as error:
        if RunFolder(out).spec.exists():
            error.args = (error.args[0].replace("and try again", f"and continue with: apiece resume {out}"),)
        raise


def resume(
    out: str | Path,
    watch: Watch = lambda what, done, total: None,
    *,
    rounds: int | None = None,
    given: Mapping[str, Any] | None = None,
    log: Sequence[str] = (),
) -> Comparison:
    """Continue the run in a folder; a finished one is only read again. The numbers are those of an undisturbed run.

    `rounds`: go on with a finished run to so many rounds in all, with the settings that were chosen; the numbers are
    those of so many rounds at once, and the record says that the test was seen before.
    `given`: by name, what the run was given as objects that cannot be imported (a function of a notebook, a model).
    `log`: as of `compare`.

    >>> try: resume("no-such-run")
    ... except UserError as error: print(error)
    'no-such-run' is not a run folder: it has no spec.toml
    """
    check_loggers(log)
    out = Path(out)
    written, known = RunFolder(out).spec, RunFolder(out).fingerprint
    if RunFolder(out).asked.exists():
        raise UserError(f"'{out}' holds a tuning, not a run; go on with it: apiece tune --join {out}; or run what it "
                        f"found: apiece compare --spec {written}")  # fmt: skip
    if not written.exists():
        raise UserError(f"'{out}' is not a run folder: it has no {written.name}")
    values = read_values(written)
    spec = make_spec(with_given(values, given or {}), str(written))
    if rounds is not None:
        refuse_to_extend(out, spec, rounds)
    finished = RunFolder(out).is_finished
    try:
        place = check_spec(spec)
    except setup.MissingData as error:
        hint = f". The run is finished: apiece.open('{out}') reads it without its data" if finished else ""
        raise setup.MissingData(f"{error}{hint}") from None
    if not known.exists():
        raise UserError(
            f"'{out}' lacks checkpoints/{known.name}, which tells whether the data are the same; start anew"
        )
    begun, now = files.read_json(known), fingerprint(place)
    code, _ = begun.pop("code", {}), begun.pop(TESTED, None)
    if begun.get("format") != FORMAT:
        raise UserError(f"'{out}' was begun by another version of apiece; finish it with that one, or start anew")
    if begun != now:
        raise UserError(f"the data of '{out}' changed since the run began; start a new run instead of resuming")
    if rounds is None and finished:  # it is only read
        return _go(spec, place, out, watch)
    refuse_changed_code(out, code, code_hashes(spec))
    with claim_folder(out), _resumable_when_full(out):
        if rounds is not None:
            spec = make_spec(with_given(reopen_run(out, values, rounds), given or {}), str(written))
        return _go(spec, place, out, watch, log)


def fingerprint(place: setup.Arena) -> dict[str, str]:
    """Hashes that tell whether the data are still the same, and the format of the checkpoints."""

    def of(*arrays: Any) -> str:
        found = hashlib.sha256()
        for array in arrays:  # in pieces: they may lie on disk, and be larger than the memory
            step = max(1, HASHED // max(array.nbytes // max(len(array), 1), 1))
            for first in range(0, len(array), step):
                found.update(np.ascontiguousarray(array[first : first + step]).tobytes())
        return found.hexdigest()[:32]

    parts = {"train": (place.x, place.y, place.offsets), **place.splits}
    crew = crew_here()
    if crew is not None and crew.process:  # the first has read all rows once; the others read their own alone
        return json.loads(crew.gather("fingerprint", b"")[0])
    found = {part: of(*arrays) for part, arrays in parts.items()} | {"ids": of(place.ids), "format": FORMAT}
    if crew is not None:
        crew.gather("fingerprint", json.dumps(found).encode())
    return found


def _go(spec: Spec, place: setup.Arena, out: Path, watch: Watch, log: Sequence[str] = ()) -> Comparison:
    if RunFolder(out).is_finished:
        return _walk(spec, place, out, Progress(spec, watch))
    with contextlib.ExitStack() as told:
        listeners = [told.enter_context(contextlib.closing(one)) for one in (Live(out), *open_loggers(log, out))]
        found = _walk(spec, place, out, Progress(spec, watch, listeners))
    RunFolder(out).live.unlink(missing_ok=True)
    return found


def _walk(spec: Spec, place: setup.Arena, out: Path, progress: Progress) -> Comparison:
    run = RunFolder(out)
    steps = steps_of(spec, place, run)
    trials: Trials = {}
    tuning: dict[str, list[dict[str, Any]]] = {}
    notes: list[str] = []
    # A finished run is finished: what failed in it is told again, and not tried again.
    finished = read_record(out) if run.is_finished else None
    failed: dict[str, str] = {} if finished is None else _failed_before(spec, finished)
    for name, row in spec.rows.items():
        before = progress.done
        if name in failed:
            progress.skip(len(spec.seeds), count_trials(spec, row))
            continue
        try:
            tuning[name], trials[name] = run_row(spec, row, place, run, progress, steps)
        except (UserError, KeyboardInterrupt):
            raise
        except Exception as error:  # a method of the user's own: the others' results are kept
            if out_of_memory(error):
                said = str(error).partition("\n")[0] or "MemoryError"
                raise UserError(f"method '{name}' found no memory left ({said}); {LESS}, and start anew") from error
            if row.method in CATALOG.own:
                raise
            failed[name] = raised_in(error)
            progress.done = before
            progress.skip(len(spec.seeds), count_trials(spec, row))
            continue
        notes += fallen_note(name, measure.fallen_clients(place, trials[name]))
        notes += [f"{name}, seed {seed}: {one.note}" for seed, one in trials[name].items() if one.note]
        if len(tuning[name]) > 1 and all(one["validation_loss"] is None for one in tuning[name]):
            notes.append(f"{name} diverged in every tuning trial; its numbers are of its defaults")
    notes += [f"{name}{FAILED}{why}" for name, why in failed.items()]
    notes += measure.attack_notes(place, trials)
    if not trials:
        raise UserError(notes[-1])
    if finished is not None:  # where and by which version stays as it was
        if not run.product.exists():  # an older version finished it
            write_product(run.product, make_product(spec, place, finished))
        return Comparison(finished, out, trials, place, spec.rows, failed)
    constants = constants_beside(place, next(iter(trials.values())))
    baseline = choose_baseline(place, trials, alone_among(spec.rows), constants)
    clients = tables.client_rows(place, trials, baseline)
    means = tables.means_of_clients(clients, place.criterion.metric)
    notes, tested = [*step_notes(steps), *notes], seen_before(out, spec.train.rounds)
    harms: dict[str, Hurt] = {}
    found = make_record(spec, place, trials, tuning, notes, means, constants, baseline, steps, tested, harms)
    judged = next(iter(next(iter(trials.values())).values())).judged
    tables.write_table(run.profile, client_profile(place, judged, run, spec.rows, spec.seeds[0]))
    tables.write_table(run.verdicts, verdict_rows(place, trials, run, harms))
    tables.write_table(run.rounds, tables.round_rows(trials))
    tables.write_table(run.clients, clients)
    write_product(run.product, make_product(spec, place, found))
    write_record(out, found)
    return Comparison(found, out, trials, place, spec.rows, failed)


def _failed_before(spec: Spec, record: Record) -> dict[str, str]:
    """The rows that a finished run left out, and why."""
    found = {}
    for name in spec.rows:
        if name not in record.methods:
            told = [note.removeprefix(name + FAILED) for note in record.notes if note.startswith(name + FAILED)]
            found[name] = told[0] if told else "it failed"
    return found


def compare(
    data: str | Path | Federation = "digits",
    methods: Sequence[str | Callable[..., Method]] | dict[str, Any] = USUAL,
    *,
    rounds: int | str = 100,
    seeds: int | list[int] = 3,
    tune: int = 8,
    out: str | Path | None = None,
    model: Any = "auto",
    objective: Any = None,
    metrics: Mapping[str, Any] | None = None,
    watch: Watch = lambda what, done, total: None,
    log: Sequence[str] = (),
    data_options: dict[str, Any] | None = None,
    model_options: dict[str, Any] | None = None,
    rank: str | None = None,
    choose: str | None = None,
    baselines: bool = True,
    standardize: bool | None = None,
    **how: Any,
) -> Comparison:
    """Compare methods fairly on one federation; Local, FedAvg and FTFA stand beside them, unless not `baselines`.

    Args:
        data: a source by name, a path, or a Federation (which is then saved in the run folder).
        methods: names or factories of one's own; or name -> options that are not to be tuned, among which "method"
            makes it a variant: {"weak": {"method": "ditto", "lam": 0.01}}; or name -> factory. Default: the usual nine.
        rounds, seeds, tune: rounds a run ("auto": until validation rests, at most 1000; "auto:500"), seeds (a number
            or a list), tuning trials per method.
        out: the run folder; default: the next free runs/compare-N.
        model: "auto", a name of `apiece.models.MODELS`, a model, or a function of (shape, outputs) that makes one; a
            Flax or torch module will do. model_options, data_options: theirs, by name.
        objective: what to train and judge by. metrics: {"f1": function of a client's outputs and labels, ...}.
        rank: what methods are ranked by, gains are told in and, unless `choose` says otherwise, tuning chooses by:
            "accuracy", "error", "log_loss", "rmse", "auc", "f1", or a metric. choose: the last of these alone.
        standardize: whether examples are brought to unit scale for training; default: if they are far from it.
        log: loggers that are told while it goes: "tensorboard", "mlflow" (an extra each).
        how: engine, cohort, probability, weights, stateless, schedule, evaluate_every, ...

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     found = compare("digits", ["ditto"], rounds=2, seeds=1, tune=1, out=place + "/run")
    >>> list(found.record.methods)
    ['local', 'fed_avg', 'ftfa', 'ditto']
    """
    if isinstance(methods, str):
        raise UserError(f"methods is a list of names: ['{methods}']")
    out = Path(out) if out is not None else files.find_free_path(Path("runs/compare"))
    given: dict[str, Any] = {
        "model": {"name": model, "options": model_options or {}, "objective": objective},
        "metrics": dict(metrics or {}),
        "train": {"rounds": rounds, **how},
        "methods": tables_of(methods),
        "seeds": list(range(seeds)) if isinstance(seeds, int) else list(seeds),
        "tune": tune,
        "rank": rank,
        "choose": choose,
        "baselines": baselines,
        "data": {"standardize": standardize},
    }
    check_loggers(log)
    if isinstance(data, Federation):
        place = check_spec(make_spec(given, "compare"), data)  # a mistake is found before anything is written
        with claim_new_folder(out):
            named: dict[str, Any] = {"source": str(data.save(RunFolder(out).federation))}
            return _begin(make_spec({**given, "data": given["data"] | named}, "compare"), place, out, watch, log)
    named = {"source": str(data), "options": data_options or {}}
    return run_spec(make_spec({**given, "data": given["data"] | named}), out, watch, log=log)
