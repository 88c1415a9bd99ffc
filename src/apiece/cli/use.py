"""`apiece predict`, `onboard` and `export`: use the models of a finished run, wherever its folder is."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.terminal import Json, err, plain_errors, ready, show_result
from apiece.errors import UserError

Run = Annotated[Path, typer.Argument(help="A finished run folder; its data are not needed.")]
Client = Annotated[str, typer.Argument(help="A client of the run, or a newcomer by its name.")]
MethodName = Annotated[str | None, typer.Option("--method", help="Whose models; default: those validation chooses.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Of which seed; default: the first.")]
SUFFIXES = (".csv", ".parquet")


def predict(
    run: Run,
    client: Client,
    rows: Annotated[
        Path, typer.Argument(help="A CSV, Parquet or NPZ file with the columns of the training data; pictures; a text.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The .csv or .parquet file to write; never overwritten.")
    ] = None,
    method: MethodName = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """What a client's own model says of new rows. A class with its probabilities, or a value in its own units."""
    with plain_errors():
        import apiece

        check_out(out)
        ready()
        tell_prediction(apiece.open(run).predict(client, rows, method=method, seed=seed), out, json)


def onboard(
    run: Run,
    rows: Annotated[
        Path, typer.Argument(help="The newcomer's own rows, with the target: a table, pictures by label, a text.")
    ],
    name: Annotated[str | None, typer.Option(help="What the newcomer is called; default: the file's name.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also export its model into this new folder.")] = None,
    method: MethodName = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """A model for a client that nobody has seen. From its own rows; kept in the run folder, for predict and export."""
    with plain_errors():
        import apiece
        from apiece.experiment.export import export_model

        if out is not None:
            check_free(out)
        ready()
        opened, called = apiece.open(run), name or rows.stem
        opened.onboard(rows, name=called, method=method, seed=seed)
        if out is not None:
            export_model(opened, called, out, method=method, seed=seed)
        told = f"'{called}' has a model now. Use it: apiece predict {run} '{called}' new.csv"
        show_result({"client": called, "folder": None if out is None else str(out)}, json, escape(told))


def export(
    run: Run,
    client: Client,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; never overwritten.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Also as model.onnx; needs pip install 'apiece[onnx]'.")] = False,
    method: MethodName = None,
    seed: Seed = None,
    json: Json = False,
) -> None:
    """Write a client's model for use elsewhere. Its arrays as safetensors, and a card that says how it predicts."""
    with plain_errors():
        import apiece
        from apiece.experiment.export import export_model

        check_free(out)
        ready()
        tell_export(export_model(apiece.open(run), client, out, method=method, seed=seed, onnx=onnx), json)


def check_free(out: Path) -> None:
    """Nothing is overwritten."""
    if out.exists():
        raise UserError(f"{out} already exists; remove it or choose another name")


def check_out(out: Path | None) -> None:
    """Whether predictions can be written there; before any work is done."""
    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise UserError(f"--out {out}: predictions are written as {' or '.join(SUFFIXES)}")
    if out is not None:
        check_free(out)


def tell_prediction(said: Any, out: Path | None, json: bool) -> None:
    """A prediction as a file, as JSON or as lines of CSV; what a reader should know beside it."""
    for note in said.notes:
        err.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
    columns = said.columns()
    if out is not None:
        _write(out, columns)
        show_result({"file": str(out), "rows": len(said.outputs)}, json, f"wrote {escape(str(out))}")
    elif json:
        show_result({"columns": columns}, json, "")
    else:
        typer.echo(_csv(columns), nl=False)


def tell_export(folder: Path, json: bool) -> None:
    """What was exported, and where it lies."""
    files = sorted(file.name for file in folder.iterdir())
    show_result({"folder": str(folder), "files": files}, json, escape(f"wrote {folder}/  ({', '.join(files)})"))


def _csv(columns: dict[str, Any]) -> str:
    import csv
    import io

    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return stream.getvalue()


def _write(out: Path, columns: dict[str, Any]) -> None:
    from apiece.files import replace_file

    with replace_file(out) as temporary:
        if out.suffix.lower() == ".parquet":
            import pyarrow as pa
            from pyarrow import parquet

            parquet.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), temporary)
        else:
            temporary.write_text(_csv(columns), encoding="utf-8", newline="\n")
