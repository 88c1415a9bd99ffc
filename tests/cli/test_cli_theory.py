"""`apiece theory ...` and `apiece reproduce ...` as a user types them."""

import json

import pytest
from cli_process import call

from apiece import reproduce as published
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce.verdict import Reproduction, effect, mean_of, within


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_risk_as_json_has_the_catalogs_names_and_writes_nothing(here):
    found = call("theory", "risk", "--gamma", "2", "--ridge", "0.5", "--noise", "1", "--norm", "1", "--json")
    told = json.loads(found.stdout)
    names = ["fed_avg", "ftfa", "rtfa", "maml_fl", "pfedme", "local", "local_ridge"]
    assert list(told["methods"]) == names and told["lambda_star"] == 2.0
    assert set(told["methods"]["rtfa"]) == {"bias", "variance", "risk"}
    assert told["methods"]["rtfa"]["risk"] == pytest.approx(0.902044, abs=1e-6)
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    "command",
    [
        ("risk",),
        ("risk", "--spectrum", "0.5:0.5,2:0.5"),
        ("tradeoff",),
        ("gain", "--examples", "5,5,100"),
        ("speedup", "--means", "0.1,0.15,0.6"),
        ("byzantine",),
    ],
)
def test_every_theory_fits_a_terminal_and_leaves_a_figure(here, command):
    found = call("theory", *command, "--out", "figures")
    assert max(map(len, found.stdout.splitlines())) <= 80 and "…" not in found.stdout
    assert {file.name for file in (here / "figures").iterdir()} == {"figure.html", "figure.png"}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("risk", "--gamma", "1"), "above 1"),
        (("risk", "--noise", "-1"), "--noise"),
        (("risk", "--spectrum", "1:0.5"), "sum to 1"),
        (("tradeoff", "--convexity", "2"), "never above"),
        (("tradeoff", "--noise", "1e200"), "--noise"),
        (("tradeoff", "--clients", "-3"), "--clients"),
        (("gain", "--examples", "5"), "two clients"),
        (("gain", "--spread", "inf"), "--spread"),
        (("gain", "--lr", "-1"), "--lr"),
        (("speedup", "--means", "1"), "two clients"),
        (("speedup", "--noise", "-1"), "--noise"),
        (("speedup", "--bias", "none.csv"), "none.csv"),
        (("byzantine", "--forgers", "16"), "1/2"),
    ],
)
def test_a_bad_domain_is_one_paragraph_and_code_2(here, command, said):
    found = call("theory", *command, code=2)
    assert said in found.stderr
    assert not (here / "runs").exists()


def test_what_can_be_reproduced_is_listed():
    found = call("reproduce", "--list")
    for name in published.NAMES:
        assert name in found.stdout
    told = json.loads(call("reproduce", "--list", "--json").stdout)
    assert [row["name"] for row in told["reproductions"]] == list(published.NAMES)
    assert all(row["title"] for row in told["reproductions"])


def test_a_verdict_is_printed_and_kept(here, monkeypatch):
    def run(quick, watch):
        watch("counting", 1, 2)
        figure = Figure("t", "c", [Panel("", "x", "y", [Line("a", [0, 1], [1, 2])])])
        claims = [
            within("rounds", 24, 25, share=0.15),
            effect("always better", "above 0", mean_of([0.5, -0.4, 0.9]), above=0),
        ]
        return Reproduction(claims, figure, {"quick": quick})

    monkeypatch.setattr(published.module_of("ffgg-async"), "run", run)
    found = call("reproduce", "ffgg-async", "--quick", "--out", "kept", "--json")
    told = json.loads(found.stdout)
    assert told["claims"][0] == {
        "name": "rounds", "published": 24.0, "ours": 25.0, "interval": None, "verdict": "holds", "source": "paper",
        "wanted": [24 - 0.15 * 24, 24 + 0.15 * 24], "seen": None, "because": "",
    }  # fmt: skip
    assert told["format"] == 2 and told["claims"][1]["verdict"] == "undecided" and told["claims"][1]["seen"] > 1
    assert {file.name for file in (here / "kept").iterdir()} == {"verdict.json", "figure.html", "figure.png"}
    assert json.loads((here / "kept/verdict.json").read_text()) == told
    shown = call("reproduce", "ffgg-async")
    assert (
        "Of 2 claims: 1 holds, 0 does not hold, 1 undecided" in shown.stdout
        and max(map(len, shown.stdout.splitlines())) <= 80
    )
    again = call("reproduce", "ffgg-async", "--out", "kept", code=2)
    assert "already exists" in again.stderr


def test_who_stops_a_reproduction_finds_nothing_half_written(here, monkeypatch):
    def run(quick, watch):
        raise KeyboardInterrupt

    monkeypatch.setattr(published.module_of("ffgg-async"), "run", run)
    assert "nothing was written" in call("reproduce", "ffgg-async", "--out", "kept", code=130).stderr
    assert not (here / "kept").exists()
    told = call("reproduce", "ffgg-async", "--out", "kept", "--keep", "pieces", code=130).stderr
    assert "but what is done, in pieces: the same command goes on" in " ".join(told.split())


@pytest.mark.parametrize(("command", "said"), [(("asymptotic",), "did you mean 'asymptotics'"), ((), "--list")])
def test_an_unknown_reproduction_is_told(here, command, said):
    found = call("reproduce", *command, code=2)
    assert said in found.stderr
    assert not (here / "runs").exists()
