"""The user's own files: what is good is loaded, and every problem is said with file, row, column and remedy."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from apiece.data import inspect, load
from apiece.data.load.read import SUFFIXES
from apiece.data.sources.synthetic import linear
from apiece.errors import UserError

CLIENTS = ("oslo", "rome", "007")


def rows(per_client=5):
    """Client, age, weight, label: ten rows or so that nothing is wrong with."""
    return [(c, 30 + i + j, 60.5 + i, (i + j) % 2) for j, c in enumerate(CLIENTS) for i in range(per_client)]


def columns(per_client=5):
    return [list(column) for column in zip(*rows(per_client), strict=True)]


def write_csv(path, header=("client", "age", "weight", "label"), lines=None):
    lines = rows() if lines is None else lines
    path.write_text("\n".join([",".join(header), *(",".join(map(str, line)) for line in lines)]) + "\n", "utf-8")
    return path


@pytest.fixture
def good(tmp_path):
    return write_csv(tmp_path / "good.csv")


def only_problem(path, **options):
    seen = inspect(path, **options)
    assert seen.federation is None
    assert len(seen.problems) == 1, seen.problems
    assert "\n" not in seen.problems[0]
    return seen.problems[0]


def same_examples(a, b):
    for part in ("train", "validation", "test"):
        for key in ("x", "y", "offsets"):
            assert (getattr(getattr(a, part), key) == getattr(getattr(b, part), key)).all()
    assert (a.ids == b.ids).all() and a.classes == b.classes


def test_a_csv_file_becomes_a_federation(good):
    seen = inspect(good)
    federation = load(good)
    assert seen.problems == [] and seen.found["clients"] == 3 and seen.found["rows"] == 15
    assert federation.ids.tolist() == ["007", "oslo", "rome"]
    assert federation.task == "classification" and federation.classes == ("0", "1")
    assert federation.features == ("age", "weight")
    assert federation.train.x.dtype == np.float32 and federation.train.sizes.tolist() == [3, 3, 3]
    x = np.concatenate(
        [federation.train.client(1)[0], federation.validation.client(1)[0], federation.test.client(1)[0]]
    )
    assert sorted(x[:, 0].tolist()) == [30, 31, 32, 33, 34]


def write_parquet(path):
    named = zip(("client", "age", "weight", "label"), columns(), strict=True)
    parquet.write_table(pa.table({name: list(column) for name, column in named}), path)


def write_npz(path):
    client, age, weight, label = columns()
    np.savez_compressed(path, x=np.column_stack([age, weight]), y=np.array(label), client=np.array(client))


WRITERS = {".csv": write_csv, ".parquet": write_parquet, ".npz": write_npz}  # the same rows in every format


def test_every_format_is_written_here():
    assert tuple(WRITERS) == SUFFIXES


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_federation(good, tmp_path, suffix):
    WRITERS[suffix](tmp_path / f"a{suffix}")
    same_examples(load(good), load(tmp_path / f"a{suffix}"))


def test_a_folder_with_a_file_for_each_client_is_as_large_as_one_file_of_all(good, tmp_path):
    expected = load(good)
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in CLIENTS:
        lines = [row[1:] for row in rows() if row[0] == name]
        write_csv(folder / f"{name}.csv", ("age", "weight", "label"), lines)
    same_examples(inspect(folder, seed=0).federation, load(folder))
    assert load(folder).ids.tolist() == ["007", "oslo", "rome"]
    assert load(folder).train.x.shape == expected.train.x.shape


def test_columns_are_chosen_by_options(tmp_path):
    path = write_csv(tmp_path / "a.csv", ("hospital", "age", "weight", "sick"))
    federation = load(path, client="hospital", label="sick", features=["weight"])
    assert federation.features == ("weight",) and federation.train.x.shape[1] == 1
    assert load(path, client="hospital", label="age", features=["weight", "sick"], task="regression").classes == ()


def test_uint8_stays_uint8_and_images_keep_their_shape(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (12, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", pixels=images, digit=np.arange(12) % 3, writer=np.arange(12) // 6, other=np.zeros(99))
    federation = load(tmp_path / "a.npz", features="pixels", label="digit", client="writer")
    assert federation.train.x.dtype == np.uint8 and federation.train.x.shape[1:] == (4, 4)
    assert federation.ids.tolist() == ["0", "1"]
    table = pa.table({"client": list("aaabbb"), "a": pa.array([1] * 6, pa.uint8()), "label": [0, 1] * 3})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet").train.x.dtype == np.uint8


def test_lists_in_parquet_become_features(tmp_path):
    table = pa.table({"client": list("aaabbb"), "v": [[1.0, 2.0]] * 6, "label": [0, 1] * 3})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet").features == ("v[0]", "v[1]")
    table = table.set_column(1, "v", pa.array([[1.0, 2.0]] * 5 + [[1.0]]))
    parquet.write_table(table, tmp_path / "b.parquet")
    assert "column 'v': holds lists of different lengths" in only_problem(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    ("labels", "task", "classes"),
    [
        (["yes", "no"], "classification", ("no", "yes")),
        ([10, 9], "classification", ("9", "10")),
        ([1.5, 2.25], "regression", ()),
        (["true", "false"], "classification", ("False", "True")),
    ],
)
def test_the_task_follows_from_the_labels(tmp_path, labels, task, classes):
    lines = [("a", i, labels[i % 2]) for i in range(6)]
    federation = load(write_csv(tmp_path / "a.csv", ("client", "x", "label"), lines))
    assert (federation.task, federation.classes) == (task, classes)


def test_many_integers_are_a_regression_and_whole_decimals_a_warning(tmp_path):
    lines = [("a", i, i) for i in range(101)]
    assert load(write_csv(tmp_path / "a.csv", ("client", "x", "label"), lines)).task == "regression"
    lines = [("a", i, f"{i % 2}.0") for i in range(6)]
    path = write_csv(tmp_path / "b.csv", ("client", "x", "label"), lines)
    seen = inspect(path)
    assert seen.federation.task == "regression" and "set task=classification" in seen.warnings[0]
    assert load(path, task="classification").classes == ("0", "1")


def test_clients_written_as_numbers_keep_their_zeros(tmp_path):
    lines = [(c, i, i % 2) for c in ("007", "07", "10") for i in range(4)]
    assert load(write_csv(tmp_path / "a.csv", ("client", "x", "label"), lines)).ids.tolist() == ["007", "07", "10"]


def test_a_split_column_is_followed(tmp_path):
    lines = [(c, i, i % 2, s) for c in "ab" for i, s in enumerate(["train", "train", "validation", "test", "test"])]
    path = write_csv(tmp_path / "a.csv", ("client", "x", "label", "part"), lines)
    federation = load(path, split="part")
    assert federation.train.sizes.tolist() == [2, 2] and federation.test.x[:, 0].tolist() == [3, 4, 3, 4]
    named = write_csv(tmp_path / "b.csv", ("client", "x", "label", "split"), lines)
    same_examples(federation, load(named))


def test_a_saved_federation_is_opened(tmp_path):
    path = linear(clients=3).save(tmp_path / "toy")
    assert load(path).truth.keys() == linear(clients=3).truth.keys()
    (path / "ids.npy").unlink()
    assert "ids.npy is missing" in only_problem(path)


def test_small_clients_are_left_out_when_asked(tmp_path):
    path = write_csv(tmp_path / "a.csv", lines=[*rows(), ("tiny", 1, 2, 0), ("small", 1, 2, 0), ("small", 1, 2, 1)])
    assert "'small' (2), 'tiny' (1)" in only_problem(path)
    seen = inspect(path, min_size=3)
    assert seen.federation.ids.tolist() == ["007", "oslo", "rome"]
    assert "2 client(s) with fewer than 3 examples are left out" in seen.warnings
    assert "lower it" in only_problem(path, min_size=100)


def test_an_option_is_taken_for_a_split_that_needs_fewer(tmp_path):
    path = write_csv(tmp_path / "a.csv", lines=rows(2))
    assert "fewer examples than the 3" in only_problem(path)
    assert load(path, shares=(0.5, 0, 0.5)).test.sizes.tolist() == [1, 1, 1]


# Problems, one by one: (lines of the file, what the message must name)
HEAD = "client,age,weight,label"
BODY = "\n".join(",".join(map(str, row)) for row in rows())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"client,age,weight,labl\n{BODY}", ["no column 'label' for label", "did you mean 'labl'?"]),
        (f"site,age,weight,label\n{BODY}", ["no column 'client' for client", "there are: site, age, weight, label"]),
        (BODY, ["row 1", "add a header row"]),
        (f"{HEAD}\n{BODY}\noslo,old,70,1", ["row 17", "column 'age'", "'old' is not a number", "mend"]),
        (f'{HEAD}\n{BODY}\noslo,"3,5",70,1', ["row 17", "column 'age'", "write a point, not a comma"]),
        (f"{HEAD}\n{BODY}\noslo,1_000,70,1", ["row 17", "'1_000'"]),
        (f"{HEAD}\n{BODY}\n\n\noslo,inf,1,1", ["row 19", "column 'age'", "infinite"]),
        (f"{HEAD}\n{BODY}\noslo,1e300,1,1", ["row 17", "column 'age'", "too large for float32"]),
        (f"{HEAD}\n{BODY}\noslo,1,1,", ["row 17", "column 'label'", "the label is missing"]),
        (f"{HEAD}\n{BODY}\n,1,1,1", ["row 17", "column 'client'", "the client is missing"]),
        (f"{HEAD}\n{BODY}\noslo,1,1", ["row 17", "3 cells where the header has 4"]),
        (f"{HEAD}\n{BODY}\noslo,1,1,1,1", ["row 17", "5 cells where the header has 4"]),
        (f"client,age,age,label\n{BODY}", ["2 columns are called 'age'", "rename"]),
        (f"client,age,,label\n{BODY}", ["a column has no name"]),
        (f"{HEAD}\n{BODY.replace(',0', ',0.5')}\noslo,1,1,1e300", ["row 17", "column 'label'", "too large"]),
        (HEAD + "\n", ["no rows"]),
        ("", ["is empty"]),
        ("\n\n", ["cannot be read as CSV"]),
        (f"{HEAD}\n{BODY}".replace(",", ";"), ["row 1", "by ';'", "delimiter=';'"]),
        (f"{HEAD}\n{BODY}".replace(",", "\t"), ["row 1", "delimiter='\\t'"]),
        ("client,label\n" + "a,0\nb,1\n" * 5, ["no column is left for the features"]),
        (f"{HEAD},empty\n" + BODY.replace("\n", ",\n") + ",", ["column 'empty': is empty", "leave it out"]),
    ],
)
def test_a_problem_in_a_csv_file_names_file_row_column_and_remedy(tmp_path, text, named):
    path = tmp_path / "data.csv"
    path.write_text(text, "utf-8")
    problem = only_problem(path)
    assert str(path) in problem
    for part in named:
        assert part in problem
    with pytest.raises(UserError) as error:
        load(path)
    assert str(error.value) == problem


@pytest.mark.parametrize("cell", ["NaN", ""])
def test_missing_values_are_refused_with_row_and_column_if_asked(tmp_path, cell):
    path = tmp_path / "data.csv"
    path.write_text(f"{HEAD}\noslo,1,{cell},1\n{BODY}", "utf-8")
    assert inspect(path).problems == []
    problem = only_problem(path, missing="refuse")
    assert "row 2, column 'weight': missing (NaN); fill" in problem
    assert "did you mean 'refuse'" in only_problem(path, missing="refuses")


def test_all_problems_are_found_at_once(tmp_path):
    lines = [*rows(), ("tiny", "old", "inf", 1), ("oslo", 3, "", 0)]
    seen = inspect(write_csv(tmp_path / "a.csv", lines=lines), features=["age", "weight", "heigth"])
    text = "\n".join(seen.problems)
    assert "no column 'heigth'" in text and "fewer examples" in text
    seen = inspect(tmp_path / "a.csv", missing="refuse")
    text = "\n".join(seen.problems)
    assert "row 17, column 'age': 'old'" in text
    assert "row 17, column 'weight': infinite" in text
    assert "row 18, column 'weight': missing" in text
    assert "'tiny' (1)" in text
    with pytest.raises(UserError, match=r"\(and 3 more problems: "):
        load(tmp_path / "a.csv", missing="refuse")


def test_thousands_of_the_same_problem_are_one_line_with_a_count(tmp_path):
    lines = [("a", "?", i, i % 2) for i in range(5000)]
    problem = only_problem(write_csv(tmp_path / "a.csv", lines=lines))
    assert "rows 2, 3, 4 (the first of 5000), column 'age': '?' is not a number" in problem
    wide = ["client", *(f"x{i}" for i in range(300)), "label"]
    seen = inspect(write_csv(tmp_path / "b.csv", wide, [("a", *["nan"] * 299, 1, i % 2) for i in range(5)]))
    assert len(seen.problems) < 15 and "more problems like the one before" in seen.problems[-1]


def test_rows_are_counted_as_an_editor_counts_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(
        b'\xef\xbb\xbfclient,note,x,label\r\na,"two\r\nlines ""quoted""",1,0\r\n\r\na,b,1,1\r\na,c\r\na,d,bad,1\r\n'
    )
    problems = inspect(path, features=["x"], shares=(1, 0, 0)).problems
    assert "row 6: 2 cells where the header has 4" in problems[0]
    assert "row 7, column 'x': 'bad'" in problems[1]


