"""docs/gallery: a page per natural federation, from real runs. `python -m book.gallery [NAME ...]` runs them anew.

What a run left is kept as a small JSON file; the pages are written from these, and say by which commands.
"""

import argparse
import io
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "gallery"
METHODS = "rtfa,ditto"  # local, fed_avg and ftfa join by themselves
HOW = ("--rounds", "60", "--seeds", "3", "--tune", "4")


class Federation(NamedTuple):
    """A federation that nobody has cut: its clients are people, places or machines."""

    title: str
    about: str
    source: str
    options: tuple[str, ...] = ()
    how: tuple[str, ...] = HOW


FEDERATIONS = {
    "sensors": Federation("Vehicles by sensor", "23 roadside sensors tell two types of vehicles apart; each has 7 to "
                          "534 recordings of its own place (Duarte and Hu 2004).",
                          "vehicle_by_sensor", ("-D", "standardize=true")),
    "hospitals": Federation("Heart disease by hospital", "920 patients of four hospitals, with many missing values; "
                            "with so few clients none is held out as new (UCI heart disease).", "heart_by_hospital"),
    "schools": Federation("Exam scores by school", "15,362 pupils of 139 schools; a regression "
                          "(Inner London Education Authority).", "school_by_school"),
    "people": Federation("Activities by person", "30 people carry a phone; six activities from its sensors "
                         "(Anguita et al. 2013).", "har_by_subject"),
    "speakers": Federation("A spoken word by speaker", "60 people speak digits; seven is to be told from the rest "
                           "(AudioMNIST).", "audiomnist_by_speaker", ("-D", "word=7", "--metric", "auc")),
    "writers": Federation("Digits by writer", "539 people wrote digits, and 297 others are new clients "
                          "(MNIST, by the hand that wrote them).", "mnist_by_writer", how=("--rounds", "40", *HOW[2:])),
    "roles": Federation("The next letter by role", "Roles of Shakespeare's plays with 30,000 characters or more; a "
                        "small recurrent network, trained briefly, guesses the next letter.", "shakespeare_roles",
                        ("-D", "min_characters=30000", "--model", "char_lstm", "-M", "width=8", "-M", "layers=1"),
                        ("--rounds", "20", "--seeds", "2", "--tune", "1", "-s", "*.lr=1.5")),
}  # fmt: skip


def commands(name: str) -> tuple[list[str], list[str]]:
    """What is typed to be advised, and to compare.

    >>> " ".join(commands("schools")[0])
    'apiece advise school_by_school --out runs/schools-advice'
    """
    one = FEDERATIONS[name]
    advise = ["apiece", "advise", one.source, *one.options, "--out", f"runs/{name}-advice"]
    compare = ["apiece", "compare", "--data", one.source, *one.options, "--methods", METHODS, *one.how]
    return advise, [*compare, "--out", f"runs/{name}"]


def run(name: str, kept_in: Path | None = None) -> dict[str, Any]:
    """Be advised and compare; what the page tells, and the picture of gains.

    In a folder that is thrown away, or in `kept_in`: what is finished there is read and not run again.
    """
    if kept_in is not None:
        return _run_in(name, kept_in)
    with tempfile.TemporaryDirectory() as place:
        return _run_in(name, Path(place))


def _run_in(name: str, place: Path) -> dict[str, Any]:
    from apiece.report import terminal, write_picture
    from apiece.report.answer import answer
    from apiece.report.story import read_story

    place.mkdir(parents=True, exist_ok=True)
    folder = place / "runs" / name
    advise, compare = commands(name)
    advised = _said(advise, place, place / "runs" / f"{name}-advice" / "advice.json")
    compared = _said(compare, place, folder / "record.json")
    if isinstance(compared, str):
        raise SystemExit(compared)
    story = read_story(folder)
    write_picture(folder, FOLDER / f"{name}.svg")
    found = answer(story)
    kept = ("answer", "tried", "metric", "reasons", "doubts", "cost")
    return {
        "clients": story.record.federation.clients,
        "new_clients": story.record.federation.new_clients,
        "task": story.record.federation.task,
        "model": story.record.model,
        "advice": advised if isinstance(advised, str) else {key: advised[key] for key in kept},
        "found": {
            "headline": found.headline,
            "because": found.because,
            "facts": [list(fact) for fact in found.facts],
            "table": _printed(terminal.comparison(story.record)),
        },
        "packages": story.record.environment.packages,
    }


def _said(command: list[str], place: Path, left: Path) -> Any:
    """What a command leaves in a file, as JSON; of one that refuses, why. It is not run where the file is there."""
    if left.exists():
        return json.loads(left.read_text(encoding="utf-8"))
    typed = [sys.executable, "-m", "apiece.cli", *command[1:], "--json"]
    done = subprocess.run(typed, cwd=place, text=True, capture_output=True, timeout=7200)
    if done.returncode:
        return done.stderr[done.stderr.rfind("error: ") :].strip()
    return json.loads(left.read_text(encoding="utf-8"))


