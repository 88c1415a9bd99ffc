"""`apiece site`: what a site does by itself, without the server: its state, predictions, its score, its model."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from apiece.cli.terminal import Json, plain_errors, ready, show_result
from apiece.cli.use import MethodName, check_free, check_out, tell_export, tell_prediction

app = typer.Typer(help="At a site, offline: its own model.", no_args_is_help=True, rich_markup_mode=None)
Folder = Annotated[Path, typer.Argument(help="The site's folder, with site.toml.")]


@app.command()
def status(folder: Folder, json: Json = False) -> None:
    """Whether the site took part, and which models it has."""
    with plain_errors():
        from apiece.deploy.status import site_status

        found = site_status(folder)
        counts = ", ".join(f"{found[name]} {name}" for name in ("answered", "refused", "unreachable"))
        lines = [f"{found['site']} of {found['run']}: {found['state']} ({counts})"]
        lines.append("models: " + (", ".join(found["models"]) or "none yet"))
        lines += [f"last refusal: {found['last_refusal']}"] if found["last_refusal"] else []
        show_result(found, json, escape("\n".join(lines)))


@app.command()
def predict(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="A CSV, Parquet or NPZ file with the columns of the site's data.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The .csv or .parquet file to write.")] = None,
    method: MethodName = None,
    json: Json = False,
) -> None:
    """What the site's own model says of new rows."""
    with plain_errors():
        check_out(out)
        ready()
        opened, name = _opened(folder)
        tell_prediction(opened.predict(name, rows, method=method), out, json)


@app.command()
def evaluate(folder: Folder, method: MethodName = None, json: Json = False) -> None:
    """The site's own models on its own test rows."""
    with plain_errors():
        ready()
        from apiece.deploy.evaluate import evaluate_site

        found = evaluate_site(folder, method)
        lines = [f"{name}: {one['score']} {one['value']:.4f}, loss {one['loss']:.4f}, on {one['examples']} test rows"
                 for name, one in found.items()]  # fmt: skip
        show_result(found, json, escape("\n".join(lines)))


@app.command()
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; never overwritten.")],
    method: MethodName = None,
    json: Json = False,
) -> None:
    """Write the site's model for use elsewhere. With a card that says how it predicts."""
    with plain_errors():
        from apiece.experiment.export import export_model

        check_free(out)
        ready()
        opened, name = _opened(folder)
        tell_export(export_model(opened, name, out, method=method), json)


def _opened(folder: Path) -> tuple[Any, str]:
    from apiece.deploy.config import read_site
    from apiece.deploy.site import open_site

    return open_site(folder), read_site(folder).name
