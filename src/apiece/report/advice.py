"""An advice for a terminal of 80 columns: the answer, what was tried, why, what is in doubt, and what to do next."""

import re
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from apiece.advise.advice import Advice, Ends
from apiece.report.fitted import FittedTable

MEANS = (
    "shared: one model for all. own frequencies: the same with an intercept by the client's own labels. "
    "path: min L_i + lambda_i/2 |p - shared|^2, lambda_i in proportion to 1/examples. local: each client "
    "alone, with a ridge. groups: one model for each group.",
    "loss: mean held-out loss of models that were trained on three quarters of the data; every client counts the same. "
    "expected: the error with all data, extrapolated from three quarters and one half, with its 90 % interval.",
    "proved worse off: one-sided paired tests against alone, Benjamini-Hochberg at 5 %. expected to lose: the mean "
    "over clients of the posterior probability of losing more than a point (normal-normal empirical Bayes).",
    "z: how many standard errors clients' gradients at the shared model are longer than their noise explains.",
)


def show_advice(advice: Advice, explain: bool = False, brief: bool = False) -> Group:
    """The answer in three sentences; then, unless it is to be brief, the table, reasons, doubts, and commands to copy.

    >>> show_advice.__name__
    'show_advice'
    """
    answer = Text(" ".join(advice.answer), style="bold")
    if brief:
        return Group(answer)
    points = "error %" if advice.metric == "error" else "error, % of var."
    rows = [
        [tried.name, f"{tried.loss:.4f}", "" if tried.error is None else _ends(tried.error)] for tried in advice.tried
    ]
    if advice.kind == "stack":
        rows.append(["stack of these", "", _ends(advice.errors["advised"])])
    table = FittedTable(["tried", "held-out\nloss", f"expected {points}\n(90 %)"], rows)
    blocks: list[Any] = [
        answer,
        Text(),
        table,
        *_listed("why", advice.reasons),
        *_listed("in doubt", [*advice.doubts, *_of_theory(advice)]),
        *(_listed("notes", advice.notes) if advice.notes else []),
        *(_listed("what the numbers mean", MEANS) if explain else []),
        *_listed("cost", [_cost(advice)]),
        *_listed("next", advice.next, copy=True),
    ]
    return Group(*blocks)


def _listed(title: str, lines: list[str] | tuple[str, ...], copy: bool = False) -> list[Any]:
    """Lines under a title: sentences hang under their mark; commands can be copied, however narrow the terminal is."""
    told = [_broken(line) if copy else _hanging(line) for line in lines]
    return [Text(), Text(title, style="bold dim"), *told]


def _hanging(line: str) -> Table:
    """A sentence after a mark, its further lines under its first."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row("-", Text(line, overflow="fold"))
    return grid


def _broken(command: str, room: int = 76) -> Text:
    """A command over several lines, each but the last with a backslash at its end, broken before options.

    >>> print(_broken("apiece compare --spec a.toml --methods b,c", 30))
      apiece compare --spec a.toml \\
        --methods b,c
    """
    lines, now = [], ""
    for word in re.split(r" (?=--)", command):
        if now and len(now) + len(word) + 1 > room:
            lines.append(now)
            now = "  "
        now = f"{now} {word}" if now.strip() else f"{now}{word}"
    return Text(" \\\n".join(f"  {line}" for line in [*lines, now]), overflow="fold")


def _of_theory(advice: Advice) -> list[str]:
    lam = advice.theory.lam
    if lam != lam:
        return []
    told = "share" if lam > 1e6 else f"lambda = {lam:.2g}"
    if advice.theory.holds:
        return [f"Theory's prediction from moments: {told} ({advice.theory.why})."]
    return [f"Moments would say {told}; theory's assumptions do not hold: {advice.theory.why}."]


def _cost(advice: Advice) -> str:
    cost = advice.cost
    size = (cost.bytes_up + cost.bytes_down) / 1e6
    told = f"about {cost.training_seconds:,.0f} s" if cost.training_seconds >= 1 else "less than 1 s"
    return (f"The advice took {cost.passes:,.0f} passes in {cost.exchanges} exchanges, {cost.seconds:.0f} s. "
            f"Training what is advised: {cost.rounds} round{'s' * (cost.rounds > 1)}, {size:,.1f} MB, "
            f"{cost.training_gradients:,} gradients, {told} once compiled.")  # fmt: skip


def _ends(ends: Ends) -> str:
    return f"{ends.mean:.1f} ({ends.low:.1f} to {ends.high:.1f})"