def test_a_byte_order_mark_quoted_line_breaks_and_unicode_headers_are_fine(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f'"new\nyork",{i},{i % 2}' for i in range(4)] + [f"東京,{i},{i % 2}" for i in range(4)]
    path.write_text("\ufeffклиент,größe,метка\n" + "\n".join(lines), "utf-8")
    federation = load(path, client="клиент", label="метка")
    assert federation.ids.tolist() == ["new\nyork", "東京"] and federation.features == ("größe",)


def test_another_delimiter_can_be_given(tmp_path, good):
    path = tmp_path / "semicolon.csv"
    path.write_text(good.read_text().replace(",", ";"))
    same_examples(load(good), load(path, delimiter=";"))
    assert "must be one plain character" in only_problem(path, delimiter=";;")


def test_text_that_is_not_utf8_is_refused_with_its_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"client,x,label\na,1,0\nKrak\xf3w,1,1\n")
    problem = only_problem(path)
    assert f"{path}, row 3" in problem and "UTF-8" in problem
    path.write_text("client,x,label\na,1,0\n", "utf-16")
    assert "UTF-8" in only_problem(path)
    path.write_bytes(b"client,x,label\na,\0,0\n")
    assert "row 2: holds binary data" in only_problem(path)


def test_a_label_that_is_tested_but_never_trained_is_a_problem_when_the_split_is_given(tmp_path):
    lines = [("a", 1, "cat", "train"), ("a", 2, "dog", "train"), ("a", 3, "cat", "validation"), ("a", 4, "cow", "test")]
    path = write_csv(tmp_path / "a.csv", ("client", "x", "label", "split"), lines)
    problem = only_problem(path)
    assert "row 5, column 'label'" in problem and "label 'cow' is in test (client 'a') but never in train" in problem


