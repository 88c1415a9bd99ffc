"""`apiece deploy node`: a site's process, as long as its run lasts. Letters come, answers go; all else it survives."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from apiece.deploy.journal import Journal
from apiece.deploy.site import Site
from apiece.engines.remote.flower import IDLE, POLL, Busy, Line, Refused, Unreachable
from apiece.experiment.claim import claim_folder
from apiece.files import sweep_parts

FINISHED, REFUSED, GAVE_UP = 0, 2, 3  # exit codes; 2 is every user's mistake
GOODBYE = 3.0  # seconds after the last letter: what a node sent is lost if it leaves before it was fetched
BUSY = 45.0  # seconds in which a key may still be held by the process that was killed


def run_node(folder: Path, journal: Journal) -> int:
    """Answer letters until the run is over; the exit code.

    A server that cannot be reached is tried again, ever less often, for `patience` seconds. One that refuses this site
    is not, but for a while in which a killed process still holds the site's key.
    """
    with claim_folder(folder, "A site is one process: stop the other one first"):
        sweep_parts(folder / "memory")
        sweep_parts(folder / "run")
        sweep_parts(folder, deep=False)
        return _run(folder, journal)


def _run(folder: Path, journal: Journal) -> int:
    site = Site(folder, journal.tell)
    config, stop = site.config, threading.Event()
    journal.tell("started", site=config.name, server=config.server, rows=len(site.rows.label))
    unreached, wait, refused_since = 0.0, 0.2, None
    with _until_told(stop):
        while not stop.is_set() and not site.finished:
            try:
                with contextlib.closing(Line(config.server, folder / config.ca, folder / config.key)) as line:
                    journal.tell("connected", server=config.server)
                    unreached, wait, refused_since = 0.0, 0.2, None
                    _answer(site, line, journal, stop)
            except Unreachable as error:
                unreached += wait
                journal.tell("unreachable", why=str(error), seconds=round(unreached, 1))
                if unreached > config.patience:
                    journal.tell("failed", why=f"the server was not there for {config.patience:g} s")
                    return GAVE_UP
            except Refused as error:
                journal.tell("turned_away", why=str(error))
                refused_since = refused_since or time.monotonic()
                wait = min(wait, 2.0)
                if not isinstance(error, Busy) or time.monotonic() - refused_since > BUSY:
                    raise
            stop.wait(wait)
            wait = min(2 * wait, 15.0)
    return FINISHED


def _answer(site: Site, line: Line, journal: Journal, stop: threading.Event) -> None:
    idle = time.monotonic()
    while not stop.is_set():
        try:
            found = line.receive()
        except Unreachable:
            if site.finished:
                return  # the server left first
            raise
        if found is None:
            if site.finished and time.monotonic() - idle > GOODBYE:
                return
            stop.wait(POLL if time.monotonic() - idle < 30 else IDLE)
            continue
        to, wire = found
        began = time.monotonic()
        said = site.answer(wire)
        took = time.monotonic() - began
        line.reply(to, said, took)
        journal.tell("answered", seconds=round(took, 3), bytes_down=len(wire), bytes_up=len(said))
        idle = time.monotonic()


@contextlib.contextmanager
def _until_told(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT end the process between two letters."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
