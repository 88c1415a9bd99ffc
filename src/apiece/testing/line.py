"""A line of the contract as a program, and the list of all of them."""

from collections.abc import Callable
from typing import NamedTuple

from apiece.testing.case import ENGINES, Case


class Check(NamedTuple):
    """A line of the contract as a program: `run(case, engine)` raises AssertionError when the method breaks it."""

    line: int
    name: str
    sentence: str
    engines: tuple[str, ...]
    run: Callable[[Case, str], None]
    layers: bool  # whether it runs the method on the network with two layers


CHECKS: dict[str, Check] = {}


def check_line(line: int, engines: tuple[str, ...] = ENGINES, layers: bool = False) -> Callable:
    """Registers a check; its docstring is the sentence that the method must keep."""

    def register(run: Callable[[Case, str], None]) -> Callable[[Case, str], None]:
        sentence = " ".join((run.__doc__ or "").split())
        CHECKS[run.__name__] = Check(line, run.__name__, sentence, engines, run, layers)
        return run

    return register
