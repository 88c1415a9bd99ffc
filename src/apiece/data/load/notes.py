"""What is wrong with the user's data, collected: the first few problems of every kind, and how many more there are."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from apiece.data.load.read import Table

SHOWN = 3  # of many things within one problem
ALIKE = 10  # problems of one kind


@dataclass
class Notes:
    """Problems forbid loading; warnings do not.

    >>> notes = Notes()
    >>> for row in range(15): notes.problem("row", f"row {row} is short")
    >>> notes.problems[0], notes.problems[-1]
    ('row 0 is short', '5 more problems like the one before')
    """

    kinds: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def problem(self, kind: str, text: str) -> None:
        """Note a problem in one paragraph; `kind` groups those that would repeat."""
        self.kinds.setdefault(kind, []).append(" ".join(text.splitlines()))

    def cells(
        self, kind: str, table: Table, column: str, rows: np.ndarray, what: str, remedy: str, count: int | None = None
    ) -> None:
        """Note bad cells of a column: where (the first few rows, of how many), what is wrong, what to do."""
        count = len(rows) if count is None else count
        where = ("row " if len(rows) == 1 else "rows ") + ", ".join(str(table.row(int(r))) for r in rows[:SHOWN])
        many = f" (the first of {count})" if count > SHOWN else ""
        self.problem(kind, f"{table.file}, {where}{many}, column '{column}': {what}; {remedy}")

    @property
    def problems(self) -> list[str]:
        """The first few of every kind, then a line with the number of the others."""
        shown = []
        for texts in self.kinds.values():
            shown += texts[:ALIKE]
            if len(texts) > ALIKE:
                shown.append(f"{len(texts) - ALIKE} more problems like the one before")
        return shown


def leave_out(*names: str) -> str:
    """The flag that leaves columns out, as a shell takes it.

    >>> leave_out("id", "my note")
    "--exclude 'id,my note'"
    """
    return f"--exclude {shlex.quote(','.join(names))}"


def listed(names: Sequence[object] | np.ndarray) -> str:
    """A few names in quotes, and the number of the others.

    >>> listed(["a", "b", "c", "d", "e"])
    "'a', 'b', 'c' and 2 more"
    """
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(quoted(name) for name in names[:SHOWN]) + more


def quoted(value: object) -> str:
    """A value in quotes, on one line and not too long.

    >>> quoted("to be,\\nor not to be, that is the question: whether")
    "'to be, or not to be, that is the question...'"
    """
    text = " ".join(str(value).split())
    return f"'{text if len(text) <= 45 else text[:42].rstrip() + '...'}'"
