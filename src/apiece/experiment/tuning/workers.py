"""Who works at a tuning: each process holds a locked file of its own, which ends with it, however it ends."""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from apiece.errors import UserError
from apiece.experiment.claim import lock_file

PATIENCE = 120.0  # seconds; a turn takes milliseconds, or as long as a database is slow


class Worker:
    """This process among those that share a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     mine = Worker(Path(place))
    ...     there = mine.is_at_work(mine.name), mine.is_at_work("long-gone")
    ...     mine.leave()
    >>> there
    (True, False)
    """

    def __init__(self, folder: Path) -> None:
        self.name, self._folder = f"{os.getpid()}-{secrets.token_hex(3)}", folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self._path(self.name).open("a+b", buffering=0)
        lock_file(self._file)

    def is_at_work(self, name: str) -> bool:
        """Whether a process is still there; what is left of one that is not is removed."""
        if name == self.name:
            return True
        with contextlib.suppress(FileNotFoundError), self._path(name).open("r+b", buffering=0) as file:
            if not lock_file(file):
                return True
            self._path(name).unlink(missing_ok=True)
        return False

    def leave(self) -> None:
        """The work is done."""
        self._path(self.name).unlink(missing_ok=True)
        self._file.close()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One process at a time: what it reads here is still so when it writes."""
        until = time.monotonic() + PATIENCE
        with (self._folder / "turn").open("a+b", buffering=0) as file:
            while not lock_file(file):
                if time.monotonic() > until:
                    raise UserError(f"another process holds {file.name} for more than {PATIENCE:.0f} s; end it, and "
                                    "join again")  # fmt: skip
                time.sleep(0.01)
            yield

    def _path(self, name: str) -> Path:
        return self._folder / f"worker-{name}"
