"""Verdicts: agreement, intervals, and the recorded full runs."""

import os
from pathlib import Path

import numpy as np
import pytest

from apiece.errors import UserError
from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce import NAMES, REAL, SYNTHETIC, cells, read_verdict, reproduce, write
from apiece.reproduce.page import page
from apiece.reproduce.verdict import (
    FAILS,
    HOLDS,
    SOURCES,
    UNDECIDED,
    VERDICTS,
    Claim,
    against_some,
    claim_of,
    effect,
    judge,
    mean_of,
    over_clients_and_seeds,
    weakest,
    within,
)

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs/reproduction"
SHORT = ("dynamic-lambda", "self-fl-synthetic", "fedclup-logistic")
ON_REAL_DATA = [
    pytest.mark.slow,
    pytest.mark.skipif("APIECE_DATA" not in os.environ, reason="APIECE_DATA names no folder with the real data sets"),
]


def test_agreement_is_by_share_or_by_distance_whichever_is_more():
    assert within("x", 100.0, 110.0, share=0.15).holds
    assert within("x", 10.0, 12.0, share=0.15, by=2).holds
    assert not within("x", 10.0, 12.1, share=0.15, by=2).holds
    assert not within("x", 10.0, float("nan"), share=0.15).holds


def test_a_mean_brings_its_interval():
    samples = np.random.default_rng(0).normal(3.0, 1.0, 400)
    found = within("x", 3.0, mean_of(samples), by=0.2)
    low, high = found.interval
    assert low < found.ours < high and high - low == pytest.approx(4 / 20, rel=0.1)
    assert effect("x", "yes", mean_of(samples), above=0).interval == found.interval


def test_no_effect_is_no_evidence_for_a_claim():
    """Two equal things: neither "above" nor "below" holds, with or without chance."""
    for side in (dict(above=0.0), dict(below=0.0)):
        assert effect("x", "", 0.0, **side).verdict == FAILS
        assert effect("x", "", mean_of(np.random.default_rng(0).normal(size=50)), **side).verdict == UNDECIDED


def test_the_verdict_follows_from_interval_and_range():
    found = [judge(1.0, ends, (0.0, 2.0)) for ends in ((0.5, 1.5), (0.5, 2.5), (2.1, 2.5), (-0.5, 2.5), (0.0, 2.0))]
    assert found == [HOLDS, UNDECIDED, FAILS, UNDECIDED, HOLDS]
    assert judge(float("nan"), None, (0.0, None)) == FAILS
    assert judge(float("nan"), (float("nan"), float("nan")), (0.0, None)) == UNDECIDED


def test_what_has_not_come_to_rest_decides_nothing():
    claim = effect("x", "above 0", mean_of([1.0, 1.1, 0.9]), above=0, unfinished="a still improves")
    assert claim.verdict == UNDECIDED and cells(claim)[-1] == "undecided: a still improves"


def test_the_power_is_the_effect_that_four_of_five_runs_tell_from_none():
    rng, size = np.random.default_rng(2), 12
    spread = mean_of(rng.normal(size=100_000)).error * np.sqrt(100_000)
    seen = np.mean([mean_of(rng.normal(0, spread, size)).seen for _ in range(400)])
    told = [mean_of(rng.normal(seen, spread, size)).interval[0] > 0 for _ in range(2000)]
    assert 0.76 < np.mean(told) < 0.84


def test_of_many_effects_a_sure_fall_decides_before_an_unsure_rise():
    rise, unsure, fall = mean_of([1.0, 1.1]), mean_of([1.0, -0.5]), mean_of([-0.1, -0.11])
    assert weakest([rise, unsure]) is unsure and weakest([rise, unsure, fall]) is fall


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(1)
    inside = [low < 0 < high for low, high in (mean_of(rng.normal(size=5)).interval for _ in range(2000))]
    assert 0.935 < np.mean(inside) < 0.965


def test_what_holds_over_some_rivals_is_undecided_over_all_and_what_fails_fails():
    better, worse = (effect("x", "below 1", value, below=1) for value in (0.9, 1.1))
    assert against_some(better, ("a", "b")).because == "a and b did not run"
    assert against_some(better, ("a",)).verdict == UNDECIDED and against_some(worse, ("a",)) == worse


