"""The report: a run folder in, one page out that opens offline."""

from apiece.report.page import write_picture, write_report

__all__ = ["write_picture", "write_report"]
