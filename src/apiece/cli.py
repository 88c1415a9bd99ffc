"""`apiece ...`: the command line. Results go to stdout (with --json, one JSON document), everything else to stderr."""

import contextlib
import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from apiece.errors import UserError

app = typer.Typer(
    help="Personalized federated learning: a model apiece.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Look at data: what is there, and what is wrong with it.", no_args_is_help=True)
app.add_typer(data_app, name="data")
out, err = Console(highlight=False), Console(stderr=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
SpecFile = Annotated[Path | None, typer.Option("--spec", help="A TOML spec; flags override it.")]
DataName = Annotated[str | None, typer.Option("--data", help="A source (see: apiece data list), file or folder.")]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--data-option",
        "-D",
        help="An option of the data, e.g. -D clients=50; own data: task, split, shares, min_size, standardize, ...",
    ),
]
ClientColumn = Annotated[str | None, typer.Option("--client", help="Own data: the column that names the client.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Own data: the column to predict.")]
FeatureColumns = Annotated[str | None, typer.Option("--features", help="Own data: feature columns, comma-separated.")]
NewClients = Annotated[
    float | None, typer.Option(help="Share of clients held out as new ones (default 0.1 of ten or more).")
]
ModelName = Annotated[str | None, typer.Option("--model", help="auto, linear, softmax or mlp.")]
Hidden = Annotated[str | None, typer.Option(help="Widths of the mlp's hidden layers, e.g. 128,64.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of training (default 100).")]
Cohort = Annotated[int | None, typer.Option(help="Clients that take part in a round; default: all.")]
Probability = Annotated[float | None, typer.Option(help="Instead: the chance of each client to take part.")]
Schedule = Annotated[str | None, typer.Option(help="Step sizes over the rounds: constant, linear, exponential.")]
Stateless = Annotated[bool | None, typer.Option("--stateless", help="Clients forget everything between rounds.")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds 0, 1, ... (default 3; run: 1).")]
Tune = Annotated[int | None, typer.Option(help="Tuning trials per method, judged on validation (default 8; run: 1).")]
Every = Annotated[int | None, typer.Option("--evaluate-every", help="Rounds between looks at validation (default 10).")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="A method's option, e.g. -s ditto.lam=0.5 (not tuned then).")
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; default: the next free one under runs/.")]


@app.command()
def compare(
    spec: SpecFile = None,
    data: DataName = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, comma-separated; default: the usual nine (see apiece methods).")
    ] = None,
    rounds: Rounds = None,
    seeds: Seeds = None,
    out: Out = None,
    tune: Tune = None,
    cohort: Cohort = None,
    probability: Probability = None,
    model: ModelName = None,
    hidden: Hidden = None,
    schedule: Schedule = None,
    stateless: Stateless = None,
    evaluate_every: Every = None,
    new_clients: NewClients = None,
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    data_option: DataOptions = None,
    set: Settings = None,
    json: Json = False,
) -> None:
    """Compare methods fairly on one federation: tuned alike, several seeds, client by client."""
    given = dict(locals())
    with _plain_errors():
        from apiece.methods import USUAL

        values = _values(given)
        if methods is not None:
            values["methods"] = {name: _table(values, "methods").get(name, {}) for name in _listed(methods)}
        elif not values.get("methods"):
            values["methods"] = {name: {} for name in USUAL}
        _run(_with_settings(values, set), out, "compare", json)


@app.command()
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
    model: ModelName = None,
    hidden: Hidden = None,
    schedule: Schedule = None,
    stateless: Stateless = None,
    evaluate_every: Every = None,
    new_clients: NewClients = None,
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    data_option: DataOptions = None,
    set: Settings = None,
    json: Json = False,
) -> None:
    """Run one method (or what a spec lists) without baselines; untuned unless --tune or the spec says so."""
    given = dict(locals())
    with _plain_errors():
        values: dict[str, Any] = {"tune": 1, "seeds": [0], "baselines": False, **_values(given)}
        if method is not None:
            values["methods"] = {method: _table(values, "methods").get(method, {})}
        if not values.get("methods"):
            raise UserError("which method? Give one, e.g. 'apiece run ditto', or a spec that lists some")
        _run(_with_settings(values, set), out, "run", json)


