"""A source called as a function checks its options as `source("name", ...)` does."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec

from apiece.data.federation import Federation
from apiece.registry import check_options, read_options

Options = ParamSpec("Options")


def checked(make: Callable[Options, Federation]) -> Callable[Options, Federation]:
    """The source, whose wrong options are errors that name them.

    >>> @checked
    ... def clubs(clients: int = 30) -> Federation: ...
    >>> clubs(clients="many")
    Traceback (most recent call last):
    apiece.errors.UserError: option 'clients' of data 'clubs' = 'many' is wrong: input should be a valid integer
    """
    signature, known = inspect.signature(make), read_options(make)

    @functools.wraps(make)
    def check(*args: Options.args, **options: Options.kwargs) -> Federation:
        given = signature.bind_partial(*args).arguments | options
        return make(**check_options(f"data '{make.__name__}'", known, given, "typed"))  # type: ignore[call-arg]

    return check
