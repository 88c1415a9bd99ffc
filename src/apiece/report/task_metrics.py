"""What a task is judged by beyond its score: AUC and false accepts of two classes, RMSE and R2 of a regression."""

from typing import Any, NamedTuple

from apiece.report.numbers import known, plus_minus
from apiece.report.run import Run
from apiece.report.tables import Table


class Column(NamedTuple):
    """A number of the record, and how it is shown: (part, metric, statistic over clients or None if pooled)."""

    head: str
    why: str
    part: str
    metric: str
    statistic: str | None = None
    factor: float = 1.0
    places: int | None = 3


POOLED, OWN = "all test examples together", "each client by itself"
COLUMNS = (
    Column("AUC", f"{POOLED}: one threshold would serve everybody", "test", "auc_pooled"),
    Column("AUC of a client", f"{OWN}; mean over clients that have both classes", "test", "auc", "mean"),
    Column("AUC, worst tenth", "mean of the tenth of the clients that fare worst", "test", "auc", "worst10"),
    Column("false accepts, %", f"at 5 % false rejects, {POOLED}", "test", "false_accepts_pooled", None, 100, 1),
    Column("false accepts of a client, %", f"{OWN}, its own threshold", "test", "false_accepts", "mean", 100, 1),
    Column("AUC, new clients", POOLED, "new_clients", "auc_pooled"),
    Column("RMSE", f"{POOLED}, in units of the target", "test", "rmse_pooled", None, 1, None),
    Column("RMSE of a client", "mean over clients", "test", "rmse", "mean", 1, None),
    Column("RMSE, worst tenth", "mean of the tenth of the clients that fare worst", "test", "rmse", "worst10", 1, None),
    Column("R²", f"share of the targets' variance explained, {POOLED}", "test", "r2"),
    Column("R² of a client", "of its own variance; median over clients", "test", "r2_clients", "median"),
    Column("RMSE, new clients", POOLED, "new_clients", "rmse_pooled", None, 1, None),
    Column("R², new clients", POOLED, "new_clients", "r2"),
)


def found_in(summary: dict[str, Any], column: Column) -> dict[str, Any] | None:
    """The interval over seeds that belongs into a column, or None.

    >>> found_in({"test": {"r2": {"mean": 0.5}}}, COLUMNS[9])
    {'mean': 0.5}
    """
    found = summary.get(column.part, {}).get(column.metric)
    found = found.get(column.statistic) if found and column.statistic else found
    return found if found and known(found["mean"]) else None


def task_table(run: Run) -> Table | None:
    """Methods in the order of their scores with what their task has beyond it, or None for other tasks."""
    summaries = {name: run.methods[name]["summary"] for name in run.ordered()}
    shown = [column for column in COLUMNS if any(found_in(summary, column) for summary in summaries.values())]
    if not shown:
        return None
    write = lambda summary, column: plus_minus(found_in(summary, column), column.factor, column.places)
    rows = [[name, *(write(summary, column) for column in shown)] for name, summary in summaries.items()]
    return Table([("method", ""), *((column.head, column.why) for column in shown)], rows)
