"""Using every core, which JAX needs to be told before it starts on a CPU; and keeping what it compiled."""

import contextlib
import os
import warnings
from pathlib import Path
from typing import Any

import jax

from apiece.machine import count_cores


def use_all_cores() -> int:
    """Make every core a JAX device and say how many devices there are.

    Works until JAX is first used in the process; afterwards, or if the number was already chosen (by
    `jax_num_cpu_devices` or XLA_FLAGS), it changes nothing. Engines call it themselves: call it first in a script
    that uses JAX before apiece.

    >>> use_all_cores() >= 1
    True
    """
    ask_for_all_cores()
    return len(jax.devices())


def ask_for_all_cores() -> None:
    """The same without starting JAX."""
    chosen = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "") or _setting("jax_num_cpu_devices") > 0
    if not chosen:
        with contextlib.suppress(RuntimeError):  # JAX has started: too late, and harmless
            jax.config.update("jax_num_cpu_devices", count_cores())


def remember_compiled(folder: str | Path | None = None) -> Path:
    """Keep compiled programs on disk, so that the next process that runs the same starts faster; where they are kept.

    Call it first in a script; the command line does. The folder is ~/.cache/apiece/compiled (or below
    XDG_CACHE_HOME), unless JAX was told another (JAX_COMPILATION_CACHE_DIR): then that one is used. It only grows, and
    may be deleted at any time. Programs that call PyTorch cannot be kept.

    >>> remember_compiled() == remember_compiled("elsewhere")  # the first choice stays
    True
    """
    if _setting("jax_compilation_cache_dir") is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(folder or cache / "apiece" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
        # Entries are not written atomically: one that a killed process left is told of, and compiled anew.
        warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
    return Path(_setting("jax_compilation_cache_dir"))


def _setting(name: str) -> Any:
    return getattr(jax.config, name)  # settings are attributes that a type checker cannot see