@app.command()
def resume(folder: Annotated[Path, typer.Argument(help="A run folder.")], json: Json = False) -> None:
    """Continue a run that was stopped or killed; it ends with the numbers of an undisturbed run."""
    with _plain_errors(), _resumable(folder):
        from apiece import experiment

        _ready()
        with _progress() as watch:
            found = experiment.resume(folder, watch)
        _finish(found, json)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="A finished run folder.")], json: Json = False) -> None:
    """Write report.html of a finished run again."""
    with _plain_errors():
        from apiece.report import write_report

        page = write_report(folder)
        _print({"report": str(page)}, json, f"wrote {page}")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method's text and options.")] = None,
    data: DataName = None,
    model: ModelName = None,
    hidden: Hidden = None,
    json: Json = False,
) -> None:
    """The catalog: what each method is, sends and keeps for a given model, and its options."""
    with _plain_errors():
        from apiece import show
        from apiece.experiment import describe
        from apiece.methods.options import SEARCH

        _ready()
        values = _values({"data": data, "model": model, "hidden": hidden})
        rows, size = describe.catalog(values, name)
        if name is not None:
            _print(rows[0], json, show.method_text(rows[0], SEARCH))
        else:
            _print({"model": size, "methods": rows}, json, show.methods_table(rows, size))


@data_app.command("list")
def data_list(json: Json = False) -> None:
    """The sources by name, with their options."""
    with _plain_errors():
        from apiece import show
        from apiece.experiment import describe

        rows = describe.sources()
        _print({"sources": rows}, json, show.sources_table(rows))


@data_app.command("check")
def data_check(
    path: Annotated[Path, typer.Argument(help="A CSV, Parquet or NPZ file, or a folder with one per client.")],
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    data_option: DataOptions = None,
    json: Json = False,
) -> None:
    """Say what is in a file or folder, and every problem at once. Writes nothing; exit code 2 if there is a problem."""
    with _plain_errors():
        from apiece.data import inspect
        from apiece.experiment.setup import check_options

        options = _data_options({"client": client, "label": label, "features": features, "data_option": data_option})
        check_options("own data", inspect, options)
        seen = inspect(path, **options)
        result = {"found": seen.found, "warnings": seen.warnings, "problems": seen.problems}
        lines = [f"{key}: {_text(value)}" for key, value in seen.found.items()]
        lines += [f"warning: {w}" for w in seen.warnings] + [f"problem: {p}" for p in seen.problems]
        lines += ["no problems" if not seen.problems else f"{len(seen.problems)} problem(s)"]
        _print(result, json, escape("\n".join(lines)))
        if seen.problems:
            raise typer.Exit(2)


@data_app.command("summary")
def data_summary(
    data: Annotated[str, typer.Argument(help="A source, file or folder.")],
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    new_clients: NewClients = None,
    data_option: DataOptions = None,
    json: Json = False,
) -> None:
    """Clients, sizes, classes and label skew of a federation."""
    given = dict(locals())
    with _plain_errors():
        found = _federation(given).summary()
        _print(found, json, escape("\n".join(f"{key}: {_text(value)}" for key, value in found.items())))


@data_app.command("save")
def data_save(
    data: Annotated[str, typer.Argument(help="A source, file or folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; never overwritten.")],
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    new_clients: NewClients = None,
    data_option: DataOptions = None,
    json: Json = False,
) -> None:
    """Write a federation as a folder of .npy files and JSON, which opens memory-mapped."""
    given = dict(locals())
    with _plain_errors():
        folder = _federation(given).save(out)
        _print({"folder": str(folder)}, json, f"wrote {folder}")


def main() -> None:
    """The entry point."""
    app()


# From flags to a spec.


def _values(given: dict[str, Any]) -> dict[str, Any]:
    """Plain spec values: the spec file's, overridden by the flags that were given."""
    from apiece.experiment.spec import read_values

    values = read_values(given["spec"]) if given.get("spec") is not None else {}
    flags = {
        "data": {"source": given.get("data"), "new_clients": given.get("new_clients")},
        "model": {"name": given.get("model"), "hidden": _numbers(given.get("hidden"))},
        "train": {k: given.get(k) for k in
                  ("rounds", "cohort", "probability", "schedule", "stateless", "evaluate_every")},
    }  # fmt: skip
    for table, entries in flags.items():
        said = {key: value for key, value in entries.items() if value is not None}
        if said:
            values[table] = {**_table(values, table), **said}
    options = _data_options(given)
    if options:
        kept = _table(values, "data")
        values["data"] = {**kept, "options": {**_table(kept, "options", "data."), **options}}
    if given.get("seeds") is not None:
        if given["seeds"] < 1:
            raise UserError(f"--seeds {given['seeds']}: at least one seed is needed")
        values["seeds"] = list(range(given["seeds"]))
    if given.get("tune") is not None:
        values["tune"] = given["tune"]
    return values


