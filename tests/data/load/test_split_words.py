"""Split columns: what people write is understood, what is not is named, and validation is carved if there is none."""

import numpy as np
import pytest

from apiece.data import inspect, load
from apiece.data.load.split_words import WORDS, number_splits

RNG = np.random.default_rng(0)
PARTS = ("train", "train", "train", "train", "validation", "test")


def write(path, header, splits, clients="ab"):
    """Three numbers of rows per word of `splits`, for each client; the words go into the last column."""
    lines = [f"{c},{RNG.normal():.3f},{i % 2},{said}" for c in clients for i, said in enumerate(splits)]
    path.write_text("\n".join([f"client,age,label,{header}", *lines]) + "\n", "utf-8")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("Train", "Validation", "Test"),
        ("TRAIN", "VAL", "TEST"),
        (" training", "valid ", "Testing"),
        ("train set", "dev-set", "hold-out"),
        ("trn", "eval", "test"),
        ("train", "dev", "eval"),
    ],
)
@pytest.mark.parametrize("name", ["split", "Fold", "data_split", "purpose"])
def test_what_people_write_is_understood(tmp_path, words, name):
    said = [dict(zip(("train", "validation", "test"), words, strict=True))[part] for part in PARTS]
    federation = load(write(tmp_path / "a.csv", name, said * 2))
    assert federation.features == ("age",)
    assert [s.sizes.tolist() for s in (federation.train, federation.validation, federation.test)] == [
        [8, 8],
        [2, 2],
        [2, 2],
    ]


def test_no_word_means_two_splits():
    words = [word for said in WORDS.values() for word in said]
    assert len(set(words)) == len(words)
    numbers = [number for number, said in enumerate(WORDS.values()) for _ in said]
    assert number_splits(np.array(words)).tolist() == numbers


@pytest.mark.parametrize(
    ("name", "said", "row"),
    [
        ("split", ["train", "train", "tset", "test"], "rows 4, 8"),
        ("fold", ["0", "1", "2", "3"], "rows 2, 3, 4 (the first of 8)"),
        ("Set", ["a", "b", "c", "a"], "rows 2, 3, 4 (the first of 8)"),
        ("usage", ["Training", "Training", "PublicTest", "Test"], "rows 4, 8"),
    ],
)
def test_another_word_is_a_problem_with_its_row_and_the_remedies(tmp_path, name, said, row):
    path = write(tmp_path / "a.csv", name, said)
    problems = inspect(path).problems
    assert len(problems) == 1 and f"{path}, {row}, column '{name}': '" in problems[0]
    for words in ("none of train, validation, test", "val, valid, dev", f"--exclude {name}", "--split COLUMN"):
        assert words in problems[0]
    assert load(path, exclude=name).features == ("age",)


def test_a_column_of_vehicles_is_a_feature(tmp_path):
    federation = load(write(tmp_path / "a.csv", "travels", ["train", "bus", "train", "train", "bus"]))
    assert federation.features == ("age", "travels=bus", "travels=train")


def test_two_columns_that_say_splits_are_a_problem_until_one_is_chosen(tmp_path):
    lines = [f"{c},{i},{i % 2},{PARTS[i % 6]},{PARTS[-1 - i % 6]}" for c in "ab" for i in range(12)]
    (tmp_path / "a.csv").write_text("\n".join(["client,age,label,split,subset", *lines]) + "\n")
    assert "the columns 'split', 'subset' all say train and test" in inspect(tmp_path / "a.csv").problems[0]
    chosen, excluded = load(tmp_path / "a.csv", split="split"), load(tmp_path / "a.csv", exclude="subset")
    assert chosen.features == excluded.features == ("age",)
    np.testing.assert_array_equal(chosen.test.x, excluded.test.x)


def test_an_empty_cell_of_a_split_column_is_named(tmp_path):
    problem = inspect(write(tmp_path / "a.csv", "split", ["train", "train", "", "test"])).problems[0]
    assert "rows 4, 8, column 'split': " in problem


def test_validation_is_carved_from_each_clients_training_rows_and_it_is_said(tmp_path):
    path = write(tmp_path / "a.csv", "split", ["train"] * 8 + ["test"] * 3)
    seen = inspect(path)
    assert "no validation rows; 25% of each client's train rows, at random, are taken for it" in seen.warnings[0]
    assert seen.federation.notes[0] == seen.warnings[0]
    assert seen.federation.validation.sizes.tolist() == [2, 2] and seen.federation.test.sizes.tolist() == [3, 3]
    again, other = load(path), load(path, seed=1)
    np.testing.assert_array_equal(seen.federation.validation.x, again.validation.x)
    np.testing.assert_array_equal(again.test.x, other.test.x)
    assert (again.validation.x != other.validation.x).any()
    none = inspect(path, shares=(0.8, 0, 0.2))
    assert none.federation.validation.rows == 0 and "no validation rows for 2 client(s)" in none.warnings[0]


def test_validation_is_carved_in_time_where_there_is_an_order(tmp_path):
    path = write(tmp_path / "a.csv", "split", ["train"] * 8 + ["test"] * 3)
    federation = load(path, order="age", features="age")
    for client in (0, 1):
        assert federation.train.client(client)[0].max() < federation.validation.client(client)[0].min()


def test_carving_takes_no_class_out_of_training(tmp_path):
    lines = [f"a,{i},{'rare' if i == 3 else 'usual'},{'train' if i < 6 else 'test'}" for i in range(8)]
    (tmp_path / "a.csv").write_text("\n".join(["client,age,label,split", *lines]) + "\n")
    for seed in range(10):
        federation = load(tmp_path / "a.csv", seed=seed)
        assert set(federation.train.y.tolist()) == {0, 1}


def test_a_wrong_word_in_one_file_of_a_folder_is_named_with_its_file(tmp_path):
    for name, said in (("oslo", PARTS), ("rome", ("tain", *PARTS[1:]))):
        write(tmp_path / f"{name}.csv", "split", said, clients="x")
    problems = inspect(tmp_path).problems
    assert len(problems) == 1 and f"{tmp_path / 'rome.csv'}, row 2, column 'split': 'tain'" in problems[0]


def test_sequences_of_texts_are_carved_too(tmp_path):
    lines = ["client,text,split", *(f"{c},{'abcdefgh' * 10},{said}" for c in "xy" for said in ("Train", "Test"))]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    seen = inspect(tmp_path / "a.csv", task="next_character", length=8)
    assert seen.federation.validation.rows > 0 and "the last ones" in seen.warnings[0]


def test_a_split_without_test_rows_is_warned_of(tmp_path):
    told = "\n".join(inspect(write(tmp_path / "a.csv", "split", ["train", "train", "val"])).warnings)
    assert "no test rows, so nothing can be compared" in told and "--exclude split" in told
