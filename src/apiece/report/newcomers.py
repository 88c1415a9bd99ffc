"""New clients by how many examples they bring: the numbers of the picture in a table."""

from apiece.report.numbers import plus_minus
from apiece.report.story import Story
from apiece.report.tables import ReportTable


def newcomers_table(story: Story) -> ReportTable | None:
    """The numbers of the picture, best first as in the other tables."""
    rows, heads = [], []
    for name in story.order:
        if mine := story.methods[name].newcomers:
            heads = [(f"{count:,}", "") for count in mine.examples]
            rows.append(
                [name, *(plus_minus(score, story.of_task.factor, story.of_task.places) for score in mine.scores)]
            )
    return ReportTable([("method", ""), *heads], rows) if rows else None
