"""Federations: invariants, splitting, holding clients out, and the folder on disk."""

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece.data import Federation, Split, from_rows
from apiece.data.deal import deal
from apiece.data.sources.synthetic import linear, many, quadratics
from apiece.errors import UserError

owners = st.lists(st.integers(1, 12), min_size=1, max_size=15).flatmap(
    lambda sizes: st.permutations([i for i, size in enumerate(sizes) for _ in range(size)])
)
shares = st.tuples(st.floats(0.05, 1), st.floats(0, 1), st.floats(0, 1))


def labelled(client, seed=0, shares=(0.6, 0.2, 0.2)):
    """Rows that carry their own number, so that they can be found again."""
    n = len(client)
    return from_rows(np.arange(n)[:, None], np.arange(n) % 3, client, classes=("a", "b", "c"), shares=shares, seed=seed)


def parts(federation):
    return federation.train, federation.validation, federation.test


@given(owners, shares, st.integers(0, 5))
def test_every_example_goes_to_exactly_one_split_of_its_own_client(client, shares, seed):
    federation = labelled(client, seed, shares)
    rows = np.concatenate([split.x[:, 0] for split in parts(federation)])
    owner = np.concatenate([split.owner for split in parts(federation)])
    y = np.concatenate([split.y for split in parts(federation)])
    assert sorted(rows) == list(range(len(client)))
    assert (np.asarray(client)[rows] == owner).all()
    assert (rows % 3 == y).all()


@given(owners, shares)
def test_every_client_trains_and_with_three_examples_is_in_every_split_that_has_a_share(client, shares):
    sizes = np.bincount(client)
    for number, (split, share) in enumerate(zip(parts(labelled(client, 0, shares)), shares, strict=True)):
        assert (split.sizes[sizes >= 3] >= (share > 0)).all() or number == 0
        if number == 0:
            assert (split.sizes >= 1).all()
        if share == 0:
            assert split.rows == 0


@given(owners, st.integers(0, 5))
def test_the_same_seed_deals_the_same_splits(client, seed):
    assert (deal(client, seed=seed) == deal(client, seed=seed)).all()


def test_another_seed_deals_other_splits():
    client = np.zeros(100, int)
    assert (deal(client, seed=0) != deal(client, seed=1)).any()


def test_shares_are_met_for_large_clients():
    assert np.bincount(deal(np.zeros(1000, int), shares=(0.7, 0.2, 0.1))).tolist() == [700, 200, 100]


def test_a_given_split_is_followed():
    federation = from_rows(np.arange(6.0)[:, None], np.zeros(6), [0, 0, 0, 1, 1, 1], split=[0, 1, 2, 2, 0, 0])
    assert federation.train.x[:, 0].tolist() == [0, 4, 5]
    assert federation.validation.sizes.tolist() == [1, 0]
    assert federation.test.x[:, 0].tolist() == [2, 3]


def test_uint8_stays_uint8_and_labels_are_int32():
    federation = from_rows(np.zeros((9, 4), np.uint8), np.zeros(9, np.int64), [0] * 9, classes=("a",))
    assert federation.train.x.dtype == np.uint8
    assert federation.train.y.dtype == np.int32


def test_a_client_is_a_view_without_a_copy():
    federation = linear(clients=3)
    x, y = federation.train.client(1)
    assert np.shares_memory(x, federation.train.x) and np.shares_memory(y, federation.train.y)
    assert (x == federation.train.x[50:100]).all()


def test_held_out_clients_never_train_and_nobody_is_lost():
    whole = linear(clients=20, features=3)
    federation = whole.hold_out_clients(0.25, seed=1)
    assert federation.new.clients == 5
    assert sorted([*federation.ids, *federation.new.ids]) == sorted(whole.ids)
    for part in (federation, federation.new):
        for i, name in enumerate(part.ids):
            before = whole.index_of(name)
            assert (part.test.client(i)[0] == whole.test.client(before)[0]).all()
            assert (part.truth["personal"][i] == whole.truth["personal"][before]).all()
    assert (federation.truth["center"] == whole.truth["center"]).all()
    assert (federation.ids == whole.hold_out_clients(0.25, seed=1).ids).all()


@pytest.mark.parametrize("share", [-0.1, 1.0, 0.001, 0.999])
def test_a_share_that_leaves_a_side_without_clients_is_refused(share):
    with pytest.raises(UserError, match="held out"):
        linear(clients=5).hold_out_clients(share)


