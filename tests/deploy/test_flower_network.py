"""One run over a real link: a site sends garbage, and one joins late from a network of its own, through nginx.

The network namespace needs root and nginx. Without them the newcomer joins over loopback, and only where SuperLink
listens is looked at.
"""

import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from garbage import Garbage

import apiece
from apiece.data import digits

pytest.importorskip("flwr")
import httpx
from on_loopback import LIMIT, Threads, broken_node, flat, log_of, rounds_of, served, spec_of

from apiece.deploy.config import SiteTable, read_server
from apiece.deploy.local import FAST
from apiece.deploy.processes import Child, free_port
from apiece.deploy.project import add_site, make_project
from apiece.experiment.tables import read_table

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]

CLIENTS, BROKEN, ROUNDS = 5, 1, 12
METHOD = {"fed_avg": {"steps": 20, "lr": 0.3}}
HOST, SITE = "10.213.77.1", "10.213.77.2"  # the two ends of a cable
NAME = f"apiece{os.getpid()}"


class Namespace:
    """A network of its own, joined to this machine by one cable; `prefix` runs a command in it."""

    def __init__(self, folder):
        self.folder, self.nginx, self.there = folder, None, False

    def __enter__(self):
        if os.geteuid() or not shutil.which("ip") or not shutil.which("nginx"):
            return self
        cable = f"a{os.getpid() % 100000}"
        steps = [
            f"ip netns add {NAME}",
            f"ip link add {cable}h type veth peer name {cable}s",
            f"ip link set {cable}s netns {NAME}",
            f"ip addr add {HOST}/30 dev {cable}h",
            f"ip link set {cable}h up",
            f"ip -n {NAME} addr add {SITE}/30 dev {cable}s",
            f"ip -n {NAME} link set {cable}s up",
            f"ip -n {NAME} link set lo up",
        ]
        self.there = all(subprocess.run(step.split(), capture_output=True).returncode == 0 for step in steps)
        if not self.there:
            self._remove()
        return self

    def start_proxy(self, project, port):
        """nginx with the project's own snippet, on the cable."""
        snippet = (project / "server" / "proxy.conf").read_text().replace("listen 443", f"listen {HOST}:{port}")
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in kinds)
        (self.folder / "nginx.conf").write_text(
            f"daemon off; worker_processes 1; user root; pid {self.folder}/pid; error_log {self.folder}/error.log;"
            f"events {{}} http {{ access_log {self.folder}/access.log; {places} {snippet} }}"
        )
        command = ["nginx", "-c", str(self.folder / "nginx.conf"), "-e", str(self.folder / "early.log")]
        self.nginx = Child("nginx", command, self.folder / "nginx.out", {})

    def run(self, code):
        """What a Python program prints in there."""
        command = ["ip", "netns", "exec", NAME, sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.strip()

    def __exit__(self, *_):
        if self.nginx is not None:
            self.nginx.stop()
        self._remove()

    def _remove(self):
        subprocess.run(["ip", "netns", "del", NAME], capture_output=True)  # the cable goes with it


LARGEST = 100_000  # bytes of what is recorded; all that is larger is garbage


class Tap:
    """All that the sites of this process send and get, as it is before TLS and after it."""

    def __init__(self):
        self.bodies, self.send = [], httpx.Client.send

    def __enter__(self):
        def send(client, request, **how):
            response = self.send(client, request, **how)
            self.bodies += [body for body in (request.read(), response.read()) if len(body) < LARGEST]
            return response

        httpx.Client.send = send
        return self

    def __exit__(self, *_):
        httpx.Client.send = self.send


REACH = """
import http.client, ssl, socket
def status(host, port, path, size=0):
    context = ssl.create_default_context(cafile={ca!r})
    try:
        line = http.client.HTTPSConnection(host, port, timeout=10, context=context)
        line.request("POST", path, bytes(size))
        return line.getresponse().status
    except OSError as error:
        return type(error).__name__
print(status({host!r}, {link}, "/v1/control/list-runs"), status("127.0.0.1", {link}, "/v1/control/list-runs"),
      status({host!r}, {proxy}, "/v1/control/list-runs"), status({host!r}, {proxy}, "/v1/runtime/get-nodes"),
      status({host!r}, {proxy}, "/v1/fleet/activate-node"),
      status({host!r}, {proxy}, "/v1/fleet/push-object", 9 << 20))
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    place = tmp_path_factory.mktemp("network")
    federation = digits(clients=CLIENTS, partition="iid")
    link, proxy = free_port(), free_port()
    names, found = [f"site-{i}" for i in range(CLIENTS)], {}
    sites = [SiteTable(name=name, data="data", server=f"127.0.0.1:{link}") for name in names]
    address, how = f"127.0.0.1:{link}", {**FAST, "again": 10.0, "memory_mb": 1024}
    spec = spec_of(METHOD, ROUNDS, defence={"most": 3.0})
    folder = make_project(place / "project", spec, sites, name="network", address=address, host=HOST, **how)
    for i, name in enumerate(names):
        federation.take([i]).save(folder / "sites" / name / "data")
    threads, largest = Threads(), 0
    with Tap() as tap, Namespace(place) as space, served(folder) as run:
        for i, name in enumerate(names):
            threads.start(folder / "sites" / name, broken_node(Garbage) if i == BROKEN else None)
        while not rounds_of(folder, "fed_avg~0"):
            assert not run.finished()
            time.sleep(0.1)
        if space.there:
            space.start_proxy(folder, proxy)
            time.sleep(1.0)
            found["reach"] = space.run(REACH.format(ca=str(folder / "ca.crt"), host=HOST, link=link, proxy=proxy))
        else:
            found["reach"] = None
        through = f"{HOST}:{proxy}" if space.there else address
        late = add_site(folder, SiteTable(name="late", data="data", server=through))
        federation.take([0]).save(late / "data")
        command = [sys.executable, "-m", "apiece.cli", "deploy", "node", str(late)]
        run.nodes["late"] = Child("site late", ["ip", "netns", "exec", NAME, *command] if space.there else command,
                                  late / "node.log", {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"})  # fmt: skip
        end = time.monotonic() + LIMIT
        while not run.finished():
            assert time.monotonic() < end
            largest = max([largest, *(child.memory_mb() for child in run.link.children.values())])
            time.sleep(0.1)
        threads.join()
        run.nodes["late"].process.wait(60)
        found["sent"] = b"".join(tap.bodies)
        found |= {"largest": largest, "code": run.nodes["late"].process.returncode, "ended": threads.ended}
    return folder, federation, found


def scores(run):
    """By client, the accuracy of its model on its test rows."""
    rows = read_table(run / "clients.parquet").to_pylist()
    return {row["client"]: row["test_accuracy"] for row in rows if row["method"] == "fed_avg"}


def test_training_ends_as_without_the_broken_site_and_all_is_counted(network, tmp_path):
    folder, federation, found = network
    how = dict(rounds=ROUNDS, seeds=1, tune=1, baselines=False, evaluate_every=ROUNDS)
    apiece.compare(federation, METHOD, out=tmp_path / "clean", **how)
    mine, theirs = scores(folder / "server" / "run"), scores(tmp_path / "clean")
    others = [i for i in range(CLIENTS) if i != BROKEN]
    assert np.mean([mine[f"site-{i}"] for i in others]) > np.mean([theirs[str(i)] for i in others]) - 0.02
    refused = [line for line in log_of(folder) if line["event"] == "refused"]
    said = " ".join(line["why"] for line in refused)
    for why in ("not finite", "expected float32", "no letter of apiece", "answers round", "damaged",
                "more than this letter may have"):  # fmt: skip
        assert why in said
    assert {line["client"] for line in refused} == {BROKEN}
    assert any(line["event"] == "uncounted" for line in log_of(folder)), "what is far too long is a guard's to refuse"
    assert not any(line["event"] in ("died", "too_large") for line in log_of(folder))
    assert found["largest"] < 600, "MB of SuperLink and SuperExec"
    assert all(found["ended"][f"site-{i}"] == 0 for i in others)


def test_no_private_parameter_and_no_example_is_in_the_bytes_of_the_run(network):
    folder, federation, found = network
    for i in range(CLIENTS):
        rows = np.asarray(federation.train.client(i)[0])
        for as_type in (np.uint8, np.float32, np.float64):
            assert not any(row.astype(as_type).tobytes() in found["sent"] for row in rows[:20])
        own = apiece.open(folder / "sites" / f"site-{i}" / "run").personal(f"site-{i}", method="local")
        assert not any(np.asarray(leaf).tobytes() in found["sent"] for leaf in own.values())
    shared = apiece.open(folder / "sites" / "site-0" / "run").personal("site-0", method="fed_avg")
    assert np.asarray(shared["w"]).tobytes() in found["sent"], "what is shared is found by the same search"


def test_who_joins_late_from_another_network_gets_its_models_through_the_proxy(network):
    folder, _, found = network
    assert found["code"] == 0
    for method in ("local", "fed_avg"):
        assert np.isfinite(flat(apiece.open(folder / "sites" / "late" / "run").personal("late", method=method))).all()
    onboarded = [line for line in log_of(folder) if line["event"] == "onboarded"]
    assert {line["row"] for line in onboarded} == {"local~0", "fed_avg~0"}


def test_the_control_side_is_not_reachable_from_a_sites_network(network):
    folder, _, found = network
    if found["reach"] is None:  # no namespace could be made here: SuperLink is told to listen on loopback alone
        assert read_server(folder / "server").address.startswith("127.0.0.1:")
        return
    direct, own, control, runtime, fleet, large = found["reach"].split()
    assert direct == own == "ConnectionRefusedError", "SuperLink listens on the server's loopback alone"
    assert control == runtime == "403", "the proxy lets the fleet paths through, and nothing else"
    assert fleet not in ("403", "502") and fleet.isdigit(), "those reach it, and are checked by keys"
    assert large in ("413", "BrokenPipeError", "ConnectionResetError"), "more than a piece of a letter is no letter"
