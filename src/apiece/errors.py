"""Errors that are the user's to mend: one paragraph that names the culprit and the remedy, never a traceback."""

import difflib
from collections.abc import Iterable

__all__ = ["UserError", "suggest"]


class UserError(Exception):
    """A mistake in data, options or files. The command line prints its text and exits with code 2.

    >>> str(UserError("client 'a7' has no examples; drop it or give it some"))
    "client 'a7' has no examples; drop it or give it some"
    """


def suggest(word: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: the nearest known one, or all of them.

    >>> suggest("fedavg", ["fed_avg", "ditto"])
    "did you mean 'fed_avg'?"
    >>> suggest("zzz", ["fed_avg", "ditto"])
    'known: ditto, fed_avg'
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else "known: " + ", ".join(names)
