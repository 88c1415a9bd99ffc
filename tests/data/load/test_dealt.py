"""`apiece data split`: what was dealt as one table that others read; read back, it is the same federation."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from apiece.cli import app
from apiece.data import Federation, digits, from_rows, inspect, load
from apiece.data.load.dealt import FILE, write_dealt
from apiece.data.sources.synthetic import linear
from apiece.errors import UserError


def same(a, b):
    for part in ("train", "validation", "test"):
        for key in ("x", "y", "offsets"):
            ours, theirs = getattr(getattr(a, part), key), getattr(getattr(b, part), key)
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype or key != "x"
    assert a.ids.tolist() == b.ids.tolist()
    for key in ("name", "task", "classes", "features", "notes"):
        assert getattr(a, key) == getattr(b, key)
    assert (a.new is None) == (b.new is None)
    if a.new is not None:
        same(a.new, b.new)


def clinics(path, rows=90):
    """Gaps, words, blanks around names, labels that sort otherwise as texts, and a column called like ours."""
    rng = np.random.default_rng(0)
    lines = ["clinic,age,town,split,client,ill"]
    for i in range(rows):
        age = "" if i % 7 == 0 else f"{rng.normal(60, 9):.2f}"
        split = ("Train", "train", "test")[i // 3 % 3]
        lines.append(
            f"{('c2 ', 'c10', 'a')[i % 3]},{age},{('oslo', 'rome')[i % 5 % 2]},{split},{i % 4},{(9, 10, 11)[i % 4 % 3]}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


HOW = {"client": "clinic", "label": "ill"}
CASES = {
    "table": lambda path: load(clinics(path), **HOW),
    "scaled": lambda path: load(clinics(path), standardize=True, **HOW),
    "pictures": lambda path: digits(clients=12),
    "new clients": lambda path: digits(clients=12).hold_out_clients(0.25),
    "targets": lambda path: linear(clients=11),
    "no validation": lambda path: load(clinics(path), shares=(0.8, 0, 0.2), exclude="split", **HOW),
    "a class that is tested only": lambda path: from_rows(
        np.eye(6, dtype=np.float32), np.array([0, 1, 0, 0, 1, 2]), np.zeros(6, int), classes=("z", "a", "m"),
        split=[0, 0, 0, 1, 2, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_was_dealt_is_read_back_as_it_was(tmp_path, case):
    federation = CASES[case](tmp_path / "clinics.csv")
    file = write_dealt(federation, tmp_path / "split")
    seen = inspect(file)
    assert seen.problems == []
    same(seen.federation, federation)
    same(load(tmp_path / "split"), federation)  # the folder, too
    scaling = seen.federation.scaling
    assert (scaling is None) == (federation.scaling is None)
    if scaling is not None:
        np.testing.assert_array_equal(scaling.mean, federation.scaling.mean)


def test_metadata_that_lack_something_are_an_error_that_names_it(tmp_path):
    file = write_dealt(digits(clients=3), tmp_path / "split")
    table = parquet.read_table(file)
    about = json.loads(table.schema.metadata[b"apiece"])
    del about["classes"]
    parquet.write_table(table.replace_schema_metadata({"apiece": json.dumps(about)}), file)
    assert f"{file}: its metadata has no valid 'classes'" in inspect(file).problems[0]
    parquet.write_table(table.replace_schema_metadata({"apiece": "{"}), file)
    assert inspect(file).problems == []  # an ordinary table, then


def test_what_was_dealt_can_be_scaled_afterwards(tmp_path):
    federation = load(clinics(tmp_path / "clinics.csv"), client="clinic", label="ill")
    again = load(write_dealt(federation, tmp_path / "split"), standardize=True)
    np.testing.assert_allclose(again.scaling.inputs(federation.test.x), again.test.x, atol=1e-5)


def test_others_can_read_the_table(tmp_path):
    federation = load(clinics(tmp_path / "clinics.csv"), client="clinic", label="ill")
    rows = parquet.read_table(write_dealt(federation, tmp_path / "split")).to_pylist()
    assert list(rows[0]) == [
        "client_",
        "split",
        "new",
        "label",
        "age",
        "age missing",
        "town=oslo",
        "town=rome",
        "client",
    ]
    tested = [row for row in rows if row["client_"] == "c10" and row["split"] == "test"]
    x, y = federation.test.client(federation.index_of("c10"))
    assert [row["age"] for row in tested] == x[:, 0].tolist()
    assert [row["label"] for row in tested] == [federation.classes[k] for k in y]


def test_a_folder_with_a_client_called_examples_is_a_folder_of_clients(tmp_path):
    table = parquet.read_table(write_dealt(linear(clients=2), tmp_path / "split")).select(["x", "label"])
    (tmp_path / "clients").mkdir()
    for name in ("examples", "others"):
        parquet.write_table(table.replace_schema_metadata(None), tmp_path / "clients" / f"{name}.parquet")
        assert name in load(tmp_path / "clients").ids.tolist()


def test_whoever_says_what_is_what_reads_an_ordinary_table(tmp_path):
    file = write_dealt(load(clinics(tmp_path / "clinics.csv"), client="clinic", label="ill"), tmp_path / "split")
    other = load(file, client="client_", label="town=oslo", features=["age"])
    assert other.features == ("age",) and other.name == "examples"


def test_texts_and_clients_that_are_new_and_not_are_refused(tmp_path):
    (tmp_path / "texts").mkdir()
    for author in "ab":
        (tmp_path / "texts" / f"{author}.txt").write_text("abcd" * 40)
    with pytest.raises(UserError, match="keep it with apiece data save"):
        write_dealt(load(tmp_path / "texts", length=10), tmp_path / "split")
    with pytest.raises(UserError, match="'0' is a client that trains and a new one"):
        write_dealt(replace(digits(clients=3), new=digits(clients=3)), tmp_path / "split")
    assert not (tmp_path / "split").exists()


def test_the_command_writes_a_folder_once_and_a_run_takes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    clinics(tmp_path / "clinics.csv")
    arguments = ["data", "split", "clinics.csv", "--client", "clinic", "--label", "ill", "--out", "dealt"]
    told = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(told.stdout) == {"file": f"dealt/{FILE}"}
    assert [path.name for path in (tmp_path / "dealt").iterdir()] == [FILE]
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 2 and "dealt already exists" in again.output
    summary = CliRunner().invoke(app, ["data", "summary", "dealt", "--json"])
    assert json.loads(summary.stdout)["clients"] == 3
    assert isinstance(load("dealt"), Federation)
