"""What a task is judged by beyond its score: AUC and false accepts of two classes, RMSE and R2 of a regression."""

from typing import NamedTuple

from apiece.report.numbers import plus_minus
from apiece.report.story import Story
from apiece.report.tables import ReportTable


class TaskColumn(NamedTuple):
    """A number of the record, and how it is shown: (part, metric, statistic over clients or None if pooled)."""

    head: str
    why: str
    part: str
    metric: str
    statistic: str | None = None
    factor: float = 1.0
    places: int | None = 3


POOLED, OWN = "all test examples together", "each client by itself"
WORST = "mean of the tenth of the clients that fare worst"
COLUMNS = (
    TaskColumn("AUC", f"{POOLED}: one threshold would serve everybody", "test", "auc_pooled"),
    TaskColumn("AUC of a client", f"{OWN}; mean over clients that have both classes", "test", "auc", "mean"),
    TaskColumn("AUC, worst tenth", WORST, "test", "auc", "worst10"),
    TaskColumn("false accepts, %", f"at 5 % false rejects, {POOLED}", "test", "false_accepts_pooled", None, 100, 1),
    TaskColumn("false accepts of a client, %", f"{OWN}, its own threshold", "test", "false_accepts", "mean", 100, 1),
    TaskColumn("AUC, new clients", POOLED, "new_clients", "auc_pooled"),
    TaskColumn("RMSE", f"{POOLED}, in units of the target", "test", "rmse_pooled", None, 1, None),
    TaskColumn("RMSE of a client", "mean over clients", "test", "rmse", "mean", 1, None),
    TaskColumn("RMSE, worst tenth", WORST, "test", "rmse", "worst10", 1, None),
    TaskColumn("R²", f"share of the targets' variance explained, {POOLED}", "test", "r2"),
    TaskColumn("R² of a client", "of its own variance; median over clients", "test", "r2_clients", "median"),
    TaskColumn("RMSE, new clients", POOLED, "new_clients", "rmse_pooled", None, 1, None),
    TaskColumn("R², new clients", POOLED, "new_clients", "r2"),
)


def task_table(story: Story) -> ReportTable | None:
    """Methods in the order of their scores with what their task has beyond it, or None for other tasks."""
    found = lambda name, column: story.methods[name].statistic(column.part, column.metric, column.statistic)
    shown = [column for column in COLUMNS if any(found(name, column) for name in story.order)]
    if not shown:
        return None
    write = lambda name, column: plus_minus(found(name, column), column.factor, column.places)
    rows = [[name, *(write(name, column) for column in shown)] for name in story.order]
    return ReportTable([("method", ""), *((column.head, column.why) for column in shown)], rows)
