"""Child processes that never outlive us: each in a group of its own, ended together, its output in a file."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from apiece.errors import UserError


class Child:
    """A process and all that it starts."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name, self.command, self.log = name, list(command), log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def memory_mb(self) -> int:
        """MB that it holds, without what it started; 0 where the system does not tell."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE") >> 20
        return 0

    def kill(self) -> None:
        """End it and its children at once, as a power cut would."""
        self._signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self, seconds: float = 10.0) -> None:
        """Ask it to end; after so many seconds, end it."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self._signal(signal.SIGKILL)  # also what is left of its group
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)

    def tail(self, lines: int = 5) -> str:
        """The last lines that it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def free_port() -> int:
    """A port on loopback that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for_port(address: str, child: Child, seconds: float = 60.0) -> None:
    """Wait until somebody listens there; a `UserError` if the child ends first, or the time is over."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not child.alive():
            raise UserError(f"{child.name} ended at once ({child.process.returncode}): {child.tail()}")
        with contextlib.suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), 1.0):
            return
        time.sleep(0.1)
    raise UserError(f"{child.name} does not listen at {address} after {seconds:g} s: {child.tail()}")
