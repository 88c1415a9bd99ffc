"""Several processes that make one run: bytes from each to all, through the first of them, a deadline on every wait.

Every process walks the same walk; where one needs what the others found, all of them call `gather`. It says what is
gathered, so that processes which are not at the same step are told apart instead of mixing their numbers. A process
that is gone is seen at once, by its closed connection, or by the deadline: `LostProcess` everywhere.
"""

import contextlib
import errno
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from apiece.errors import UserError

WAIT = 600.0  # seconds for a process to come to the same step: compiling and slow machines included
HELLO = 4096  # bytes, at most, of what a process says of itself


class LostProcess(UserError):
    """A process of the run is gone, or far behind."""

    def __init__(self, who: str, why: str) -> None:
        super().__init__(f"{who} {why}; this process cannot go on alone. What the last checkpoint holds is kept: go on "
                         "from it with 'apiece resume', with as many processes or fewer")  # fmt: skip


class Crew:
    """This process among `count`; `links` are connections: of the first one to all others, of these to the first.

    >>> Crew(0, 1, []).gather("alone", b"me")
    [b'me']
    """

    def __init__(self, process: int, count: int, links: list[socket.socket], wait: float = WAIT) -> None:
        self.process, self.count, self.links, self.wait = process, count, links, wait
        self.shared: Path | None = None  # the run's folder, which all see
        self.own: Path | None = None  # the folder that this process walks in

    def gather(self, what: str, mine: bytes) -> list[bytes]:
        """What each process has to say, in their order."""
        label = what.encode()
        if self.count == 1:
            return [mine]
        if self.process:
            link, name = self.links[0], "process 0"
            self._send(link, name, label, mine)
            said = [self._receive(link, name, label) for _ in range(self.count)]
            return said
        said = [mine]
        for k, link in enumerate(self.links, 1):
            said.append(self._receive(link, f"process {k}", label))
        for k, link in enumerate(self.links, 1):
            for part in said:
                self._send(link, f"process {k}", label, part)
        return said

    def agree(self, what: str, wish: bool) -> bool:
        """What process 0 wishes."""
        return self.gather(what, b"1" if wish else b"0")[0] == b"1"

    def place_of(self, path: Path) -> Path:
        """Where a file of this process's own folder lies in the folder that all share."""
        if self.shared is None or self.own is None or not path.resolve().is_relative_to(self.own.resolve()):
            return path
        return self.shared / path.resolve().relative_to(self.own.resolve())

    def close(self) -> None:
        """Leave; the others see it."""
        for link in self.links:
            link.close()

    def _send(self, link: socket.socket, name: str, label: bytes, data: bytes) -> None:
        try:
            link.settimeout(self.wait)
            link.sendall(len(label).to_bytes(4, "little") + len(data).to_bytes(8, "little") + label)
            link.sendall(data)
        except OSError as error:
            raise self._lost(name, error) from None

    def _receive(self, link: socket.socket, name: str, label: bytes) -> bytes:
        until = time.monotonic() + self.wait
        try:
            head = _read(link, 12, until)
            said = _read(link, int.from_bytes(head[:4], "little"), until)
            if said != label:
                self.close()
                raise UserError(f"{name} is at '{said.decode(errors='replace')}' where this process is at "
                                f"'{label.decode()}': they do not run the same spec, data or version")  # fmt: skip
            return _read(link, int.from_bytes(head[4:], "little"), until)
        except OSError as error:
            raise self._lost(name, error) from None

    def _lost(self, name: str, error: OSError) -> LostProcess:
        late = isinstance(error, TimeoutError)
        self.close()
        return LostProcess(name, f"did not come within {self.wait:.0f} s" if late else "is gone")


def join_crew(coordinator: str, processes: int, process: int, of: str, wait: float = WAIT) -> Crew:
    """Become process `process` of `processes`, which meet at "host:port" of process 0.

    `of`: what they are to do, in a word that must be the same for all. `wait`: seconds for all of them to come.

    >>> try: join_crew("127.0.0.1", 2, 0, "")
    ... except UserError as error: print(error)
    the coordinator is 'host:port' of process 0, not '127.0.0.1'
    """
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(f"the coordinator is 'host:port' of process 0, not '{coordinator}'")
    if not 0 <= process < processes:
        raise UserError(f"process {process} of {processes}: processes are numbered from 0 to {processes - 1}")
    until = time.monotonic() + wait
    links = _call(host, int(port), processes, process, of, until) if process else []
    links = links or _welcome(host, int(port), processes, of, until)
    return Crew(process, processes, links)


