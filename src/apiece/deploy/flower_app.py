"""What Flower's own processes call: the ServerApp of a run, and the stock ClientApp, for sites that run a SuperNode."""

from pathlib import Path
from typing import Any

from apiece.deploy.config import read_server
from apiece.deploy.journal import Journal
from apiece.deploy.roster import RosterFile
from apiece.deploy.server import Server, read_run
from apiece.deploy.site import Site
from apiece.engines.devices import remember_compiled
from apiece.engines.remote.flower import FlowerPost, Message, node_key, pack, unpack
from apiece.errors import UserError
from apiece.files import sweep_parts

_SITES: dict[Path, Site] = {}


def serve(grid: Any, folder: Path) -> None:
    """The whole run of a server's folder, on the nodes of a grid."""
    remember_compiled()
    journal = Journal(folder, who="server")
    for place in ("state", "run"):
        sweep_parts(folder / place)
    config, project = read_server(folder), folder.parent
    try:
        roster = RosterFile(project / "roster.toml", node_key, journal.tell)
        spec = read_run(project / "run.toml")
        Server(folder, config, spec, roster.now, FlowerPost(grid, roster.clients), journal.tell).serve()
    except UserError as error:
        journal.tell("failed", why=str(error))
        (folder / "state").mkdir(parents=True, exist_ok=True)
        (folder / "state" / "failed").write_text(str(error), encoding="utf-8")
        raise


def answer(message: Any, folder: Path) -> Any:
    """One letter, answered by the site in a folder: a process for each, as a stock SuperNode starts them."""
    remember_compiled()
    if folder not in _SITES:
        _SITES[folder] = Site(folder, Journal(folder, who="site").tell)
    return Message(content=pack(_SITES[folder].answer(unpack(message.content))), reply_to=message)
