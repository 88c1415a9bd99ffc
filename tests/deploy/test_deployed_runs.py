"""A deployed run, the post in this process: it is the simulated run, leaves its record, and goes on when killed."""

import json
from pathlib import Path

import numpy as np
import pytest
from deployed_in_process import Deployed

import apiece
from apiece import files
from apiece.data import digits, from_rows
from apiece.errors import UserError
from apiece.experiment.folder import read_record

METHODS = {"local": {"steps": 2}, "ditto": {"steps": 2}}
PLAN = {"rounds": 3, "evaluate_every": 3}


@pytest.fixture(scope="module")
def federation():
    return digits(clients=4)


def saved_sites(folder, federation):
    """A folder of examples for each client."""
    names = [f"site-{i}" for i in range(federation.clients)]
    for i, name in enumerate(names):
        federation.take([i]).save(folder / "data" / name)
    return {name: {"data": str(folder / "data" / name)} for name in names}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory, federation):
    folder = tmp_path_factory.mktemp("deployed")
    made = Deployed(folder, saved_sites(folder, federation), {"methods": METHODS, "train": PLAN})
    made.record = made.run()
    return made


@pytest.fixture(scope="module")
def simulated(tmp_path_factory, federation):
    out = tmp_path_factory.mktemp("simulated") / "run"
    return apiece.compare(federation, METHODS, rounds=3, seeds=1, tune=1, out=out, baselines=False, evaluate_every=3)


def flat(model):
    import jax

    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


def test_every_site_has_the_model_that_a_simulation_gives_it(deployed, simulated):
    for i, name in enumerate(deployed.names):
        opened = apiece.open(deployed.folder / name / "run")
        for method in METHODS:
            mine, theirs = opened.personal(name, method=method), simulated.personal(method, str(i))
            np.testing.assert_allclose(flat(mine), flat(theirs), atol=1e-5)


def test_the_record_has_the_numbers_of_a_simulated_run(deployed, simulated):
    mine, theirs = deployed.record, simulated.record
    for method in METHODS:
        for part in ("validation", "test"):
            for metric in ("accuracy", "loss"):
                for statistic in ("mean_weighted", "mean", "median", "worst_tenth_mean"):
                    a, b = (one.methods[method].statistic(part, metric, statistic) for one in (mine, theirs))
                    assert (a is None) == (b is None)
                    if a is not None and b is not None:
                        assert a.mean == pytest.approx(b.mean, abs=1e-4), (method, part, metric, statistic)
    a, b = (one.methods["ditto"].hurt for one in (mine, theirs))
    for name in ("hurt_proved", "hurt_expected", "worst_client", "naive"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-3), name
    assert mine.federation.label_skew == pytest.approx(theirs.federation.label_skew)
    assert mine.constants.keys() == theirs.constants.keys()


def test_it_leaves_the_files_of_a_run(deployed):
    folder = deployed.folder / "server" / "run"
    assert read_record(folder).methods.keys() == METHODS.keys()
    assert (folder / "report.html").stat().st_size > 10_000
    assert not [line for line in deployed.log if line["event"] == "refused"]


def test_no_private_parameter_and_no_example_is_in_the_bytes_of_the_run(deployed, federation):
    sent = b"".join(deployed.recorded)
    for i, name in enumerate(deployed.names):
        for part in (federation.train, federation.validation, federation.test):
            rows = np.asarray(part.client(i)[0])
            for as_type in (np.uint8, np.float32, np.float64):
                assert not any(row.astype(as_type).tobytes() in sent for row in rows)
        opened = apiece.open(deployed.folder / name / "run")
        for method in ("local", "ditto"):
            own = opened.personal(name, method=method)
            assert np.asarray(own["w"])[0, 8:24].tobytes() not in sent and np.asarray(own["b"]).tobytes() not in sent
    arrays, _ = files.read_arrays(next((deployed.folder / "server" / "run" / "models").glob("ditto*")))
    assert any(leaf.tobytes() in sent for leaf in arrays.values()), "what is shared is found by the same search"


def test_a_newcomer_is_onboarded_from_the_servers_folder(deployed, federation):
    x, y = federation.train.client(0)
    opened = apiece.open(deployed.folder / "server" / "run")
    assert np.isfinite(flat(opened.onboard(x, y, method="ditto"))).all()


def test_a_run_that_is_served_again_changes_nothing(deployed):
    before = (deployed.folder / "server" / "run" / "record.json").read_bytes()
    deployed.server().serve()
    after = json.loads((deployed.folder / "server" / "run" / "record.json").read_text())
    assert after["methods"] == json.loads(before)["methods"]


class Stopped(Exception):
    pass


THOROUGH = [pytest.param(after, marks=pytest.mark.thorough) for after in (2, 9, 21)]


