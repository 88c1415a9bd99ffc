"""Bad configs, rosters and data files: each a named error, nothing half written. No Flower is needed for these."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiece.deploy.config import SiteTable, read_server, read_site, read_sites
from apiece.deploy.roster import Entry, Roster, RosterFile, read_roster, write_roster
from apiece.deploy.rows import read_rows
from apiece.errors import UserError
from apiece.files import write_toml

SITE = {"name": "north", "data": "north.csv", "label": "sick"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds a table"),
        ("[[site]]\nname = 'a'\n", "'data': field required"),
        ("[[site]]\nname = 'a b'\ndata = 'x'\n", "is no name for a folder"),
        ("[[site]]\nname = 'a'\ndata = 'x'\nlabl = 'y'\n", "there is no key 'labl'; did you mean 'label'"),
        ("[[site]]\nname = 'a'\ndata = 'x'\nserver = 'host'\n", "'host' is no address"),
        ("[[site]]\nname = 'a'\ndata = 'x'\nserver = 'host:99999'\n", "is no address"),
        ("[[site]]\nname = 'a'\ndata = 'x'\n[[site]]\nname = 'A'\ndata = 'x'\n", "names the site 'a' twice"),
        ("[[site]]\nname = 'Server'\ndata = 'x'\n", "the name of the server's own folder"),
        ("site = 3", "holds a table"),
        ("[[site]\n", "cannot be read"),
    ],
)
def test_a_list_of_sites_says_what_is_wrong_in_it(tmp_path, text, why):
    (tmp_path / "sites.toml").write_text(text)
    with pytest.raises(UserError, match=why):
        read_sites(tmp_path / "sites.toml")


def test_sites_may_be_named_by_their_tables(tmp_path):
    (tmp_path / "sites.toml").write_text("[site.north]\ndata = 'a.csv'\n[site.south]\ndata = 'b.csv'\n")
    assert [site.name for site in read_sites(tmp_path / "sites.toml")] == ["north", "south"]


def test_a_roster_comes_back_as_it_was_written(tmp_path):
    roster = Roster((Entry("north", ("key 1", "key 2")), Entry("late", ("key 3",))), 1)
    write_roster(tmp_path / "roster.toml", roster)
    assert read_roster(tmp_path / "roster.toml") == roster and roster.keys() == {"key 1": 0, "key 2": 0, "key 3": 1}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "names no"),
        ({"site": [{"number": 0, "name": "a", "keys": ["k"]}, {"number": 0, "name": "b", "keys": ["l"]}]}, "twice"),
        ({"site": [{"number": 1, "name": "a", "keys": ["k"]}]}, "are 0 to 0"),
        ({"site": [{"number": 0, "name": "a", "keys": "k"}]}, "has number, name and keys"),
        ({"population": 3, "site": [{"number": 0, "name": "a", "keys": ["k"]}]}, "population is 3"),
        ({"site": [{"number": i, "name": str(i), "keys": ["k"]} for i in (0, 1)]}, "the same key"),
    ],
)
def test_a_roster_says_what_is_wrong_in_it(tmp_path, values, why):
    write_toml(tmp_path / "roster.toml", values)
    with pytest.raises(UserError, match=why):
        read_roster(tmp_path / "roster.toml")


def test_a_roster_is_read_again_when_its_file_changes_and_not_followed_when_it_cannot_be(tmp_path):
    file, told = tmp_path / "roster.toml", []
    north, late = Entry("north", ("key 1",)), Entry("late", ("key 2",))
    write_roster(file, Roster((north,), 1))
    roster = RosterFile(file, lambda key: key.upper(), lambda event, **about: told.append((event, about["why"])))
    assert roster.clients() == {b"KEY 1": 0}
    write_roster(file, Roster((north, late), 1))
    assert roster.now().names == ["north", "late"] and roster.clients() == {b"KEY 1": 0, b"KEY 2": 1}
    for text in ("[[site]\n", file.read_text().replace("population = 1", "population = 2")):
        file.write_text(text)
        assert roster.now().names == ["north", "late"] and roster.now().population == 1
    assert len(told) == 2 and "cannot be read" in told[0][1] and "who trains cannot change" in told[1][1]
    file.unlink()
    assert roster.clients() == {b"KEY 1": 0, b"KEY 2": 1}


VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
TABLES = st.dictionaries(
    st.sampled_from(["run", "number", "name", "data", "label", "server", "seed", "exclude", "address", "least", "x"])
    | st.text(min_size=1, max_size=6),
    VALUES | st.lists(VALUES, max_size=3),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(values=TABLES)
def test_any_config_is_read_or_a_named_error(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("config")
    plain = {key: value for key, value in values.items() if value is not None}
    try:
        write_toml(folder / "site.toml", plain)
    except (UserError, OverflowError, TypeError, UnicodeEncodeError):
        return
    (folder / "server.toml").write_bytes((folder / "site.toml").read_bytes())
    for read in (read_site, read_server):
        try:
            read(folder)
        except UserError as error:
            assert str(folder) in str(error)


CELLS = st.sampled_from(["", "1", "2.5", "-3e400", "nan", "inf", "word", "\x00", "ä", "1,5", '"', "yes", "no", "  "])


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=12),
    header=st.sampled_from(["age,sick", "sick", "age,age,sick", "", "age,town,sick", "sick,sick"]),
)
def test_any_table_is_read_or_a_named_error(tmp_path_factory, rows, header):
    folder = tmp_path_factory.mktemp("table")
    text = "\n".join([header, *(",".join(row) for row in rows)])
    (folder / "north.csv").write_bytes(text.encode())
    try:
        found = read_rows(SiteTable(**SITE), folder)
        found.survey()
        assert (found.part == 0).any()
    except UserError as error:
        assert str(error)
    assert sorted(path.name for path in folder.iterdir()) == ["north.csv"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"data": "none.csv"}, "there are no data at"),
        ({"label": "sik"}, "has no column 'sik'"),
        ({"client": "ward"}, "no row has 'north' in the column 'ward'"),
        ({"split": "age"}, "is none of train, validation"),
        ({"exclude": ["agee"]}, "has no column 'agee'"),
    ],
)
def test_a_site_whose_data_do_not_fit_its_config_is_told(tmp_path, more, why):
    lines = [f"{20 + k},east,{'yes' if k % 2 else 'no'}" for k in range(9)]
    (tmp_path / "north.csv").write_text("\n".join(["age,ward,sick", *lines]))
    with pytest.raises(UserError, match=why):
        read_rows(SiteTable(**{**SITE, **more}), tmp_path)


def test_of_a_file_for_all_sites_each_takes_its_own_rows(tmp_path):
    rows = [f"{k},{'north' if k % 3 else 'south'},{k % 2}" for k in range(30)]
    (tmp_path / "all.csv").write_text("\n".join(["age,ward,sick", *rows]))
    found = read_rows(SiteTable(name="south", data="all.csv", label="sick", client="ward"), tmp_path)
    assert np.sort(found.columns["age"].values).tolist() == list(range(0, 30, 3))
    assert set(found.columns) == {"age"}
