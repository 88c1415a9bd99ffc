"""The real federations by name: as many clients and examples as there should be, and a model learns from them."""

import os

import numpy as np
import pytest

from apiece import fit
from apiece.data import source

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("APIECE_DATA" not in os.environ, reason="APIECE_DATA names no folder with the real data sets"),
]
SPLITS = ("train", "validation", "test")


def rows(federation):
    return sum(getattr(federation, part).rows for part in SPLITS)


def sizes(federation):
    return sum(getattr(federation, part).sizes for part in SPLITS)


def test_539_writers_train_and_297_are_new():
    federation = source("mnist_by_writer")
    assert (federation.clients, federation.new.clients) == (539, 297)
    assert (rows(federation), rows(federation.new)) == (60_000, 10_000)
    assert (sizes(federation).min(), sizes(federation).max()) == (19, 131)
    assert set(federation.truth["personal_series"]) == set(federation.new.truth["personal_series"]) == {0, 4}
    assert not set(federation.ids) & set(federation.new.ids)


def test_the_pictures_of_cifar_are_a_thousand_of_each_class():
    federation = source("cifar10_subset", clients=20, partition="by_classes", k=2)
    labels = np.concatenate([getattr(federation, part).y for part in SPLITS])
    assert np.bincount(labels).tolist() == [1000] * 10 and federation.train.x.shape[1:] == (32, 32, 3)
    assert federation.classes[0] == "airplane"


def test_1567_roles_speak_and_670_of_them_a_thousand_characters():
    federation = source("shakespeare_roles")
    assert federation.clients == 670 and federation.train.x.shape[1:] == (80,)
    assert len({client.split(" / ")[0] for client in federation.ids}) <= 39
    assert len(federation.classes) <= 72  # 70 characters, the line break, and one for all others
    for part in SPLITS:
        split = getattr(federation, part)
        np.testing.assert_array_equal(split.x[:, 1:], split.y[:, :-1])
        assert (split.sizes > 0).all()
    assert source("shakespeare_roles", min_characters=1, length=1, shares=(1, 0, 0)).clients > 1500


def test_30_people_move_in_six_ways():
    federation = source("har_by_subject")
    assert (federation.clients, rows(federation), len(federation.classes)) == (30, 10_299, 6)
    assert federation.train.x.shape[1:] == (128, 9) and federation.train.x.dtype == np.float32
    assert "overlap" in federation.notes[0]


def test_60_people_say_a_word_50_times():
    federation = source("audiomnist_by_speaker", word=3)
    assert federation.clients == 60 and set(sizes(federation)) == {500} and federation.binary
    assert sum(getattr(federation, part).y.sum() for part in SPLITS) == 60 * 50


def test_four_hospitals_have_their_patients_and_the_disease_is_learned():
    federation = source("heart_by_hospital")
    assert dict(zip(federation.ids.tolist(), sizes(federation).tolist(), strict=True)) == {
        "cleveland": 303,
        "hungarian": 294,
        "switzerland": 123,
        "va": 200,
    }
    assert federation.classes == ("healthy", "sick") and np.isfinite(federation.train.x).all()
    found = fit("fed_avg", federation=federation, rounds=40, options={"lr": 0.05}).evaluate()["test"]["accuracy"]
    assert found["mean_weighted"] > max((federation.test.y == c).mean() for c in (0, 1)) + 0.1


def test_139_schools_and_23_sensors():
    schools, sensors = source("school_by_school"), source("vehicle_by_sensor")
    assert (schools.clients, rows(schools), schools.train.x.shape[1], schools.task) == (139, 15_362, 28, "regression")
    assert (sensors.clients, rows(sensors), sensors.train.x.shape[1], sensors.binary) == (23, 1_860, 100, True)
    assert (sizes(sensors).min(), sizes(sensors).max()) == (7, 534)
    assert fit("fed_avg", federation=schools, rounds=40, options={"lr": 0.02}).evaluate()["test"]["r2"] > 0.2
