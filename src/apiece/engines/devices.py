"""Using every core, which JAX needs to be told before it starts on a CPU; and keeping what it compiled."""

import contextlib
import os
import sys
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


def remember_compiled(folder: str | Path | None = None, most_gb: float = 1.0) -> Path | None:
    """Keep compiled programs on disk, so that the next process that runs the same starts faster; where they are kept.

    Call it first in a script; the command line does. The folder is `apiece/compiled` where this system keeps caches
    (~/.cache, ~/Library/Caches, LOCALAPPDATA, or XDG_CACHE_HOME), unless JAX was told another
    (JAX_COMPILATION_CACHE_DIR): then that one is used as it is. Ours is held to `most_gb` by forgetting what was used
    longest ago, and may be deleted at any time. JAX_ENABLE_COMPILATION_CACHE=false keeps nothing, and so does a folder
    that cannot be written to: None. Programs that call PyTorch cannot be kept.

    >>> remember_compiled() == remember_compiled("elsewhere")  # the first choice stays
    True
    """
    if not _setting("jax_enable_compilation_cache"):
        return None
    if _setting("jax_compilation_cache_dir") is None:
        chosen = Path(folder or _user_caches() / "apiece" / "compiled")
        try:
            chosen.mkdir(parents=True, exist_ok=True)
            _forget_oldest(chosen, int(most_gb * 1e9))
        except OSError:  # it is a file, or not ours; a slow start is better than none
            return None
        if not os.access(chosen, os.W_OK):
            return None
        jax.config.update("jax_compilation_cache_dir", str(chosen))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
        # Entries are not written atomically: one that a killed process left is told of, and compiled anew.
        warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
    return Path(_setting("jax_compilation_cache_dir"))


def _user_caches() -> Path:
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local)
    return Path.home() / ".cache"


def _forget_oldest(folder: Path, most: int) -> None:
    """Hold the files of a folder to so many bytes. JAX could do it at every entry, with one more package installed."""
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process forgets, too
            about = path.stat()
            entries.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= most:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _setting(name: str) -> Any:
    return getattr(jax.config, name)  # settings are attributes that a type checker cannot see
