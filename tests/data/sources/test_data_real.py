"""Sources that read files of a folder named by APIECE_DATA, on small files of the same layout."""

import csv

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from apiece.data import source
from apiece.errors import UserError

LOCAL = {
    "mnist_by_writer": "mnist_by_writer.npz",
    "cifar10_subset": "cifar10_subset.npz",
    "shakespeare_roles": "shakespeare_roles.parquet",
    "har_by_subject": "har_by_subject.npz",
    "audiomnist_by_speaker": "audiomnist_by_speaker.npz",
    "heart_by_hospital": "heart_by_hospital.csv",
    "school_by_school": "school_by_school.npz",
    "vehicle_by_sensor": "vehicle_by_sensor.npz",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("APIECE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("name", LOCAL)
def test_a_missing_folder_or_file_is_told_with_what_to_put_where(name, tmp_path, monkeypatch):
    monkeypatch.delenv("APIECE_DATA", raising=False)
    with pytest.raises(UserError, match=f"reads the file {LOCAL[name]}: put it into a folder .* APIECE_DATA"):
        source(name)
    monkeypatch.setenv("APIECE_DATA", str(tmp_path))
    with pytest.raises(UserError, match=f"no file {LOCAL[name]} in {tmp_path}"):
        source(name)


def test_writers_of_test_digits_are_new_clients(place, rng):
    def part(writers, per, suffix):
        rows = len(writers) * per
        return {
            f"x_{suffix}": rng.integers(0, 256, (rows, 28, 28), dtype=np.uint8),
            f"y_{suffix}": np.tile(np.arange(per, dtype=np.uint8), len(writers)),
            f"writer_{suffix}": np.repeat(np.array(writers, np.int16), per),
            f"hsf_{suffix}": np.repeat(np.array(writers, np.int8) % 2 * 4, per),
        }

    arrays = part([0, 1, 7], 10, "train") | part([3, 5], 10, "test")
    np.savez(place / "mnist_by_writer.npz", **arrays)
    federation = source("mnist_by_writer")
    assert federation.ids.tolist() == ["0", "1", "7"] and federation.new.ids.tolist() == ["3", "5"]
    assert federation.train.x.shape == (18, 28, 28) and federation.train.x.dtype == np.uint8
    assert len(federation.classes) == len(federation.new.classes) == 10
    assert federation.truth["personal_series"].tolist() == [0, 4, 4]
    assert federation.new.truth["personal_series"].tolist() == [4, 4]
    writer = federation.new.index_of("5")
    x, y = (
        np.concatenate([getattr(federation.new, p).client(writer)[k] for p in ("train", "validation", "test")])
        for k in (0, 1)
    )
    np.testing.assert_array_equal(x[np.argsort(y)], arrays["x_test"][10:])


def test_pictures_without_clients_are_cut_by_a_partition(place, rng):
    arrays = {}
    for suffix, rows in (("train", 80), ("test", 20)):
        arrays[f"x_{suffix}"] = rng.integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8)
        arrays[f"y_{suffix}"] = np.arange(rows, dtype=np.uint8) % 10
    names = np.array([f"class{c}" for c in range(10)])
    np.savez(place / "cifar10_subset.npz", classes=names, **arrays)
    federation = source("cifar10_subset", clients=10, partition="by_classes", k=2)
    assert federation.summary()["classes_per_client"]["max"] == 2
    assert federation.classes == tuple(names) and sum(federation.summary()["examples"].values()) == 100


def test_speeches_become_sequences_in_the_order_of_the_play(place):
    lines = {("hamlet", "Ghost"): ["abcdefghij" * 3, "klmnopqrst" * 3], ("lear", "Fool"): ["uvwxyz" * 12]}
    rows = [(p, r, i, t) for (p, r), texts in lines.items() for i, t in enumerate(texts)]
    rows += [("lear", "Page", 9, "no")]
    rows = rows[::-1]  # the order is told by a column, not by the rows
    columns = dict(zip(("play", "role", "order", "text"), map(list, zip(*rows, strict=True)), strict=True))
    parquet.write_table(pa.table(columns | {"title": [""] * len(rows)}), place / "shakespeare_roles.parquet")
    federation = source("shakespeare_roles", min_characters=50, length=10)
    assert federation.ids.tolist() == ["hamlet / Ghost", "lear / Fool"] and federation.task == "next_character"
    assert federation.train.x.dtype == np.int32 and federation.train.x.shape[1:] == (10,)
    spoken = lambda rows: ["".join(federation.classes[c] for c in row) for row in rows]
    ghost = [spoken(getattr(federation, part).client(0)[0]) for part in ("train", "validation", "test")]
    assert ghost[0][0] == "abcdefghij" and [len(part) for part in ghost] == [4, 1, 1]
    assert spoken(federation.train.client(0)[1])[0] == "bcdefghija"
    whole = "".join(text for part in ghost for text in part)
    assert ("abcdefghij" * 3 + "\n" + "klmnopqrst" * 3).startswith(whole.split("<")[0])
    assert "\n" in federation.classes and federation.classes[0] == "<unknown>"


def test_windows_of_sensors_are_turned_and_their_overlap_is_noted(place, rng):
    x = rng.normal(size=(60, 9, 128)).astype(np.float16)
    classes = np.array(["WALK", "SIT"])
    subject = np.repeat(np.arange(1, 4, dtype=np.uint8), 20)
    y = np.arange(60, dtype=np.uint8) % 2
    np.savez(place / "har_by_subject.npz", x=x, y=y, subject=subject, heldout=np.zeros(60, np.uint8), classes=classes)
    federation = source("har_by_subject")
    assert federation.classes == ("WALK", "SIT") and federation.train.x.dtype == np.float32
    assert federation.train.x.shape[1:] == (128, 9)
    first = federation.train.client(0)[0][0]
    assert any((window.T.astype(np.float32) == first).all() for window in x[:20])
    assert "overlap" in federation.notes[0] and federation.summary()["notes"] == list(federation.notes)


def test_one_spoken_word_is_told_from_the_rest(place, rng):
    y = np.tile(np.arange(10, dtype=np.uint8), 12)
    speaker = np.repeat(np.arange(1, 5, dtype=np.uint8), 30)
    np.savez(
        place / "audiomnist_by_speaker.npz",
        x=rng.integers(0, 256, (120, 32, 32), dtype=np.uint8),
        y=y,
        speaker=speaker,
        rep=np.zeros(120, np.uint8),
    )
    assert len(source("audiomnist_by_speaker").classes) == 10
    federation = source("audiomnist_by_speaker", word=7)
    assert federation.binary and federation.classes == ("other", "7")
    labels = np.concatenate([federation.train.y, federation.validation.y, federation.test.y])
    assert labels.sum() == 12 and labels.dtype == np.int32
    with pytest.raises(UserError, match="word=12 is none of the words"):
        source("audiomnist_by_speaker", word=12)


HEART = [
    "hospital",
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
    "num",
]


def test_hospitals_have_gaps_filled_and_a_cholesterol_of_zero_is_a_gap(place, rng):
    with (place / "heart_by_hospital.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEART)
        for hospital in ("cleveland", "va"):
            for k in range(30):
                chol = "0" if k % 3 == 0 else 200 + k
                thal = "" if k % 4 == 0 else (3, "6.0", 7)[k % 3]
                writer.writerow([hospital, 40 + k, k % 2, 1 + k % 4, 120, chol, 0, 0, 150, 0, 1.5, 1, "", thal, k % 3])
    # `ca` is empty altogether: that is no column to learn from
    with pytest.raises(UserError, match="column 'ca': is empty"):
        source("heart_by_hospital")
    text = (place / "heart_by_hospital.csv").read_text().replace(",,", ",2,", 20)
    (place / "heart_by_hospital.csv").write_text(text)
    federation = source("heart_by_hospital", standardize=False)
    assert federation.classes == ("healthy", "sick") and federation.ids.tolist() == ["cleveland", "va"]
    names = federation.features
    assert {"chol missing", "thal=3", "thal=6", "thal=7", "cp=4"} <= set(names) and "thal=6.0" not in names
    x = federation.train.x
    assert x[:, names.index("chol")].min() >= 200 and 0 < x[:, names.index("chol missing")].mean() < 1
    scaled = source("heart_by_hospital").train.x
    assert abs(scaled[:, names.index("age")].mean()) < 1e-5 and set(np.unique(scaled[:, names.index("cp=4")])) == {0, 1}


def test_schools_are_a_regression_and_sensors_have_two_classes(place, rng):
    task = np.repeat(np.arange(4, dtype=np.uint8), 10)
    x = (rng.normal(size=(40, 28)) * 30 + 50).astype(np.float32)
    np.savez(place / "school_by_school.npz", x=x, y=rng.integers(1, 60, 40).astype(np.float32), task=task)
    schools = source("school_by_school")
    assert schools.task == "regression" and schools.clients == 4
    np.testing.assert_allclose(schools.train.x.std(0), 1, atol=1e-4)
    np.savez(place / "vehicle_by_sensor.npz", x=x, y=rng.choice([-1, 1], 40).astype(np.int8), task=task)
    sensors = source("vehicle_by_sensor")
    assert sensors.binary and sensors.classes == ("-1", "1")


def test_shares_that_make_no_sense_are_refused(place, rng):
    x, y, task = np.zeros((9, 3), np.float32), np.arange(9) % 2, np.zeros(9, int)
    np.savez(place / "vehicle_by_sensor.npz", x=x, y=y, task=task)
    with pytest.raises(UserError, match="three numbers"):
        source("vehicle_by_sensor", shares=(0.5, 0.5))


def test_another_file_of_that_name_is_refused(place):
    np.savez(place / "mnist_by_writer.npz", x=np.zeros(3))
    with pytest.raises(UserError, match=r"lacks x_train, .*is it another file"):
        source("mnist_by_writer")
    (place / "heart_by_hospital.csv").write_text("hospital,age\nva,3\n")
    with pytest.raises(UserError, match="lacks chol, num"):
        source("heart_by_hospital")
