"""Real SuperLink, SuperExec and site processes on loopback, with TLS and registered keys. Needs the extra `flower`."""

import json
import os
import re
import shutil
import ssl
import statistics
import time

import numpy as np
import pytest

import apiece
from apiece.data import digits
from apiece.errors import UserError

pytest.importorskip("flwr")
from on_loopback import LIMIT, flat, log_of, models, spec_of

from apiece.deploy.journal import NUMBERS, SUPERVISOR, Journal, read_log
from apiece.deploy.keys import make_authority, make_site_key
from apiece.deploy.local import alive, local_project, running, seconds_per_round
from apiece.deploy.node import run_node
from apiece.engines.remote.flower import Line, Refused

# What Flower and its packages deprecate is theirs.
pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]

CLIENTS, ROUNDS = 4, 2
SMALL = {"steps": 2}
METHODS = {
    "fed_avg": SMALL,
    "ftfa": SMALL,
    "ditto": SMALL,
    "pfedme": {},
    "scaffold": SMALL,
    "fed_clup": {},
    "self_fl": {},
    "all_for_all": {},
    "ffgg": {"private": "b"},
    "stack": SMALL,
}


@pytest.fixture(scope="module")
def federation():
    return digits(clients=CLIENTS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, federation):
    """One run of all methods, on which the refusals are tried while it goes on."""
    folder = tmp_path_factory.mktemp("flower") / "project"
    local_project(folder, federation, spec_of(METHODS, ROUNDS))
    refusals, pids = {}, []
    with running(folder) as run:
        while not any(line["event"] == "round" for line in log_of(folder)):
            assert not run.finished()
            time.sleep(0.2)
        pids = [child.pid for child in [*run.link.children.values(), *run.nodes.values()]]
        address = run.link.config.address
        refusals = {"address": address, **_try_to_get_in(folder, address, tmp_path_factory.mktemp("strangers"))}
        run.wait(LIMIT)
        end = time.monotonic() + 30
        while any(node.alive() for node in run.nodes.values()) and time.monotonic() < end:
            time.sleep(0.1)
        codes = {name: node.process.returncode for name, node in run.nodes.items()}
    return folder, refusals, pids, codes


def _try_to_get_in(folder, address, place):
    """What a stranger, a twin, a site with another authority and one in plain text are told."""
    said = {}
    make_site_key(place / "stranger.key")
    make_authority(place, "another")
    tries = {
        "unregistered": (folder / "ca.crt", place / "stranger.key"),
        "twin": (folder / "ca.crt", folder / "sites" / "site-0" / "site.key"),
        "wrong authority": (place / "ca.crt", folder / "sites" / "site-0" / "site.key"),
    }
    for name, (ca, key) in tries.items():
        try:
            Line(address, ca, key).close()
            said[name] = "let in"
        except Refused as error:
            said[name] = str(error)
    import http.client

    host, _, port = address.rpartition(":")
    try:
        line = http.client.HTTPConnection(host, int(port), timeout=10)
        line.request("POST", "/v1/fleet/activate-node", b"")
        said["plain text"] = f"answered {line.getresponse().status}"
    except (http.client.HTTPException, OSError, ssl.SSLError) as error:
        said["plain text"] = f"refused: {type(error).__name__}"
    return said


def test_sites_have_the_models_of_the_simulation_and_of_the_remote_engine(finished, federation, tmp_path):
    folder = finished[0]
    mine = models(folder, METHODS)
    for engine in ("vectorized", "remote"):
        found = apiece.compare(federation, METHODS, rounds=ROUNDS, seeds=1, tune=1, out=tmp_path / engine,
                               baselines=False, evaluate_every=ROUNDS, engine=engine)  # fmt: skip
        for method in METHODS:
            theirs = np.stack([flat(found.personal(method, str(i))) for i in range(CLIENTS)])
            np.testing.assert_allclose(mine[method], theirs, atol=1e-5, err_msg=f"{method}, {engine}")


def test_it_ends_well_with_its_record_and_leaves_no_process(finished):
    folder, _, pids, codes = finished
    assert set(codes.values()) == {0}
    assert alive(pids) == []
    assert (folder / "server" / "run" / "report.html").stat().st_size > 10_000
    assert not [line for line in log_of(folder) if line["event"] in ("refused", "died", "failed")]
    print("median seconds a round:", statistics.median(seconds_per_round(folder)))
    numbers = {name: (folder / "server" / name).read_text() for name in (NUMBERS, SUPERVISOR)}
    rounds = sum(line["event"] == "round" for line in log_of(folder))
    assert f'apiece_events_total{{event="round",who="server"}} {rounds}\n' in numbers[NUMBERS]
    assert 'apiece_events_total{event="begun",who="supervisor"} 1\n' in numbers[SUPERVISOR]
    form = re.compile(r'# (HELP|TYPE) [a-z_]+ .+|[a-z_]+\{[a-z]+="[^"\n]*",who="[^"\n]*"\} [-+0-9.e]+')
    assert all(form.fullmatch(line) for text in numbers.values() for line in text.splitlines())


