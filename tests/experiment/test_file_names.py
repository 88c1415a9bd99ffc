"""What a method's files are called: safe on every platform, and no two methods share one."""

import re

import pytest
from experiment_runs import SMALL, run
from hypothesis import given
from hypothesis import strategies as st

from apiece.experiment import RunFolder, resume
from apiece.experiment.folder import name_file

PLAIN = ["local", "fed_avg", "ditto-weak", "fed_prox2", "_own"]
OWN = [
    "my.mine:mix",
    "my.mine_mix",
    "my/mine:mix",
    "My.mine:mix",
    "Ditto",
    "DITTO",
    ".x",
    "..",
    "a/../b",
    "-rf",
    "é",
    "",
]


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_name_stays_as_it_is(name):
    assert name_file(name) == name


@given(st.text(max_size=300) | st.sampled_from(OWN))
def test_no_name_is_unsafe_hidden_or_too_long_for_a_file(name):
    assert re.fullmatch("[a-z0-9_~][a-z0-9_.~-]*", name_file(name)) and len(name_file(name)) < 150


def test_no_two_names_share_a_file_even_where_capitals_do_not_count():
    names = [*PLAIN, *OWN, "a" * 200, "a" * 201]
    names += [name_file(name) for name in names if name_file(name) != name]  # a name that looks like another's file
    assert len({name_file(name).lower() for name in names}) == len(names)


def test_a_row_with_any_name_is_run_and_read_again(tmp_path):
    name = "Alone: a/b?"
    plan = {**SMALL, "methods": {name: {"method": "local", "steps": 1}}, "seeds": [0], "baselines": False, "tune": 1}
    run({**plan, "train": {"rounds": 1}}, tmp_path / "run")
    names = [file.name for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert not [name for name in names if re.search(r'[<>:"\\|?*]', name)]
    found = resume(tmp_path / "run")
    assert list(found.record.methods) == [name] and RunFolder(tmp_path / "run").models(name, 0).exists()
    client = str(found.place.ids[0])
    assert found.personal(name, client)["w"].shape == (10, 64)
