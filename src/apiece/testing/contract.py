"""All lines of the contract (`apiece.protocol`) as programs, in the order in which they are run.

First what needs no engine, so that an engine never stumbles over what could have been named; then the same method as
the engines run it, alone and as one of a grid.
"""

from apiece.testing import by_hand, line, on_engines

CHECKS = line.CHECKS

__all__ = ["CHECKS", "by_hand", "on_engines"]
