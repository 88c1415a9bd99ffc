"""The server's processes: SuperLink, SuperExec and, through them, the run; watched, and started again when one dies.

SuperLink's state may be lost: keys are registered again, and a new Flower run begins, which goes on from apiece's own
disk.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

from apiece.deploy.config import ServerConfig, read_server
from apiece.deploy.journal import Tell
from apiece.deploy.processes import Child, wait_for_port
from apiece.deploy.roster import read_roster
from apiece.deploy.server import WELCOMED
from apiece.engines.remote.flower import begin_run, control, register, run_status
from apiece.errors import UserError
from apiece.files import read_json, sweep_parts

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
TRIES = 20  # times that a server starts its processes again before it gives up
LOOK = 0.5


class Link:
    """SuperLink and SuperExec of a server's folder."""

    def __init__(self, folder: Path, tell: Tell) -> None:
        self.folder, self.tell = folder, tell
        self.config: ServerConfig = read_server(folder)
        self.ca = folder.parent / "ca.crt"
        self.children: dict[str, Child] = {}
        self.run: int | None = None
        self._looked, self.restarts = 0.0, 0

    def start(self) -> None:
        """Start both, let the roster's keys in, and begin the run."""
        program = Path(sys.executable).parent
        host, _, port = self.config.address.rpartition(":")
        secret = ["--superexec-auth-secret-file", str(self.folder / "superexec.secret")]
        tls = ["--ssl-ca-certfile", self.ca, "--ssl-certfile", self.folder / "server.crt",
               "--ssl-keyfile", self.folder / "server.key"]  # fmt: skip
        database = ["--database", self.folder / "superlink.db"] if self.config.database else []
        link = [program / "flower-superlink", *tls, "--enable-supernode-auth", "--isolation", "process",
                "--disable-runtime-dependency-installation", "--host", host.strip("[]"), "--port", port,
                *secret, *database]  # fmt: skip
        self.children["superlink"] = self._child("superlink", link)
        wait_for_port(self.config.address, self.children["superlink"])
        self._register()
        execute = [program / "flower-superexec", "--runtime-api-address", self.config.address, "--root-certificates",
                   self.ca, *secret]  # fmt: skip
        self.children["superexec"] = self._child("superexec", execute)
        self._begin()

    def _register(self) -> None:
        self._roster = _stamp(self.folder.parent / "roster.toml")
        roster = read_roster(self.folder.parent / "roster.toml")
        with control(self.config.address, self.ca) as client:
            for key, i in roster.keys().items():
                if register(client, key.encode(), roster.names[i]):
                    self.tell("registered", site=roster.names[i])

    def _begin(self) -> None:
        with control(self.config.address, self.ca) as client:
            # The folder may have been moved, or copied to another machine, since it was made.
            self.run = begin_run(client, self.folder / "app", {"folder": str(self.folder.resolve())})
        self.tell("begun", run=self.config.run, flower_run=str(self.run))

    def watch(self) -> bool:
        """One look: whether the run is over. What died is started again."""
        if (self.folder / "state" / "finished").exists():
            return True
        self._bound_memory()
        dead = [name for name, child in self.children.items() if not child.alive()]
        if dead:
            said = self.children[dead[0]].tail(2)
            self.tell("died", processes=dead, said=said)
            self.stop()
            self.restarts += 1
            if self.restarts > TRIES:
                raise UserError(f"{dead[0]} died {self.restarts} times; the last time it said: {said}")
            self.start()
        elif time.monotonic() - self._looked > 2.0:
            self._looked = time.monotonic()
            self._look_at_run()
            self._look_at_roster()
        return False

    def _bound_memory(self) -> None:
        """SuperLink keeps whatever registered sites send it, however much: when it grows too large, it ends here."""
        child = self.children.get("superlink")
        if child is not None and child.memory_mb() > self.config.memory_mb:
            self.tell("too_large", process="superlink", megabytes=child.memory_mb(), most=self.config.memory_mb)
            child.kill()

    def _look_at_roster(self) -> None:
        """Sites that were added meanwhile, and new keys, are let in."""
        if _stamp(self.folder.parent / "roster.toml") != self._roster:
            try:
                self._register()
            except UserError as error:  # half edited: it is looked at again when it changes
                self.tell("roster_refused", why=str(error))
            except Exception as error:  # SuperLink did not answer: at the next look again
                self._roster = -1
                self.tell("retry", why=f"{type(error).__name__}: {error}")

    def _look_at_run(self) -> None:
        failed = self.folder / "state" / "failed"
        with contextlib.suppress(Exception), control(self.config.address, self.ca) as client:
            status, how = run_status(client, self.run or 0)
            if status == "finished" and not (self.folder / "state" / "finished").exists():
                if failed.exists():
                    why = failed.read_text(encoding="utf-8")
                    failed.unlink()
                    raise _Failed(why)
                self.tell("died", processes=["serverapp"], how=how)
                self._begin()

    def stop(self) -> None:
        """End both, and what they started."""
        for child in reversed(list(self.children.values())):
            child.stop()
        self.children = {}

    def _child(self, name: str, command: list) -> Child:
        home = self.folder / "flower"
        home.mkdir(parents=True, exist_ok=True)
        path = os.pathsep.join(
            [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        )  # of SuperExec's programs
        environment = {**QUIET, "FLWR_HOME": str(home), "PYTHONUNBUFFERED": "1", "PATH": path}
        return Child(name, [str(word) for word in command], self.folder / f"{name}.log", environment)


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


class _Failed(BaseException):
    """The run ended with a user's mistake: it is not tried again."""


def newcomers_lack(folder: Path) -> bool:
    """Whether sites stand in the roster, behind those that train, to whom no model was given."""
    roster, file = read_roster(folder.parent / "roster.toml"), folder / "state" / WELCOMED
    known = read_json(file) if file.exists() else {}
    return any(name not in known for name in roster.names[roster.population :])


def run_server(folder: Path, tell: Tell) -> None:
    """`apiece deploy server`: until the run is over; nothing that was started is left."""
    link, left = Link(folder, tell), TRIES
    sweep_parts(folder, deep=False)
    (folder / "state" / "failed").unlink(missing_ok=True)
    if newcomers_lack(folder):
        (folder / "state" / "finished").unlink(missing_ok=True)  # the run is over, but for them
    try:
        while True:
            try:
                if not link.children:
                    link.start()
                if link.watch():
                    return
                time.sleep(LOOK)
            except _Failed as error:
                raise UserError(str(error)) from None
            except UserError as error:
                left -= 1
                tell("retry", why=str(error), left=left)
                link.stop()
                if left <= 0:
                    raise
                time.sleep(min(2.0 * (TRIES - left), 30.0))
    finally:
        link.stop()
