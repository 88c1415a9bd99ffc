"""Devices and the compile cache: what was chosen is kept."""

import jax

from apiece.engines.devices import remember_compiled, use_all_cores


def test_every_core_is_a_device_and_asking_again_changes_nothing():
    assert use_all_cores() == use_all_cores() == len(jax.devices())


def test_a_compile_cache_that_was_chosen_is_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    remember_compiled(tmp_path)
    assert jax.config.jax_compilation_cache_dir == before is not None
