"""`apiece theory ...`: what theory says about a setting, as a table, a figure and JSON."""

from pathlib import Path
from typing import Annotated

import typer

from apiece.cli.terminal import Json, plain_errors, say_written, show_result

app = typer.Typer(
    help="What theory says: risk, tradeoff, gain, speedup, byzantine; a table, a figure, JSON.", no_args_is_help=True
)

Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", help="Folder for the figure (PNG, HTML); default: a new one under runs/, with --json none."
    ),
]


@app.command()
def risk(
    gamma: Annotated[float, typer.Option(help="d / n: parameters per example of a client; above 1.")] = 2.0,
    radius: Annotated[float, typer.Option(help="r: a client's distance from the centre, a length.")] = 1.0,
    noise: Annotated[float, typer.Option(help="sigma: standard deviation of the noise.")] = 1.0,
    norm: Annotated[
        float | None, typer.Option(help="rho: a client's distance from zero [default: the centre at distance 1].")
    ] = None,
    ridge: Annotated[float | None, typer.Option(help="lambda of the ridges [default: the best, lambda*].")] = None,
    spectrum: Annotated[
        str | None, typer.Option(help="Covariance as s:h,... or s:h:g,...: eigenvalue, weight, share of the deviation.")
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Bias, variance and risk of FedAvg, fine- and ridge-tuned averaging, and training alone."""
    with plain_errors():
        from apiece.predict.risk import IDENTITY, spectrum_in
        from apiece.predict.risk import risk as predict

        covariance = IDENTITY if spectrum is None else spectrum_in(spectrum)
        _show(predict(gamma, radius, noise, norm, ridge, covariance), "risk", out, json)


def _show(prediction, name: str, out: Path | None, as_json: bool) -> None:
    from apiece import show
    from apiece.experiment.folder import new_folder, next_free
    from apiece.report.figure_page import write_figure

    table = prediction.table
    show_result(prediction.numbers, as_json, show.grid(table.heads, table.rows, prediction.notes))
    if out is None and as_json:
        return
    folder = new_folder(out or next_free(Path("runs") / f"theory-{name}"))
    say_written(write_figure(prediction.figure, folder, tables=[table]))
