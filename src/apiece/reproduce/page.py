"""docs/ref-reproduction.md, from the full runs' verdicts in docs/reproduction/: `python -m apiece.reproduce.page`."""

from pathlib import Path
from typing import Any

from apiece.report.numbers import number
from apiece.reproduce import HEADS, NAMES, cell, cells, counted, module_of, read_verdict, tables_in
from apiece.reproduce.papers import PAPERS, paragraph
from apiece.reproduce.verdict import FAILS, HOLDS, UNDECIDED, claim_of

FOLDER = Path("docs/reproduction")


def page(folder: Path = FOLDER) -> str:
    """The verdict tables as Markdown: a summary, then one section for each reproduction."""
    found = {name: read_verdict(folder / f"{name}.json") for name in NAMES}
    lines = [
        "# What reproduces",
        "",
        "Generated from the full runs' verdicts by `make docs`; do not edit. `make reproduce` runs them all again.",
        "",
        "Each row is a claim: what was published, what came out here, an interval where chance is at work (95 %, over "
        "independent repetitions, seeds or clients), and a verdict. A claim is an effect and the range in which it "
        "lies if the claim is true. It *holds* if the whole interval lies in that range, it *does not hold* if the "
        "interval lies outside, and it is *undecided* if the interval has a part in each, or if what was measured had "
        "not come to rest. *Could see*: how far from no effect a true one must be for such a run to tell it from none "
        "in four of five cases. *(theory)*: a proved formula, corrected where it was misprinted; *(reference)*: an "
        "independent computation with other code; *(here)*: one that goes beyond the paper; otherwise the claim is "
        "the paper's. What is wrong in print is collected in [the errata](explanation-errata.md).",
        "",
        "| reproduction | what it is | claims | hold | do not | undecided | seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, result in found.items():
        count = counted(result["claims"])
        numbers = (len(result["claims"]), count[HOLDS], count[FAILS], count[UNDECIDED])
        row = " | ".join(map(str, numbers))
        mark = "\\*" if result.get("older") else ""
        lines.append(f"| [`{name}`](#{name}){mark} | {result['title']} | {row} | {result['seconds']:.0f} |")
    total = sum(result["seconds"] for result in found.values())
    lines += ["", f"All together: {number(total / 60, 2)} minutes on two cores, some of it while other programs ran."]
    if any(result.get("older") for result in found.values()):
        lines += [
            "",
            "\\* Rows of an earlier full run, judged by the present rule; what has changed since is said there.",
        ]
    lines += ["", "## Paper by paper", "", "What is corrected stands in [the errata](explanation-errata.md)."]
    for paper, sentences in PAPERS.items():
        lines += ["", f"**{paper}.** {paragraph(sentences)}"]
    for name, result in found.items():
        lines += ["", *_section(name, result)]
    return "\n".join(lines) + "\n"


def _section(name: str, result: dict[str, Any]) -> list[str]:
    about = (module_of(name).__doc__ or "").strip().split("\n\n", 1)
    lines = [f"## {name}", "", about[0].replace("\n", " ")]
    lines += ["", about[1]] if len(about) > 1 else []
    lines += ["", f"`apiece reproduce {name}` (or `--quick`)", ""]
    lines += [f'<img src="reproduction/{name}.png" alt="Figure of {name}; its page has the numbers" width="760">', ""]
    lines += [f"*{result['older']}*", ""] if result.get("older") else []
    lines += [f"| {' | '.join(HEADS)} |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in map(_row, result["claims"])]
    lines += [f"\n{note}" for note in result["notes"]]
    tables = tables_in(result["settings"])
    for key, value in tables.items():
        lines += ["", *_table(key, value)]
    settings = "; ".join(f"{key}: {_setting(v)}" for key, v in result["settings"].items() if key not in tables)
    return [*lines, "", f"Settings: {settings}."]


def _table(title: str, rows: dict[str, dict[str, Any]]) -> list[str]:
    heads = list(next(iter(rows.values())))
    lines = [f"{title[0].upper()}{title[1:]}:", "", f"| | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    return lines + [f"| {name} | {' | '.join(cell(row[head]) for head in heads)} |" for name, row in rows.items()]


def _row(claim: dict[str, Any]) -> list[str]:
    *row, verdict = cells(claim_of(claim))
    return [*row, verdict.replace(FAILS, f"**{FAILS}**").replace(UNDECIDED, f"*{UNDECIDED}*")]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(map(_setting, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_setting(inner)}" for key, inner in value.items()) + "}"
    return str(value)


if __name__ == "__main__":
    print(page(), end="")
