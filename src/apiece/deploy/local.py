"""`apiece deploy local`: a whole deployment on loopback, with TLS and keys; it leaves its folder, and no process."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from apiece.data import Federation
from apiece.deploy.config import SiteTable
from apiece.deploy.journal import SUPERVISOR, Journal, read_log
from apiece.deploy.link import QUIET, Link
from apiece.deploy.processes import Child, free_port
from apiece.deploy.project import make_project
from apiece.errors import UserError
from apiece.experiment.spec import Spec

FAST = dict(deadline=300.0, again=60.0, patience=300.0)


class LocalRun:
    """The processes of a project on this machine."""

    def __init__(self, folder: Path, log: Callable[..., None] | None = None) -> None:
        self.folder = folder
        self.journal = Journal(folder / "server", who="supervisor", quiet=True, numbers=SUPERVISOR)
        self.link = Link(folder / "server", log or self.journal.tell)
        self.nodes: dict[str, Child] = {}

    @property
    def names(self) -> list[str]:
        """The sites."""
        return sorted(path.name for path in (self.folder / "sites").iterdir())

    def start_node(self, name: str) -> Child:
        """A site's process."""
        here = self.folder / "sites" / name
        command = [sys.executable, "-m", "apiece.cli", "deploy", "node", str(here)]
        threads = {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        self.nodes[name] = Child(f"site {name}", command, here / "node.log", {**QUIET, **threads})
        return self.nodes[name]

    def finished(self) -> bool:
        """One look: whether the run is over; what died of the server is started again, and sites that failed."""
        for name, node in self.nodes.items():
            if not node.alive() and node.process.returncode not in (0, -9):
                raise UserError(f"the site '{name}' ended ({node.process.returncode}): {node.tail(3)}")
        return self.link.watch()

    def wait(self, seconds: float) -> None:
        """Until the run is over; a `UserError` after so many seconds."""
        end = time.monotonic() + seconds
        while not self.finished():
            if time.monotonic() > end:
                last = [line.get("event") for line in read_log(self.folder / "server" / "log.jsonl")[-5:]]
                raise UserError(f"the run in {self.folder} is not over after {seconds:g} s; its last events: {last}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End everything."""
        self.link.stop()
        for node in self.nodes.values():
            node.stop(5.0)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[LocalRun]:
    """All processes of a project, ended whatever happens."""
    run = LocalRun(folder)
    try:
        for name in run.names:
            run.start_node(name)
        run.link.start()
        yield run
    finally:
        run.stop()


def local_project(folder: Path, federation: Federation, spec: Spec, name: str = "local", **server: Any) -> Path:
    """A project on loopback whose sites are the clients of a federation, each with its own examples in its folder."""
    address = f"127.0.0.1:{free_port()}"
    names = [f"site-{i}" for i in range(federation.clients)]
    sites = [SiteTable(name=each, data="data", server=address) for each in names]
    how = {**FAST, **server}
    made = make_project(folder, spec, sites, name=name, address=address, host="localhost", **how)
    for i, each in enumerate(names):
        federation.take([i]).save(made / "sites" / each / "data")
    return made


def run_local(folder: Path, federation: Federation, spec: Spec, seconds: float = 600.0, **server: Any) -> LocalRun:
    """Make a project on loopback, run it to its end, and leave no process."""
    local_project(folder, federation, spec, **server)
    with running(folder) as run:
        run.wait(seconds)
        end = time.monotonic() + 20
        while any(node.alive() for node in run.nodes.values()) and time.monotonic() < end:
            time.sleep(0.1)
    return run


def seconds_per_round(folder: Path, skip: Sequence[str] = ("local",)) -> list[float]:
    """How long the rounds of a run took, but for the first of each method and those of training alone."""
    rounds = [line for line in read_log(folder / "server" / "log.jsonl") if line.get("event") == "round"]
    kept = [one for one in rounds if one["round"] > 1 and one["row"].rpartition("~")[0] not in skip]
    return [float(one["seconds"]) for one in kept]


def alive(pids: Sequence[int]) -> list[int]:
    """Which of these processes still run.

    >>> alive([os.getpid()]) == [os.getpid()]
    True
    """
    found = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            found.append(pid)
    return found
