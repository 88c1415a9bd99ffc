"""From a run folder to report.html: numbers to text and pictures, text and pictures into the template."""

import shlex
from pathlib import Path

import jinja2

from apiece.errors import UserError
from apiece.files import replace_file
from apiece.report import tables
from apiece.report.findings import findings
from apiece.report.newcomers import newcomers_figure, newcomers_table
from apiece.report.numbers import counted
from apiece.report.pictures import figures, gains_figure
from apiece.report.run import Run, read_run
from apiece.report.svg import clean
from apiece.report.task_metrics import task_table

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("apiece", "report"),
    autoescape=True,  # names of clients, files and methods are the user's: text, never markup
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write_report(run_folder: Path) -> Path:
    """Write report.html into a finished run's folder, whole or not at all; the path of the page.

    It is made of record.json, rounds.parquet and clients.parquet only, so it can be made again at any time.

    >>> try: write_report(Path("no-such-run"))
    ... except UserError as error: print(error)
    'no-such-run' holds no finished run: there is no record.json. Finish it: apiece resume no-such-run
    """
    run_folder = Path(run_folder)
    path = run_folder / "report.html"
    html = render(read_run(run_folder))
    with replace_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return path


def write_picture(run_folder: Path, path: Path) -> Path:
    """Write the picture of every client's gain over training alone as an SVG file of its own.

    >>> try: write_picture(Path("no-such-run"), Path("gains.svg"))
    ... except UserError as error: print(error)
    'no-such-run' holds no finished run: there is no record.json. Finish it: apiece resume no-such-run
    """
    figure = gains_figure(read_run(Path(run_folder)), standalone=True)
    if figure is None:
        raise UserError(f"no gains to draw: '{run_folder}' has no method that can be compared with 'local'")
    with replace_file(Path(path)) as temporary:
        temporary.write_text(figure.svg + "\n", encoding="utf-8")
    return Path(path)


def render(run: Run) -> str:
    """The page of a run, as text."""
    record, federation = run.record, run.record["federation"]
    client_rows, clients = tables.client_table(run) if run.clients else (None, 0)
    page = TEMPLATES.get_template("page.html").render(
        run=run,
        metric=run.metric,
        title=federation["name"],
        subtitle=[
            counted(federation["clients"], "client"),
            counted(len(run.methods), "method"),
            counted(run.seeds, "seed"),
            record["model"],
        ],
        command_folder=shlex.quote(run.name),
        findings=findings(run),
        figures=figures(run) | {"newcomers": newcomers_figure(run)},
        results=tables.results(run),
        of_task=task_table(run),
        newcomers=newcomers_table(run),
        hurt=tables.hurt_table(run),
        margin=tables.margin(run),
        costs=tables.costs(run),
        choices=tables.choices(run),
        client_rows=client_rows,
        clients=clients,
        federation=[(key.replace("_", " ").replace(".", ", "), value) for key, value in tables.facts(federation)],
        settings=tables.facts({key: value for key, value in record["spec"].items() if key != "methods"}),
        environment=tables.facts(record["environment"] | {"git revision": record.get("revision")}),
        notes=record.get("notes") or [],
        tuned=record["spec"].get("tune", 0),
    )
    return clean(page)
