"""The page's table of what a task is judged by beyond its score, and of metrics of the user's own."""

from apiece.report.metric_columns import columns_of
from apiece.report.numbers import plus_minus
from apiece.report.story import Story
from apiece.report.tables import ReportTable


def task_table(story: Story) -> ReportTable | None:
    """Methods in the order of their scores with what their task has beyond it, or None for other tasks."""
    shown = columns_of(story.record)
    if not shown:
        return None
    write = lambda name, column: plus_minus(column.find(story.methods[name]), column.factor, column.places)
    rows = [[name, *(write(name, column) for column in shown)] for name in story.order]
    return ReportTable([("method", ""), *((column.head, column.meaning) for column in shown)], rows)