def _call(host: str, port: int, processes: int, process: int, of: str, until: float) -> list[socket.socket]:
    """The connection of a process to the first."""
    hello = json.dumps({"process": process, "processes": processes, "of": of}).encode()
    while True:
        try:
            link = socket.create_connection((host, port), timeout=max(0.1, min(5.0, until - time.monotonic())))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.sendall(len(hello).to_bytes(4, "little") + hello)
            answer = _read(link, int.from_bytes(_read(link, 4, until), "little"), until).decode()
        except OSError:
            if time.monotonic() > until:
                raise UserError(f"process {process} found no process 0 at {host}:{port} in time; start it there, and "
                                "see that the port can be reached") from None  # fmt: skip
            time.sleep(0.1)
            continue
        if answer:
            link.close()
            raise UserError(f"process 0 at {host}:{port} refused process {process}: {answer}")
        return [link]


def _welcome(host: str, port: int, processes: int, of: str, until: float) -> list[socket.socket]:
    """The connections of the first process to all others, in their order."""
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        if error.errno not in (errno.EADDRNOTAVAIL, None) and not isinstance(error, socket.gaierror):
            raise UserError(f"process 0 cannot listen at {host}:{port} ({error}); choose another port") from None
        listening = socket.create_server(("", port))  # known to others by this name, as a service of a cluster is
    links: dict[int, socket.socket] = {}
    with listening:
        while len(links) < processes - 1:
            listening.settimeout(max(0.01, until - time.monotonic()))
            try:
                link, _ = listening.accept()
            except TimeoutError:
                missing = [k for k in range(1, processes) if k not in links]
                for other in links.values():
                    other.close()
                raise UserError(f"process(es) {', '.join(map(str, missing))} of {processes} did not come to "
                                f"{host}:{port} in time; start them, and see that they reach it") from None  # fmt: skip
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                size = int.from_bytes(_read(link, 4, time.monotonic() + 10), "little")
                said = json.loads(_read(link, min(size, HELLO), time.monotonic() + 10))
                wrong = _refusal(said, processes, of, links)
                answer = wrong.encode()
                link.sendall(len(answer).to_bytes(4, "little") + answer)
            except (OSError, ValueError, TypeError, KeyError):  # not one of ours
                link.close()
                continue
            if wrong:
                link.close()
            else:
                links[said["process"]] = link
    return [links[k] for k in range(1, processes)]


def _refusal(said: dict[str, Any], processes: int, of: str, links: dict[int, Any]) -> str:
    """Why a process cannot come along; "" if it can.

    >>> _refusal({"process": 1, "processes": 3, "of": "a"}, 2, "a", {})
    'it is one of 3 processes, and these are 2'
    """
    if said["processes"] != processes:
        return f"it is one of {said['processes']} processes, and these are {processes}"
    if said["of"] != of:
        return "it runs another spec, or another version of apiece"
    if said["process"] in links or said["process"] not in range(1, processes):
        return f"there is a process {said['process']} already; each has a number of its own"
    return ""


def _read(link: socket.socket, count: int, until: float) -> bytes:
    found = bytearray(count)
    view = memoryview(found)
    while len(view):
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        link.settimeout(left)
        some = link.recv_into(view)
        if not some:
            raise ConnectionError("closed")
        view = view[some:]
    return bytes(found)


def pack_arrays(arrays: list[np.ndarray]) -> bytes:
    """Arrays as bytes.

    >>> unpack_arrays(pack_arrays([np.arange(3), np.ones((0, 2))]))[0].tolist()
    [0, 1, 2]
    """
    return safetensors.numpy.save({f"{k:06}": np.ascontiguousarray(array) for k, array in enumerate(arrays)})


def unpack_arrays(data: bytes) -> list[np.ndarray]:
    """What `pack_arrays` made bytes of."""
    found = safetensors.numpy.load(data)
    return [found[name] for name in sorted(found)]


_CREWS: list[Crew] = []


def crew_here() -> Crew | None:
    """The crew that this process belongs to now, if any."""
    return _CREWS[-1] if _CREWS else None


@contextlib.contextmanager
def work_with(crew: Crew) -> Iterator[Crew]:
    """All engines made in here divide their clients over the processes of a crew.

    >>> with work_with(Crew(0, 1, [])) as crew:
    ...     crew_here() is crew
    True
    """
    _CREWS.append(crew)
    try:
        yield crew
    finally:
        _CREWS.remove(crew)
        crew.close()
