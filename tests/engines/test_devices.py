"""Devices and the compile cache: what was chosen is kept, what cannot be is not missed."""

import os
from pathlib import Path

import jax
import pytest

from apiece.engines import devices
from apiece.engines.devices import remember_compiled, use_all_cores


def test_every_core_is_a_device_and_asking_again_changes_nothing():
    assert use_all_cores() == use_all_cores() == len(jax.devices())


def test_a_compile_cache_that_was_chosen_is_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    remember_compiled(tmp_path)
    assert jax.config.jax_compilation_cache_dir == before is not None


@pytest.fixture
def not_chosen(monkeypatch, tmp_path):
    """A process that has not chosen a folder: settings are read and written here instead of in JAX."""
    settings = {"jax_compilation_cache_dir": None, "jax_enable_compilation_cache": True}
    monkeypatch.setattr(devices, "_setting", settings.get)
    monkeypatch.setattr(devices.jax.config, "update", settings.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return settings


def test_compiled_programs_are_kept_where_the_user_keeps_caches(not_chosen, tmp_path):
    assert remember_compiled() == tmp_path / "caches" / "apiece" / "compiled"
    assert Path(not_chosen["jax_compilation_cache_dir"]).is_dir()


@pytest.mark.parametrize(("system", "folder"), [("darwin", "Library/Caches"), ("win32", "local"), ("linux", ".cache")])
def test_every_system_has_a_place_for_caches(monkeypatch, tmp_path, system, folder):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setattr(devices.sys, "platform", system)
    assert devices._user_caches() == tmp_path / folder


def test_a_folder_that_cannot_be_written_and_a_cache_that_is_off_are_no_errors(not_chosen, tmp_path):
    (tmp_path / "caches").write_text("a file where the folder should be")
    assert remember_compiled() is None and not_chosen["jax_compilation_cache_dir"] is None
    not_chosen["jax_enable_compilation_cache"] = False
    assert remember_compiled(tmp_path / "elsewhere") is None and not (tmp_path / "elsewhere").exists()


def test_a_full_cache_forgets_what_was_used_longest_ago(not_chosen, tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    remember_compiled(tmp_path, most_gb=250e-9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