def test_a_rare_label_is_a_warning_when_the_split_is_random(tmp_path):
    lines = [("a", i, "cat" if i % 2 else "dog") for i in range(6)] + [("a", 9, "cow")]
    path = write_csv(tmp_path / "a.csv", ("client", "x", "label"), lines)
    warned = [any("not in train: 'cow'" in w for w in inspect(path, seed=seed).warnings) for seed in range(20)]
    assert any(warned) and not all(warned)


def test_a_wrong_word_in_the_split_column_is_named(tmp_path):
    lines = [(c, i, i % 2, s) for c in "ab" for i, s in enumerate(["train", "train", "validation", "tset"])]
    problem = only_problem(write_csv(tmp_path / "a.csv", ("client", "x", "label", "part"), lines), split="part")
    assert "rows 5, 9, column 'part': 'tset' is none of train, validation, test" in problem


def test_clients_without_training_rows_are_named(tmp_path):
    lines = [("a", 1, 0, "train"), ("a", 1, 1, "train"), ("a", 1, 1, "test"), ("b", 1, 1, "test")]
    seen = inspect(write_csv(tmp_path / "a.csv", ("client", "x", "label", "split"), lines), shares=(0.8, 0, 0.2))
    assert len(seen.problems) == 1 and "no train rows for 1 client(s): 'b'" in seen.problems[0]
    assert any("no validation rows for 2 client(s): 'a', 'b'" in w for w in seen.warnings)


