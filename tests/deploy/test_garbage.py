"""A fifth of the sites sends garbage: all of it is counted, nothing grows, and the others learn as without it."""

import time
from pathlib import Path

import numpy as np
import pytest
from deployed_in_process import Deployed
from garbage import MANY, Garbage

from apiece.data import digits
from apiece.experiment.tables import read_table

pytestmark = pytest.mark.thorough

CLIENTS, BROKEN, ROUNDS = 5, 1, 12


@pytest.fixture(scope="module")
def federation():
    return digits(clients=CLIENTS, partition="iid")


def deployed(folder, federation, broken=(), **train):
    names = [f"site-{i}" for i in range(CLIENTS)]
    for i, name in enumerate(names):
        federation.take([i]).save(folder / "data" / name)
    spec = {
        "methods": {"fed_avg": {"steps": 20, "lr": 0.3}},
        "train": {"rounds": ROUNDS, "evaluate_every": ROUNDS, **train},
    }
    made = Deployed(folder, {name: {"data": str(folder / "data" / name)} for name in names}, spec, deadline=30.0)
    for i in broken:
        made.post.answer[i] = Garbage(made.post.answer[i])
    return made


def accuracy(made, clients):
    """Of these clients' own models on their own test rows, as the run's table has it."""
    rows = read_table(made.folder / "server" / "run" / "clients.parquet").to_pylist()
    found = {row["client"]: row["test_accuracy"] for row in rows if row["method"] == "fed_avg"}
    return float(np.mean([found[f"site-{i}"] for i in clients]))


def resident():
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def clean(tmp_path_factory, federation):
    made = deployed(tmp_path_factory.mktemp("clean"), federation)
    made.run()
    return made


@pytest.mark.parametrize("defence", [{"most": 3.0}, {"rule": "median"}])
def test_training_ends_as_without_the_broken_site(tmp_path, federation, clean, defence):
    made = deployed(tmp_path, federation, [BROKEN], defence=defence)
    before, began = resident(), time.monotonic()
    record = made.run()
    others = [i for i in range(CLIENTS) if i != BROKEN]
    assert accuracy(made, others) > accuracy(clean, others) - 0.02 > 0.7
    assert time.monotonic() - began < 30, "nobody waited for a deadline"
    assert resident() - before < 2 * MANY, "what it sent is not kept"
    kept = sum(path.stat().st_size for path in (tmp_path / "server").rglob("*") if path.is_file())
    assert kept < MANY, "nor written down"
    refused = [line for line in made.log if line["event"] == "refused"]
    said = " ".join(line["why"] for line in refused)
    for why in ("not finite", "of another schema", "no letter of apiece", "answers round", "damaged",
                "more than this letter may have"):  # fmt: skip
        assert why in said or (why == "of another schema" and "expected float32" in said), why
    assert {line["client"] for line in refused} == {BROKEN} and all(len(line["why"]) <= 500 for line in refused)
    costs = record.methods["fed_avg"].seeds[0].costs
    visits = [line for line in refused if line["task"] == "visit"]
    assert costs["refused"] == len(visits)
    if "most" in defence:
        uncounted = [line for line in made.log if line["event"] == "uncounted"]
        assert costs["too_large"] == len(uncounted) > 0 and all(line["clients"] == [BROKEN] for line in uncounted)
