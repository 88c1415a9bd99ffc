"""From a run folder to report.html: numbers to text and plots, text and plots into the template."""

import shlex
from pathlib import Path
from typing import Any

import jinja2

from apiece.experiment.conclude import recommended
from apiece.experiment.folder import RunFolder
from apiece.files import replace_file
from apiece.report import client_findings, tables
from apiece.report.advised import advised
from apiece.report.answer import answer
from apiece.report.client_data import client_data
from apiece.report.client_plots import client_plots
from apiece.report.embed import bokeh_scripts, describe_plots, script_safe
from apiece.report.figure import scales
from apiece.report.findings import findings
from apiece.report.look import clean, key, shortened
from apiece.report.newcomers import newcomers_table
from apiece.report.numbers import counted
from apiece.report.pictures import (
    AGAINST,
    curve_panel,
    newcomers_caption,
    newcomers_panel,
    styles,
    tuning_panels,
    tuning_words,
)
from apiece.report.plots import outside_words, panel_plot, plain
from apiece.report.story import Story, read_story
from apiece.report.task_metrics import task_table

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("apiece", "report"),
    autoescape=True,  # names of clients, files and methods are the user's: text, never markup
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
MANY = 2000  # clients: of more, two methods are shown until somebody asks for others
LOOKS = 200  # points of a learning curve


def write_report(run_folder: Path, path: Path | None = None) -> Path:
    """Write report.html into a finished run's folder, or another file, whole or not at all; the path of the page.

    It is made of the record and the tables of the folder only, so it can be made again at any time.

    >>> from apiece.errors import UserError
    >>> try: write_report(Path("no-such-run"))
    ... except UserError as error: print(error)
    'no-such-run' holds no finished run: there is no record.json. Finish it: apiece resume no-such-run
    """
    run_folder = Path(run_folder)
    path = RunFolder(run_folder).page if path is None else Path(path)
    html = render(read_story(run_folder))
    with replace_file(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return path


def render(story: Story) -> str:
    """The page of a run, as text."""
    record, federation = story.record, story.record.federation
    told = tables.facts(federation.model_dump())
    client_rows, clients = tables.client_table(story) if story.clients else (None, 0)
    data = client_data(story)
    style = styles(story)
    shown = [] if data is None else [one["name"] for one in data["methods"]]
    main = shortened(recommended(record), 60) if shown else ""
    main = main if main in shown and main != story.baseline else shortened(record.ranking.beside_local or "", 60)
    at = shown.index(main) if main in shown else 0
    plots, outside = _plots(story, data, at)
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
        answer=answer(story),
        command_folder=shlex.quote(story.name),
        findings=findings(story),
        keys=[key(style[name]) for name in story.order if name in story.clients],
        key_of={name: key(number) for name, number in style.items()},
        badge=recommended(record) if record.ranking.scored else None,
        data=data,
        main=at,
        visible=_visible(story, shown, at),
        plots=plots,
        outside=outside,
        said=_said(story),
        results=tables.results(story),
        of_task=task_table(story),
        newcomers=newcomers_table(story),
        newcomers_caption=newcomers_caption(story) if "newcomers" in plots else "",
        hurt=tables.hurt_table(story),
        named=[shortened(client, 60) for client in _named(story, at, shown)],
        margin=tables.margin(story),
        costs=tables.costs(story),
        choices=tables.choices(story),
        client_rows=client_rows,
        clients=clients,
        tuning=_tuning_names(story),
        said_of_tuning={f"tuning-{at}": tuning_words(panel) for at, panel in enumerate(tuning_panels(story))},
        curve_of=[("loss", "loss")] + ([("score", story.of_task.label)] if story.errors else []),
        curve_against=[(name, AGAINST[name]) for name in _against(story)],
        curves=script_safe(_curves(story)),
        advised=advised(story),
        advice=tables.facts(story.advice)[:200] if story.advice else [],
        federation=[(key.replace("_", " ").replace(".", ", "), value) for key, value in told],
        settings=tables.facts({key: value for key, value in record.spec.items() if key != "methods"}),
        environment=tables.facts(record.environment.model_dump() | {"git revision": record.revision}),
        notes=record.notes,
        tuned=record.spec.get("tune", 0),
        described=script_safe(describe_plots(plots)),
        client_json=script_safe(data),
        scripts=bokeh_scripts(),
    )
    return clean(page)


def _plots(story: Story, data: dict[str, Any] | None, main: int) -> tuple[dict[str, Any], dict[str, str]]:
    """(every plot by the element it stands in, who leaves its axes)."""
    panels = {"curves": curve_panel(story), "newcomers": newcomers_panel(story)}
    before = advised(story)
    panels |= {"advised": None if before is None else before.panel}
    panels |= {f"tuning-{at}": panel for at, panel in enumerate(tuning_panels(story))}
    there = {name: panel for name, panel in panels.items() if panel is not None}
    plots = {} if data is None else client_plots(data, main)
    plots |= {name: panel_plot(name, panel, 260 if name.startswith("tuning") else 360) for name, panel in there.items()}
    outside = dict.fromkeys(plots, "") | {name: outside_words(panel) for name, panel in there.items()}
    return plots, outside


def _tuning_names(story: Story) -> list[tuple[str, str]]:
    return [(f"tuning-{at}", panel.title) for at, panel in enumerate(tuning_panels(story))]


def _said(story: Story) -> dict[str, Any]:
    """What every picture of clients shows, in a sentence and a table."""
    of = ("gains", "bins", "sizes", "scores", "labels", "likeness", "pairs", "degrees", "convergence", "trouble")
    return {name: getattr(client_findings, name)(story) for name in of}


def _visible(story: Story, shown: list[str], main: int) -> list[str]:
    """Which methods are shown at first: all, or of very many clients the chosen one beside the baseline."""
    clients = max((len(one.ids) for one in story.clients.values()), default=0)
    few = {shown[main], story.baseline} if shown else set()
    return shown if clients * len(shown) <= 5 * MANY else [name for name in shown if name in few]


def _named(story: Story, main: int, shown: list[str]) -> list[str]:
    harm = (
        {shortened(name, 60): method.harm for name, method in story.methods.items()}.get(shown[main]) if shown else None
    )
    return [] if harm is None else harm.named[:50]


def _against(story: Story) -> list[str]:
    """What learning curves can be drawn against: what the table of rounds counts, and what grows at all."""
    found = next(iter(story.progress.values()), None)
    if found is None:
        return []
    clock = any((one.spent["clock"] != one.rounds).any() for one in story.progress.values() if "clock" in one.spent)
    more = [name for name in ("gradients", "seconds") if name in found.spent] + ["clock"] * clock
    return ["rounds", "megabytes", *more]


def _curves(story: Story) -> dict[str, Any]:
    """The learning curves in every choice of the page."""
    found = {}
    for of in ["loss"] + ["score"] * bool(story.errors):
        for against in _against(story):
            panel = curve_panel(story, of, against)
            if panel is None:
                continue
            lines = []
            for line in panel.lines:
                step = max(1, -(-len(line.x) // LOOKS))
                columns = {"x": line.x, "y": line.y} | (
                    {} if line.low is None else {"low": line.low, "high": line.high}
                )
                lines.append({name: plain(values[::step]) for name, values in columns.items()})
            (left, right), (low, high) = scales(panel)
            found[f"{of}|{against}"] = {
                "lines": lines,
                "names": [shortened(line.name) for line in panel.lines],
                "ends": [left, right, low, high],
                "x_label": panel.x_label,
                "y_label": panel.y_label,
            }
    return found
