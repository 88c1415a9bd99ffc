"""live.json: how far a run is and what was seen of it, written while it goes; `apiece watch` reads it."""

import contextlib
import time
from pathlib import Path
from typing import Any

from apiece.errors import UserError
from apiece.experiment.folder import RunFolder
from apiece.files import read_json, write_json

EVERY = 1.0  # seconds, at least, between two writings
MOST = 200  # looks of a run that are kept: a terminal has no room for more
SHOWN = ("round", "validation_loss", "validation_error", "visits", "refused", "seconds")


class Live:
    """Keeps live.json of a run folder up to date, and begins with what an interrupted run left there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     live = Live(Path(place))
    ...     live.progressed("ditto: seed 0", 10, 100)
    ...     live.seen("ditto", 0, {"round": 10, "validation_loss": 0.5})
    ...     live.close()
    ...     read_json(RunFolder(Path(place)).live)["runs"]
    [{'row': 'ditto', 'seed': 0, 'looks': [{'round': 10, 'validation_loss': 0.5}]}]
    """

    def __init__(self, folder: Path) -> None:
        self.path = RunFolder(folder).live
        self.runs: dict[tuple[str, int], list[dict[str, float]]] = {}
        if self.path.exists():
            self.runs = {(one["row"], one["seed"]): one["looks"] for one in read_json(self.path)["runs"]}
        self.now: dict[str, Any] = {"what": "starting", "done": 0, "total": 0}
        self.began, self.written = time.time(), 0.0
        self.first: int | None = None

    def progressed(self, what: str, done: int, total: int) -> None:
        """How far it is."""
        if self.first is None:
            self.first = done  # what an interrupted run had done before tells nothing of the pace
        changed = what != self.now["what"]
        self.now = {"what": what, "done": done, "total": total}
        self._write(at_once=changed)

    def seen(self, row: str, seed: int, numbers: dict[str, float]) -> None:
        """What was seen of a run; one that went back to its checkpoint is seen again from there."""
        before = [one for one in self.runs.get((row, seed), []) if one["round"] < numbers["round"]]
        shown = {key: numbers[key] for key in SHOWN if key in numbers}
        self.runs[row, seed] = [*(before if len(before) < MOST else before[::2]), shown]
        self._write()

    def close(self) -> None:
        """The last word, if the run does not end well; a full disk has been told of by then."""
        with contextlib.suppress(UserError):
            self._write(at_once=True)

    def _write(self, at_once: bool = False) -> None:
        now = time.time()
        if not at_once and now - self.written < EVERY:
            return
        self.written = now
        runs = [{"row": row, "seed": seed, "looks": looks} for (row, seed), looks in self.runs.items()]
        told = {"format": 1, "began": self.began, "first": self.first or 0, "at": now, **self.now, "runs": runs}
        write_json(self.path, told, indent=None)  # written every second, and read by nobody but a program
