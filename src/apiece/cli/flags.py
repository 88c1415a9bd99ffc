"""The flags of the commands that run methods or look at data, and the spec that they make."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from apiece.errors import UserError


def _checked_rounds(text: str | None) -> str | None:
    """A number of rounds, or the words that the spec knows."""
    if text is not None and not re.fullmatch(r"-?\d+|auto(:\d+)?", text):
        raise typer.BadParameter(f"'{text}' is no number of rounds, nor auto, nor auto:500")
    return text


SpecFile = Annotated[Path | None, typer.Option("--spec", help="A TOML spec; flags override it.")]
DataName = Annotated[str | None, typer.Option("--data", help="A source (see: apiece data list), file or folder.")]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--data-option",
        "-D",
        help="An option of the data, e.g. -D clients=50; own data: task, split, shares, min_size, ...",
    ),
]
ClientColumn = Annotated[str | None, typer.Option("--client", help="Own data: the column that names the client.")]
LabelColumn = Annotated[str | None, typer.Option("--label", help="Own data: the column to predict.")]
FeatureColumns = Annotated[str | None, typer.Option("--features", help="Own data: feature columns, comma-separated.")]
Excluded = Annotated[
    list[str] | None,
    typer.Option("--exclude", help="Own data: a column to leave out of the features; repeat it, or use commas."),
]
SplitColumn = Annotated[
    str | None, typer.Option("--split", help="Own data: the column that says train, validation or test.")
]
Delimiter = Annotated[
    str | None, typer.Option("--delimiter", help="Own CSV files: what separates columns: , (default), ;, tab, or auto.")
]
Decimal = Annotated[str | None, typer.Option("--decimal", help="Own data: what stands before decimals: . or ,")]
MissingWords = Annotated[
    list[str] | None,
    typer.Option("--na", help="Own data: what stands for a missing value, e.g. '?' or -999; repeat it for more."),
]
NewClients = Annotated[
    float | None, typer.Option(help="Share of clients held out as new ones (default 0.1 of ten or more).")
]
Standardize = Annotated[
    bool | None,
    typer.Option(
        "--standardize/--no-standardize", help="Bring examples to unit scale; default: if they are far from it."
    ),
]
ModelName = Annotated[
    str | None, typer.Option("--model", help="auto, or one that `apiece models` shows: mlp, cnn2, ...")
]
Hidden = Annotated[str | None, typer.Option(help="Widths of the model's dense layers, e.g. 128,64.")]
ModelOptions = Annotated[
    list[str] | None, typer.Option("--model-option", "-M", help="An option of the model, e.g. -M width=16.")
]
Rounds = Annotated[
    str | None,
    typer.Option(
        callback=_checked_rounds,
        help="Rounds of training (default 100); auto: until validation rests, at most 1000 (auto:500: 500).",
    ),
]
Cohort = Annotated[int | None, typer.Option(help="Clients that take part in a round; default: all.")]
Probability = Annotated[float | None, typer.Option(help="Instead: the chance of each client to take part.")]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="vectorized (default), or remote: every message as bytes; slower, the same numbers."),
]
Schedule = Annotated[
    str | None, typer.Option(help="Step sizes over the rounds: constant, linear, exponential, cosine, or one's own.")
]
Log = Annotated[
    list[str] | None,
    typer.Option("--log", help="Also tell a logger while it goes: tensorboard, mlflow (an extra each); repeatable."),
]
Stateless = Annotated[bool | None, typer.Option("--stateless", help="Clients forget everything between rounds.")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds 0, 1, ... (default 3; run: 1).")]
Tune = Annotated[int | None, typer.Option(help="Tuning trials per method, judged on validation (default 8; run: 1).")]
OptimizerName = Annotated[
    str | None,
    typer.Option("--optimizer", help="Of the clients: an optax one (adamw, ...) or package.module:function."),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="What to rank and tune by: accuracy, error, log_loss, rmse, auc, f1, balanced_accuracy, or one's own, "
        "which NAME=package.module:function (or file.py:function) of (outputs, labels) defines.",
    ),
]
Choose = Annotated[
    str | None,
    typer.Option(help="What tuning chooses by, on validation, if not by --metric: loss (default), ..."),
]
Every = Annotated[
    int | None,
    typer.Option("--evaluate-every", help="Rounds between looks at validation (default: a twentieth, at most 10)."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="A method's option, not tuned then: -s ditto.lam=0.5; of all: -s '*.lr=0.1'."),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; default: the next free one under runs/.")]


def values_of(given: dict[str, Any]) -> dict[str, Any]:
    """Plain spec values: the spec file's, overridden by the flags that were given."""
    from apiece.experiment.spec import read_values

    values = read_values(given["spec"]) if given.get("spec") is not None else {}
    rounds = given.get("rounds")
    given = {**given, "rounds": rounds if rounds is None or rounds.startswith("auto") else int(rounds)}
    flags = {
        "data": {"source": given.get("data"), "new_clients": given.get("new_clients"),
                 "standardize": given.get("standardize")},
        "model": {"name": given.get("model"), "hidden": _numbers(given.get("hidden"))},
        "train": {k: given.get(k) for k in
                  ("rounds", "engine", "cohort", "probability", "schedule", "stateless", "evaluate_every")},
    }  # fmt: skip
    for table, entries in flags.items():
        said = {key: value for key, value in entries.items() if value is not None}
        if said:
            values[table] = {**table_of(values, table), **said}
    for table, options in (("data", data_options(given)), ("model", model_options(given))):
        if options:
            kept = table_of(values, table)
            values[table] = {**kept, "options": {**table_of(kept, "options", f"{table}."), **options}}
    if given.get("optimizer") is not None:
        train = table_of(values, "train")
        values["train"] = {**train, "optimizer": {**table_of(train, "optimizer", "train."), "name": given["optimizer"]}}
    texts: list[str] = given.get("metric") or []
    own = dict(_assignment(text, "--metric", "NAME=package.module:function") for text in texts if "=" in text)
    if own:
        values["metrics"] = {**table_of(values, "metrics"), **own}
    if named := [text for text in texts if "=" not in text]:
        if len(named) > 1:
            raise UserError(f"--metric {named[0]} --metric {named[1]}: methods are ranked by one metric; to look at "
                            "more, define them: --metric NAME=package.module:function")  # fmt: skip
        values["rank"] = named[0]
    if given.get("choose") is not None:
        values["choose"] = given["choose"]
    if given.get("seeds") is not None:
        if given["seeds"] < 1:
            raise UserError(f"--seeds {given['seeds']}: at least one seed is needed")
        values["seeds"] = list(range(given["seeds"]))
    if given.get("tune") is not None:
        values["tune"] = given["tune"]
    return values


