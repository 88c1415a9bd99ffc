"""What was advised before a run, on its page: the path that the pilot measured, with theory's prediction beside it."""

import re
from typing import Any, NamedTuple

import numpy as np

from apiece.report.figure import Figure, Line, Panel, checked
from apiece.report.numbers import known, number, percent
from apiece.report.story import Story
from apiece.report.tables import ReportTable

PATH = re.compile(r"path, lambda = ([0-9.e+-]+)")  # how an advice names the candidates between shared and alone


class Advised(NamedTuple):
    """The answer; a picture of the path (or None) and its sentence; all that was tried; the weights of the stack."""

    answer: str
    panel: Panel | None
    finding: str
    table: ReportTable | None
    weights: ReportTable | None = None
    weighed: str = ""


def advised(story: Story) -> Advised | None:
    """What the page tells of the advice in a run's folder; None without any."""
    advice = story.advice
    if advice is None:
        return None
    said = advice.get("answer")
    answer = " ".join(map(str, said)) if isinstance(said, list) else str(said or "")
    tried = _tried(advice)
    path = sorted((float(found[1]), loss) for name, loss in tried.items() if (found := PATH.fullmatch(name)))
    rows = [[name, f"{loss:.4f}"] for name, loss in tried.items()]
    heads = [("tried", ""), ("held-out loss", "of models of three quarters of the data")]
    table = ReportTable(heads, rows) if rows else None
    weights, weighed = _stack(advice)
    if len(path) < 2:
        return Advised(answer, None, "", table, weights, weighed)
    lams, losses = np.array(path).T
    lines = [Line("measured on held-out examples", lams, losses, style=0)]
    for style, what in enumerate(("shared", "local"), start=1):
        best = min((loss for name, loss in tried.items() if name.partition(",")[0] == what), default=None)
        if best is not None:
            lines.append(Line(f"{what}, for comparison", lams[[0, -1]], np.array([best, best]), style=style))
    finding = f"Of the path, lambda = {number(lams[losses.argmin()], 2)} has the least held-out loss."
    predicted, holds, why = _theory(advice)
    if predicted is not None:
        ends = np.array([min(line.y.min() for line in lines), max(line.y.max() for line in lines)])
        at = float(np.clip(predicted, lams[0] / 3, lams[-1] * 3))
        lines.append(Line("theory's prediction", np.array([at, at]), ends, style=4))
        finding += f" Theory predicts {number(predicted, 2)}" + (
            "." if holds else f"; its assumptions do not hold: {why}."
        )
    panel = Panel("", "lambda: how strongly a client is pulled to the shared model", "held-out loss", lines, log_x=True)
    return Advised(answer, checked(Figure("", "", [panel])).panels[0], finding, table, weights, weighed)


def _stack(advice: dict[str, Any]) -> tuple[ReportTable | None, str]:
    """The weights of a mixture of the candidates, largest first, and what the mixture would change."""
    stack = advice.get("stack")
    weights = stack.get("weights") if isinstance(stack, dict) else None
    if not isinstance(stack, dict) or not isinstance(weights, dict):
        return None, ""
    there = sorted(((float(one), str(name)) for name, one in weights.items() if _is_number(one) and one > 0.005))
    if not there:
        return None, ""
    used = "What is advised." if advice.get("kind") == "stack" else "Measured, but not advised."
    gain, doubt = stack.get("gain"), stack.get("doubt")
    if gain is not None and _is_number(gain) and _is_number(doubt):
        used += f" Over the best candidate alone it changes the held-out loss by {-gain:+.4f} ± {doubt:.4f}."
    rows = [[name, percent(weight)] for weight, name in reversed(there)]
    return ReportTable([("candidate", ""), ("weight", "everybody's")], rows), used


def _tried(advice: dict[str, Any]) -> dict[str, float]:
    """Candidates and their held-out losses, as far as they are numbers."""
    rows = advice.get("tried")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("name")): float(row["loss"]) for row in rows if _is_number(row.get("loss"))}


def _theory(advice: dict[str, Any]) -> tuple[float | None, bool, str]:
    """(the lambda that theory predicts, whether its assumptions hold, why not)."""
    theory = advice.get("theory")
    if not isinstance(theory, dict) or not _is_number(theory.get("lam")) or not 0 < theory["lam"] < 1e6:
        return None, False, ""
    return float(theory["lam"]), bool(theory.get("holds")), str(theory.get("why", ""))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and known(value)
