"""IDX, LEAF and hub layouts, folders of pictures and of texts: read from small files made here."""

import gzip
import io
import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from apiece.data import inspect, load, source
from apiece.data.sources.fashion import FILES, read_idx
from apiece.errors import UserError

SPLITS = ("train", "validation", "test")


def all_of(federation, key):
    return np.concatenate([getattr(getattr(federation, part), key) for part in SPLITS])


# IDX


def write_idx(file, array, zipped=False):
    kind = {"u1": 0x08, "i4": 0x0C, "f4": 0x0D}[array.dtype.str[1:]]
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    data = bytes([0, 0, kind, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()
    file.write_bytes(gzip.compress(data) if zipped else data)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_an_idx_file_gives_back_its_array(tmp_path, dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for zipped in (False, True):
        write_idx(tmp_path / "a", array, zipped)
        found = read_idx(tmp_path / "a")
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


def test_a_file_that_is_no_idx_file_or_cut_short_is_refused(tmp_path):
    write_idx(tmp_path / "a", np.arange(10, dtype=np.uint8))
    whole = (tmp_path / "a").read_bytes()
    for data in (
        b"",
        b"abc",
        b"\0\0\x08",
        b"\0\0\x01\x01\0\0\0\0",
        whole[:-1],
        whole + b"x",
        gzip.compress(whole)[:-9],
    ):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(UserError, match="a"):
            read_idx(tmp_path / "a")


def test_clothes_are_read_from_the_folder_of_the_debian_package(tmp_path):
    with pytest.raises(UserError, match="install the Debian package dataset-fashion-mnist"):
        source("fashion_mnist", folder=str(tmp_path))
    rng = np.random.default_rng(0)
    for k, rows in enumerate((60, 20)):
        write_idx(tmp_path / FILES["x"][k], rng.integers(0, 256, (rows, 28, 28), dtype=np.uint8))
        write_idx(tmp_path / f"{FILES['y'][k]}.gz", np.arange(rows, dtype=np.uint8) % 10, zipped=True)
    federation = source("fashion_mnist", folder=str(tmp_path), clients=4, partition="iid")
    assert sum(federation.summary()["examples"].values()) == 80 and federation.classes[9] == "ankle boot"
    assert federation.train.x.dtype == np.uint8 and federation.train.x.shape[1:] == (28, 28)


# Pictures


def png(array):
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(array).save(held, "PNG")
    return held.getvalue()


def pictures(rng, number, shape=(6, 5)):
    return [rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(number)]


@pytest.fixture
def album(tmp_path):
    """Two clients with a folder for each label; a third with labels in a file."""
    rng = np.random.default_rng(0)
    held = {}
    for client in ("anna", "ben"):
        for label in ("cat", "dog"):
            (tmp_path / client / label).mkdir(parents=True)
            for k, picture in enumerate(pictures(rng, 4)):
                (tmp_path / client / label / f"{k}.png").write_bytes(png(picture))
                held[client, label, k] = picture
    (tmp_path / "carl").mkdir()
    lines = ["file,label"]
    for k, picture in enumerate(pictures(rng, 6)):
        (tmp_path / "carl" / f"{k}.png").write_bytes(png(picture))
        lines.append(f"{k}.png,{('cat', 'dog')[k % 2]}")
        held["carl", ("cat", "dog")[k % 2], k] = picture
    (tmp_path / "carl" / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path, held


def test_a_folder_of_pictures_is_a_federation(album):
    folder, held = album
    seen = inspect(folder)
    assert seen.problems == [] and seen.found["format"] == "images" and seen.found["files"] == 22
    federation = seen.federation
    assert federation.ids.tolist() == ["anna", "ben", "carl"] and federation.classes == ("cat", "dog")
    assert federation.train.x.dtype == np.uint8 and federation.train.x.shape[1:] == (6, 5)
    for client, name in enumerate(federation.ids):
        for part in SPLITS:
            for x, y in zip(*getattr(federation, part).client(client), strict=True):
                assert any(
                    (x == p).all() for (c, label, _), p in held.items() if (c, label) == (name, ("cat", "dog")[y])
                )


def test_one_picture_in_colour_makes_all_of_them_red_green_blue(album):
    folder, _ = album
    (folder / "anna" / "cat" / "9.png").write_bytes(png(np.full((6, 5, 3), 7, np.uint8)))
    x = all_of(load(folder), "x")
    assert x.shape == (23, 6, 5, 3) and (x == 7).all((1, 2, 3)).sum() == 1


def test_pictures_of_another_size_broken_or_without_a_label_are_named(album):
    folder, _ = album
    (folder / "anna" / "stray.png").write_bytes(png(np.zeros((6, 5), np.uint8)))
    assert "'stray.png' have no label" in inspect(folder).problems[0]
    (folder / "anna" / "stray.png").unlink()
    (folder / "carl" / "labels.csv").write_text("file,label\n0.png,cat\nnone.png,dog\n")
    told = "\n".join(inspect(folder).problems)
    assert "no picture 'none.png'" in told and "no label for '1.png', '2.png', '3.png' and 2 more" in told
    (folder / "ben" / "dog" / "9.png").write_bytes(png(np.zeros((4, 5), np.uint8)))
    assert "5 x 4 pixels" in inspect(folder).problems[0]
    (folder / "ben" / "dog" / "9.png").write_bytes(b"not a picture")
    assert "9.png is not a readable picture" in inspect(folder).problems[0]


def test_without_pillow_it_is_told_how_to_get_it(album, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UserError, match=r"pip install 'apiece\[images\]'"):
        load(album[0])


# Texts


def test_a_text_for_each_author_is_a_federation_of_sequences(tmp_path):
    (tmp_path / "austen.txt").write_text("it is a truth universally acknowledged. " * 5, "utf-8")
    (tmp_path / "dante.txt").write_text("nel mezzo del cammin di nostra vita è " * 5, "utf-8")
    seen = inspect(tmp_path, length=16)
    assert seen.problems == [] and seen.found["task"] == "next_character"
    federation = seen.federation
    assert federation.ids.tolist() == ["austen", "dante"] and federation.task == "next_character"
    for part in SPLITS:
        split = getattr(federation, part)
        np.testing.assert_array_equal(split.x[:, 1:], split.y[:, :-1])
    said = "".join(federation.classes[c] for c in federation.train.client(0)[0].ravel())
    assert ("it is a truth universally acknowledged. " * 5).startswith(said)
    assert "è" in federation.classes


def test_the_vocabulary_is_that_of_the_training_text(tmp_path):
    (tmp_path / "a.txt").write_text("ab" * 40 + "zz" * 20)
    federation = load(tmp_path, length=10, task="next_character")
    assert federation.classes == ("<unknown>", "a", "b") and (federation.test.y == 0).all()


def test_texts_that_are_too_short_are_named_and_can_be_left_out(tmp_path):
    (tmp_path / "long.txt").write_text("abcd" * 20)
    (tmp_path / "short.txt").write_text("abcd" * 5)
    problem = inspect(tmp_path, length=10).problems[0]
    assert "less than 3 sequences of 10 characters: 'short'" in problem and "min_size=31" in problem
    assert load(tmp_path, length=10, min_size=31).ids.tolist() == ["long"]
    assert "no client has the 999 characters" in inspect(tmp_path, length=10, min_size=999).problems[0]
    assert "length must be at least 1" in inspect(tmp_path, length=0).problems[0]


def test_a_column_that_holds_no_texts_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("client,text\na,1\na,2\n")
    assert "column 'text': must be one text per row" in inspect(tmp_path / "a.csv", task="next_character").problems[0]
    assert (
        "texts are one column"
        in inspect(tmp_path / "a.csv", task="next_character", features=["text", "client"]).problems[0]
    )


def test_a_readme_beside_tables_is_no_author(tmp_path):
    (tmp_path / "README.txt").write_text("what this is")
    (tmp_path / "a.csv").write_text("x,label\n" + "1,0\n2,1\n" * 4)
    seen = inspect(tmp_path)
    assert seen.federation.ids.tolist() == ["a"] and "README.txt" in seen.warnings[0]


def test_a_federation_of_texts_is_saved_with_its_notes_and_opened(tmp_path):
    (tmp_path / "a").mkdir()
    for author in ("a", "b"):
        (tmp_path / "a" / f"{author}.txt").write_text("abcd" * 40)
    federation = load(tmp_path / "a", length=10)
    found = load(federation.save(tmp_path / "saved"))
    assert found.task == "next_character" and found.classes == federation.classes and found.notes == ()
    np.testing.assert_array_equal(found.test.y, federation.test.y)


# In time, and new clients by a column


def test_rows_are_dealt_in_time_by_a_column(tmp_path):
    rng = np.random.default_rng(0)
    day = np.concatenate([rng.permutation(10), rng.permutation(10)])
    lines = [f"{'ab'[i // 10]},{d},{d % 2}" for i, d in enumerate(day)]
    (tmp_path / "a.csv").write_text("\n".join(["client,day,label", *lines]) + "\n")
    federation = load(tmp_path / "a.csv", order="day", features=["day"])
    for client in (0, 1):
        days = [sorted(getattr(federation, part).client(client)[0].ravel().tolist()) for part in SPLITS]
        assert days == [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9]]
    assert inspect(tmp_path / "a.csv", order="day", features=["day"]).found["split"] == "in order of day"
    assert "no column 'dai' for order" in inspect(tmp_path / "a.csv", order="dai").problems[0]


def test_clients_that_never_train_are_told_by_a_column(tmp_path):
    file = tmp_path / "a.csv"
    write = lambda flags: file.write_text(
        "client,late,x,label\n" + "".join(f"{c},{flags[c]},{i},{i % 2}\n" for c in "abc" for i in range(6))
    )
    write({"a": 0, "b": 1, "c": 0})
    federation = load(file, new="late")
    assert federation.ids.tolist() == ["a", "c"] and federation.new.ids.tolist() == ["b"]
    assert federation.features == ("x",)
    write({"a": 1, "b": 1, "c": 1})
    assert "all clients are new" in inspect(file, new="late").problems[0]
    write({"a": "maybe", "b": 1, "c": 1})
    assert "'maybe' is neither 1 nor 0" in inspect(file, new="late").problems[0]
    file.write_text("client,late,x,label\n" + "".join(f"a,{i % 2},{i},{i % 2}\n" for i in range(6)))
    assert "'a' is new in some rows only" in inspect(file, new="late").problems[0]


def test_rules_are_fitted_without_new_clients(tmp_path):
    rows = [("a", 0, 1.0), ("b", 1, 100.0)]
    lines = [f"{c},{new},{'' if i == 0 else value + i},{i % 2}" for c, new, value in rows for i in range(9)]
    (tmp_path / "a.csv").write_text("\n".join(["client,new,x,label", *lines]) + "\n")
    federation = load(tmp_path / "a.csv", new="new", standardize=True)
    assert abs(federation.train.x[:, 0].mean()) < 1e-5 and federation.new.train.x[:, 0].mean() > 10


# LEAF


def leaf(file, users):
    told = {"users": list(users), "num_samples": [len(u["y"]) for u in users.values()], "user_data": users}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told))


def user(rng, rows):
    return {"x": rng.random((rows, 4)).round(3).tolist(), "y": [i % 3 for i in range(rows)]}


def test_a_file_of_leaf_is_read(tmp_path):
    rng = np.random.default_rng(0)
    users = {"f01": user(rng, 9), "f02": user(rng, 12)}
    leaf(tmp_path / "all_data.json", users)
    federation = load(tmp_path / "all_data.json")
    assert federation.ids.tolist() == ["f01", "f02"] and federation.classes == ("0", "1", "2")
    given = np.array([x for u in users.values() for x in u["x"]], np.float32)
    assert sorted(all_of(federation, "x").tolist()) == sorted(given.tolist())


def test_leafs_train_and_test_folders_keep_their_rows_apart(tmp_path):
    rng = np.random.default_rng(0)
    train, test = ({n: user(rng, rows) for n in ("a", "b")} for rows in (20, 5))
    leaf(tmp_path / "train" / "one.json", {"a": train["a"]})
    leaf(tmp_path / "train" / "two.json", {"b": train["b"]})
    leaf(tmp_path / "test" / "one.json", test)
    federation = load(tmp_path)
    assert federation.test.sizes.tolist() == [5, 5] and federation.validation.sizes.tolist() == [5, 5]
    np.testing.assert_allclose(federation.test.client(0)[0], test["a"]["x"], rtol=1e-6)


def test_users_of_leafs_test_folder_alone_are_new_clients(tmp_path):
    rng = np.random.default_rng(0)
    leaf(tmp_path / "train" / "a.json", {"a": user(rng, 9), "b": user(rng, 9)})
    leaf(tmp_path / "test" / "a.json", {"c": user(rng, 9)})
    federation = load(tmp_path)
    assert federation.ids.tolist() == ["a", "b"] and federation.new.ids.tolist() == ["c"]


def test_leafs_texts_become_sequences(tmp_path):
    text = "to be or not to be that is the question"
    rows = lambda text: {"x": [text[i : i + 8] for i in range(20)], "y": [text[i + 8] for i in range(20)]}
    leaf(tmp_path / "a.json", {"HAMLET": rows(text), "GHOST": rows(text[::-1])})
    federation = load(tmp_path / "a.json")
    assert federation.task == "next_character" and federation.train.x.shape[1:] == (8,)
    assert all_of(federation, "x").shape == (40, 8)
    read = lambda row: "".join(federation.classes[c] for c in row)
    x, y = federation.train.client(federation.index_of("HAMLET"))
    assert read(x[0]) == text[:8] and read(y[0]) == text[1:9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ('{"users": ["a"]}', "is not a file of LEAF"),
        ('{"users": ["a"], "num_samples": [2], "user_data": {"a": {"x": [[1]], "y": [1]}}}', "num_samples says 2"),
        ('{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [["w"]], "y": [1]}}}', "lists of numbers"),
        ('{"users": [], "num_samples": [], "user_data": {}}', "no examples"),
        ('{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": ["ab"], "y": ["cd"]}}}', "one character"),
    ],
)
def test_a_broken_file_of_leaf_is_explained(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    assert message in inspect(tmp_path / "a.json").problems[0]


# The Hugging Face hub


def hub_copy(folder, columns, names, splits=("train", "test")):
    """Parquet files as the hub has them: pictures as PNG bytes, names of classes in the metadata of the schema."""
    features = {key: {"names": list(values), "_type": "ClassLabel"} for key, values in names.items()}
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    for number, split in enumerate(splits):
        data = {key: values[number::2] if len(splits) > 1 else values for key, values in columns.items()}
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(data).replace_schema_metadata(told), folder / f"{split}-00000-of-00001.parquet")