def test_a_row_of_the_table_says_whose_claim_it_is():
    row = cells(Claim("c", "yes", 1.0, (0.5, 2.0), FAILS, "theory"))
    assert row == ["c", "yes (theory)", "1", "0.5 to 2", "", "does not hold"]


@pytest.mark.optimized
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=() if name in SHORT else pytest.mark.thorough) for name in SYNTHETIC),
        *(pytest.param(name, marks=ON_REAL_DATA) for name in REAL),
    ],
)
def test_a_quick_run_judges_as_the_full_run_did(name):
    """The same verdict, or undecided: it has less power."""
    full = {claim["name"]: claim for claim in read_verdict(KEPT / f"{name}.json")["claims"]}
    found = reproduce(name, quick=True)
    assert found["claims"] and found["figure"].panels
    for claim in found["claims"]:
        assert claim["source"] in SOURCES
        assert claim["name"] in full, ("a claim of the quick run that the full run does not have", claim)
        assert claim["verdict"] in (full[claim["name"]]["verdict"], UNDECIDED), (claim, full[claim["name"]])
    # Of what the full run decides, it decides a third: what that one cannot see is not asked of it.
    decided = [claim for claim in found["claims"] if full[claim["name"]]["verdict"] != UNDECIDED]
    assert sum(claim["verdict"] != UNDECIDED for claim in decided) >= max(len(decided) / 3, 1)
    names = [claim["name"] for claim in found["claims"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", NAMES)
def test_kept_verdicts_follow_from_their_numbers(name):
    """Nobody has written a verdict by hand: it is what interval and range say."""
    for row in read_verdict(KEPT / f"{name}.json")["claims"]:
        claim = claim_of(row)
        assert claim.verdict in VERDICTS and claim.source in SOURCES
        if claim.because:
            assert claim.verdict == UNDECIDED, claim
        elif claim.wanted is not None:
            assert not isinstance(claim.ours, str)
            value = float("nan") if claim.ours is None else claim.ours
            assert claim.verdict == judge(value, claim.interval, claim.wanted), claim
        assert (claim.seen is None) or claim.interval is not None, claim


def test_a_verdict_of_another_format_is_refused(tmp_path):
    (tmp_path / "verdict.json").write_text('{"name": "asymptotics", "claims": []}')
    with pytest.raises(UserError, match="its format is 1, and this version reads 2"):
        read_verdict(tmp_path / "verdict.json")


def test_the_page_is_what_the_kept_verdicts_say():
    kept = [read_verdict(KEPT / f"{name}.json") for name in NAMES]
    assert not any(result["quick"] for result in kept), "docs/reproduction holds full runs: make reproduce"
    assert (ROOT / "docs/ref-reproduction.md").read_text(encoding="utf-8") == page(KEPT), "run: make docs"


def test_a_table_may_hold_words_beside_numbers(tmp_path):
    rows = {"MNIST": {"network": "cnn 8-16", "clients": 359}, "HAR": {"network": "sensor cnn", "clients": 16}}
    figure = Figure("Title", "Caption.", [Panel("Left", "x", "y", [Line("a", [0.0, 1.0], [1.0, 2.0])])])
    found = {"name": "last-layer", "title": "t", "quick": True, "claims": [], "settings": {"federations": rows},
             "notes": (), "seconds": 1.0, "figure": figure}  # fmt: skip
    files = write(found, tmp_path)
    assert "cnn 8-16" in (tmp_path / "figure.html").read_text(encoding="utf-8") and tmp_path / "verdict.json" in files


def test_intervals_over_clients_and_seeds_cover_and_know_both():
    """Gains with a part of the client, one of the seed, and chance: the truth is 0."""
    rng, inside = np.random.default_rng(5), []
    for _ in range(500):
        gains = rng.normal(size=(1, 30)) + 0.3 * rng.normal(size=(4, 1)) + rng.normal(size=(4, 30))
        low, high = over_clients_and_seeds(gains, rng.uniform(1, 3, 30)).interval
        inside.append(low < 0 < high)
    assert 0.94 < np.mean(inside) <= 1
    sure = over_clients_and_seeds(np.ones((3, 5)), np.ones(5))
    assert sure.value == 1 and sure.interval == (1, 1)
