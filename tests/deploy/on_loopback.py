"""What tests of real processes on loopback share: specs, models and logs of a project; sites as threads of the test."""

import contextlib
import threading
import time

import jax
import numpy as np

import apiece
from apiece.deploy.config import read_site
from apiece.deploy.journal import Journal, read_log
from apiece.deploy.local import LocalRun
from apiece.deploy.node import run_node
from apiece.deploy.project import deployed_spec
from apiece.deploy.site import Site
from apiece.engines.remote.flower import Busy, Line, Unreachable

LIMIT = 900.0  # seconds for a run on a machine that others use, too


def spec_of(methods, rounds, **train):
    return deployed_spec({"methods": methods, "train": {"rounds": rounds, "evaluate_every": rounds, **train}}, "test")


def flat(model):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


def models(folder, methods):
    """Every site's model of each method, from its own disk."""
    found = {}
    for method in methods:
        sites = sorted((folder / "sites").iterdir())
        found[method] = np.stack([flat(apiece.open(s / "run").personal(s.name, method=method)) for s in sites])
    return found


def log_of(folder):
    return read_log(folder / "server" / "log.jsonl")


def rounds_of(folder, row):
    return [line for line in log_of(folder) if line["event"] == "round" and line["row"] == row]


class Threads:
    """Sites that are threads of this process: as real on the wire as processes, and there at once."""

    def __init__(self):
        self.threads, self.ended = [], {}

    def start(self, folder, work=None):
        """A site's node, or what `work` makes of its folder."""
        work = work or (lambda here: run_node(here, Journal(here, who=here.name, quiet=True)))

        def run():
            try:
                self.ended[folder.name] = work(folder)
            except Exception as error:
                self.ended[folder.name] = error

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def join(self, seconds=60.0):
        for thread in self.threads:
            thread.join(seconds)


def broken_node(spoil, seconds=LIMIT):
    """A site whose answers go through `spoil` before they are sent."""

    def work(folder):
        config, site, end = read_site(folder), Site(folder), time.monotonic() + seconds
        answer = spoil(site.answer)
        while not site.finished and time.monotonic() < end:
            with (
                contextlib.suppress(Unreachable, Busy),  # on a machine that others use a line breaks now and then
                contextlib.closing(Line(config.server, folder / config.ca, folder / config.key)) as line,
            ):
                while not site.finished and time.monotonic() < end:
                    if (found := line.receive()) is None:
                        time.sleep(0.1)
                    else:
                        line.reply(found[0], answer(found[1]), 0.1)
                time.sleep(3.0)
            time.sleep(0.5)
        return 0

    return work


@contextlib.contextmanager
def served(folder):
    """The server's processes alone, ended whatever happens; sites are the test's."""
    run = LocalRun(folder)
    try:
        run.link.start()
        yield run
    finally:
        run.stop()
