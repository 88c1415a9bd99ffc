"""`apiece ...`: the command line. Results go to stdout (with --json, one JSON document), everything else to stderr."""

from importlib.metadata import version
from typing import Annotated

import typer

from apiece.cli import data, deploy, runs, site, theory, use
from apiece.cli.advise import advise
from apiece.cli.reproduce import reproduce
from apiece.cli.tune import tune
from apiece.cli.watch import watch

app = typer.Typer(
    help="Personalized federated learning: a model apiece.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> bool:
    if asked:
        typer.echo(f"apiece {version('apiece')}")
        raise typer.Exit
    return asked


@app.callback()
def _apiece(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Before every command: what holds for all of them."""


for command in (advise, runs.compare, tune, runs.run, runs.resume, watch,
                runs.report, use.predict, use.onboard, use.export,
                runs.spec, runs.methods, runs.models, reproduce):  # fmt: skip
    app.command()(command)
app.add_typer(data.app, name="data")
app.add_typer(theory.app, name="theory")
app.add_typer(deploy.app, name="deploy")
app.add_typer(site.app, name="site")


def main() -> None:
    """The entry point."""
    app()
