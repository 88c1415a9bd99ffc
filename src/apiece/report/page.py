"""From a run folder to report.html: numbers to text and pictures, text and pictures into the template."""

import shlex
from pathlib import Path

import jinja2

from apiece.errors import UserError
from apiece.experiment.folder import RunFolder
from apiece.files import replace_file
from apiece.report import tables
from apiece.report.findings import findings
from apiece.report.newcomers import newcomers_picture, newcomers_table
from apiece.report.numbers import counted
from apiece.report.pictures import gains_picture, pictures
from apiece.report.story import Story, read_story
from apiece.report.svg import clean, key
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
    path = RunFolder(run_folder).page
    html = render(read_story(run_folder))
    with replace_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return path


def write_picture(run_folder: Path, path: Path) -> Path:
    """Write the picture of every client's gain over training alone as an SVG file of its own.

    >>> try: write_picture(Path("no-such-run"), Path("gains.svg"))
    ... except UserError as error: print(error)
    'no-such-run' holds no finished run: there is no record.json. Finish it: apiece resume no-such-run
    """
    drawn = gains_picture(read_story(Path(run_folder)), standalone=True)
    if drawn is None:
        raise UserError(f"no gains to draw: '{run_folder}' has no method that can be compared with 'local'")
    with replace_file(Path(path)) as temporary:
        temporary.write_text(drawn.svg + "\n", encoding="utf-8")
    return Path(path)


def render(story: Story) -> str:
    """The page of a run, as text."""
    record, federation = story.record, story.record.federation
    told = tables.facts(federation.model_dump())
    client_rows, clients = tables.client_table(story) if story.clients else (None, 0)
    page = TEMPLATES.get_template("page.html").render(
        story=story,
        metric=story.metric,
        title=federation.name,
        subtitle=[
            counted(federation.clients, "client"),
            counted(len(story.methods), "method"),
            counted(story.seeds, "seed"),
            record.model,
        ],
        command_folder=shlex.quote(story.name),
        findings=findings(story),
        keys={name: key(style) for style, name in enumerate(story.methods)},
        pictures=pictures(story) | {"newcomers": newcomers_picture(story)},
        results=tables.results(story),
        of_task=task_table(story),
        newcomers=newcomers_table(story),
        hurt=tables.hurt_table(story),
        margin=tables.margin(story),
        costs=tables.costs(story),
        choices=tables.choices(story),
        client_rows=client_rows,
        clients=clients,
        federation=[(key.replace("_", " ").replace(".", ", "), value) for key, value in told],
        settings=tables.facts({key: value for key, value in record.spec.items() if key != "methods"}),
        environment=tables.facts(record.environment.model_dump() | {"git revision": record.revision}),
        notes=record.notes,
        tuned=record.spec.get("tune", 0),
    )
    return clean(page)