def test_one_class_clients_are_a_warning_only(tmp_path):
    lines = [("a", i, i % 2) for i in range(10)] + [("b", i, 1) for i in range(5)]
    seen = inspect(write_csv(tmp_path / "a.csv", ("client", "x", "label"), lines))
    assert seen.federation is not None
    assert seen.warnings == ["1 client(s) with a single class in train: 'b'"]


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"y": np.arange(6)}, ["no array 'x' for features"]),
        ({"x": np.zeros((6, 2)), "y": np.arange(5)}, ["array 'y': shape (5,), but 'x' has 6 rows"]),
        ({"x": np.zeros((6, 2)), "y": np.array(3)}, ["array 'y': shape ()"]),
        ({"x": np.array(["a"] * 6), "y": np.arange(6)}, ["rows 0, 1, 2 (the first of 6), column 'x'", "'a'"]),
        ({"x": np.zeros((6, 2), complex), "y": np.arange(6)}, ["column 'x': complex128 is not a number"]),
        ({"x": np.full((6, 2), np.nan), "y": np.arange(6)}, ["column 'x': is empty"]),
        ({"x": np.array([[1, 2], [np.inf, 0]] * 3), "y": np.arange(6)}, ["rows 1, 3, 5, column 'x': infinite"]),
        ({"x": np.zeros((6, 2)), "y": np.array(["cat", ""] * 3)}, ["rows 1, 3, 5, column 'y': the label is missing"]),
        ({"x": np.zeros((6, 2)), "y": np.zeros((6, 2), "U3")}, ["column 'y'", "one number or text per row"]),
    ],
)
def test_a_problem_in_an_npz_file_is_named(tmp_path, arrays, named):
    np.savez(tmp_path / "a.npz", client=np.array([0, 0, 0, 1, 1, 1]), **arrays)
    problem = only_problem(tmp_path / "a.npz")
    for part in [str(tmp_path / "a.npz"), *named]:
        assert part in problem


