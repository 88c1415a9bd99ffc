"""`apiece theory ...`: what theory says about a setting, as a table, a figure and JSON."""

from pathlib import Path
from typing import Annotated, Any

import typer

from apiece.cli.terminal import Json, plain_errors, say_written, show_result

app = typer.Typer(
    help="What theory says of risks, gains, costs and attacks. A table, a figure, JSON.", no_args_is_help=True
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
    """The risk of sharing, tuning and training alone. With bias and variance, in the limit of many features."""
    with plain_errors():
        from apiece.report.theory.risk import IDENTITY, spectrum_in
        from apiece.report.theory.risk import risk as predict

        covariance = IDENTITY if spectrum is None else spectrum_in(spectrum)
        _show(predict(gamma, radius, noise, norm, ridge, covariance), "risk", out, json)


@app.command()
def tradeoff(
    smoothness: Annotated[float, typer.Option(help="L: the largest curvature of a client's loss.")] = 1.0,
    convexity: Annotated[float, typer.Option(help="mu: the smallest curvature; above 0.")] = 0.5,
    radius: Annotated[float, typer.Option(help="R: how far clients' optima lie from the common one.")] = 0.1,
    noise: Annotated[float, typer.Option(help="rho: standard deviation of an example's gradient.")] = 1.0,
    examples: Annotated[int, typer.Option(help="n: examples of a client.")] = 50,
    clients: Annotated[int, typer.Option(help="m: number of clients.")] = 100,
    target: Annotated[float, typer.Option(help="Relative accuracy (squared distance) to count rounds to.")] = 1e-6,
    lams: Annotated[str | None, typer.Option(help="The lambda of the table, e.g. 0.01,0.1,1 [default: nine].")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Accuracy against communication. What a pull lambda to the centre gains, and costs (FedCLUP)."""
    with plain_errors():
        from apiece.report.theory import numbers_in
        from apiece.report.theory.tradeoff import tradeoff as predict

        chosen = None if lams is None else numbers_in(lams, "--lams")
        found = predict(smoothness, convexity, radius, noise, examples, clients, target, chosen)
        _show(found, "tradeoff", out, json)


@app.command()
def gain(
    spread: Annotated[float, typer.Option(help="How much clients differ, a standard deviation.")] = 0.3,
    noise: Annotated[float, typer.Option(help="Standard deviation of one example.")] = 1.0,
    examples: Annotated[
        str, typer.Option(help="Each client's number of examples, e.g. 10,10,50,200.")
    ] = "5,10,20,50,100",
    lr: Annotated[float, typer.Option(help="Step size, for the number of local steps.")] = 1e-3,
    out: Out = None,
    json: Json = False,
) -> None:
    """What each client should borrow from the others. And what it gains (Self-FL's hierarchy)."""
    with plain_errors():
        from apiece.report.theory import numbers_in
        from apiece.report.theory.gain import gain as predict

        _show(predict(spread, noise, numbers_in(examples, "--examples"), lr), "gain", out, json)


@app.command()
def speedup(
    means: Annotated[str, typer.Option(help="The clients' means: b_ij = (p_i - p_j)^2 / 2.")] = "0.1,0.15,0.2,0.6,0.65",
    bias: Annotated[Path | None, typer.Option(help="Instead: a CSV file with the matrix b_ij, no head.")] = None,
    eps: Annotated[str, typer.Option(help="Precisions, e.g. 1,0.2,0.02.")] = "1,0.2,0.02,0.004,0.0001",
    noise: Annotated[float, typer.Option(help="Standard deviation of a stochastic gradient.")] = 0.5,
    out: Out = None,
    json: Json = False,
) -> None:
    """Samples saved by learning from those who are alike. And the bias that it costs (All-for-all)."""
    with plain_errors():
        from apiece.report.theory import numbers_in
        from apiece.report.theory.speedup import of_means, unlikeness
        from apiece.report.theory.speedup import speedup as predict

        b = unlikeness(bias) if bias is not None else of_means(numbers_in(means, "--means"))
        _show(predict(b, numbers_in(eps, "--eps"), noise), "speedup", out, json)


@app.command()
def byzantine(
    convexity: Annotated[float, typer.Option(help="mu: the smallest curvature; above 0.")] = 0.5,
    smoothness: Annotated[float, typer.Option(help="L: the largest curvature.")] = 1.5,
    similarity: Annotated[float, typer.Option(help="How fast honest gradients grow apart.")] = 0.3,
    honest: Annotated[int, typer.Option(help="Number of honest clients.")] = 16,
    forgers: Annotated[int, typer.Option(help="Number of clients that send anything they like.")] = 3,
    growth: Annotated[float, typer.Option(help="Noise factor of replies; exact: 1.")] = 1.0,
    rule: Annotated[float, typer.Option(help="Constant c of the robust rule.")] = 1.0,
    active: Annotated[int, typer.Option(help="Asynchronous: clients at work at a time.")] = 8,
    delay: Annotated[int, typer.Option(help="Asynchronous: largest delay, in server versions.")] = 10,
    out: Out = None,
    json: Json = False,
) -> None:
    """How many forged and late replies are withstood. And at which step (FFGG)."""
    with plain_errors():
        from apiece.report.theory.byzantine import byzantine as predict

        found = predict(convexity, smoothness, similarity, honest, forgers, growth, rule, active, delay)
        _show(found, "byzantine", out, json)


def _show(prediction: Any, name: str, out: Path | None, as_json: bool) -> None:
    from apiece.files import find_free_path, make_folder
    from apiece.report import terminal as show
    from apiece.report.figure_page import write_figure

    folder = None if out is None and as_json else make_folder(out or find_free_path(Path("runs") / f"theory-{name}"))
    table = prediction.table
    show_result(prediction.numbers, as_json, show.grid(table.heads, table.rows, prediction.notes))
    if folder is not None:
        say_written(write_figure(prediction.figure, folder, tables=[table]))
