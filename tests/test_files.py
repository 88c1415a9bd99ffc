"""What is written is read back the same, whole or not at all."""

import json
import math
import os
import tomllib

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiece import files
from apiece.errors import UserError


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.json"
    files.write_json(path, {"version": 1})
    with pytest.raises(RuntimeError, match="power cut"), files.replace_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("power cut")
    assert files.read_json(path) == {"version": 1}
    assert os.listdir(tmp_path) == ["a.json"]
    assert path.stat().st_mode & 0o777 == 0o644


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@given(json_like)
def test_whatever_is_written_as_json_is_json_without_nan(value):
    text = json.dumps(files.as_plain(value), allow_nan=False)
    assert json.loads(text) == files.as_plain(value)


def test_trees_survive_being_written(tmp_path):
    state = ({"w": np.arange(6.0).reshape(2, 3)}, (), [np.int32(3), {"a/b": np.ones(1, np.uint8)}])
    files.write_arrays(tmp_path / "a", files.arrays_by_path("server", state), {"round": 7})
    arrays, about = files.read_arrays(tmp_path / "a")
    again = files.rebuild_tree("server", state, arrays)
    assert about == {"round": 7} and jax.tree.structure(again) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(state), strict=True):
        assert np.array_equal(a, b) and a.dtype == np.asarray(b).dtype


def test_a_folder_is_there_whole_or_not_at_all(tmp_path):
    with pytest.raises(RuntimeError, match="power cut"), files.fill_folder(tmp_path / "a" / "b") as temporary:
        (temporary / "half.txt").write_text("half")
        raise RuntimeError("power cut")
    assert os.listdir(tmp_path / "a") == []
    (tmp_path / "taken").write_text("a thesis")
    with pytest.raises(UserError, match="already exists"), files.fill_folder(tmp_path / "taken"):
        pass
    assert (tmp_path / "taken").read_text() == "a thesis"


# TOML.

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)  # all of Unicode but half characters
scalars = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words
values = st.recursive(
    scalars | st.lists(scalars, max_size=4),
    lambda inner: st.dictionaries(words, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(words, values, max_size=5))
def test_toml_there_and_back_is_the_same(table):
    assert tomllib.loads(files.as_toml(table)) == table


@pytest.mark.parametrize(
    "text", ["", "a b", 'say "so"', "back\\slash", "two\nlines", "\r\n", "\t", "\x00", "\x7f", "é", "𝛼", "\U000e0001"]
)
def test_odd_texts_survive_as_keys_and_as_values(text, tmp_path):
    files.write_toml(tmp_path / "a.toml", {"t": {text: text}})
    assert files.read_toml(tmp_path / "a.toml") == {"t": {text: text}}


@pytest.mark.parametrize("number", [1e-07, 1e16, 1e300, 5e-324, 0.1, -0.0, math.inf, -math.inf, 2**63 - 1, True])
def test_numbers_keep_their_value_and_kind(number):
    again = tomllib.loads(files.as_toml({"a": number}))["a"]
    assert again == number and type(again) is type(number) and math.copysign(1, again) == math.copysign(1, number)


@pytest.mark.parametrize("table", [{}, {"a": {}}, {"a": {"b": {}}, "c": 1}, {"a": [{}, {"b": [[], [1]]}]}])
def test_empty_and_nested_tables_survive(table):
    assert tomllib.loads(files.as_toml(table)) == table


def test_nothing_is_written_for_none_and_everything_for_nan():
    assert files.as_toml({"a": None, "b": 1}).split() == ["b", "=", "1"]
    assert tomllib.loads(files.as_toml({"a": [{"b": None, "c": 1}]})) == {"a": [{"c": 1}]}
    assert math.isnan(tomllib.loads(files.as_toml({"a": math.nan}))["a"])


def test_what_toml_cannot_hold_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(UserError, match=r"a\.toml cannot be written as TOML: .*give plain numbers"):
        files.write_toml(tmp_path / "a.toml", {"a": [object()]})
    assert os.listdir(tmp_path) == []
