"""What a process says of itself: a line of JSON for each event, and a file of numbers that Prometheus reads."""

import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apiece.files import as_plain, replace_file

Tell = Callable[..., None]  # called with an event and what there is to say of it
NUMBERS, SUPERVISOR = "metrics.prom", "supervisor.prom"  # a file for each process: one would overwrite the other's
OFTEN = ("round", "answered")  # after which the numbers are written once a second at most
KEEP = 50_000_000  # bytes of a log; then it becomes log.jsonl.1, and the one before that goes


class Journal:
    """A log of JSON lines and counts of its events.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     journal = Journal(Path(place), who="north", quiet=True)
    ...     journal.tell("refused", client=3, why="an old letter")
    ...     line = json.loads((Path(place) / "log.jsonl").read_text())
    ...     line["event"], line["why"], 'apiece_events_total{event="refused",who="north"} 1' in journal.metrics()
    ('refused', 'an old letter', True)
    """

    def __init__(self, folder: Path, who: str, quiet: bool = False, numbers: str = NUMBERS) -> None:
        self.folder, self.who, self.quiet, self.numbers = folder, who, quiet, numbers
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._written = -1e9

    @property
    def file(self) -> Path:
        """The log."""
        return self.folder / "log.jsonl"

    def tell(self, event: str, **about: Any) -> None:
        """Write an event down; what is odd also on stderr."""
        self.counts[event] += 1
        numbers = {key: value for key, value in about.items() if isinstance(value, int | float)}
        self.gauges |= {f"{event}_{key}": float(value) for key, value in numbers.items()}
        line = json.dumps(as_plain({"time": _now(), "who": self.who, "event": event, **about}))
        with contextlib.suppress(OSError):  # a full disk does not end a run: its own files do
            self._turn()
            with self.file.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)
        if event not in OFTEN or time.monotonic() - self._written > 1.0:
            self._written = time.monotonic()
            with contextlib.suppress(OSError), replace_file(self.folder / self.numbers) as temporary:
                temporary.write_text(self.metrics(), encoding="utf-8")

    def metrics(self) -> str:
        """The counts in Prometheus' text format."""
        who = self.who.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        lines = ["# HELP apiece_events_total What happened, by event.", "# TYPE apiece_events_total counter"]
        for event, count in sorted(self.counts.items()):
            lines.append(f'apiece_events_total{{event="{event}",who="{who}"}} {count}')
        lines += ["# HELP apiece_last Numbers of the last event of a kind.", "# TYPE apiece_last gauge"]
        lines += [f'apiece_last{{name="{name}",who="{who}"}} {value:.12g}' for name, value in self.gauges.items()]
        return "\n".join(lines) + "\n"

    def _turn(self) -> None:
        if self.file.exists() and self.file.stat().st_size > KEEP:
            os.replace(self.file, self.file.with_suffix(".jsonl.1"))


def read_log(file: Path, last: int = 100_000) -> list[dict[str, Any]]:
    """The events of a log, the last so many; a line that is half written is left out."""
    found: list[dict[str, Any]] = []
    if not file.exists():
        return found
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[-last:]:
        with contextlib.suppress(ValueError):
            one = json.loads(line)
            if isinstance(one, dict):
                found.append(one)
    return found


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
