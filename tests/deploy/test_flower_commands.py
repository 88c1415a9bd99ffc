"""`apiece deploy` and `apiece site` as they are typed: what they print, what they leave, and their exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from apiece.cli import app

pytest.importorskip("flwr")
from apiece.deploy import link
from apiece.deploy.config import read_site
from apiece.deploy.journal import read_log

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]


def called(*words, code=0):
    """What a command prints in this process; its exit code is as expected."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.stdout, result.stderr)
    assert "Traceback" not in result.stderr
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """What `apiece deploy local` prints, and its folder; it was moved since."""
    place = tmp_path_factory.mktemp("local")
    command = [sys.executable, "-m", "apiece.cli", "deploy", "local", "--clients", "2", "--rounds", "2", "--json",
               "--method", "ditto", "--out", str(place / "made")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    left = [path.name for path in Path("/proc").glob("[0-9]*/cmdline") if str(place) in _text(path)]
    moved = (place / "made").rename(place / "moved")
    return json.loads(done.stdout), left, moved


def _text(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # it is gone


def test_a_whole_deployment_on_loopback_tells_its_numbers_and_leaves_no_process(local):
    told, left, _ = local
    assert (told["method"], told["sites"], told["rounds"]) == ("ditto", 2, 2)
    assert 0 < told["accuracy"] <= 1 and told["seconds_per_round"] > 0 and left == []


def test_a_site_works_without_its_server(local, tmp_path):
    here = local[2] / "sites" / "site-0"
    stands = json.loads(called("site", "status", here, "--json"))
    assert stands["state"] == "finished" and stands["models"] == ["ditto-0", "local-0"] and stands["refused"] == 0
    judged = json.loads(called("site", "evaluate", here, "--json"))
    assert set(judged) == {"local", "ditto"} and judged["ditto"]["examples"] > 0
    np.savez(tmp_path / "new.npz", x=np.zeros((3, 64), np.uint8))
    called("site", "predict", here, tmp_path / "new.npz", "--out", tmp_path / "said.csv")
    assert len((tmp_path / "said.csv").read_text().splitlines()) == 4
    called("site", "export", here, "--out", tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"card.json", "model.safetensors"}


def test_a_project_that_was_moved_welcomes_a_newcomer(local, tmp_path):
    """The server's folder knows by itself where it is; its run is over, so all it does is to give a model."""
    folder = local[2]
    address = read_site(folder / "sites" / "site-0").server
    data = json.dumps(str(folder / "sites" / "site-0" / "data"))
    (tmp_path / "new.toml").write_text(f'[[site]]\nname = "late"\ndata = {data}\nserver = "{address}"\n')
    called("deploy", "add", folder, "--sites", tmp_path / "new.toml")
    words = [[sys.executable, "-m", "apiece.cli", "deploy", *two] for two in (("server", str(folder / "server")),
             ("node", str(folder / "sites" / "late")))]  # fmt: skip
    running = [subprocess.Popen(one, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for one in words]
    try:
        for process in running:
            said = process.communicate(timeout=600)[1]
            assert process.returncode == 0, said
    finally:
        for process in running:
            process.kill()
            process.wait(10)
    stands = json.loads(called("site", "status", folder / "sites" / "late", "--json"))
    assert stands["state"] == "finished" and stands["models"] == ["ditto-0", "local-0"]
    last = read_log(folder / "sites" / "late" / "log.jsonl")[-1]
    assert last["event"] in ("answered", "finished"), "its last word is not that nobody is there"


def test_advice_becomes_a_project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    called("advise", "linear", "-D", "clients=6", "--out", "runs/advice", "--json")
    (tmp_path / "sites.toml").write_text("[site.north]\ndata = 'n.csv'\n[site.south]\ndata = 's.csv'\n")
    said = called("deploy", "init", "--spec", "runs/advice/spec.toml", "--sites", "sites.toml", "project")
    assert "wrote project/ for 2 sites" in said
    assert (tmp_path / "project" / "sites" / "south" / "site.toml").exists()


def test_exit_codes_say_whose_turn_it_is(local, tmp_path, monkeypatch):
    folder = local[2]
    assert "there is no folder" in called("deploy", "node", tmp_path / "none", code=2)
    assert "config of a server" in called("deploy", "server", tmp_path, code=2)
    assert "neither a site's folder" in called("deploy", "doctor", tmp_path, code=2)
    called("deploy", "doctor", folder / "sites" / "site-0", code=1)  # its server is not running
    site = folder / "sites" / "site-1"
    (site / "site.toml").write_text((site / "site.toml").read_text() + "patience = 0.3\n")
    called("deploy", "node", site, code=3)

    def fails(self):
        raise link._Failed("sites do not agree")

    monkeypatch.setattr(link.Link, "start", lambda self: self.children.update(superlink=None))
    monkeypatch.setattr(link.Link, "stop", lambda self: None)
    monkeypatch.setattr(link.Link, "watch", fails)
    assert "sites do not agree" in called("deploy", "server", folder / "server", code=2)


def test_a_folder_has_one_process(local):
    here = local[2] / "sites" / "site-0"
    from apiece.experiment.claim import claim_folder

    with claim_folder(here):
        said = called("deploy", "node", here, code=2)
    assert "another process" in said and "A site is one process: stop the other one first" in " ".join(said.split())
