"""The report: a run folder in, one page out that opens offline; `terminal` shows the same record as tables."""

from apiece.report import terminal
from apiece.report.drawn import write_picture, write_pictures
from apiece.report.page import write_report
from apiece.report.runs_page import write_runs

__all__ = ["terminal", "write_picture", "write_pictures", "write_report", "write_runs"]