def test_archives_and_tables_without_rows_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((0, 2)), y=np.zeros(0), client=np.zeros(0))
    assert "has no rows" in only_problem(tmp_path / "a.npz")
    parquet.write_table(pa.table({"client": pa.array([], pa.string()), "x": [], "label": []}), tmp_path / "a.parquet")
    assert "has no rows" in only_problem(tmp_path / "a.parquet")


def test_texts_that_are_not_finite_numbers_are_no_targets(tmp_path):
    table = pa.table({"client": list("aaaa"), "x": [1.0, 2, 3, 4], "label": ["1", "-inf", "3", "inf"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert "rows 2, 4, column 'label': the label is not finite" in only_problem(
        tmp_path / "a.parquet", task="regression"
    )
    parquet.write_table(table.set_column(2, "label", pa.array(["1", "nan", "3", "4"])), tmp_path / "b.parquet")
    assert "row 2, column 'label': the label is missing" in only_problem(tmp_path / "b.parquet", task="regression")


def test_python_objects_in_an_npz_file_are_never_loaded(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}] * 3, object), y=np.arange(3), client=np.arange(3))
    assert "array 'x' cannot be read" in only_problem(tmp_path / "a.npz")


def test_files_of_a_folder_that_do_not_fit_together_are_named(tmp_path):
    header = ("age", "weight", "label")
    lines = [row[1:] for row in rows() if row[0] == "oslo"]
    write_csv(tmp_path / "a.csv", header, lines)
    write_csv(tmp_path / "b.csv", ("age", "height", "label"), lines)
    write_csv(tmp_path / "c.csv", ("weight", "age", "label"), [(w, a, y) for a, w, y in lines])
    (tmp_path / "d.csv").write_text("")
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".hidden.csv").write_text("")
    seen = inspect(tmp_path)
    text = "\n".join(seen.problems)
    assert len(seen.problems) == 2
    assert f"{tmp_path / 'b.csv'}: other columns than a.csv: it lacks 'weight' and has also 'height'" in text
    assert f"{tmp_path / 'd.csv'} is empty" in text
    assert any("'README.md'" in warning for warning in seen.warnings)
    (tmp_path / "b.csv").unlink()
    (tmp_path / "d.csv").unlink()
    federation = load(tmp_path)
    assert (federation.train.client(0)[0] <= 100).all() and federation.train.client(1)[0][:, 0].max() < 40  # by name


def test_shapes_that_differ_between_the_files_of_a_folder_are_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 3)), y=np.arange(4) % 2)
    np.savez(tmp_path / "b.npz", x=np.zeros((4, 2)), y=np.arange(4) % 2)
    problem = only_problem(tmp_path)
    assert f"{tmp_path / 'b.npz'}: an example has shape (2,), in a.npz (3,)" in problem


def test_two_files_for_one_client_are_refused(tmp_path):
    write_csv(tmp_path / "a.csv", ("x", "label"), [(i, i % 2) for i in range(4)])
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 1)), label=np.arange(4) % 2)
    assert "several files are called 'a'" in inspect(tmp_path, label="label", features=["x"]).problems[0]


