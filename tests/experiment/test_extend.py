"""More rounds for a finished run: it ends where so many rounds at once do, and says that it saw the test."""

import shutil

import pytest
from experiment_runs import SMALL, make_once, models_of, numbers_of, record_of, run

from apiece.errors import UserError
from apiece.experiment import resume
from apiece.report import write_report
from apiece.report.convergence import convergence

ARRIVALS = {"active": 4, "buffer": 2}
METHODS = {"ditto": {"lam": 0.5, "lr": 0.1}, "scaffold": {"lr": 0.1}}
SPEC = {**SMALL, "seeds": [0], "baselines": False, "methods": METHODS}


def values(rounds, **train):
    return {**SPEC, "train": {**SMALL["train"], "rounds": rounds, "checkpoint_seconds": 60.0, **train}}


@pytest.fixture(scope="module")
def short(shared_place):
    """A finished run of two rounds; tests that go on take a copy."""
    return make_once(shared_place, "short", lambda out: run(values(2), out))


@pytest.fixture(scope="module")
def whole(shared_place):
    """The same with four."""
    return make_once(shared_place, "whole", lambda out: run(values(4), out))


@pytest.fixture
def mine(short, tmp_path):
    """A copy of the short run."""
    return shutil.copytree(short, tmp_path / "mine")


def same(one, other):
    """Every number, every model and every client's row, to the last digit."""
    tables = [out / "clients.parquet" for out in (one, other)]
    return (numbers_of(one) == numbers_of(other) and models_of(one) == models_of(other)
            and tables[0].read_bytes() == tables[1].read_bytes())  # fmt: skip


def test_two_rounds_and_two_more_are_four(mine, whole):
    resume(mine, rounds=4)
    assert same(mine, whole)
    assert (record_of(mine)["tested"], record_of(whole)["tested"]) == ([2], [])
    assert record_of(mine)["spec"]["train"]["rounds"] == 4


@pytest.mark.parametrize(
    "how", [{"cohort": None, "arrivals": ARRIVALS}, {"engine": "remote"}], ids=["asynchronous", "remote"]
)
def test_so_they_are_on_every_engine(tmp_path, how):
    spec = lambda rounds: values(rounds, **how) | {"methods": {"scaffold": {"lr": 0.1}}}
    run(spec(1), tmp_path / "mine")
    resume(tmp_path / "mine", rounds=2)
    run(spec(2), tmp_path / "whole")
    assert same(tmp_path / "mine", tmp_path / "whole")


def test_a_longer_run_that_is_killed_goes_on_like_any_other(mine, whole):
    class Killed(Exception):
        pass

    def kill(what, done, total):
        if what.startswith("scaffold: seed"):
            raise Killed

    with pytest.raises(Killed):
        resume(mine, kill, rounds=4)
    assert not (mine / "record.json").exists()
    with pytest.raises(UserError, match="is not finished; first: apiece resume"):
        resume(mine, rounds=6)
    found = resume(mine)
    assert same(mine, whole) and found.record.tested == [2]


def test_it_can_go_on_again_and_counts_how_often_the_test_was_seen(mine):
    resume(mine, rounds=3)
    found = resume(mine, rounds=4)
    assert found.record.tested == [2, 3]
    told = convergence(found.record)[0]
    assert "The test was seen before, after 2 and 3 rounds" in told and "tuning chose with 2 rounds" in told
    page = write_report(mine).read_text(encoding="utf-8")
    assert "it has seen it\n3 times" in page and "seen before" in page
    assert resume(mine).record.plain() == found.record.plain(), "a finished run is only read"


@pytest.mark.parametrize("rounds", [1, 2])
def test_fewer_rounds_than_it_had_are_refused(mine, rounds):
    with pytest.raises(UserError, match=f"has 2 rounds, and --rounds {rounds} is their number in all; give more"):
        resume(mine, rounds=rounds)
    assert (mine / "record.json").exists()


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ('schedule = "cosine"', r"planned for 2 rounds \(train.schedule = 'cosine'\).*start a new run: apiece run"),
        ("stop = {patience = 3}", r"stops by itself \(\[train.stop\]\).*start a new run"),
    ],
)
def test_a_run_whose_end_was_planned_is_not_continued(mine, train, said):
    spec = mine / "spec.toml"
    text = "\n".join(line for line in spec.read_text().splitlines() if not line.startswith("schedule = "))
    spec.write_text(text.replace("[train]", f"[train]\n{train}"))
    with pytest.raises(UserError, match=said):
        resume(mine, rounds=4)
    assert (mine / "record.json").exists()


def test_a_run_that_kept_no_end_is_not_continued(mine):
    (mine / "checkpoints" / "scaffold-0-end.safetensors").unlink()
    with pytest.raises(UserError, match=r"kept no state of scaffold, seed 0, from which to go on.*models_gb = 0\.5"):
        resume(mine, rounds=4)


def test_an_end_that_is_too_large_is_not_kept(tmp_path):
    run(values(2, models_gb=0.0), tmp_path / "run")
    assert not list((tmp_path / "run" / "checkpoints").glob("*-end.safetensors"))


def test_code_that_changed_is_not_mixed_with_what_was(mine, monkeypatch):
    monkeypatch.setattr("apiece.experiment.written.hash_apiece", lambda: "another")
    with pytest.raises(UserError, match="apiece itself changed since the run"):
        resume(mine, rounds=4)
    assert (mine / "record.json").exists()
