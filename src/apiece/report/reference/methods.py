"""docs/ref-methods.md, generated from the catalog: `make docs`."""

import inspect
import math
from typing import Any

from apiece.methods import CATALOG
from apiece.report.catalog import LABELS, catalog


def page() -> str:
    """The catalog as Markdown: a table of costs, then each method's text and options.

    >>> page().splitlines()[0]
    '# The methods'
    """
    rows = [row for row in catalog()[0] if row["name"] in CATALOG.own]
    model = next(row["bytes_up"] for row in rows if row["name"] == "fed_avg")
    lines = [
        "# The methods",
        "",
        "Generated from the catalog by `make docs`; do not edit.",
        "",
        "Every method runs on every engine (vectorized, remote, asynchronous, over several processes), with full or "
        "partial participation, and with clients that keep nothing between rounds. What is *proved* about it is less: "
        "the column says on which engines and when.",
        "",
        "| method | what it solves | proved | without memory | reference |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        told = [row[name].replace("|", "\\|") for name in ("Solves", "Guarantee", "Forgetting", "Reference")]
        lines.append(_line(f"[`{row['name']}`](#{row['name']})", *told))
    lines += [
        "",
        "What it costs. Sizes are in models (one model = all parameters, here 650 numbers); gradient evaluations are "
        "per visit of a client with the default options, once when it enrolls, and once more for the final use; `?`: "
        "known only at run time, because the method chooses the number of steps as it goes. Methods with an option "
        "`private` share all "
        "but the biases here; what they send is the shared part.",
        "",
        "| method | kept by a client | down | up | gradients a visit | to enroll | at the end |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        sizes = [_models(row[key], model) for key in ("bytes_kept", "bytes_down", "bytes_up")]
        counts = [_count(row[key]) for key in ("gradients", "gradients_enroll", "gradients_personal")]
        lines.append(_line(f"`{row['name']}`", *sizes, *counts))
    for row in rows:
        lines += ["", *_section(row)]
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _models(count: int, model: int) -> str:
    return f"{count / model:.3g}" if count else "0"


def _count(count: float) -> str:
    return "?" if math.isnan(count) else f"{count:g}"


def _section(row: dict[str, Any]) -> list[str]:
    text = [line.rstrip() for line in row["text"].split("Args:")[0].strip().splitlines()]
    text = [f"- {line}" if line.partition(": ")[0] in LABELS else line for line in text]
    lines = [f"## {row['name']}", "", *text, ""]
    lines += ["| option | default | tuned over |", "| --- | --- | --- |"]
    tuned = CATALOG.ranges(row["name"])
    for option, default in row["options"].items():
        span = f"{tuned[option][0]:g} to {tuned[option][1]:g}, logarithmic" if option in tuned else ""
        lines.append(f"| `{option}` | {'' if default is None else default} | {span} |")
    arguments = row["text"].split("Args:")
    if len(arguments) > 1:
        lines += ["", inspect.cleandoc(arguments[1]).replace("\n", " ")]
    file = CATALOG[row["name"]].__module__.replace(".", "/")
    return [*lines, "", f"Source: `src/{file}.py`"]


if __name__ == "__main__":
    print(page(), end="")