def assert_goes_on_to_the_same_numbers(made, deployed):
    """After everybody was started again."""
    made.post.waiting = []
    for i in range(4):
        made.restart(i)
    record = made.run()
    same = lambda one: {name: method.seeds[0].metrics for name, method in one.methods.items()}
    assert json.dumps(same(record), default=str) == json.dumps(same(deployed.record), default=str)


@pytest.mark.parametrize("after", [14, *THOROUGH])
def test_killed_anywhere_server_and_sites_go_on_to_the_same_numbers(tmp_path, federation, deployed, after):
    made = Deployed(tmp_path, saved_sites(tmp_path, federation), {"methods": METHODS, "train": PLAN})
    answer, count = dict(made.post.answer), 0

    def counted(i):
        def said(wire):
            nonlocal count
            count += 1
            if count == after:
                raise Stopped
            return answer[i](wire)

        return said

    made.post.answer = {i: counted(i) for i in answer}
    with pytest.raises(Stopped):
        made.run()
    assert_goes_on_to_the_same_numbers(made, deployed)


WRITES = [pytest.param(at, when, marks=pytest.mark.thorough)
          for at, when in ((3, "before"), (8, "after"), (21, "before"), (30, "after"), (37, "before"))]  # fmt: skip


@pytest.mark.parametrize(("at", "when"), [(26, "before"), *WRITES])
def test_killed_while_a_file_is_written_all_go_on_to_the_same_numbers(
    tmp_path, federation, deployed, monkeypatch, at, when
):
    """At the moment at which a file would take its place, or has just done so; server and sites alike."""
    made = Deployed(tmp_path, saved_sites(tmp_path, federation), {"methods": METHODS, "train": PLAN})
    replace, count = Path.replace, 0

    def dies(self, target):
        nonlocal count
        count += self.name.endswith(files.PART)
        if count == at and when == "before":
            (self.parent / f".{target.name}.half{files.PART}").write_bytes(self.read_bytes()[:7])
            raise Stopped
        found = replace(self, target)
        if count == at:
            raise Stopped
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dies)
        with pytest.raises(Stopped):
            made.run()
    assert_goes_on_to_the_same_numbers(made, deployed)
    left = files.sweep_parts(tmp_path)
    assert left == (1 if when == "before" else 0) and not list(tmp_path.rglob(f"*{files.PART}"))


def test_a_site_of_another_minor_version_is_told_what_to_do_and_so_is_the_server(tmp_path):
    made = Deployed(tmp_path, wards(tmp_path), {"methods": {"fed_avg": {}}, "train": {"rounds": 1}})
    old = made.site(1).station
    old.terms = old.terms._replace(version="0.0")
    with pytest.raises(UserError, match=r"'south' did not answer.*and this is 0\.0: install the same minor version"):
        made.run()
    told = [line["why"] for line in made.log if line["event"] == "refused"]
    assert any(why.startswith("the server runs apiece") and "install the same minor version" in why for why in told)
    assert not (tmp_path / "south" / "agreed.json").exists()


def test_a_site_that_lost_its_disk_is_told_the_terms_again_and_enrolls(tmp_path, federation):
    made = Deployed(tmp_path, saved_sites(tmp_path, federation), {"methods": METHODS, "train": PLAN})
    answer, count = made.post.answer[2], 0

    def forgetful(wire):
        nonlocal count
        count += 1
        if count == 5:
            made.restart(2)
            (tmp_path / "site-2" / "agreed.json").unlink()
            for file in (tmp_path / "site-2" / "memory").glob("*"):
                file.unlink()
        return answer(wire)

    made.post.answer[2] = forgetful
    record = made.run()
    assert next(line["client"] for line in made.log if line["event"] == "introduced") == 2
    assert record.methods["ditto"].seeds[0].metrics["test"]["accuracy"]["mean"] > 0.3


# Tables: what the sites agree on.


def wards(folder, change=lambda name, rows: rows):
    """Two hospitals with a table each: numbers with a gap, words, and a target in words."""
    rng, sites = np.random.default_rng(0), {}
    for name in ("north", "south"):
        rows = ["age,town,height,sick"]
        for k in range(40):
            age = "" if k == 3 else str(int(rng.integers(20, 90)))
            town = ["oslo", "rome"][k % 2] if name == "north" else ["rome", "lima"][k % 2]
            rows.append(f"{age},{town},{rng.normal(170, 10):.1f},{'yes' if rng.random() < 0.5 else 'no'}")
        (folder / f"{name}.csv").write_text("\n".join(change(name, rows)) + "\n")
        sites[name] = {"data": str(folder / f"{name}.csv"), "label": "sick"}
    return sites


