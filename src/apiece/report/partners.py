"""Who learns from whom, for the terminal: the groups of a method that makes some."""

import math

from rich.text import Text

from apiece.experiment.record import MethodRecord
from apiece.report.fitted import FittedTable
from apiece.report.numbers import number

NAMED = 12  # clients of a group that a line names
LARGEST = 8  # groups that are shown


def partners(name: str, method: MethodRecord) -> tuple[Text, FittedTable] | None:
    """A row for each group, the largest first: its clients, and how unlike they are within and to others; or None."""
    found = method.partners
    if found is None or len(found.clients) < 2:
        return None
    groups = sorted(set(found.groups), key=lambda group: -found.groups.count(group))
    rows = []
    for group in groups[:LARGEST]:
        members = [at for at, mine in enumerate(found.groups) if mine == group]
        others = [at for at, mine in enumerate(found.groups) if mine != group]
        within = [found.bias[i][j] for i in members for j in members if i != j]
        between = [found.bias[i][j] for i in members for j in others]
        names = [found.clients[at] for at in members]
        text = ", ".join(names[:NAMED]) + (f", and {len(names) - NAMED} more" if len(names) > NAMED else "")
        rows.append([f"{group + 1}", text, f"{len(names)}", _mean(within), _mean(between)])
    left = len(groups) - LARGEST
    rest = f", of which the {LARGEST} largest are shown" if left > 0 else ""
    said = f"{name}: who learns from whom, {len(groups)} group{'s' if len(groups) != 1 else ''}{rest}; b: how unlike\n"
    return Text(said, style="dim"), FittedTable(["group", "clients", "count", "b within", "b to others"], rows, left=2)


def _mean(values: list[float]) -> str:
    there = [value for value in values if not math.isnan(value)]
    if not there:
        return ""
    return number(sum(there) / len(there), 3) if all(map(math.isfinite, there)) else "inf"
