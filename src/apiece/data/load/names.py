"""Names of clients, classes and levels as people write them: blanks around them do not count, capitals may be slips."""

import unicodedata
from collections.abc import Mapping

import numpy as np

from apiece.data.load.cells import strip_blanks, without_blanks
from apiece.data.load.notes import SHOWN, Notes


def strip_names(names: np.ndarray, what: str, notes: Notes) -> np.ndarray:
    """Names without the blanks around them; where there were any, it is said.

    >>> notes = Notes()
    >>> strip_names(np.array(["c1", " c1 "]), "client names", notes).tolist(), notes.warnings
    (['c1', 'c1'], ["blanks around client names do not count (1 row): ' c1 ' is taken as 'c1'"])
    """
    texts = names.tolist()
    plain = {text: strip_blanks(text) for text in set(texts)}
    if all(text == bare for text, bare in plain.items()):
        return names
    stripped = np.array([plain[text] for text in texts], np.str_)
    changed = np.flatnonzero(stripped != names)
    rows = f"{len(changed)} row{'s' if len(changed) > 1 else ''}"
    shown = texts[changed[0]]
    notes.warnings.append(f"blanks around {what} do not count ({rows}): {shown!r} is taken as {plain[shown]!r}")
    return stripped


def warn_of_near_names(count: Mapping[str, int], what: str, notes: Notes) -> None:
    """Warn of names that differ in capitals or blanks only: they stay apart. `count` has the rows of each.

    >>> notes = Notes()
    >>> warn_of_near_names({"C1": 2, "c1": 40, "c2": 41}, "clients", notes)
    >>> print(notes.warnings[0])
    clients that differ in capitals or blanks only stay apart: 'C1' (2 rows) and 'c1' (40); if they are one, write \
them alike
    """
    groups: dict[str, list[str]] = {}
    for name in count:
        groups.setdefault(without_blanks(unicodedata.normalize("NFKC", name)).casefold(), []).append(name)
    near = [sorted(group) for group in groups.values() if len(group) > 1]
    if not near:
        return
    unit = " rows"
    told: list[str] = []
    for group in near[:SHOWN]:
        told.append(" and ".join(f"{name!r} ({count[name]}{unit * (i == 0 and not told)})"
                                 for i, name in enumerate(group[:SHOWN])))  # fmt: skip
    more = f", and {len(near) - SHOWN} more such groups" if len(near) > SHOWN else ""
    notes.warnings.append(f"{what} that differ in capitals or blanks only stay apart: {'; '.join(told)}{more}; "
                          "if they are one, write them alike")  # fmt: skip
