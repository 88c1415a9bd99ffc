"""What is listed: every source with a line and its options."""

from apiece.report.catalog import sources


def test_every_source_has_a_line_and_its_options():
    assert all(row["summary"].endswith(".") for row in sources())
    assert sources()[0]["options"]["clients"] == 30
