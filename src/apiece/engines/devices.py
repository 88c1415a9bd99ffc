"""Using every core: on a CPU, JAX needs to be told before it starts."""

import contextlib
import os
from pathlib import Path
from typing import Any

import jax


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
            jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def remember_compiled(folder: Path | None = None) -> None:
    """Keep compiled programs on disk, so that the next process starts faster."""
    if _setting("jax_compilation_cache_dir") is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(folder or cache / "apiece" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _setting(name: str) -> Any:
    return getattr(jax.config, name)  # settings are attributes that a type checker cannot see
