"""Verdicts: agreement, intervals, and the recorded full runs."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from apiece.report.figure import Figure, Line, Panel
from apiece.reproduce import NAMES, REAL, SYNTHETIC, cells, reproduce, write
from apiece.reproduce.page import page
from apiece.reproduce.verdict import SOURCES, Claim, mean_of, stated, within

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
    assert stated("x", "yes", mean_of(samples), True).interval == found.interval


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(1)
    inside = [low < 0 < high for low, high in (mean_of(rng.normal(size=5)).interval for _ in range(2000))]
    assert 0.935 < np.mean(inside) < 0.965


def test_a_row_of_the_table_says_whose_claim_it_is():
    assert cells(Claim("c", "yes", 1.0, (0.5, 2.0), False, "theory")) == ["c", "yes (theory)", "1", "0.5 to 2", "NO"]


@pytest.mark.optimized
@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=() if name in SHORT else pytest.mark.thorough) for name in SYNTHETIC),
        *(pytest.param(name, marks=ON_REAL_DATA) for name in REAL),
    ],
)
def test_a_quick_run_judges_as_the_full_run_did(name):
    """What is in both must have the same verdict; a full run says no less than a quick one."""
    full = {claim["name"]: claim for claim in json.loads((KEPT / f"{name}.json").read_text())["claims"]}
    found = reproduce(name, quick=True)
    assert found["claims"] and found["figure"].panels
    for claim in found["claims"]:
        assert claim["source"] in SOURCES
        assert claim["name"] in full, "a claim of the quick run that the full run does not have"
        assert claim["holds"] == full[claim["name"]]["holds"], claim
    names = [claim["name"] for claim in found["claims"]]
    assert len(set(names)) == len(names)


def test_the_page_is_what_the_kept_verdicts_say():
    kept = [json.loads((KEPT / f"{name}.json").read_text()) for name in NAMES]
    assert not any(result["quick"] for result in kept), "docs/reproduction holds full runs: make reproduce"
    assert (ROOT / "docs/ref-reproduction.md").read_text(encoding="utf-8") == page(KEPT), "run: make docs"


def test_a_table_may_hold_words_beside_numbers(tmp_path):
    rows = {"MNIST": {"network": "cnn 8-16", "clients": 359}, "HAR": {"network": "sensor cnn", "clients": 16}}
    figure = Figure("Title", "Caption.", [Panel("Left", "x", "y", [Line("a", [0.0, 1.0], [1.0, 2.0])])])
    found = {"name": "last-layer", "title": "t", "quick": True, "claims": [], "settings": {"federations": rows},
             "notes": (), "seconds": 1.0, "figure": figure}  # fmt: skip
    files = write(found, tmp_path)
    assert "cnn 8-16" in (tmp_path / "figure.html").read_text(encoding="utf-8") and tmp_path / "verdict.json" in files
