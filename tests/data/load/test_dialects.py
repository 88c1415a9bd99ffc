"""How tables are written: delimiters, decimal commas, words for gaps, columns to leave out; as options and as flags."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from apiece.cli import app
from apiece.data import inspect, load
from apiece.errors import UserError


def cells(rows=24):
    rng = np.random.default_rng(0)
    return [("ab"[i % 2], f"{rng.normal():.3f}", f"{rng.normal():.2f}", ("no", "yes")[i // 2 % 2]) for i in range(rows)]


def write(path, delimiter=",", decimal=".", change=lambda row, i: row, header=("client", "age", "dose", "label")):
    lines = [delimiter.join(header)]
    for i, row in enumerate(cells()):
        lines.append(delimiter.join(change([cell.replace(".", decimal) for cell in row], i)))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def same(a, b):
    for part in ("train", "validation", "test"):
        for key in ("x", "y", "offsets"):
            np.testing.assert_array_equal(getattr(getattr(a, part), key), getattr(getattr(b, part), key))
    assert a.features == b.features and a.classes == b.classes and a.ids.tolist() == b.ids.tolist()


@pytest.fixture
def plain(tmp_path):
    return load(write(tmp_path / "plain.csv"))


@pytest.mark.parametrize(
    ("delimiter", "word"), [("\t", "tab"), ("\t", "\\t"), (";", ";"), ("|", "|"), (";", "semicolon")]
)
def test_columns_are_separated_by_what_is_said_or_found(tmp_path, plain, delimiter, word):
    path = write(tmp_path / "a.csv", delimiter)
    same(load(path, delimiter=word), plain)
    same(load(path, delimiter="auto"), plain)


def test_auto_is_a_comma_where_there_is_one(tmp_path, plain):
    same(load(tmp_path / "plain.csv", delimiter="auto"), plain)


def test_the_remedy_for_a_wrong_delimiter_can_be_typed(tmp_path):
    assert "(--delimiter tab)" in inspect(write(tmp_path / "a.csv", "\t")).problems[0]
    assert "(--delimiter ';')" in inspect(write(tmp_path / "b.csv", ";")).problems[0]
    assert "(--delimiter ,)" in inspect(write(tmp_path / "c.csv", ","), delimiter=";").problems[0]


def test_decimal_commas_are_named_and_read_where_it_is_said(tmp_path, plain):
    path = write(tmp_path / "a.csv", ";", ",")
    problems = inspect(path, delimiter=";").problems
    assert len(problems) == 2 and f"{path}, rows 2, 3, 4 (the first of 24), column 'age': " in problems[0]
    assert "before decimals, or say so (--decimal ,)" in problems[0]
    same(load(path, delimiter=";", decimal=","), plain)


def test_decimal_commas_in_quotes_and_in_texts_of_parquet_are_read_too(tmp_path, plain):
    path = write(tmp_path / "a.csv", change=lambda row, i: [row[0], f'"{row[1].replace(".", ",")}"', *row[2:]])
    same(load(path, decimal=",", features="age"), load(tmp_path / "plain.csv", features="age"))
    columns = dict(zip(("client", "age", "dose", "label"), zip(*cells(), strict=True), strict=True))
    columns["age"] = [cell.replace(".", ",") for cell in columns["age"]]
    table = pa.table({name: list(values) for name, values in columns.items()})
    parquet.write_table(table, tmp_path / "a.parquet")
    same(load(tmp_path / "a.parquet", decimal=",", features="age"), load(tmp_path / "plain.csv", features="age"))


def test_a_point_beside_decimal_commas_is_named(tmp_path):
    path = write(tmp_path / "a.csv", ";", ",", lambda row, i: [row[0], "1.234", *row[2:]] if i == 4 else row)
    problem = inspect(path, delimiter=";", decimal=",").problems[0]
    assert "row 6, column 'age': '1.234' is not a number; decimals have a comma here" in problem


@pytest.mark.parametrize("dressed", ["1,234.5", "45%", "$12", "1'000"])
def test_numbers_in_other_dress_are_no_words(tmp_path, dressed):
    path = write(tmp_path / "a.csv", ";", change=lambda row, i: [row[0], dressed if i % 3 else "$7", *row[2:]])
    problem = inspect(path, delimiter=";").problems[0]
    assert "column 'age'" in problem and "-D categorical=age" in problem
    assert "age=$7" in load(path, delimiter=";", categorical="age").features


def test_commas_that_may_be_between_thousands_are_not_called_decimal(tmp_path):
    path = write(tmp_path / "a.csv", ";", change=lambda row, i: [row[0], f"{1000 + 37 * i:,}", *row[2:]])
    problem = inspect(path, delimiter=";").problems[0]
    assert "write 1234, not 1,234; if the comma is a decimal one, say so (--decimal ,)" in problem


def test_targets_with_decimal_commas_are_no_classes(tmp_path):
    path = write(tmp_path / "a.csv", ";", ",", header=("client", "label", "dose", "kind"))
    problem = inspect(path, delimiter=";", features="kind").problems[0]
    assert "column 'label'" in problem and "--decimal ," in problem
    assert load(path, delimiter=";", decimal=",").task == "regression"


@pytest.mark.parametrize("gap", ["?", "-999", "-999.0", " ? ", "NA", "n/a", "NULL"])
def test_words_for_gaps_are_gaps(tmp_path, gap):
    change = lambda gap: lambda row, i: [row[0], gap, *row[2:]] if i % 5 == 0 else row
    empty, path = write(tmp_path / "e.csv", change=change("")), write(tmp_path / "a.csv", change=change(gap))
    same(load(path, na=["?", -999]), load(empty))
    if "9" not in gap and "?" not in gap:
        same(load(path), load(empty))


def test_gaps_among_words_and_labels(tmp_path):
    path = write(tmp_path / "a.csv", change=lambda row, i: [row[0], ("tall", "small", "NA", "-")[i % 4], *row[2:]])
    assert load(path, na="-", features="age").features == ("age=missing", "age=small", "age=tall")
    path = write(tmp_path / "b.csv", change=lambda row, i: [*row[:3], "?" if i == 3 else row[3]])
    assert load(path).classes == ("?", "no", "yes")
    assert "row 5, column 'label': the label is missing" in inspect(path, na="?").problems[0]


def test_a_client_may_be_called_na(tmp_path):
    path = write(tmp_path / "a.csv", change=lambda row, i: ["NA" if row[0] == "a" else row[0], *row[1:]])
    assert load(path).ids.tolist() == ["NA", "b"]
    assert "the client is missing" in inspect(path, na="NA").problems[0]


def test_numbers_that_stand_for_gaps_are_gaps_in_every_format(tmp_path):
    x = np.random.default_rng(0).normal(size=(24, 2))
    x[::5, 0] = -999
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(24) % 2, client=np.arange(24) // 12)
    assert inspect(tmp_path / "a.npz", na=-999).found["filled"][0].startswith("'x[0]': 5 of 24 missing")


def test_blanks_around_names_of_columns_do_not_count(tmp_path, plain):
    same(load(write(tmp_path / "a.csv", header=("client", " age", "dose ", " label"))), plain)
    path = write(tmp_path / "b.csv", header=(" client", "age", "dose", "label"))
    path.write_text(path.read_text().replace("\na,", "\n007,"))
    assert load(path).ids.tolist() == ["007", "b"]


def test_columns_are_left_out(tmp_path):
    path = write(tmp_path / "plain.csv")
    for exclude in ("dose", ["dose"], "dose,"):
        assert load(path, exclude=exclude).features == ("age",)
    assert inspect(path, exclude="dose").found["left_out"] == ["dose"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exclude": "doze"}, "plain.csv: no column 'doze' to leave out; did you mean 'dose'?"),
        ({"exclude": "label"}, "'label' is the label and cannot be left out"),
        ({"exclude": "age", "features": ["age"]}, "'age' is one of the features named and cannot be left out"),
        ({"exclude": "age,dose"}, "no column is left for the features"),
        ({"delimiter": ";;"}, "delimiter must be one plain character, tab or auto"),
        ({"decimal": "x"}, "decimal must be a point or a comma, got 'x'"),
        ({"na": ["?", None]}, "option 'na' of own data"),
    ],
)
def test_options_that_make_no_sense_are_named(tmp_path, options, message):
    path = write(tmp_path / "plain.csv")
    with pytest.raises(UserError) as error:
        load(path, **options)
    assert message in str(error.value)


def test_the_flags_are_those_options_and_a_check_and_a_run_take_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", ";", ",", lambda row, i: [*row[:2], "-999" if i % 7 == 0 else row[2], *row[3:], "x", "1"],
          header=("client", "age", "dose", "label", "note", "id"))  # fmt: skip
    flags = ["--delimiter", ";", "--decimal", ",", "--na", "-999", "--na", "?", "--exclude", "note", "--exclude", "id"]
    told = CliRunner().invoke(app, ["data", "check", "a.csv", *flags, "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)["found"]
    assert found["left_out"] == ["note", "id"] and "4 of 24 missing" in found["filled"][0]
    as_options = ["-D", "delimiter=;", "-D", "decimal=,", "-D", 'na=["-999", "?"]', "-D", "exclude=note,id"]
    again = CliRunner().invoke(app, ["data", "check", "a.csv", *as_options, "--json"])
    assert again.stdout == told.stdout
    summary = CliRunner().invoke(app, ["data", "summary", "a.csv", *flags, "--json"])
    assert json.loads(summary.stdout)["feature_shape"] == found["feature_shape"]
    seen = {}
    monkeypatch.setattr("apiece.cli.runs._run", lambda values, *_: seen.update(values["data"]["options"]))
    for command in (["run", "local"], ["compare"]):
        seen.clear()
        CliRunner().invoke(app, [*command, "--data", "a.csv", *flags, "--split", "s"])
        assert seen == {"delimiter": ";", "decimal": ",", "na": ["-999", "?"], "exclude": ["note", "id"], "split": "s"}
