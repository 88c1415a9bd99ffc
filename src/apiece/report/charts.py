"""The report's pictures, drawn from plain numbers."""

from apiece.report.curves import Curve, curves_svg
from apiece.report.gains import Strip, gains_svg
from apiece.report.sizes import Series, sizes_svg

__all__ = ["Curve", "Series", "Strip", "curves_svg", "gains_svg", "sizes_svg"]
