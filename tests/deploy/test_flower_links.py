"""Other ways to run: a torch module with SuperLink's database; merges without waiting, with a stock SuperNode."""

import os
import statistics
import sys

import numpy as np
import pytest

import apiece
from apiece.data import digits

pytest.importorskip("flwr")
from on_loopback import LIMIT, Threads, flat, log_of, models, rounds_of, served, spec_of

from apiece.deploy.link import QUIET
from apiece.deploy.local import local_project, running, seconds_per_round
from apiece.deploy.processes import Child, free_port
from apiece.deploy.project import deployed_spec
from apiece.engines.remote import flower

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")]

NET = """
import torch


class Bytes(torch.nn.Module):
    def forward(self, x):
        return x.float() / 255


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(Bytes(), torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
"""


def test_of_an_answer_no_more_is_fetched_than_a_letter_may_have(monkeypatch):
    monkeypatch.setattr(flower, "STALLED", 0.2)
    fetched = []

    def fetch(name):
        fetched.append(name)
        if name == "never":
            raise flower.ObjectUnavailableError(name)
        return bytes(flower.PIECE)

    assert flower._within(3 * flower.PIECE, ["a", "b"], fetch) == dict.fromkeys("ab", bytes(flower.PIECE))
    fetched.clear()
    assert flower._within(1000, list("abcdefgh"), fetch) is None and fetched == ["a", "b"]
    assert flower._within(1000, ["a"] * 1000, fetch) is None and fetched == ["a", "b"]
    with pytest.raises(flower.ObjectPullError):
        flower._within(1000, ["never"], fetch)


def test_an_answer_to_an_earlier_letter_is_dropped(monkeypatch):
    post = flower.FlowerPost(None, dict)
    post.open = {"old": (0, b"1"), "new": (0, b"2"), "again": (0, b"2"), "other": (1, b"3")}
    post.awaited = {0: b"2", 1: b"3"}
    came = [("old", b"late"), ("new", b"said"), ("again", b"said"), ("other", None), ("unknown", b"")]
    monkeypatch.setattr(post, "_fetched", lambda: iter(came))
    assert post.collect(0.1) == [(0, b"said"), (1, None)] and not post.open


def test_a_torch_module_with_superlinks_database_gives_the_models_of_the_simulation(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "net_of_torch.py").write_text(NET)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "installed"), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))
    federation, methods, model = digits(clients=4), {"ditto": {"steps": 2}}, {"name": "net_of_torch:net"}
    spec = deployed_spec({"methods": methods, "model": model, "train": {"rounds": 3, "evaluate_every": 3}}, "test")
    folder = local_project(tmp_path / "project", federation, spec, database=True)
    with running(folder) as run:
        run.wait(LIMIT)
    found = apiece.compare(federation, methods, model="net_of_torch:net", rounds=3, seeds=1, tune=1, baselines=False,
                           out=tmp_path / "simulated", evaluate_every=3)  # fmt: skip
    theirs = np.stack([flat(found.personal("ditto", str(i))) for i in range(4)])
    np.testing.assert_allclose(models(folder, methods)["ditto"], theirs, atol=1e-5)
    assert (folder / "server" / "superlink.db").stat().st_size > 0
    print("median seconds a round, with the database:", statistics.median(seconds_per_round(folder)))


def test_nobody_waits_for_a_site_under_a_stock_supernode(tmp_path):
    """The app that Flower carries answers as a node of apiece does; a process for each letter makes it slow."""
    federation, merges = digits(clients=3), 6
    folder = local_project(tmp_path / "project", federation, spec_of({"scaffold": {"steps": 2}}, merges), buffer=2)
    threads, sites = Threads(), folder / "sites"
    with served(folder) as run:
        stock = sites / "site-2"
        command = [os.path.join(os.path.dirname(sys.executable), "flower-supernode"),
                   *("--superlink", run.link.config.address, "--root-certificates", stock / "ca.crt"),
                   *("--auth-supernode-private-key", stock / "site.key", "--host", "127.0.0.1"),
                   *("--port", free_port(), "--node-config", f'site="{stock}"')]  # fmt: skip
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        home = {"FLWR_HOME": str(stock / "flower"), "PATH": path}
        run.nodes["stock"] = Child("a stock SuperNode", list(map(str, command)), stock / "node.log", {**QUIET, **home})
        for name in ("site-0", "site-1"):
            threads.start(sites / name)
        run.wait(LIMIT)
        threads.join()
    assert all(code == 0 for code in threads.ended.values())
    merged = rounds_of(folder, "scaffold~0")
    assert len(merged) == merges and all(line["answers"] == 2 for line in merged)
    for i in range(3):
        own = apiece.open(sites / f"site-{i}" / "run").personal(f"site-{i}", method="scaffold")
        assert np.isfinite(flat(own)).all()
    assert not [line for line in log_of(folder) if line["event"] in ("died", "failed")]
