"""A project's folder: keys that are private, certificates that fit, nothing half written. Needs the extra `flower`."""

import configparser
import os
import shutil
import ssl
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apiece.cli import app
from apiece.errors import UserError

pytest.importorskip("flwr")
import yaml

from apiece.deploy.config import SiteTable, read_server, read_site, read_sites
from apiece.deploy.journal import Journal
from apiece.deploy.keys import days_left, make_authority
from apiece.deploy.link import Link, newcomers_lack
from apiece.deploy.processes import Child
from apiece.deploy.project import add_site, deployed_spec, make_project, renew_certificate, spec_of
from apiece.deploy.roster import read_roster
from apiece.deploy.server import WELCOMED, read_run
from apiece.deploy.status import examine, server_status, site_status
from apiece.files import write_json

# What Flower and its packages deprecate is theirs.
pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]

SITES = [SiteTable(name=name, data=f"/data/{name}.csv", label="sick", server="fl.example:443") for name in ("a", "b")]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    spec = deployed_spec({"methods": {"ditto": {"lam": 0.5}}, "train": {"rounds": 7}}, "test")
    folder = tmp_path_factory.mktemp("p") / "wards"
    return make_project(folder, spec, SITES, name="wards", address="127.0.0.1:8443", host="fl.example")


def test_it_has_all_that_server_and_sites_need(project):
    config = read_site(project / "sites" / "b")
    assert (config.number, config.run, config.server) == (1, "wards", "fl.example:443")
    assert read_server(project / "server").name == "fl.example"
    assert list(read_run(project / "run.toml").rows) == ["local", "ditto"]
    roster = read_roster(project / "roster.toml")
    assert roster.names == ["a", "b"]
    assert (project / "sites" / "a" / "site.pub").read_text().strip() == roster.sites[0].keys[0]
    for name in ("compose.yaml", "server/proxy.conf", "server/apiece-server.service", "sites/a/apiece-a.service"):
        assert (project / name).stat().st_size > 100
    assert "location / { return 403; }" in (project / "server" / "proxy.conf").read_text()


def test_compose_unit_and_proxy_are_for_the_machines_where_the_folders_will_lie(tmp_path):
    (tmp_path / "a.csv").write_text("x,sick\n")
    sites = [SiteTable(name="a", data=str(tmp_path / "a.csv"), label="sick"), SiteTable(name="b", data="/there/b.csv")]
    spec, how = deployed_spec({"methods": {"ditto": {}}}, "test"), dict(address="127.0.0.1:8443", host="fl.example")
    made = make_project(tmp_path / "p", spec, sites, name="p", place=Path("/srv/apiece"), **how)
    with pytest.raises(UserError, match="give it from the root on"):
        make_project(tmp_path / "q", spec, sites, name="q", place=Path("apiece"), **how)
    assert not (tmp_path / "q").exists()
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(made / "sites" / "b" / "apiece-b.service")
    service = unit["Service"]
    assert service["ExecStart"].endswith("/apiece deploy node /srv/apiece/b")
    assert service["ReadWritePaths"] == service["WorkingDirectory"] == "/srv/apiece/b"
    assert service["RestartPreventExitStatus"] == "2" and service["Restart"] == "on-failure"
    proxy = (made / "server" / "proxy.conf").read_text()
    assert "/srv/apiece/server/server.crt" in proxy and "proxy_ssl_trusted_certificate /srv/apiece/ca.crt" in proxy
    compose = yaml.safe_load((made / "compose.yaml").read_text())["services"]
    assert set(compose) == {"server", "a", "b"}
    assert compose["server"]["command"] == "apiece deploy server /apiece/server"
    assert compose["a"]["volumes"] == ["./:/apiece", f"{tmp_path}/a.csv:{tmp_path}/a.csv:ro"]
    assert compose["b"]["volumes"] == ["./:/apiece"] and compose["b"]["build"] == "./image"
    assert [path.name for path in (made / "image").iterdir()] == ["Dockerfile"], "no key is sent to who builds it"


def test_private_keys_can_be_read_by_their_owner_alone(project):
    secret = [
        "authority/ca.key",
        "server/server.key",
        "server/superexec.secret",
        "sites/a/site.key",
        "sites/b/site.key",
    ]
    assert all(os.stat(project / name).st_mode & 0o077 == 0 for name in secret)
    assert not (project / "sites" / "a" / "ca.key").exists()