def table_of(values: dict[str, Any], name: str, under: str = "") -> dict[str, Any]:
    """A table of the spec, or an empty one; something else in its place is a mistake."""
    table = values.get(name, {})
    if not isinstance(table, dict):
        raise UserError(f"the spec: '{under}{name}' must be a table, [{under}{name}]")
    return table


def with_settings(values: dict[str, Any], settings: list[str] | None) -> dict[str, Any]:
    """The spec with --set's options in its methods' tables."""
    from apiece.experiment.variant import name_rows

    named = table_of(values, "methods")
    chosen = name_rows({name: dict(table_of(named, name, "methods.")) for name in named})
    every = dict(table_of(values, "every"))
    for setting in settings or []:
        target, value = _assignment(setting, "--set", "METHOD.OPTION=VALUE")
        method, _, option = target.rpartition(".")
        if not method:
            raise UserError(f"--set {setting}: say which method, as in ditto.lam=0.5, or '*.lam=0.5' for all")
        (every if method == "*" else chosen.setdefault(method, {}))[option] = value
    return {**values, "methods": chosen, **({"every": every} if every else {})}


def choose_methods(values: dict[str, Any], wanted: list[str], baselines: tuple[str, ...]) -> dict[str, Any]:
    """The tables of the methods that will run, each with the spec's options: of those wanted, and of the baselines."""
    said = table_of(values, "methods")
    always = [name for name in baselines if name in said and name not in wanted and values.get("baselines", True)]
    return {name: said.get(name, {}) for name in [*always, *wanted]}


def data_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the data: those of -D, and the columns that have a flag of their own."""
    options = dict(_assignment(text, "--data-option", "NAME=VALUE") for text in given.get("data_option") or [])
    words = ("client", "label", "features", "split", "delimiter", "decimal")
    named = {key: given[key] for key in words if given.get(key) is not None}
    if "features" in named:
        named["features"] = listed(named["features"])
    if given.get("exclude"):
        named["exclude"] = [name for text in given["exclude"] for name in listed(text)]
    if given.get("na"):
        named["na"] = given["na"]
    return options | named


def model_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of the model: those of -M."""
    return dict(_assignment(text, "--model-option", "NAME=VALUE") for text in given.get("model_option") or [])


def _assignment(text: str, flag: str, form: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"{flag} {text}: the form is {form}")
    try:
        return name, tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return name, value  # a bare word


def listed(text: str) -> list[str]:
    """The parts of a comma-separated list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    if not all(part.isdigit() for part in listed(text)):
        raise UserError(f"--hidden {text}: whole numbers, separated by commas")
    return [int(part) for part in listed(text)]


def federation_of(given: dict[str, Any]) -> Any:
    """The federation that the flags name."""
    from apiece.experiment import build as setup
    from apiece.experiment.spec import make_spec

    values = values_of(given)
    return setup.federation_of(make_spec({**values, "data": {"new_clients": 0.0, **values["data"]}}).data)
