"""The metrics beside a task's score: what each is called, what it means, which way is better, where it is shown.

A row of `COLUMNS` is a column of the page and, with a `brief` title, of the terminal. Metrics of the user's own are
named by the record.
"""

from typing import NamedTuple

from apiece.evaluate import Interval
from apiece.experiment.record import MethodRecord, Record


class MetricColumn(NamedTuple):
    """A number of the record (part, metric, statistic over clients or None if pooled), and how it is shown."""

    head: str
    why: str
    part: str
    metric: str
    statistic: str | None = None
    higher: bool = True  # whether more is better
    factor: float = 1.0
    places: int | None = 3  # after the point; None: as the interval demands
    brief: str = ""  # the title on a terminal; none: it is only on the page
    aside: str = ""  # what must be said below that table

    @property
    def meaning(self) -> str:
        """What it is, and which way is better."""
        return f"{self.why}; {'more' if self.higher else 'less'} is better"

    def find(self, method: MethodRecord) -> Interval | None:
        """The number of a method, with its interval over seeds; None: it has none."""
        return method.statistic(self.part, self.metric, self.statistic)


POOLED, OWN = "all test examples together", "each client by itself"
WORST = "mean of the tenth of the clients that fare worst"
AT = "at 5 % false rejects"
# fmt: off
COLUMNS = (
    MetricColumn("AUC", f"{POOLED}: one threshold would serve everybody", "test", "auc_pooled", brief="AUC"),
    MetricColumn("AUC of a client", f"{OWN}; mean over clients that have both classes", "test", "auc", "mean"),
    MetricColumn("AUC, worst tenth", WORST, "test", "auc", "worst10"),
    MetricColumn("false accepts, %", f"{AT}, {POOLED}", "test", "false_accepts_pooled", None, False, 100, 1,
                 brief="false\naccepts %", aside="false accepts at 5% false rejects"),
    MetricColumn("false accepts of a client, %", f"{OWN}, its own threshold", "test", "false_accepts", "mean",
                 False, 100, 1),
    MetricColumn("AUC, new clients", POOLED, "new_clients", "auc_pooled", brief="AUC, new\nclients"),
    MetricColumn("RMSE", f"{POOLED}, in units of the target", "test", "rmse_pooled", None, False, 1, None,
                 brief="RMSE"),
    MetricColumn("RMSE of a client", "mean over clients", "test", "rmse", "mean", False, 1, None),
    MetricColumn("RMSE, worst tenth", WORST, "test", "rmse", "worst10", False, 1, None),
    MetricColumn("R²", f"share of the targets' variance explained, {POOLED}", "test", "r2", brief="R2"),
    MetricColumn("R² of a client", "of its own variance; median over clients", "test", "r2_clients", "median"),
    MetricColumn("RMSE, new clients", POOLED, "new_clients", "rmse_pooled", None, False, 1, None,
                 brief="RMSE, new\nclients"),
    MetricColumn("R², new clients", POOLED, "new_clients", "r2", brief="R2, new\nclients"),
)
# fmt: on


def columns_of_own(name: str, higher_is_better: bool = True) -> list[MetricColumn]:
    """The columns of a metric of one's own, a number of each client: its mean, its worst tenth, new clients' mean.

    >>> [column.head for column in columns_of_own("f1")]
    ['f1', 'f1, worst tenth', 'f1, new clients']
    """
    mean = f"{OWN}; weighted mean, every test example counts once"
    brief = name.replace("_", "\n")
    return [
        MetricColumn(name, mean, "test", name, "mean_weighted", higher_is_better, places=None, brief=brief),
        MetricColumn(f"{name}, worst tenth", WORST, "test", name, "worst10", higher_is_better, places=None),
        MetricColumn(f"{name}, new clients", mean, "new_clients", name, "mean_weighted", higher_is_better, places=None),
    ]


def columns_of(record: Record) -> list[MetricColumn]:
    """The columns for which some method has a number: those of the task, then those of the user's own metrics."""
    known = {column.metric for column in COLUMNS}
    mine = {name: higher for name, higher in record.metrics.items() if name not in known}
    own = [column for name, higher in mine.items() for column in columns_of_own(name, higher)]
    return [column for column in [*COLUMNS, *own] if any(column.find(method) for method in record.methods.values())]