def test_strangers_twins_and_plain_text_are_refused_with_what_to_do(finished):
    said = finished[1]
    assert "its key is not registered" in said["unregistered"] and "roster.toml" in said["unregistered"]
    assert "another process runs with it" in said["twin"]
    assert "not of the authority in ca.crt" in said["wrong authority"] and "copy the ca.crt" in said["wrong authority"]
    assert said["plain text"].startswith("refused")


def test_no_private_parameter_and_no_example_is_in_the_letters(finished, federation):
    """All that the sites sent is in the logs of the link's ledger and in the memory of the server's folder."""
    folder = finished[0]
    sent = b"".join(path.read_bytes() for path in sorted((folder / "server").rglob("*")) if path.is_file())
    for i in range(CLIENTS):
        x, _ = federation.train.client(i)
        assert not any(row.tobytes() in sent for row in np.asarray(x)[:20])
        own = apiece.open(folder / "sites" / f"site-{i}" / "run").personal(f"site-{i}", method="ffgg")
        assert np.asarray(own["b"]).tobytes() not in sent and np.abs(own["b"]).max() > 0


# Kills.


@pytest.fixture(scope="module")
def killed(tmp_path_factory, federation):
    """A run in which a site dies in the middle of a round, and later all of the server's processes and another site."""
    folder = tmp_path_factory.mktemp("killed") / "project"
    local_project(folder, federation, spec_of({"scaffold": SMALL}, rounds=6), again=5.0)
    rounds = lambda: [line for line in log_of(folder) if line["event"] == "round" and line["row"] == "scaffold~0"]
    with running(folder) as run:
        while len(rounds()) < 1:
            assert not run.finished()
            time.sleep(0.05)
        run.nodes["site-1"].kill()
        run.start_node("site-1")
        while len(rounds()) < 4:
            assert not run.finished()
            time.sleep(0.05)
        for child in run.link.children.values():
            child.kill()
        run.nodes["site-2"].kill()
        memory = folder / "sites" / "site-2" / "memory" / "scaffold-0.safetensors"
        before, starts = memory.read_bytes(), _starts(folder / "sites" / "site-2")
        run.start_node("site-2")
        end = time.monotonic() + 120
        while _starts(folder / "sites" / "site-2") == starts and time.monotonic() < end:
            time.sleep(0.1)
        kept = memory.read_bytes() == before  # nobody can ask it anything yet
        run.wait(LIMIT)
    return folder, kept


def _starts(site):
    return sum(line["event"] == "started" for line in read_log(site / "log.jsonl"))


def test_after_a_killed_site_and_a_killed_server_the_numbers_are_those_of_an_undisturbed_run(
    killed, federation, tmp_path
):
    folder, kept = killed
    assert kept, "what a killed site remembers is what it remembered"
    found = apiece.compare(federation, {"scaffold": SMALL}, rounds=6, seeds=1, tune=1, out=tmp_path / "run",
                           baselines=False, evaluate_every=6)  # fmt: skip
    theirs = np.stack([flat(found.personal("scaffold", str(i))) for i in range(CLIENTS)])
    np.testing.assert_allclose(models(folder, ["scaffold"])["scaffold"], theirs, atol=1e-5)
    counted = [line["answers"] for line in log_of(folder) if line["event"] == "round" and line["row"] == "scaffold~0"]
    assert counted == [CLIENTS] * 6, "every round once, with everybody"
    assert any(line["event"] == "died" for line in log_of(folder)), "the supervisor saw it"


def test_a_site_without_its_server_gives_up_with_its_own_exit_code(tmp_path, federation):
    folder = local_project(tmp_path / "project", federation.take([0, 1]), spec_of({"fed_avg": SMALL}, ROUNDS))
    here = folder / "sites" / "site-0"
    config = (here / "site.toml").read_text()
    (here / "site.toml").write_text(config + "patience = 0.5\n")
    assert run_node(here, Journal(here, who="site-0", quiet=True)) == 3
    shutil.rmtree(here / "data")
    with pytest.raises(UserError, match="there are no data at"):
        run_node(here, Journal(here, who="site-0", quiet=True))
    events = [line["event"] for line in read_log(here / "log.jsonl")]
    assert "unreachable" in events and json.loads((here / "log.jsonl").read_text().splitlines()[0])["site"] == "site-0"
    assert os.stat(here / "site.key").st_mode & 0o077 == 0
