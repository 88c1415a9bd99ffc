"""The report: a run folder in, one page out that opens offline; `terminal` shows the same record as tables."""

from apiece.report import terminal
from apiece.report.page import write_picture, write_report

__all__ = ["terminal", "write_picture", "write_report"]