def test_the_certificate_is_the_authoritys_and_names_the_host(project):
    context = ssl.create_default_context(cafile=str(project / "ca.crt"))
    assert context.get_ca_certs()[0]["subject"][0][0][1] == "apiece wards"
    assert 390 < days_left(project / "server" / "server.crt") < 398
    from cryptography import x509

    made = x509.load_pem_x509_certificate((project / "server" / "server.crt").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example", "localhost"]


def test_the_authority_renews_the_servers_certificate(project):
    before = (project / "server" / "server.crt").read_bytes()
    made = renew_certificate(project)
    assert made.read_bytes() != before and days_left(made) > 390
    assert os.stat(project / "server" / "server.key").st_mode & 0o077 == 0


def test_a_folder_that_is_there_is_not_touched(project):
    spec = deployed_spec({"methods": {"ditto": {}}}, "test")
    with pytest.raises(UserError, match="already exists"):
        make_project(project, spec, SITES, name="wards", address="127.0.0.1:8443", host="x")


def test_a_site_that_joins_later_is_a_newcomer(project):
    folder = add_site(project, SiteTable(name="c", data="c.csv"))
    roster = read_roster(project / "roster.toml")
    assert roster.population == 2 and roster.names == ["a", "b", "c"] and read_site(folder).number == 2
    with pytest.raises(UserError, match="has a site 'c' already"):
        add_site(project, SiteTable(name="c", data="c.csv"))


def test_a_spec_of_a_comparison_is_deployed_without_what_only_it_needs(tmp_path):
    (tmp_path / "spec.toml").write_text(
        "seeds = [3, 4]\ntune = 8\n[methods.ditto]\n[methods.fed_avg]\n[train]\nrounds = 9\n"
    )
    spec = spec_of(tmp_path / "spec.toml")
    assert list(spec.rows) == ["local", "ditto"] and spec.seeds == [3] and spec.tune == 1 and spec.train.rounds == 9
    assert list(spec_of(tmp_path / "spec.toml", "scaffold").rows) == ["local", "scaffold"]
    for text, why in (("[[methods]]\n", "'methods' is a table"), ("data = 3\n[methods.ditto]\n", "'data' is a table")):
        (tmp_path / "list.toml").write_text(text)
        with pytest.raises(UserError, match=why):
            spec_of(tmp_path / "list.toml")
    (tmp_path / "world.toml").write_text("[methods.ditto]\n[train.faults]\ndropout = 0.5\n")
    with pytest.raises(UserError, match="of a simulated world"):
        spec_of(tmp_path / "world.toml")


def test_the_doctor_finds_what_is_not_well(project):
    found = {check.what: check for check in examine(project / "sites" / "a")}
    assert not found["data"].good and not found["server"].good and found["certificate"].good
    found = {check.what: check for check in examine(project)}
    assert found["control side"].good and found["roster"].good
    with pytest.raises(UserError, match="neither a site's folder"):
        examine(project / "authority")


class Told(BaseHTTPRequestHandler):
    """A server that tells another time than ours."""

    skew = 0.0

    def do_GET(self):
        self.send_response_only(403)
        self.send_header("Date", formatdate(time.time() + self.skew, usegmt=True))
        self.end_headers()

    def log_message(self, *_):
        pass


def test_the_doctor_compares_clocks_and_certificates_and_sees_plain_text(tmp_path):
    spec = deployed_spec({"methods": {"ditto": {}}}, "test")
    with ThreadingHTTPServer(("127.0.0.1", 0), Told) as listening, ThreadingHTTPServer(("127.0.0.1", 0), Told) as plain:
        address = f"127.0.0.1:{listening.server_port}"
        sites = [SiteTable(name="a", data="x.csv", server=address)]
        made = make_project(tmp_path / "p", spec, sites, name="p", address=address, host="localhost")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made / "server" / "server.crt", made / "server" / "server.key")
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        for one in (listening, plain):
            threading.Thread(target=one.serve_forever, daemon=True).start()
        here = made / "sites" / "a"
        checked = lambda: {check.what: check for check in examine(here)}
        assert checked()["server"].good and checked()["clock"].good
        # A header has whole seconds, and the machine may be busy.
        assert int(checked()["clock"].said.partition(" s apart")[0]) <= 3
        Told.skew = -300.0
        assert not checked()["clock"].good and "set both by the same time server" in checked()["clock"].said
        make_authority(tmp_path, "another")
        shutil.copy(tmp_path / "ca.crt", here / "ca.crt")
        assert not checked()["server"].good and "copy the ca.crt" in checked()["server"].said
        text = (here / "site.toml").read_text()
        (here / "site.toml").write_text(text.replace(address, f"127.0.0.1:{plain.server_port}"))
        assert not checked()["server"].good and "does not speak TLS" in checked()["server"].said
        for one in (listening, plain):
            one.shutdown()


