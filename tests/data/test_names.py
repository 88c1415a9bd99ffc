"""Clients and labels by their names: the same federation as by numbers."""

import numpy as np
import pytest

from apiece.data import from_rows

X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
Y = np.arange(30) % 2
NUMBER = np.arange(30) % 3


def same(one, other):
    assert one.ids.tolist() == other.ids.tolist() and one.classes == other.classes and one.task == other.task
    for part in ("train", "validation", "test"):
        mine, theirs = getattr(one, part), getattr(other, part)
        assert np.array_equal(mine.x, theirs.x) and np.array_equal(mine.offsets, theirs.offsets)
        assert np.array_equal(mine.y, theirs.y) and mine.y.dtype == theirs.y.dtype


@pytest.mark.parametrize("kind", [str, object])
def test_clients_by_name_are_those_by_number(kind):
    names = np.array(["ann", "bob", "cy"])
    by_number = from_rows(X, Y, NUMBER, ids=names, classes=("no", "yes"))
    same(from_rows(X, Y, names[NUMBER].astype(kind), classes=("no", "yes")), by_number)


def test_named_clients_come_in_the_order_of_the_ids():
    names = np.array(["cy", "ann", "bob"])
    same(from_rows(X, Y * 1.0, names[NUMBER], ids=names), from_rows(X, Y * 1.0, NUMBER, ids=names))


def test_labels_by_name_are_those_by_number():
    classes = ("no", "yes")
    same(from_rows(X, np.array(classes)[Y], NUMBER, classes=classes), from_rows(X, Y, NUMBER, classes=classes))
