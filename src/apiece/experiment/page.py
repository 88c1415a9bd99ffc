"""docs/ref-methods.md, generated from the catalog: `python -m apiece.experiment.page > docs/ref-methods.md`."""

import inspect
from typing import Any

from apiece.experiment.describe import catalog
from apiece.methods import CATALOG
from apiece.methods.options import SEARCH


def page() -> str:
    """The catalog as Markdown: a table of costs, then each method's text and options.

    >>> page().splitlines()[0]
    '# The methods'
    """
    rows, _ = catalog()
    model = next(row["bytes_up"] for row in rows if row["name"] == "fed_avg")
    lines = [
        "# The methods",
        "",
        "Generated from the catalog by `make docs`; do not edit. Sizes are in models (one model = all parameters);",
        "gradient evaluations are per visit of a client with the default options, and once more for the final use.",
        "",
        "| method | what it is | down | up | kept by a client | gradients a visit | at the end |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        sizes = [_models(row[key], model) for key in ("bytes_down", "bytes_up", "bytes_kept")]
        cells = [f"[`{row['name']}`](#{row['name']})", row["summary"], *sizes]
        lines.append(f"| {' | '.join([*cells, str(row['gradients']), str(row['gradients_personal'])])} |")
    lines += [
        "",
        "Every method runs on the vectorized and the remote engine, stateful or stateless (a client that forgets "
        "enrolls again), with full or partial participation.",
    ]
    for row in rows:
        lines += ["", *_section(row)]
    return "\n".join(lines) + "\n"


def _models(count: int, model: int) -> str:
    return f"{count / model:g}" if count else "0"


def _section(row: dict[str, Any]) -> list[str]:
    text = [line.rstrip() for line in row["text"].split("Args:")[0].strip().splitlines()]
    forget = "keeps nothing" if not row["bytes_kept"] else "a client that forgets starts again from its enrollment"
    lines = [f"## {row['name']}", "", *text, "", f"Stateless: {forget}.", ""]
    lines += ["| option | default | tuned over |", "| --- | --- | --- |"]
    for option, default in row["options"].items():
        span = f"{SEARCH[option][0]:g} to {SEARCH[option][1]:g}, logarithmic" if option in SEARCH else ""
        lines.append(f"| `{option}` | {'' if default is None else default} | {span} |")
    arguments = row["text"].split("Args:")
    if len(arguments) > 1:
        lines += ["", inspect.cleandoc(arguments[1]).replace("\n", " ")]
    return [*lines, "", f"Source: `src/apiece/methods/{CATALOG[row['name']].__name__}.py`"]


if __name__ == "__main__":
    print(page(), end="")
