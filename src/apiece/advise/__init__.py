"""How much to personalize, with whom, by which method: advice from a cheap pilot, in sentences and as a spec to run.

The room is also its main function: `apiece.advise(federation)` is `apiece.advise.advise(federation)`.
"""

import sys
from types import ModuleType
from typing import Any

from apiece.advise.advice import Advice, read_advice
from apiece.advise.answer import advise

__all__ = ["Advice", "advise", "read_advice"]


class _Room(ModuleType):
    """A module that can be called: a package and a function of it have one name, and both are wanted."""

    def __call__(self, *given: Any, **named: Any) -> Advice:
        return advise(*given, **named)


sys.modules[__name__].__class__ = _Room
