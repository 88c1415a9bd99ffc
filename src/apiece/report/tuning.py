"""A tuning in a table for 80 columns, and as a picture: what was tried, and what came of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.text import Text

from apiece.report.figure import Figure, Line, Panel
from apiece.report.figure_page import Grid, write_figure
from apiece.report.fitted import FittedTable
from apiece.report.numbers import counted, listed, number

BELOW = 3.0  # how far to the left of the least value zero is drawn, on a logarithmic axis
WIDE = 5.0  # times the least value, beyond which the axis of values is logarithmic
NAMED = 4  # edges that a sentence lists


def tuning_table(record: Mapping[str, Any], folder: Path | str) -> Group:
    """The table of methods, and what to say below it."""
    by = _words(record["chosen_by"])
    rows = []
    for name, row in record["methods"].items():
        ended = [trial for trial in row["trials"] if trial["state"] != "lost"]
        pruned = sum(trial["state"] == "pruned" for trial in ended)
        tried = f"{len(ended)}" + (f" ({pruned})" if pruned else "")
        options = ", ".join(f"{option} {_value(value)}" for option, value in row["options"].items()) or "no option"
        seen = [number(_seen(record, row, at), 4) for at in (_first(row), row["chosen"])]
        rows.append([name, options, tried, f"{row['gradients'] / 1000:,.0f}", *seen])
    heads = ["method", "chosen", "trials", "1000\ngradients", f"{by}\nby default", "chosen"]
    return Group(FittedTable(heads, rows, left=2), Text("\n".join(["", *told(record, folder)]), style="dim"))


def told(record: Mapping[str, Any], folder: Path | str) -> list[str]:
    """What a reader should know of a tuning, and what to do next."""
    clients = counted(record["clients"], "client")
    lines = [f"{clients}, {record['model']}, {counted(record['rounds'], 'round')} a trial, seed {record['seed']}."]
    budget = record["gradients"]
    how = "points spread over each method's ranges" if record["strategy"] == "spread" else "Optuna's TPE"
    if record["strategy"] == "tpe" and record["pruner"] != "none":
        how += f" (in brackets: given up on the way, by the {record['pruner']} pruner)"
    lines.append(f"Tried: {how}." + (f" At most {budget:,.0f} gradients each." if budget else ""))
    more = "the most" if record["higher"] else "the least"
    lines.append(f"Chosen: {more} {_words(record['chosen_by'])}; test examples were not looked at.")
    lines += _edges(record)
    lines += [f"note: {note}" for note in record["notes"]]
    return [*lines, f"compare them: apiece compare --spec {folder}/spec.toml"]


def _edges(record: Mapping[str, Any]) -> list[str]:
    at = [(name, edge) for name, row in record["methods"].items() for edge in row["edges"]]
    if not at:
        return []
    each = [f"{name}.{edge['option']} = {number(edge['value'], 4)} ({edge['end']})" for name, edge in at[:NAMED]]
    each += [f"{len(at) - NAMED} more"] if len(at) > NAMED else []
    name, edge = at[0]
    low, high = (edge["value"] / 10, edge["value"]) if edge["end"] == "lowest" else (edge["value"], 10 * edge["value"])
    beyond = f"-s '{name}.{edge['option']}={{range = [{low:.3g}, {high:.3g}]}}'"
    return [f"At the edge of what was tried: {listed(each)}. A better value may lie beyond it: {beyond}."]


def tuning_figure(record: Mapping[str, Any]) -> Figure:
    """Validation against each option, a dot per trial, by method; of the numbers of the record alone.

    >>> trial = {"number": 0, "options": {"lr": 0.1}, "state": "finished", "validation": {"validation_loss": 0.5}}
    >>> row = {"trials": [trial], "chosen": 0, "options": {"lr": 0.1}}
    >>> shown = {"chosen_by": "validation_loss", "methods": {"ditto": row}, "strategy": "spread"}
    >>> [(panel.x_label, panel.lines[0].name) for panel in tuning_figure(shown).panels]
    [('lr', 'ditto')]
    """
    methods = list(record["methods"])
    options = dict.fromkeys(option for row in record["methods"].values() for trial in row["trials"]
                            for option, value in trial["options"].items() if _is_number(value))  # fmt: skip
    panels = [panel for option in options if (panel := _panel(record, option, methods)) is not None]
    caption = ("A dot is a trial: where it stood at its last look at validation. Trials that diverged are not drawn"
               + ("; those that were given up on the way stand where they were left." if record["strategy"] == "tpe"
                  else "."))  # fmt: skip
    if any(trial["options"].get(option) == 0 for option in options for row in record["methods"].values()
           for trial in row["trials"]):  # fmt: skip
        caption += " The value 0 is drawn at the left end of the axis."
    return Figure("What tuning tried", caption, panels)


def _panel(record: Mapping[str, Any], option: str, methods: list[str]) -> Panel | None:
    lines: list[Line] = []
    values = [trial["options"][option] for row in record["methods"].values() for trial in row["trials"]
              if _is_number(trial["options"].get(option))]  # fmt: skip
    positive = [value for value in values if value > 0]
    log = bool(positive) and min(values) >= 0
    place = lambda value: value if value > 0 or not log else min(positive) / BELOW
    for name, row in record["methods"].items():
        tried = [
            trial for trial in row["trials"] if _is_number(trial["options"].get(option)) and _value_of(record, trial)
        ]
        if tried and len({trial["options"][option] for trial in row["trials"] if option in trial["options"]}) > 0:
            x = [place(trial["options"][option]) for trial in tried]
            y = [_value_of(record, trial) for trial in tried]
            lines.append(Line(name, x, y, kind="dots", style=methods.index(name)))
    seen = [value for line in lines for value in line.y]
    tall = bool(seen) and min(seen) > 0 and max(seen) > WIDE * min(seen)  # else one bad trial flattens all others
    return Panel("", option, _words(record["chosen_by"]), lines, log_x=log, log_y=tall) if lines else None


def write_tuning(record: Mapping[str, Any], folder: Path) -> list[Path]:
    """The picture, with the table of what was chosen: tuning.html, and tuning.png if Matplotlib is there."""
    heads = ["method", "option", "chosen", "tried from", "to"]
    rows = []
    for name, row in record["methods"].items():
        for option, value in row["options"].items():
            tried = [trial["options"][option] for trial in row["trials"] if _is_number(trial["options"].get(option))]
            ends = [number(min(tried), 4), number(max(tried), 4)] if tried else ["", ""]
            rows.append([name, option, _value(value), *ends])
    return write_figure(tuning_figure(record), folder, "tuning", [Grid("Chosen", heads, rows)])


def _seen(record: Mapping[str, Any], row: Mapping[str, Any], at: int | None) -> float | None:
    found = [trial for trial in row["trials"] if trial["number"] == at]
    return _value_of(record, found[0]) if found and found[0]["state"] == "finished" else None


def _first(row: Mapping[str, Any]) -> int | None:
    """The trial of the defaults, if these were tried: the first that was not lost."""
    return next((trial["number"] for trial in row["trials"] if trial["state"] != "lost"), None)


def _value_of(record: Mapping[str, Any], trial: Mapping[str, Any]) -> float | None:
    return trial["validation"].get(record["chosen_by"])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(value: Any) -> str:
    return number(value, 4) if _is_number(value) else str(value)


def _words(name: str) -> str:
    """The name of a number of the curve, as people say it.

    >>> _words("validation_loss")
    'validation loss'
    """
    return name.replace("_", " ")