def test_an_unknown_client_is_answered_with_the_nearest():
    federation = from_rows(np.zeros((2, 1)), np.zeros(2), [0, 1], ids=["oslo", "rome"])
    assert federation.index_of("rome") == 1
    with pytest.raises(UserError, match=r"no client 'rmoe' .*did you mean 'rome'\?"):
        federation.index_of("rmoe")


def test_an_unknown_client_among_very_many_is_answered_at_once():
    federation = many(clients=200_000, examples=1, features=1)
    began = time.process_time()
    with pytest.raises(UserError, match="did you mean '19999"):
        federation.index_of("19999x")
    with pytest.raises(UserError, match="there are 200000 clients, such as '0', '1', '2'"):
        federation.index_of("hospital")
    assert time.process_time() - began < 2


def test_the_summary_counts_what_is_there():
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    report = from_rows(np.zeros((8, 2, 2)), y, y, classes=("a", "b")).summary()
    assert report["clients"] == 2 and report["new_clients"] == 0
    assert report["examples"] == {"train": 4, "validation": 2, "test": 2}
    assert report["examples_per_client"] == {"min": 4, "median": 4.0, "max": 4}
    assert report["classes_per_client"] == {"min": 1, "median": 1.0, "max": 1}
    assert report["label_skew"] == 0.5  # half of the pooled mass is a class the client does not have
    assert report["feature_shape"] == [2, 2]
    assert json.loads(json.dumps(report)) == report


def test_label_skew_is_the_mean_total_variation_distance():
    rng = np.random.default_rng(0)
    y, client = rng.integers(0, 4, 300), np.sort(rng.permutation(np.arange(300) % 7))
    table = np.zeros((7, 4))
    np.add.at(table, (client, y), 1)
    expected = np.abs(table / table.sum(1, keepdims=True) - table.sum(0) / 300).sum(1).mean() / 2
    assert from_rows(y[:, None], y, client, classes="abcd").summary()["label_skew"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ids": np.array(["a", "a", "b"])}, "without repeats"),
        ({"ids": np.array(["a", "b"])}, "3 clients for 2 ids"),
        ({"task": "clasification"}, "did you mean 'classification'"),
        ({"truth": {"personal": np.zeros((2, 2))}}, "2 rows for 3 clients"),
        ({"test": Split(np.zeros((3, 5)), np.zeros((3, 2)), np.arange(4))}, "test split differs"),
    ],
)
def test_a_federation_that_contradicts_itself_is_refused(change, message):
    toy = quadratics()
    fields = {key: getattr(toy, key) for key in ("name", "ids", "train", "validation", "test", "task")}
    with pytest.raises(UserError, match=message):
        Federation(**(fields | change))


def test_labels_outside_the_classes_are_refused():
    with pytest.raises(UserError, match=r"must lie in 0\.\.1"):
        from_rows(np.zeros((3, 1)), [0, 1, 2], [0, 0, 0], classes=("a", "b"))


@pytest.mark.parametrize("offsets", [[0, 2, 1, 3], [1, 2, 3], [0, 1, 4], [0]])
def test_offsets_that_do_not_fit_are_refused(offsets):
    with pytest.raises(UserError):
        Split(np.zeros((3, 1)), np.zeros(3), np.array(offsets))


@pytest.fixture
def saved(tmp_path):
    federation = linear(clients=12, features=3).hold_out_clients(0.25)
    return federation, federation.save(tmp_path / "deep" / "toy")


def same(a, b):
    for part_a, part_b in zip(parts(a), parts(b), strict=True):
        for key in ("x", "y", "offsets"):
            assert (getattr(part_a, key) == getattr(part_b, key)).all()
            assert getattr(part_a, key).dtype == getattr(part_b, key).dtype
    assert (a.ids == b.ids).all() and a.truth.keys() == b.truth.keys()
    assert all((a.truth[key] == b.truth[key]).all() for key in a.truth)
    assert (a.name, a.task, a.classes, a.features) == (b.name, b.task, b.classes, b.features)


def test_save_and_load_are_inverse_and_the_examples_stay_on_disk(saved):
    federation, path = saved
    opened = Federation.load(path)
    same(federation, opened)
    same(federation.new, opened.new)
    assert isinstance(opened.train.x, np.memmap) and isinstance(opened.new.test.y, np.memmap)
    assert not opened.train.x.flags.writeable