def test_what_happens_seldom_is_in_the_numbers_at_once(tmp_path):
    journal = Journal(tmp_path, who='a "b"', quiet=True)
    for event in ("registered", "round", "round", "died"):
        journal.tell(event, seconds=1234567.5)
    text = (tmp_path / "metrics.prom").read_text()
    assert r'apiece_events_total{event="died",who="a \"b\""} 1' in text and 'event="round"' in text
    assert r'apiece_last{name="died_seconds",who="a \"b\""} 1234567.5' in text


def test_status_says_who_is_there_while_the_run_goes_on(project):
    journal = Journal(project / "server", who="server", quiet=True)
    journal.tell("present", clients=[1])
    journal.tell("round", row="ditto~0", round=1, answers=1, of=2, seconds=0.1, bytes_up=7, bytes_down=5)
    found = server_status(project)
    assert found["state"] == "running" and [site["there"] for site in found["sites"][:2]] == [False, True]
    assert (found["bytes_up"], found["bytes_down"]) == (7, 5)
    said = CliRunner().invoke(app, ["deploy", "status", str(project)]).stdout
    assert "a: trains, away" in said and "b: trains, there" in said
    journal.tell("failed", why="sites do not agree")
    assert server_status(project)["state"] == "failed" and server_status(project)["why"] == "sites do not agree"
    journal.tell("begun", run="wards")
    assert server_status(project)["state"] == "running", "it was started again"
    journal.file.unlink()


def test_what_has_not_begun_says_so(project):
    assert server_status(project)["state"] == "not begun"
    assert site_status(project / "sites" / "a")["state"] == "not begun"


def test_the_example_of_the_tutorial_is_a_list_of_sites(tmp_path):
    (tmp_path / "sites.toml").write_text('[[site]]\nname = "north"\ndata = "north.csv"\nlabel = "sick"\n')
    assert read_sites(tmp_path / "sites.toml")[0].server == "127.0.0.1:8443"


def test_a_server_whose_run_is_over_starts_again_for_newcomers_alone(project):
    state = project / "server" / "state"
    assert newcomers_lack(project / "server")
    write_json(state / WELCOMED, {"c": ["ditto~0"]})
    assert not newcomers_lack(project / "server")


def test_a_superlink_that_grows_too_large_is_ended(project, tmp_path, monkeypatch):
    told = []
    link = Link(project / "server", lambda event, **about: told.append((event, about)))
    child = link.children["superlink"] = Child("superlink", ["sleep", "60"], tmp_path / "log", {})
    try:
        link._bound_memory()
        assert child.alive() and child.memory_mb() < 100 and not told
        monkeypatch.setattr(child, "memory_mb", lambda: 5000)
        link._bound_memory()
        assert not child.alive() and told[0][0] == "too_large"
    finally:
        link.stop()


@pytest.mark.parametrize("at", ["clients", "server"])
def test_a_project_insists_on_noise_that_is_a_secret(at):
    def plan(**more):
        private = {"noise": 0.5, "delta": 0.01, "clip": 0.1, "at": at, **more}
        return {"methods": {"fed_avg": {"steps": 1}}, "train": {"rounds": 2, "private": private}}

    with pytest.raises(UserError, match="Write secret = true into") as told:
        deployed_spec(plan(), "run.toml")
    assert ("each site draws its part" in str(told.value)) == (at == "clients")
    assert deployed_spec(plan(secret=True), "run.toml").train.private.secret
