"""One process at a time writes into a run folder; its claim ends with it, however it ends."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from apiece.errors import UserError
from apiece.files import make_folder

CLAIM = ".claim"  # the file that is locked; gone when the run is done, and nobody's when its process was killed


@contextlib.contextmanager
def claim_new_folder(folder: Path) -> Iterator[None]:
    """A new folder for a run, claimed; one that holds anything is never used.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, claim_new_folder(Path(place, "run")):
    ...     sorted(path.name for path in Path(place, "run").iterdir())
    ['.claim']
    """
    make_folder(folder, besides=CLAIM)
    with claim_folder(folder):
        make_folder(folder, besides=CLAIM)  # another process may have come first, and be done
        yield


@contextlib.contextmanager
def claim_folder(folder: Path, remedy: str = "Wait until it is done, or give another --out") -> Iterator[None]:
    """The folder for this process alone; a `UserError` if another one is at work in it, which says what to do."""
    path = folder / CLAIM
    file = _open_claimed(path, remedy)
    try:
        with contextlib.suppress(OSError):  # a full disk: others are not told who it is
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield
    finally:
        if os.name != "nt":  # under the lock, so that nobody else's file is removed; Windows removes no open file
            path.unlink(missing_ok=True)
        file.close()
        if os.name == "nt":
            with contextlib.suppress(OSError):
                path.unlink()


def is_claimed(folder: Path) -> bool:
    """Whether a process is at work in a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with claim_folder(Path(place)):
    ...         during = is_claimed(Path(place))
    ...     during, is_claimed(Path(place))
    (True, False)
    """
    try:
        with (folder / CLAIM).open("rb+", buffering=0) as file:
            return not lock_file(file)
    except OSError:
        return False


def _open_claimed(path: Path, remedy: str) -> IO[bytes]:
    while True:
        try:
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise UserError(f"'{path.parent}' cannot be written: {error.strerror or error}") from None
        if not lock_file(file):
            file.seek(0)
            who = file.read(20).decode("ascii", "replace").strip()
            file.close()
            which = f" ({who})" if who else ""
            raise UserError(f"another process{which} is at work in '{path.parent}'; nothing was written. {remedy}")
        # Who had it before may have removed the file between our opening and our locking it: then nobody else sees it.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def lock_file(file: IO[bytes]) -> bool:
    """Whether the file is ours now, until it is closed or this process ends; also where a system has no locks."""
    try:
        import fcntl
    except ImportError:
        return _lock_on_windows(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a disk of the network that knows no locks
        return True
    return True


def _lock_on_windows(file: IO[bytes]) -> bool:
    try:
        import msvcrt
    except ImportError:
        return True
    file.seek(1 << 30)  # a byte that is not there: others may read what is
    try:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True
