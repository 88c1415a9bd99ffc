"""Missing values and categorical columns: filled and encoded by rules of the training rows, and told beforehand."""

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from apiece.data import inspect, load
from apiece.data.load.columns import Column
from apiece.data.load.encode import encode
from apiece.errors import UserError


def texts(values):
    made = np.empty(len(values), object)
    made[:] = values
    return made


def test_gaps_are_filled_as_scikit_learn_does_with_the_training_rows_alone():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    x[rng.random((60, 3)) < 0.3] = np.nan
    train = np.arange(60) < 40
    done = encode([Column(name, x[:, j]) for j, name in enumerate("abc")], train)
    imputer = SimpleImputer(strategy="median", add_indicator=True).fit(x[train])
    expected = imputer.transform(x)  # the values, then the indicators
    assert done.names == ["a", "a missing", "b", "b missing", "c", "c missing"]
    np.testing.assert_allclose(done.x, expected[:, [0, 3, 1, 4, 2, 5]], rtol=1e-6)
    assert done.made == ["a missing", "b missing", "c missing"] and len(done.filled) == 3


def test_levels_are_encoded_as_scikit_learn_does_with_the_training_rows_alone():
    rng = np.random.default_rng(1)
    town = texts([["oslo", "rome", "lima", None][i] for i in rng.integers(0, 4, 50)])
    town[45] = "bath"  # never seen in training
    train = np.arange(50) < 40
    done = encode([Column("town", town)], train)
    filled = np.array([["missing" if cell is None else cell] for cell in town])
    expected = OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(filled[train]).transform(filled)
    np.testing.assert_array_equal(done.x, expected)
    assert done.names == ["town=lima", "town=missing", "town=oslo", "town=rome"]
    assert done.x[45].tolist() == [0, 0, 0, 0]


def test_what_is_missing_only_outside_training_gets_no_indicator():
    done = encode([Column("age", np.array([1, 2, 9, np.nan], np.float32))], np.array([True, True, True, False]))
    assert done.names == ["age"] and done.x[:, 0].tolist() == [1, 2, 9, 2]


def test_a_column_without_training_values_or_with_too_many_levels_is_named():
    train = np.array([False, True, True])
    with pytest.raises(UserError, match="column 'age' is missing in all training rows"):
        encode([Column("age", np.array([1, np.nan, np.nan], np.float32))], train)
    with pytest.raises(UserError, match="column 'name' has 3 levels in training, more than max_levels=2"):
        encode([Column("name", texts(["a", "b", "c"]))], np.ones(3, bool), max_levels=2)


def test_bytes_stay_bytes_and_pictures_keep_their_shape():
    x = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert encode([Column("x", x)], np.ones(2, bool)).x is x
    flat = [Column("a", np.array([1, 2], np.uint8)), Column("b", np.array([[1, 2], [3, 4]], np.uint8))]
    done = encode(flat, np.ones(2, bool))
    assert done.x.dtype == np.uint8 and done.names == ["a", "b[0]", "b[1]"]


@pytest.fixture
def clinics(tmp_path):
    lines = [
        f"{clinic},{'' if k % 5 == 0 else 40 + k},{('north', 'south', '')[k % 3]},{k % 4},{'yes' if k % 2 else 'no'}"
        for clinic in ("oslo", "rome", "lima")
        for k in range(20)
    ]
    file = tmp_path / "clinics.csv"
    file.write_text("\n".join(["clinic,age,side,stage,ill", *lines]) + "\n", "utf-8")
    return file


def test_a_table_with_gaps_and_words_is_loaded_and_what_was_done_is_told(clinics):
    seen = inspect(clinics, client="clinic", label="ill", categorical=["stage"])
    assert seen.problems == []
    assert seen.federation.features == (
        *("age", "age missing", "side=missing", "side=north", "side=south"),
        *("stage=0", "stage=1", "stage=2", "stage=3"),
    )
    assert seen.found["filled"][0].startswith("'age': 12 of 60 missing, filled with the median ")
    assert seen.found["one_hot"] == ["'side': 3 levels", "'stage': 4 levels"]
    x = seen.federation.train.x
    assert np.isfinite(x).all() and (x[:, 2:5].sum(1) == 1).all() and (x[:, 5:].sum(1) == 1).all()


def test_the_median_is_that_of_training_rows(clinics):
    federation = load(clinics, client="clinic", label="ill", features=["age"])
    x, gap = federation.train.x.T
    middle = np.median(x[gap == 0])
    for part in (federation.train, federation.validation, federation.test):
        assert (part.x[part.x[:, 1] == 1, 0] == middle).all()


def test_made_columns_are_not_rescaled(clinics):
    federation = load(clinics, client="clinic", label="ill", standardize=True)
    x = federation.train.x
    assert abs(x[:, 0].mean()) < 1e-6 and x[:, 0].std() == pytest.approx(1, abs=1e-5)
    made = [j for j, name in enumerate(federation.features) if "=" in name or name.endswith("missing")]
    assert set(np.unique(x[:, made])) == {0.0, 1.0} and len(made) == 4


def test_a_word_among_numbers_is_a_mistake_and_numbers_among_words_are_levels(tmp_path):
    file = tmp_path / "a.csv"
    rows = lambda cells: "client,code,label\n" + "".join(f"a,{cell},{i % 2}\n" for i, cell in enumerate(cells))
    file.write_text(rows(["1", "2", "3", "x"] * 3))
    assert "'x' is not a number" in inspect(file).problems[0]
    assert load(file, categorical="code").features == ("code=1", "code=2", "code=3", "code=x")
    file.write_text(rows(["x", "y", "z", "1"] * 3))
    assert load(file).features == ("code=1", "code=x", "code=y", "code=z")


def test_levels_are_found_over_all_files_of_a_folder(tmp_path):
    for client, cells in (("a", ["1", "2"] * 3), ("b", ["x", "y"] * 6)):
        lines = "".join(f"{cell},{i % 2}\n" for i, cell in enumerate(cells))
        (tmp_path / f"{client}.csv").write_text("code,label\n" + lines)
    federation = load(tmp_path)
    assert federation.ids.tolist() == ["a", "b"] and federation.features == ("code=1", "code=2", "code=x", "code=y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_levels": 1}, "column 'side' has 3 levels"),
        ({"max_levels": 0}, "max_levels must be at least 1"),
        ({"categorical": ["stgae"]}, "categorical 'stgae' is none of the features"),
        ({"missing": "refuse"}, "missing"),
    ],
)
def test_options_that_cannot_be_met_are_refused(clinics, options, message):
    with pytest.raises(UserError, match=message):
        load(clinics, client="clinic", label="ill", **options)


def test_pictures_with_missing_pixels_are_refused(tmp_path):
    x = np.zeros((6, 2, 2), np.float32)
    x[4, 0, 1] = np.nan
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(6) % 2, client=np.zeros(6, int))
    assert "row 4, column 'x': missing (NaN)" in inspect(tmp_path / "a.npz").problems[0]