def _table(values: dict[str, Any], name: str, under: str = "") -> dict[str, Any]:
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise UserError(f"the spec: '{under}{name}' must be a table, [{under}{name}]")
    return table


def _with_settings(values: dict[str, Any], settings: list[str] | None) -> dict[str, Any]:
    named = _table(values, "methods")
    chosen = {name: dict(_table(named, name, "methods.")) for name in named}
    for setting in settings or []:
        target, value = _assignment(setting, "--set", "METHOD.OPTION=VALUE")
        method, _, option = target.partition(".")
        if not option:
            raise UserError(f"--set {setting}: say which method, as in ditto.lam=0.5")
        chosen.setdefault(method, {})[option] = value
    return {**values, "methods": chosen}


def _data_options(given: dict[str, Any]) -> dict[str, Any]:
    options = dict(_assignment(text, "--data-option", "NAME=VALUE") for text in given.get("data_option") or [])
    columns = {"client": given.get("client"), "label": given.get("label"), "features": given.get("features")}
    named = {key: value for key, value in columns.items() if value is not None}
    if "features" in named:
        named["features"] = _listed(named["features"])
    return options | named


def _assignment(text: str, flag: str, form: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"{flag} {text}: the form is {form}")
    try:
        return name, tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return name, value  # a bare word


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    if not all(part.isdigit() for part in _listed(text)):
        raise UserError(f"--hidden {text}: whole numbers, separated by commas")
    return [int(part) for part in _listed(text)]


def _federation(given: dict[str, Any]) -> Any:
    from apiece.experiment.setup import federation_of
    from apiece.experiment.spec import make_spec

    values = _values(given)
    return federation_of(make_spec({**values, "data": {"new_clients": 0.0, **values["data"]}}).data)


# Running and printing.


def _run(values: dict[str, Any], folder: Path | None, command: str, as_json: bool) -> None:
    from apiece import experiment
    from apiece.experiment.folder import next_free

    spec = experiment.make_spec(values)
    _ready()
    folder = folder or next_free(Path("runs") / command)
    with _resumable(folder):
        with _progress() as watch:
            found = experiment.run_spec(spec, folder, watch)
        _finish(found, as_json)


def _finish(found: Any, as_json: bool) -> None:
    from apiece import show
    from apiece.report import write_report

    write_report(found.folder)
    _print(found.record, as_json, show.comparison(found.record))
    err.print(f"[dim]wrote[/] {escape(str(found.folder))}/  [dim](report.html, record.json, clients.parquet, ...)[/]")


def _ready() -> None:
    """Every core, and compiled programs kept between runs."""
    import warnings

    from apiece.engines.devices import remember_compiled, use_all_cores

    warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
    remember_compiled()
    use_all_cores()


def _print(result: dict[str, Any], as_json: bool, text: Any) -> None:
    from apiece.experiment.folder import plain

    if as_json:
        sys.stdout.write(json.dumps(plain(result), indent=1, allow_nan=False) + "\n")
    else:
        out.print(text)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """A user's mistake: one paragraph on stderr, exit code 2."""
    try:
        yield
    except UserError as error:
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        raise typer.Exit(2) from None


@contextlib.contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        hint = f"continue with: apiece resume {folder}" if (folder / "spec.toml").exists() else "nothing was written"
        err.print(f"\nstopped; {escape(hint)}", soft_wrap=True)
        raise typer.Exit(130) from None


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """A bar with the time left, on stderr; plain lines where stderr is no terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    if not err.is_terminal:
        said = ""

        def tell(what: str, done: int, total: int) -> None:
            nonlocal said
            if what != said:
                said = what
                err.print(f"{done / total:4.0%} {what}", soft_wrap=True)

        yield tell
        return
    columns = (TextColumn("{task.description:28}"), BarColumn(bar_width=20), TextColumn("{task.percentage:>3.0f}%"),
               TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


if __name__ == "__main__":
    main()
