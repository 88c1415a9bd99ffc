"""The benchmark of advice: what it draws, what it compares with, and what it keeps."""

import json

import numpy as np
import pytest

from apiece.experiment.advice_judge import Swept
from benchmarks import advice
from benchmarks.advice_federations import DESIGN, FAMILIES, REPORTED, draw, fit_sizes


def shape(federation):
    parts = (federation.train, federation.validation, federation.test)
    return [(federation.clients, part.x.shape, int(part.sizes.max())) for part in parts]


def test_federations_of_a_size_have_one_shape_and_other_seeds_have_other_rows():
    drawn = [draw("linear", "a word", number, seed) for number, seed in ((0, 0), (0, 1), (2, 0), (0, 0))]
    assert len({str(shape(each.federation)) for each in drawn}) == 1
    assert shape(draw("linear", "a word", 1).federation) != shape(drawn[0].federation)
    assert drawn[0].hidden == drawn[1].hidden != drawn[2].hidden
    seen = [advice.labels_of(each.federation) for each in drawn]
    assert seen[0] == seen[3] and len(set(seen)) == 3


def test_pictures_that_one_tests_on_nobody_trains_on_and_each_kind_is_drawn():
    drawn = [draw("digits", "a word", number) for number in range(4)]
    assert sorted(each.hidden["kind"] for each in drawn) == ["dirichlet", "dirichlet", "iid", "swapped"]
    rows = lambda part: {row.tobytes() for row in np.asarray(part.x)}
    one = drawn[0].federation
    assert not (rows(one.train) | rows(one.validation)) & rows(one.test)


def test_no_source_is_in_both_halves():
    assert not {name.split(",")[0] for name in DESIGN} & {name.split(",")[0] for name in REPORTED}
    assert {*DESIGN, *REPORTED} == set(FAMILIES)


@pytest.mark.parametrize("wanted", [np.ones(10), np.arange(1.0, 11), np.array([100.0, *[1.0] * 9])])
def test_sizes_have_the_mean_and_the_largest_that_are_asked_for(wanted):
    found = fit_sizes(wanted, np.full(10, 90), 20, 60)
    assert found.sum() == 200 and found.max() == 60 and found.min() >= 4 and np.argmax(found) == np.argmax(wanted)


def test_random_search_has_what_advice_has_spent_and_always_one_trial():
    tried = lambda *values: [[{"lr": float(k)}, value] for k, value in enumerate(values)]
    known = {"fed_avg": Swept("fed_avg", {}, 0.2, 10.0, 300.0, [], tried(0.5, 0.2)),
             "ditto": Swept("ditto", {}, 0.1, 9.0, 300.0, [], tried(None, 0.1))}  # fmt: skip
    assert advice.search_at_random(known, 1e9, 0) == ("ditto", {"lr": 1.0})
    assert len({advice.search_at_random(known, 0.0, seed)[0] for seed in range(20)}) == 2


def test_kept_sweeps_are_read_again_for_the_same_federation_only(tmp_path):
    drawn = draw("linear", "a word", 0)
    home = tmp_path / "a word-t8-rauto"
    for part, name in (("sweep", "local_ridge"), ("sweep", "fed_avg"), ("defaults", "rtfa")):
        swept = Swept(name, {"lr": 0.1}, float("nan") if name == "fed_avg" else 0.25, 12.5, 3.0, [0.0, 100.0])
        advice.write_json(home / "linear-0-0" / part / f"{name}.json", advice.as_plain(swept._asdict()))
    (home / "linear-0-0" / "row.json").write_text(json.dumps({"family": "linear", "number": 0, "seed": 0}))
    advice.keep_sweeps(home, tmp_path / "kept.json", lambda row: drawn.federation)
    key = "a word-t8-rauto linear-0-0"
    found = advice.read_kept(tmp_path / "kept.json", key, drawn.federation)
    assert found["sweep"]["local_ridge"].errors == [0, 100] and found["defaults"]["rtfa"].points == 12.5
    assert np.isnan(found["sweep"]["fed_avg"].validation) and found["sweep"]["fed_avg"].errors == []
    assert advice.read_kept(tmp_path / "kept.json", key, draw("linear", "a word", 0, 1).federation) == {}