def test_a_folder_of_many_files_with_one_problem_each_stays_readable(tmp_path):
    for i in range(40):
        write_csv(tmp_path / f"{i:02}.csv", ("x", "label"), [("bad", 0), (1, 1), (2, 0)])
    problems = inspect(tmp_path).problems
    assert len(problems) == 11 and problems[-1] == "30 more problems like the one before"


@pytest.mark.parametrize("name", ["nothing.csv", "nothing.parquet", "nowhere"])
def test_a_path_that_does_not_exist_is_named(tmp_path, name):
    assert f"{tmp_path / name} does not exist" in only_problem(tmp_path / name)


def test_folders_and_files_of_no_use_are_refused(tmp_path):
    assert "holds no .csv, .parquet, .npz file" in only_problem(tmp_path)
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    assert "convert it" in only_problem(tmp_path / "a.xlsx")


def test_options_that_make_no_sense_are_refused(good):
    assert "did you mean 'regression'" in only_problem(good, task="regresion")
    assert "three numbers" in only_problem(good, shares=(0.5, 0.5))
    assert "column 'age': is label and feature" in only_problem(good, label="age", features=["age"])
    assert "'yes'" in only_problem(
        write_csv(good.with_name("b.csv"), ("client", "x", "label"), [("a", i, "yes") for i in range(5)]),
        task="regression",
    )


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_cut_short_or_filled_with_garbage_is_refused_or_loaded_but_never_crashes(tmp_path, suffix):
    whole = tmp_path / f"whole{suffix}"
    WRITERS[suffix](whole)
    assert load(whole).clients == 3
    data, rng = whole.read_bytes(), np.random.default_rng(0)
    damaged = tmp_path / f"damaged{suffix}"
    for attempt in range(60):
        wreck = bytearray(data[: rng.integers(1, len(data))] if attempt % 2 else data)
        for _ in range(attempt // 4):
            wreck[rng.integers(0, len(wreck))] = rng.integers(0, 256)
        damaged.write_bytes(wreck)
        seen = inspect(damaged)
        assert (seen.federation is None) == bool(seen.problems)
        assert all(str(damaged) in problem for problem in seen.problems[:1])
    damaged.write_bytes(rng.bytes(5000))
    assert str(damaged) in only_problem(damaged)


cells = st.sampled_from(
    ["a", "b", "", "1", "2.5", "-3", "nan", "inf", "x y", '"q,q"', '"', "é", " 7 ", "1e400", "train"]
    + ["Test", "val", "?", '"3,5"', "45%", "-999", "A", " a", "\u00a0", "2024-01-31", "NA"]
)


@given(
    st.lists(
        st.sampled_from(["client", "label", "x", "split", "", "é", "fold", "id", "Unnamed: 0"]), min_size=1, max_size=5
    ),
    st.lists(st.lists(cells, min_size=1, max_size=6), max_size=8),
)
def test_any_csv_is_either_loaded_or_explained(tmp_path_factory, header, lines):
    path = tmp_path_factory.mktemp("any") / "a.csv"
    path.write_text("\n".join([",".join(header), *(",".join(line) for line in lines)]), "utf-8")
    seen = inspect(path)
    assert (seen.federation is None) == bool(seen.problems)
    if seen.federation is not None:
        assert np.isfinite(seen.federation.train.x).all()


def test_features_far_from_unit_scale_are_warned_of_and_can_be_standardized(tmp_path):
    file = tmp_path / "clinics.csv"
    rows = [f"{clinic},{50 + k},{k % 3 - 1},{k % 2}\n" for clinic in ("oslo", "rome") for k in range(10)]
    file.write_text("clinic,age,mood,ill\n" + "".join(rows))
    seen = inspect(file, client="clinic", label="ill")
    assert [w for w in seen.warnings if "far from unit scale" in w and "'age'" in w and "mood" not in w]
    scaled = inspect(file, client="clinic", label="ill", standardize=True)
    assert not scaled.warnings
    train = scaled.federation.train.x
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), 1, atol=1e-6)
    mean, spread = seen.federation.scales()
    np.testing.assert_allclose(scaled.federation.test.x, (seen.federation.test.x - mean) / spread, atol=1e-5)


def test_new_clients_are_scaled_by_the_training_clients_numbers():
    federation = linear(clients=10).hold_out_clients(0.2)
    mean, spread = federation.scales()
    scaled = federation.standardized().new.train.x
    np.testing.assert_allclose(scaled, (federation.new.train.x - mean) / spread, atol=1e-5)
    assert abs(scaled.mean(0)).max() > 1e-3  # not by their own
