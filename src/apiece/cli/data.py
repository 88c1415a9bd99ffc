"""`apiece data ...`: look at data."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.flags import (
    ClientColumn,
    DataOptions,
    Decimal,
    Delimiter,
    Excluded,
    FeatureColumns,
    LabelColumn,
    MissingWords,
    NewClients,
    SplitColumn,
    data_options,
    federation_of,
)
from apiece.cli.terminal import Json, plain_errors, show_result

app = typer.Typer(help="Look at data: what is there, and what is wrong with it.", no_args_is_help=True)


@app.command("list")
def data_list(json: Json = False) -> None:
    """The sources by name, with their options."""
    with plain_errors():
        from apiece.report import catalog as describe
        from apiece.report import terminal as show

        rows = describe.sources()
        show_result({"sources": rows}, json, show.options_table("source", rows))


@app.command("check")
def data_check(
    path: Annotated[
        Path, typer.Argument(help="A CSV, Parquet, NPZ or LEAF file; or a folder of such, of pictures or of texts.")
    ],
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    exclude: Excluded = None,
    split: SplitColumn = None,
    na: MissingWords = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    data_option: DataOptions = None,
    json: Json = False,
) -> None:
    """Say what is in a file or folder, and every problem at once. Writes nothing; exit code 2 if there is a problem."""
    given = dict(locals())
    with plain_errors():
        from apiece.data import inspect
        from apiece.data.load.inspect import check_load_options

        seen = inspect(path, **check_load_options(data_options(given)))
        result = {"found": seen.found, "warnings": seen.warnings, "problems": seen.problems}
        lines = [f"{key}: {_text(value)}" for key, value in seen.found.items()]
        lines += [f"warning: {w}" for w in seen.warnings] + [f"problem: {p}" for p in seen.problems]
        lines += ["no problems" if not seen.problems else f"{len(seen.problems)} problem(s)"]
        show_result(result, json, escape("\n".join(lines)))
        if seen.problems:
            raise typer.Exit(2)


@app.command("summary")
def data_summary(
    data: Annotated[str, typer.Argument(help="A source, file or folder.")],
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    exclude: Excluded = None,
    split: SplitColumn = None,
    na: MissingWords = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    new_clients: NewClients = None,
    data_option: DataOptions = None,
    json: Json = False,
) -> None:
    """Clients, sizes, classes and label skew of a federation."""
    given = dict(locals())
    with plain_errors():
        found = federation_of(given).summary()
        show_result(found, json, escape("\n".join(f"{key}: {_text(value)}" for key, value in found.items())))


@app.command("save")
def data_save(
    data: Annotated[str, typer.Argument(help="A source, file or folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; never overwritten.")],
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    exclude: Excluded = None,
    split: SplitColumn = None,
    na: MissingWords = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    new_clients: NewClients = None,
    data_option: DataOptions = None,
    json: Json = False,
) -> None:
    """Write a federation as a folder that opens at once. Of .npy files and JSON, memory-mapped."""
    given = dict(locals())
    with plain_errors():
        folder = federation_of(given).save(out)
        show_result({"folder": str(folder)}, json, f"wrote {folder}")


@app.command("split")
def data_split(
    data: Annotated[str, typer.Argument(help="A source, file or folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; never overwritten.")],
    client: ClientColumn = None,
    label: LabelColumn = None,
    features: FeatureColumns = None,
    exclude: Excluded = None,
    split: SplitColumn = None,
    na: MissingWords = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    new_clients: NewClients = None,
    data_option: DataOptions = None,
    json: Json = False,
) -> None:
    """Write the split that was dealt, for others to use the same. One Parquet table: client, split, features, label."""
    given = dict(locals())
    with plain_errors():
        from apiece.data.load.dealt import write_dealt

        file = write_dealt(federation_of(given), out)
        show_result({"file": str(file)}, json, escape(f"wrote {file}; apiece reads it with --data {file}"))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
