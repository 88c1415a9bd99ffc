"""`--hosts` and `--process`: this process as one of several that make a run."""

import contextlib
import glob
import hashlib
import importlib.metadata
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from apiece.errors import UserError

HostNames = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        help="Several machines: one for each process, process 0's first (a:7654,b,c); or slurm, kubernetes, env.",
    ),
]
ProcessNumber = Annotated[
    int | None, typer.Option("--process", help="With a list of --hosts: which of them this process is, from 0 on.")
]


@contextlib.contextmanager
def joined(hosts: str | None, process: int | None, text: str, folder: Path, resumed: bool) -> Iterator[Path]:
    """The folder that this process walks in: the run's own or, of all processes but the first, one beside it.

    `text`: what is to be run, which must be the same for all. Without --hosts nothing happens.
    """
    if hosts is None:
        if process is not None:
            raise UserError(f"--process {process} says which of several processes this is; give --hosts, too")
        yield folder
        _remove_left(folder, 0)
        return
    from apiece.engines.simulation.crew import join_crew, work_with
    from apiece.engines.simulation.hosts import find_hosts

    found = find_hosts(hosts, process, os.environ)
    of = hashlib.sha256(f"{importlib.metadata.version('apiece')}\n{text}".encode()).hexdigest()
    with work_with(join_crew(*found, of)) as crew:
        own = folder if not found.process else _folder_of(folder, found.process)
        crew.shared, crew.own = folder, own
        if found.process:
            shutil.rmtree(own, ignore_errors=True)
            if resumed:
                _copy_links(folder, own)
        crew.gather("begin", b"")
        try:
            yield own
        finally:
            if found.process:
                shutil.rmtree(own, ignore_errors=True)
        if not found.process:
            _remove_left(folder, found.processes)


def is_first() -> bool:
    """Whether this process is the one that shows what was found: the only one, or the first of several."""
    from apiece.engines.simulation.crew import crew_here

    crew = crew_here()
    return crew is None or not crew.process


def _folder_of(folder: Path, process: int) -> Path:
    return folder.with_name(f".{folder.name}.process-{process}")


def _remove_left(folder: Path, processes: int) -> None:
    """What killed processes of an earlier, larger number left beside the run."""
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.process-*"):
        if left.name.rpartition("-")[2].isdigit() and int(left.name.rpartition("-")[2]) >= processes:
            shutil.rmtree(left, ignore_errors=True)


def _copy_links(folder: Path, own: Path) -> None:
    """The same files once more: by links, which cost nothing, and are safe since every file is replaced as a whole."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)

    aside = shutil.ignore_patterns(".claim", "*.rows", "*.safetensors.*of*")
    shutil.copytree(folder, own, ignore=aside, copy_function=link)
