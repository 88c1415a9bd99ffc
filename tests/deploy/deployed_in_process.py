"""A whole deployed run in this process: sites in their folders, the server in its own, a post between them."""

import json
from pathlib import Path

from apiece.deploy.config import ServerConfig
from apiece.deploy.roster import Entry, Roster
from apiece.deploy.server import Server
from apiece.deploy.site import Site
from apiece.engines.remote.post import InProcess
from apiece.experiment.spec import make_spec
from apiece.files import write_toml

FAST = dict(deadline=60.0, again=0.001, patience=5.0, welcome=0.0)


def write_site(folder: Path, number: int, name: str, **table):
    write_toml(folder / "site.toml", {"run": "test", "number": number, "name": name, **table})
    return folder


class Deployed:
    def __init__(self, folder, sites, spec, post=InProcess, **config):
        """`sites`: name -> the table of its site.toml."""
        self.folder, self.log = folder, []
        self.names, self.population = list(sites), len(sites)
        for number, (name, table) in enumerate(sites.items()):
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_site(folder / name, number, name, **table)
        self.spec = make_spec({"tune": 1, "seeds": [0], "baselines": False, **spec})
        self.config = ServerConfig(run="test", **{**FAST, **config})
        self._sites, self.recorded = {}, []
        self.post = post({i: (lambda wire, i=i: self.recorded_answer(i, wire)) for i in range(len(sites))})

    def tell(self, event, **about):
        self.log.append(json.loads(json.dumps({"event": event, **about}, default=str)))

    def site(self, i):
        if i not in self._sites:
            self._sites[i] = Site(self.folder / self.names[i], self.tell)
        return self._sites[i]

    def recorded_answer(self, i, wire):
        """What site i answers; all bytes in both directions are kept."""
        answer = self.site(i).answer(wire)
        self.recorded += [wire, answer]
        return answer

    def restart(self, i):
        """As if the site's process had been killed: what it knows is on its disk."""
        self._sites.pop(i, None)

    def roster(self):
        """All sites, of which those of the beginning train."""
        return Roster(tuple(Entry(name, (f"key {name}",)) for name in self.names), self.population)

    def add(self, name, **table):
        """A site that joins now."""
        i = len(self.names)
        (self.folder / name).mkdir(parents=True)
        write_site(self.folder / name, i, name, **table)
        self.names.append(name)
        self.post.answer[i] = lambda wire: self.recorded_answer(i, wire)

    def server(self):
        return Server(self.folder / "server", self.config, self.spec, self.roster, self.post, self.tell)

    def run(self):
        return self.server().serve()