def test_unicode_names_and_empty_splits_survive_the_disk(tmp_path):
    federation = from_rows(
        np.zeros((4, 1), np.uint8),
        [0, 1, 0, 1],
        [0, 0, 1, 1],
        ids=["Kraków", "東京"],
        classes=("né", "b"),
        shares=(1, 0, 0),
    )
    opened = Federation.load(federation.save(tmp_path / "toy"))
    same(federation, opened)
    assert opened.index_of("東京") == 1 and opened.test.rows == 0


def test_saving_never_overwrites_and_leaves_no_debris(saved):
    path = saved[1]
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    with pytest.raises(UserError, match="already exists"):
        quadratics().save(path)
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    assert [p.name for p in path.parent.iterdir()] == ["toy"]


def test_a_save_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UserError, match="the disk is full"):
        quadratics().save(tmp_path / "toy")
    assert list(tmp_path.iterdir()) == []


def rewrite(file, array):
    file.unlink()
    np.save(file, array)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("train.x.npy", lambda f: f.unlink(), "is missing"),
        ("new.ids.npy", lambda f: f.unlink(), "is missing"),
        ("federation.json", lambda f: f.unlink(), "is missing"),
        ("federation.json", lambda f: f.write_text("{"), "cannot be read"),
        ("federation.json", lambda f: f.write_text("[]"), "does not describe"),
        (
            "federation.json",
            lambda f: f.write_text(f.read_text().replace('"version": 1', '"version": 99')),
            "version 99",
        ),
        ("federation.json", lambda f: f.write_text(f.read_text().replace('"task"', '"tusk"')), "no valid 'task'"),
        ("train.x.npy", lambda f: f.write_bytes(f.read_bytes()[:-40]), "cannot be read"),
        ("train.y.npy", lambda f: f.write_bytes(b""), "cannot be read"),
        ("test.y.npy", lambda f: f.write_bytes(b"garbage" * 9), "cannot be read"),
        ("train.offsets.npy", lambda f: rewrite(f, np.array([0, 5, 3])), "never decrease"),
        ("train.offsets.npy", lambda f: rewrite(f, np.arange(10)), "offsets end at 9"),
        ("validation.y.npy", lambda f: rewrite(f, np.zeros(3)), "validation.offsets.npy"),
        ("ids.npy", lambda f: rewrite(f, np.array(["a"] * 9)), "without repeats"),
    ],
)
def test_a_damaged_folder_is_refused_with_the_name_of_the_file(saved, name, damage, message):
    path = saved[1]
    damage(path / name)
    with pytest.raises(UserError, match=message) as error:
        Federation.load(path)
    assert str(path) in str(error.value)
    if message not in ("without repeats", "validation.offsets.npy"):
        assert name in str(error.value)


def test_no_pickle_is_ever_loaded(saved):
    file = saved[1] / "train.y.npy"
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(UserError, match=r"train\.y\.npy cannot be read"):
        Federation.load(saved[1])


@pytest.mark.thorough
def test_a_million_clients_are_made_saved_opened_and_described_in_seconds(tmp_path):
    began = time.process_time()  # of this process, so that busy neighbours do not matter
    federation = many(clients=1_000_000, examples=10, features=4)
    path = federation.save(tmp_path / "many")
    opened = Federation.load(path)
    report = opened.summary()
    assert opened.index_of("999999") == 999_999
    assert report["clients"] == 1_000_000 and report["examples"]["train"] == 10_000_000
    assert time.process_time() - began < 25


def test_places_without_a_target_are_allowed_in_sequences_alone():
    y = np.array([[1, -1], [0, 1]])
    sequences = from_rows(np.abs(y), y, np.array([0, 1]), classes=("a", "b"), shares=(1, 0, 0))
    assert sequences.task == "next_character" and sequences.train.y.min() == -1
    with pytest.raises(UserError, match=r"must lie in -1\.\.1"):
        from_rows(np.abs(y), 2 * y, np.array([0, 1]), classes=("a", "b"), shares=(1, 0, 0))
    with pytest.raises(UserError, match=r"must lie in 0\.\.1"):
        from_rows(np.abs(y), y[:, 1], np.array([0, 1]), classes=("a", "b"), shares=(1, 0, 0))
