"""`apiece compare`, `run`, `resume`, `report`, `methods` and `models`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.flags import (
    Choose,
    ClientColumn,
    Cohort,
    DataName,
    DataOptions,
    Decimal,
    Delimiter,
    EngineName,
    Every,
    Excluded,
    FeatureColumns,
    Hidden,
    LabelColumn,
    Log,
    Metrics,
    MissingWords,
    ModelName,
    ModelOptions,
    NewClients,
    OptimizerName,
    Out,
    Probability,
    Rounds,
    Schedule,
    Seeds,
    Settings,
    SpecFile,
    SplitColumn,
    Standardize,
    Stateless,
    Tune,
    choose_methods,
    listed,
    table_of,
    values_of,
    with_settings,
)
from apiece.cli.hosts import HostNames, ProcessNumber, is_first, joined
from apiece.cli.terminal import Json, err, plain_errors, progress, ready, show_result
from apiece.cli.tune import join_folder
from apiece.errors import UserError


def compare(
    spec: SpecFile = None,
    data: DataName = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods, comma-separated: names, or one's own, file.py:factory; default: the usual nine."),
    ] = None,
    baselines: Annotated[
        bool | None,
        typer.Option(
            "--baselines/--no-baselines", help="local, fed_avg and ftfa beside them; default: as the spec says, or yes."
        ),
    ] = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = None,
    tune: Tune = None,
    cohort: Cohort = None,
    probability: Probability = None,
    engine: EngineName = None,
    model: ModelName = None,
    hidden: Hidden = None,
    model_option: ModelOptions = None,
    schedule: Schedule = None,
    optimizer: OptimizerName = None,
    metric: Metrics = None,
    choose: Choose = None,
    stateless: Stateless = None,
    evaluate_every: Every = None,
    new_clients: NewClients = None,
    standardize: Standardize = None,
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    exclude: Excluded = None,
    split: SplitColumn = None,
    na: MissingWords = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    data_option: DataOptions = None,
    set: Settings = None,
    log: Log = None,
    json: Json = False,
) -> None:
    """Compare methods on one federation, fairly, client by client. All are tuned alike, with several seeds."""
    given = dict(locals())
    with plain_errors():
        from apiece.experiment.spec import BASELINES
        from apiece.methods import USUAL

        values = values_of(given)
        if baselines is not None:
            values["baselines"] = baselines
        if methods is not None:
            values["methods"] = choose_methods(values, listed(methods), BASELINES)
        elif not values.get("methods"):
            values["methods"] = {name: {} for name in USUAL}
        _run(with_settings(values, set), out, "compare", json, log or [], spec)


def run(
    method: Annotated[str | None, typer.Argument(help="A method of the catalog, e.g. ditto; or give --spec.")] = None,
    spec: SpecFile = None,
    data: DataName = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = None,
    tune: Tune = None,
    cohort: Cohort = None,
    probability: Probability = None,
    engine: EngineName = None,
    model: ModelName = None,
    hidden: Hidden = None,
    model_option: ModelOptions = None,
    schedule: Schedule = None,
    optimizer: OptimizerName = None,
    metric: Metrics = None,
    choose: Choose = None,
    stateless: Stateless = None,
    evaluate_every: Every = None,
    new_clients: NewClients = None,
    standardize: Standardize = None,
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    exclude: Excluded = None,
    split: SplitColumn = None,
    na: MissingWords = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    data_option: DataOptions = None,
    set: Settings = None,
    hosts: HostNames = None,
    process: ProcessNumber = None,
    log: Log = None,
    json: Json = False,
) -> None:
    """Run one method, or what a spec lists. No baselines; untuned unless --tune or the spec says so."""
    given = dict(locals())
    with plain_errors():
        values: dict[str, Any] = {"tune": 1, "seeds": [0], "baselines": False, **values_of(given)}
        if method is not None:
            values["methods"] = {method: table_of(values, "methods").get(method, {})}
        if not values.get("methods"):
            raise UserError("which method? Give one, e.g. 'apiece run ditto', or a spec that lists some")
        _run(with_settings(values, set), out, "run", json, log or [], spec, hosts, process)


def resume(
    folder: Annotated[Path, typer.Argument(help="A run folder.")],
    rounds: Annotated[int | None, typer.Option(help="Go on with a finished run, to so many rounds in all.")] = None,
    hosts: HostNames = None,
    process: ProcessNumber = None,
    log: Log = None,
    json: Json = False,
) -> None:
    """Go on with a run that was stopped, killed or too short. It ends with the numbers of an undisturbed run."""
    with plain_errors(), _resumable(folder):
        from apiece import experiment
        from apiece.experiment.build import MissingData
        from apiece.experiment.tuning import is_tuning

        if is_tuning(folder) and rounds is None:
            return join_folder(folder, json)
        ready()
        written = experiment.RunFolder(folder).spec
        text = written.read_text("utf-8") if written.is_file() else ""
        try:
            with joined(hosts, process, f"{text}\n{rounds}", folder, resumed=True) as own, _watched() as watch:
                found = experiment.resume(own, watch, rounds=rounds, log=(log or []) if is_first() else [])
                first = is_first()
        except MissingData:
            if rounds is not None or not experiment.RunFolder(folder).is_finished:
                raise
            _show(folder, experiment.read_record(folder), json)  # all that is left to do, and it needs no data
        else:
            if first:
                _finish(found, json)


def report(
    folders: Annotated[list[Path], typer.Argument(help="A finished run folder; several stand side by side.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; default: report.html in the folder.")
    ] = None,
    png: Annotated[bool, typer.Option("--png", help="Also every picture as a PNG, in RUN/figures.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Also every picture as an SVG, in RUN/figures.")] = False,
    json: Json = False,
) -> None:
    """Write the page of a run again, or one page about several runs."""
    with plain_errors():
        from apiece.report import write_pictures, write_report, write_runs

        if len(folders) > 1:
            page = write_runs(folders, out or Path("runs.html"))
        else:
            page = write_report(folders[0], out)
        kinds = [kind for kind, asked in (("png", png), ("svg", svg)) if asked]
        drawn = [str(file) for folder in folders for kind in kinds for file in write_pictures(folder, kind)]
        said = "".join(f"\nwrote {file}" for file in drawn)
        show_result({"report": str(page), "pictures": drawn}, json, f"wrote {page}{said}")


def spec() -> None:
    """Print a spec with every key and what it means. To begin with: apiece spec > spec.toml."""
    with plain_errors():
        from apiece.report.reference.spec import commented

        typer.echo(commented(), nl=False)


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method's text and options.")] = None,
    data: DataName = None,
    model: ModelName = None,
    hidden: Hidden = None,
    model_option: ModelOptions = None,
    json: Json = False,
) -> None:
    """The methods: what each is and sends, and its options. For a given model: how much it sends and keeps."""
    with plain_errors():
        from apiece.methods import CATALOG
        from apiece.report import catalog as describe
        from apiece.report import terminal as show

        ready()
        values = values_of({"data": data, "model": model, "hidden": hidden, "model_option": model_option})
        rows, size = describe.catalog(values, name)
        if name is not None:
            show_result(rows[0], json, show.method_text(rows[0], CATALOG.ranges(name)))
        else:
            show_result({"model": size, "methods": rows}, json, show.methods_table(rows, size))


def models(json: Json = False) -> None:
    """The models by name, what they are for, and their options. An option is given as -M NAME=VALUE."""
    with plain_errors():
        from apiece.report import terminal as show
        from apiece.report.reference.models import rows

        found = rows()
        show_result({"models": found}, json, show.options_table("model", found))


def _run(
    values: dict[str, Any],
    folder: Path | None,
    command: str,
    as_json: bool,
    log: list[str],
    given: Path | None,
    hosts: str | None = None,
    process: int | None = None,
) -> None:
    from apiece import experiment
    from apiece.files import as_toml, find_free_path, read_json, write_json

    spec = experiment.make_spec(values)
    beside = None if given is None else given.parent / "advice.json"  # what `apiece advise` wrote, with the spec
    advice = read_json(beside) if beside is not None and beside.is_file() else None
    ready()
    text = as_toml(spec.model_dump(mode="json")) if hosts is not None else ""
    if folder is None and hosts is not None:
        raise UserError("--hosts needs --out: all processes name the same run folder, on a disk that all of them see")
    folder = folder or find_free_path(Path("runs") / command)
    with joined(hosts, process, text, folder, resumed=False) as own, _resumable(own):
        with _watched() as watch:
            found = experiment.run_spec(spec, own, watch, log=log if is_first() else [])
        if is_first():
            if advice is not None:
                write_json(experiment.RunFolder(own).advice, advice)
            _finish(found, as_json)


@contextlib.contextmanager
def _watched() -> Iterator[Any]:
    """A progress bar, of the first process alone."""
    if is_first():
        with progress() as watch:
            yield watch
    else:
        yield lambda what, done, total: None


def _show(folder: Path, record: Any, as_json: bool) -> None:
    from apiece.report import terminal as show
    from apiece.report import write_report

    write_report(folder)
    show_result(record.plain(), as_json, show.comparison(record))
    err.print(f"[dim]wrote[/] {escape(str(folder))}/report.html  [dim](and record.json, clients.parquet, ...)[/]")
    err.print(f"[dim]use its models:[/] apiece predict {escape(str(folder))} CLIENT new.csv", soft_wrap=True)


def _finish(found: Any, as_json: bool) -> None:
    _show(found.folder, found.record, as_json)
    for name, why in found.failed.items():
        err.print(f"[red]failed:[/] {escape(name)} is left out: {escape(why)}", soft_wrap=True)
    if found.failed:
        err.print("[dim]the others' results stand; to try again, mend it and start a new run with another --out[/]")
        raise typer.Exit(1)


@contextlib.contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        from apiece.experiment import RunFolder

        begun = RunFolder(folder).spec.exists()
        hint = f"continue with: apiece resume {folder}" if begun else "nothing was written"
        err.print(f"\nstopped; {escape(hint)}", soft_wrap=True)
        raise typer.Exit(130) from None
