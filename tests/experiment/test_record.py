"""The record: typed, whole on disk, read back the same, and also from folders of older versions."""

import json
import math
import shutil

import numpy as np
import pytest
from experiment_runs import record_of

from apiece.errors import UserError
from apiece.evaluate import Interval
from apiece.experiment import RunFolder, read_record
from apiece.experiment.record import FORMAT, Harm, Newcomers, Record
from apiece.report import write_report

ADDED = {"chosen", "costs", "beside_local"}  # to every method, since format 1


@pytest.fixture
def folder(small_run, tmp_path):
    """A finished run that a test may spoil."""
    for file in RunFolder(small_run).results:
        shutil.copy(file, tmp_path)
    return tmp_path


def change(folder, **values):
    """Write other values into record.json; None takes a key away."""
    found = record_of(folder) | values
    RunFolder(folder).record.write_text(json.dumps({key: v for key, v in found.items() if v is not None}))


def as_format_1(found):
    """What a version wrote that had no formats yet."""
    methods = {name: {k: v for k, v in m.items() if k not in ADDED} for name, m in found["methods"].items()}
    return {k: v for k, v in found.items() if k not in ("format", "ranking")} | {"methods": methods}


def test_the_file_holds_the_record_and_nothing_else(small_run):
    found = read_record(small_run)
    assert found.format == FORMAT and found.plain() == record_of(small_run)
    assert found == Record.model_validate(found.plain())
    text = RunFolder(small_run).record.read_text()
    assert text == json.dumps(found.plain(), indent=1) + "\n", "also in the order of its keys"


def test_what_is_read_has_types(small_run):
    ditto = read_record(small_run).methods["ditto"]
    assert isinstance(ditto.harm, Harm) and isinstance(ditto.newcomers, Newcomers)
    assert all(isinstance(score, Interval) for score in ditto.newcomers.scores)
    clients = ditto.seeds[0].metrics["test"]["accuracy"]["clients"]
    assert (clients, type(clients)) == (11, int), "counts stay whole"
    assert isinstance(ditto.statistic("test", "accuracy", "worst10"), Interval)
    assert ditto.statistic("test", "accuracy", "no such") is None


def test_a_number_that_is_not_there_is_nan_in_python_and_null_in_the_file(small_run):
    values = record_of(small_run)
    values["methods"]["ditto"]["against"]["local"] = {"mean": 1.5, "low": None, "high": None, "half_width": None}
    found = Record.model_validate(values)
    assert math.isnan(found.methods["ditto"].against["local"].half_width)
    assert found.plain() == values
    assert found == Record.model_validate(values), "one NaN is the other"


def test_keys_of_a_later_version_are_kept(folder):
    change(folder, energy={"joules": 3})
    assert read_record(folder).plain()["energy"] == {"joules": 3}


def test_a_folder_of_format_1_is_read_and_judged_alike(folder):
    found, page = read_record(folder), write_report(folder).read_text(encoding="utf-8")
    old = as_format_1(found.plain())
    RunFolder(folder).record.write_text(json.dumps(old))
    assert read_record(folder) == found
    assert write_report(folder).read_text(encoding="utf-8") == page
    assert record_of(folder) == old, "who reads, writes nothing"


def test_a_gain_of_format_2_was_over_local(small_run, folder):
    found = record_of(small_run)
    for method in found["methods"].values():
        if method["hurt"] is not None:
            method["hurt"]["gain_over_local"] = method["hurt"].pop("gain")
            del method["hurt"]["baseline"], method["hurt"]["named"]
    change(folder, format=2, methods=found["methods"], constants=None, baseline=None)
    old, new = read_record(folder).methods["ditto"].harm, read_record(small_run).methods["ditto"].harm
    assert old.gain == new.gain and old.baseline == "local" and old.named == []
    assert "gain over being trained alone" in write_report(folder).read_text(encoding="utf-8")


@pytest.mark.parametrize("format", [FORMAT + 1, "2", 0])
def test_a_record_of_a_later_format_is_refused_with_who_wrote_it(folder, format):
    change(folder, format=format, environment={"packages": {"apiece": "9.1"}})
    with pytest.raises(
        UserError, match=rf"has format {format}, written by apiece 9\.1; this version reads formats 1 to {FORMAT}"
    ):
        read_record(folder)
    change(folder, environment={})
    with pytest.raises(UserError, match="written by another version of apiece"):
        read_record(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", "\x93", '{"methods": {"ditto": 3}}', '{"methods": []}'])
def test_a_damaged_record_is_named(folder, text):
    RunFolder(folder).record.write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"record\.json (cannot be read|is damaged).*delete it and resume"):
        read_record(folder)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"ranking": None}, "'ranking': field required"),
        ({"federation": {"name": "digits"}}, r"'federation\.task': field required"),
        ({"methods": {"ditto": {"options": {}}}}, r"'methods\.ditto\.tuning': field required"),
    ],
)
def test_a_damaged_record_names_the_key(folder, values, said):
    change(folder, **values)
    with pytest.raises(UserError, match=said):
        read_record(folder)
    change(folder, format=None, **values)
    if "ranking" not in values:  # of format 1 it is no part
        with pytest.raises(UserError, match="is damaged"):
            read_record(folder)


@pytest.mark.parametrize("name", ["record.json", "rounds.parquet", "clients.parquet"])
def test_a_run_that_is_not_finished_has_no_record(folder, name):
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"there is no {name}. Finish it: apiece resume"):
        read_record(folder)


def test_the_ranking_is_that_of_the_table_of_scores(small_run):
    found = read_record(small_run)
    scores = {name: m["summary"]["test"]["accuracy"]["mean_weighted"]["mean"]
              for name, m in record_of(small_run)["methods"].items()}  # fmt: skip
    order = sorted(scores, key=lambda name: -scores[name])
    ranking = found.ranking
    assert (ranking.metric, ranking.higher, ranking.order, ranking.diverged) == ("accuracy", True, order, [])
    assert list(ranking.behind) == order[1:]
    for name, gap in ranking.behind.items():
        assert gap.interval.mean == pytest.approx(100 * (scores[order[0]] - scores[name]))
        assert gap.told_apart == (gap.interval.low > 0)
    losses = {name: m.statistic("validation", "loss", "mean").mean for name, m in found.methods.items()}
    assert ranking.by_validation == min(losses, key=losses.get)
    best = ranking.by_validation  # what is recommended is what is told of; unless it is the baseline itself
    assert ranking.beside_local == (best if best != "local" else next(name for name in order if name != "local"))


def test_costs_are_means_over_seeds_and_the_peak_of_memory(small_run):
    for method in read_record(small_run).methods.values():
        spent = [one.costs for one in method.seeds]
        assert method.costs["seconds"] == pytest.approx(np.mean([c["seconds"] for c in spent]))
        assert method.costs["peak_memory_mb"] == max(c["peak_memory_mb"] for c in spent)


def test_clients_beside_local_are_counted_once_each(small_run):
    methods = read_record(small_run).methods
    for name, method in methods.items():
        beside = method.beside_local
        assert beside.better + beside.same + beside.worse == 11
        assert name != "local" or beside.same == 11