def cells(arrays):
    return [{"bytes": png(array), "path": None} for array in arrays]


@pytest.mark.parametrize(("name", "image", "shape"), [("mnist", "image", (28, 28)), ("cifar10", "img", (32, 32, 3))])
def test_pictures_of_the_hub_are_read_from_a_local_copy(tmp_path, name, image, shape):
    drawn = pictures(np.random.default_rng(0), 40, shape)
    labels = [k // 2 % 4 for k in range(40)]
    hub_copy(tmp_path / name / "data", {image: cells(drawn), "label": labels}, {"label": ["n", "e", "s", "w"]})
    federation = source(name, folder=str(tmp_path), clients=4, partition="iid")
    assert federation.classes == ("n", "e", "s", "w") and federation.name == name
    x, y = all_of(federation, "x"), all_of(federation, "y")
    assert x.shape == (40, *shape)
    for picture, label in zip(drawn, labels, strict=True):
        assert y[(x == picture).reshape(40, -1).all(1)].tolist() == [label]


def test_cifar100_has_fine_and_coarse_labels(tmp_path):
    columns = {"img": cells(pictures(np.random.default_rng(0), 20, (32, 32, 3)))}
    columns |= {"fine_label": [k // 2 % 5 for k in range(20)], "coarse_label": [k // 2 % 2 for k in range(20)]}
    hub_copy(tmp_path, columns, {"fine_label": list("abcde"), "coarse_label": ["x", "y"]})
    how = dict(folder=str(tmp_path), clients=2, partition="iid")
    assert source("cifar100", **how).classes == tuple("abcde")
    assert source("cifar100", labels="coarse_label", **how).classes == ("x", "y")
    with pytest.raises(UserError, match="lacks the column medium_label"):
        source("cifar100", labels="medium_label", **how)


def femnist_copy(folder):
    rng = np.random.default_rng(0)
    who = np.repeat(["f0000_14", "f0001_41", "f0002_02"], 12)
    columns = {"image": cells(pictures(rng, 36, (28, 28))), "writer_id": who.tolist(), "hsf_id": [0] * 36}
    columns["character"] = [k % 3 for k in range(36)]
    hub_copy(folder, columns, {"character": ["A", "B", "C", "D"]}, splits=("train",))


def test_femnist_has_its_writers_as_clients(tmp_path):
    femnist_copy(tmp_path)
    federation = source("femnist", folder=str(tmp_path))
    assert federation.ids.tolist() == ["f0000_14", "f0001_41", "f0002_02"] and federation.classes == ("A", "B", "C")
    assert source("femnist", folder=str(tmp_path), writers=2).clients == 2


def test_shakespeare_of_the_hub_has_its_roles_as_clients(tmp_path):
    text = "now is the winter of our discontent made glorious summer"
    x, y = [text[i : i + 8] for i in range(40)], [text[i + 8] for i in range(40)]
    columns = {"character_id": ["KING"] * 20 + ["FOOL"] * 20, "x": x, "y": y}
    hub_copy(tmp_path, columns, {}, splits=("train",))
    federation = source("shakespeare", folder=str(tmp_path))
    assert federation.ids.tolist() == ["FOOL", "KING"] and federation.train.x.shape[1:] == (8,)
    with pytest.raises(UserError, match="no client has"):
        source("shakespeare", folder=str(tmp_path), min_size=100)


def test_tweets_of_the_hub_have_their_users_as_clients_and_words_as_tokens(tmp_path):
    said = ["What a GOOD day :)", "good good", "bad bad day..."] * 4
    columns = {"text": [*said, *said, "I am alone"], "user": ["ann"] * 12 + ["bob"] * 12 + ["eve"], "query": ["-"] * 25}
    hub_copy(tmp_path, columns | {"sentiment": [4, 4, 0] * 8 + [0]}, {}, splits=("train",))
    federation = source("sentiment140", folder=str(tmp_path), length=4)
    assert federation.ids.tolist() == ["ann", "bob"] and federation.classes == ("bad", "good")
    x, y = all_of(federation, "x"), all_of(federation, "y")
    sad, glad = np.unique(x[y == 0], axis=0), np.unique(x[y == 1], axis=0)
    assert x.shape == (24, 4) and len(sad) == 1 and len(glad) == 2
    bad, again, day, none = sad[0]
    assert bad == again > 0 and none == -1 and glad[:, 3].tolist() in ([-1, day], [day, -1])
    assert source("sentiment140", folder=str(tmp_path), users=1).ids.tolist() == ["ann"]
    with pytest.raises(UserError, match="no user has min_size = 100 tweets; the most that one has are 12"):
        source("sentiment140", folder=str(tmp_path), min_size=100)


def test_a_folder_that_is_no_copy_of_the_hub_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"holds no Parquet file called train-"):
        source("mnist", folder=str(tmp_path))
    (tmp_path / "train-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="cannot be read"):
        source("mnist", folder=str(tmp_path))


def test_without_the_library_it_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"ylecun/mnist .* pip install 'apiece\[hub\]'.*folder="):
        source("mnist")


def test_without_a_network_it_is_told_and_a_local_copy_is_proposed(monkeypatch):
    def load_dataset(repo, split):
        raise ConnectionError(f"Couldn't reach '{repo}' on the Hub")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(UserError, match=r"flwrlabs/femnist could not be fetched .* not in its cache .*folder="):
        source("femnist")


def test_the_library_itself_reads_a_copy_as_pyarrow_does(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    femnist_copy(tmp_path / "copy")
    expected = source("femnist", folder=str(tmp_path / "copy"))
    fetch = datasets.load_dataset
    local = lambda repo, split: fetch(str(tmp_path / "copy"), split=split, cache_dir=str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "load_dataset", local)
    found = source("femnist")
    np.testing.assert_array_equal(found.train.x, expected.train.x)
    assert found.classes == expected.classes