def test_sites_agree_on_levels_classes_fills_and_scales(tmp_path):
    made = Deployed(tmp_path, wards(tmp_path), {"methods": {"fed_avg": {"steps": 2}}, "train": {"rounds": 1}})
    made.run()
    agreed = [json.loads((tmp_path / name / "agreed.json").read_text()) for name in ("north", "south")]
    assert agreed[0] == agreed[1]
    columns = {column["name"]: column for column in agreed[0]["encoding"]["columns"]}
    assert agreed[0]["classes"] == ["no", "yes"] and columns["town"]["levels"] == ["lima", "oslo", "rome"]
    rows = [made.site(i).rows for i in range(2)]
    ages = np.concatenate([one.columns["age"].values[one.part == 0] for one in rows])
    assert columns["age"]["fill"] == [float(np.nanmedian(ages))]
    heights = np.concatenate([one.columns["height"].values[one.part == 0] for one in rows])
    place = agreed[0]["features"].index("height")
    assert agreed[0]["scaling"]["mean"][place] == pytest.approx(heights.mean(), rel=1e-5)
    assert agreed[0]["scaling"]["spread"][place] == pytest.approx(heights.std(), rel=1e-4)
    parts = [made.site(i).parts["train"] for i in range(2)]
    train = np.concatenate([np.asarray(part.x)[: int(part.size)] for part in parts])  # the rest is padding
    assert abs(train[:, place].mean()) < 1e-3 and abs(train[:, place].std() - 1) < 1e-3
    said = apiece.open(tmp_path / "north" / "run").predict("north", {"age": [40], "town": ["rome"], "height": [180.0]})
    assert said.labels[0] in ("no", "yes")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda name, rows: [row.replace("height", "size", 1) if name == "south" else row for row in rows],
         "'north' has a column 'height', and 'south' has none"),
        (lambda name, rows: [row.replace("oslo", "3").replace("rome", "4") if name == "north" else row for row in rows],
         "column 'town' holds numbers at 'north' and words at 'south'"),
        (lambda name, rows: [rows[0], *(row.rpartition(",")[0] + f",{k}.5" for k, row in enumerate(rows[1:]))]
         if name == "south" else rows, "the label is a word at 'north' and a number with decimals at 'south'"),
    ],
)  # fmt: skip
def test_sites_that_differ_are_told_who_has_what(tmp_path, change, why):
    made = Deployed(tmp_path, wards(tmp_path, change), {"methods": {"fed_avg": {}}, "train": {"rounds": 1}})
    with pytest.raises(UserError, match=why):
        made.run()
    assert not (tmp_path / "server" / "run").exists()


def test_regression_is_told_in_the_targets_own_units(tmp_path):
    rng = np.random.default_rng(1)
    x, who = rng.normal(size=(120, 2)), np.repeat([0, 1], 60)
    y = 500 + 40 * x[:, 0] + rng.normal(size=120)
    federation = from_rows(x, y, who)
    folder = tmp_path / "data"
    sites = {}
    for i in range(2):
        federation.take([i]).save(folder / f"s{i}")
        sites[f"s{i}"] = {"data": str(folder / f"s{i}")}
    plan = {"rounds": 30, "evaluate_every": 30}
    made = Deployed(tmp_path, sites, {"methods": {"fed_avg": {"lr": 0.2}}, "train": plan})
    record = made.run()
    found = record.methods["fed_avg"].statistic("test", "error", "mean_weighted")
    assert found is not None and 0 < found.mean < 30  # squared, of targets around 500 with spread 40
    targets = made.site(0).rows.label
    assert abs(targets.mean() - 500) < 30


def test_a_site_that_joins_in_the_middle_or_after_the_end_gets_a_model_by_every_method(tmp_path, federation):
    train = federation.take([0, 1])
    late = federation.take([2])
    late.save(tmp_path / "data" / "late")
    methods = {"fed_avg": {"steps": 2}, "ditto": {"steps": 2}}
    made = Deployed(tmp_path, saved_sites(tmp_path, train), {"methods": methods, "train": {"rounds": 2}})
    answer, count = made.post.answer[0], 0

    def and_then_one_more(wire):
        nonlocal count
        count += 1
        if count == 5:
            made.add("late", data=str(tmp_path / "data" / "late"))
        return answer(wire)

    made.post.answer[0] = and_then_one_more
    made.run()
    made.add("later", data=str(tmp_path / "data" / "late"))
    made.run()
    for name in ("late", "later"):
        opened = apiece.open(tmp_path / name / "run")
        for method in methods:
            assert np.isfinite(flat(opened.personal(name, method=method))).all()
    onboarded = [(line["row"], *line["sites"]) for line in made.log if line["event"] == "onboarded"]
    assert sorted(onboarded) == sorted((f"{method}~0", name) for method in methods for name in ("late", "later"))
    assert read_record(tmp_path / "server" / "run").federation.clients == 2
