"""Rows that come later: what was fitted when a file was loaded makes the same features of them."""

import numpy as np
import pyarrow as pa
import pytest

from apiece.data import Federation, load
from apiece.data.load.later import encode_rows, plain_encoding, targets_of
from apiece.errors import UserError

HEADER = "clinic,age,side,code,stage,ill"


def line(clinic, k):
    side = ("north", "south", "")[k % 3]
    return f"{clinic},{'' if k % 5 == 0 else 40 + k},{side},{('007', 'A1', '7')[k % 3]},{k % 4},{'yn'[k % 2]}"


LINES = [line(clinic, k) for clinic in ("oslo", "rome", "lima") for k in range(20)]


@pytest.fixture(scope="module")
def clinics(tmp_path_factory):
    file = tmp_path_factory.mktemp("clinics") / "clinics.csv"
    file.write_text("\n".join([HEADER, *LINES]) + "\n", "utf-8")
    return file


@pytest.fixture(scope="module")
def federation(clinics):
    return load(clinics, client="clinic", label="ill", categorical=["stage", "code"])


def everything(federation):
    return np.concatenate([federation.train.x, federation.validation.x, federation.test.x])


def test_the_rows_of_the_file_itself_become_the_same_features(clinics, federation):
    rows = encode_rows(clinics, federation.encoding)
    assert rows.notes == [] and federation.encoding.features == federation.features
    sort = lambda x: x[np.lexsort(x.T)]
    np.testing.assert_array_equal(sort(rows.x), sort(everything(federation)))


def test_the_order_of_columns_does_not_matter_and_one_row_is_enough(tmp_path, clinics, federation):
    cells = dict(zip(HEADER.split(","), LINES[0].split(","), strict=True))  # its age is missing, and it has code 007
    file = tmp_path / "one.csv"
    file.write_text(",".join(reversed(cells)) + "\n" + ",".join(reversed(cells.values())) + "\n", "utf-8")
    alone = encode_rows(file, federation.encoding).x
    np.testing.assert_array_equal(alone, encode_rows(clinics, federation.encoding).x[:1])
    assert alone[0, federation.features.index("code=007")] == 1


def test_tables_at_hand_are_as_good_as_files(clinics, federation):
    table = pa.csv.read_csv(clinics, convert_options=pa.csv.ConvertOptions(column_types={"code": pa.string()}))
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    columns["age"] = [np.nan if age is None else age for age in columns["age"]]
    expected = encode_rows(clinics, federation.encoding).x
    np.testing.assert_array_equal(encode_rows(table, federation.encoding).x, expected)
    np.testing.assert_array_equal(encode_rows(columns, federation.encoding).x, expected)


def test_the_encoding_is_saved_with_the_federation_and_kept_by_its_parts(tmp_path, federation):
    again = Federation.load(federation.save(tmp_path / "saved"))
    assert again.encoding == federation.encoding
    assert federation.take([0]).encoding == federation.standardized().encoding == federation.encoding


def test_another_delimiter_is_remembered(tmp_path, clinics):
    file = tmp_path / "clinics.csv"
    file.write_text(clinics.read_text("utf-8").replace(",", ";"), "utf-8")
    encoding = load(file, client="clinic", label="ill", categorical=["code"], delimiter=";").encoding
    assert len(encode_rows(file, encoding).x) == len(LINES)


GOOD = {"age": [50.0], "side": ["north"], "code": ["A1"], "stage": [1]}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"age": None}, "no column 'age', which the model was trained on; there are: side, code, stage"),
        ({"age": None, "side": None}, "no columns 'age', 'side'"),
        ({"age": ["old"]}, "column 'age': 'old' is not a number"),
        ({"age": [np.inf]}, "column 'age': infinite"),
        ({"age": [[1.0, 2.0]]}, r"column 'age': an example has shape \(\), not \(2,\)"),
        ({"age": [1.0, 2.0]}, "as many rows each"),
        ({"side": 5}, "a column is a list of values"),
    ],
)
def test_a_table_that_does_not_fit_is_an_error_that_names_the_column(federation, changed, said):
    table = {name: cells for name, cells in {**GOOD, **changed}.items() if cells is not None}
    with pytest.raises(UserError, match=said):
        encode_rows(table, federation.encoding)


def test_what_is_ignored_is_noted_and_what_was_known_is_not(federation):
    rows = encode_rows({**GOOD, "clinic": ["bath"], "ill": ["y"], "day": [1], "side": ["west"]}, federation.encoding)
    assert rows.notes == [
        "the table: ignored, as no feature is called so: 'day'",
        "the table, column 'side': 'west' was never seen in training, and counts as none of its levels",
    ]


def test_a_number_that_was_never_missing_has_no_stand_in(tmp_path):
    file = tmp_path / "whole.csv"
    file.write_text("client,age,label\n" + "".join(f"a,{k},{k % 2}\n" for k in range(10)), "utf-8")
    with pytest.raises(UserError, match="'age' is missing in 1 of 2 rows, and was never missing when the data were"):
        encode_rows({"age": [1.0, np.nan]}, load(file).encoding)


def test_features_without_names_are_an_array_or_as_many_columns_in_their_order():
    encoding = plain_encoding((), (2, 2), "uint8")
    x = np.array([[[1, 2], [3, 4]]], np.uint8)
    assert encode_rows({"x": x}, encoding).x.tolist() == x.tolist()
    rows = encode_rows({"a": [1], "b": [2], "c": [3], "d": [4], "label": ["z"]}, encoding)
    assert rows.x.tolist() == x.tolist() and rows.x.dtype == np.uint8 and "taken in their order" in rows.notes[0]
    with pytest.raises(UserError, match="give a table of 4 columns in their order \\(it has 1\\)"):
        encode_rows({"a": [1]}, encoding)
    with pytest.raises(UserError, match="whole numbers from 0 to 255"):
        encode_rows({"x": np.full((1, 2, 2), 0.5)}, encoding)


def test_targets_are_classes_by_name_or_numbers(federation):
    table = encode_rows({**GOOD, "ill": ["y"]}, federation.encoding).table
    assert targets_of(table, "ill", federation.classes).tolist() == [federation.classes.index("y")]
    with pytest.raises(UserError, match="no class 'y'; its classes: a, b"):
        targets_of(table, "ill", ("a", "b"))
    with pytest.raises(UserError, match="no column 'sick' with the target"):
        targets_of(table, "sick", federation.classes)
    with pytest.raises(UserError, match="the target is a number"):
        targets_of(table, "ill", ())