def _printed(shown: Any) -> list[str]:
    """The lines of the table alone, as a terminal of 80 columns shows them."""
    from rich.console import Console

    text = io.StringIO()
    Console(width=80, file=text, color_system=None).print(shown.renderables[0])
    return [line.rstrip() for line in text.getvalue().rstrip().splitlines()]


def page(name: str, kept: dict[str, Any]) -> str:
    """The page of a federation, in Markdown."""
    one, found = FEDERATIONS[name], kept["found"]
    first, second = (" ".join(map(shlex.quote, command)) for command in commands(name))
    cost = dict(map(tuple, found["facts"]))["Cost"]
    lines = [
        f"# {one.title}",
        "",
        f"Generated from [{name}.json]({name}.json) by `python -m book.gallery --pages`; do not edit.",
        "",
        one.about,
        f"{kept['clients']} clients train{_new(kept)}; the task is {kept['task']}, the model `{kept['model']}`.",
        "",
        "## What is advised",
        "",
        f"    {first}",
        "",
        *_advised(kept["advice"]),
        "",
        "## What a comparison shows",
        "",
        f"    {second}",
        "",
        "```text",
        *found["table"],
        "```",
        "",
        f"**{found['headline']}** {' '.join(found['because'])}",
        "",
        *(f"- {question}: {said}" for question, said in found["facts"] if question != "Cost"),
        "",
        f"![Each client's gain over training alone, by method]({name}.svg)",
        "",
        "## What it costs",
        "",
        *_asked(kept["advice"]),
        f"Training what the comparison chose, once: {cost}",
        "",
        "Versions: " + ", ".join(f"{key} {value}" for key, value in kept["packages"].items()) + ".",
    ]
    return "\n".join(lines) + "\n"


def _advised(advice: Any) -> list[str]:
    if isinstance(advice, str):
        return [f"> {advice}"]
    points = "error, %" if advice["metric"] == "error" else "error, % of variance"
    write = lambda ends: "" if ends is None else f"{ends['mean']:.1f} ({ends['low']:.1f} to {ends['high']:.1f})"
    return [
        f"> {' '.join(advice['answer'])}",
        "",
        f"| tried | held-out loss | expected {points} (90 %) |",
        "| --- | --- | --- |",
        *(f"| {row['name']} | {row['loss']:.4f} | {write(row['error'])} |" for row in advice["tried"]),
        "",
        *(f"- {reason}" for reason in advice["reasons"]),
        "",
        "In doubt:",
        "",
        *(f"- {doubt}" for doubt in advice["doubts"] or ["nothing was found to be."]),
    ]


def _asked(advice: Any) -> list[str]:
    if isinstance(advice, str):
        return []
    cost = advice["cost"]
    return [f"The advice: {cost['passes']:,.0f} passes over everybody's data in {cost['exchanges']} exchanges, "
            f"{cost['seconds']:.0f} s on two cores that others used too."]  # fmt: skip


def _new(kept: dict[str, Any]) -> str:
    return f", {kept['new_clients']} {'is' if kept['new_clients'] == 1 else 'are'} new" if kept["new_clients"] else ""


def index(kept: dict[str, dict[str, Any]]) -> str:
    """The first page of the gallery."""
    lines = [
        "# The gallery",
        "",
        "Generated by `python -m book.gallery --pages`; do not edit.",
        "",
        "What apiece advises, shows and costs on federations that nobody has cut: their clients are people, places and "
        "machines. Every page names its two commands. `python -m book.gallery NAME` runs them anew and "
        "writes the page; it needs the data (`APIECE_DATA`).",
        "",
        "| federation | clients | what is advised |",
        "| --- | --- | --- |",
        *(f"| [{FEDERATIONS[name].title}]({name}.md) | {one['clients']:,} | {_first(one['advice'])} |"
          for name, one in kept.items()),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _first(advice: Any) -> str:
    return "no advice for such a task yet" if isinstance(advice, str) else advice["answer"][0]


def pages() -> dict[Path, str]:
    """Every page of the gallery, from the kept numbers."""
    kept = {name: json.loads(path.read_text(encoding="utf-8")) for name in FEDERATIONS
            if (path := FOLDER / f"{name}.json").exists()}  # fmt: skip
    return {FOLDER / "README.md": index(kept), **{FOLDER / f"{name}.md": page(name, one) for name, one in kept.items()}}


def main() -> None:
    """Run what is asked for (all, if nothing is), then write the pages; `--pages` writes these alone."""
    asked = argparse.ArgumentParser(prog="python -m book.gallery", description=__doc__)
    asked.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(FEDERATIONS)}; all, if none is given")
    asked.add_argument("--pages", action="store_true", help="run nothing: the pages from the kept numbers")
    asked.add_argument("--keep", type=Path, metavar="FOLDER", help="keep runs there; what is finished is read")
    given = asked.parse_args()
    if unknown := [name for name in given.names if name not in FEDERATIONS]:
        raise SystemExit(f"there is no federation '{unknown[0]}'; there are: {', '.join(FEDERATIONS)}")
    FOLDER.mkdir(exist_ok=True)
    for name in [] if given.pages else given.names or FEDERATIONS:
        print(f"== {name}", flush=True)
        found = run(name, None if given.keep is None else given.keep.resolve())
        (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
