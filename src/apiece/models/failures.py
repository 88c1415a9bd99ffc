"""Failures of calls from compiled programs to the host, kept until the program has ended and somebody can hear of them.

Raising inside the call would leave the other devices waiting for it forever.
"""

__all__ = ["raise_failures"]

_noted: list[Exception] = []


def note_failure(error: Exception) -> None:
    """Remember it for `raise_failures`."""
    _noted.append(error)


def raise_failures() -> None:
    """Raise the first failure of a host call since this was last asked; to be called when a program has ended.

    >>> raise_failures()
    """
    if _noted:
        first = _noted[0]
        _noted.clear()
        raise first
